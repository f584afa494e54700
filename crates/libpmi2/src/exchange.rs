//! The collectives: started now, finished when somebody waits for them.
//!
//! How they are made is up to the server. Our own takes any number at once (`numbered`); with others they are built from
//! put, fence and get (`emulated`). A process without a server is a job of one: everything is over at once.

use crate::arena::Values;
use crate::requests::{Id, Outstanding, Stage};
use crate::state::{Job, With};
use alloc::vec::Vec;
use wireup_capi::codes::{Code, Result};
use wireup_wire::limits::ALLGATHER_LEN_MAX;
use wireup_wire::shared::rows::Rows;

/// Longest value of an allgather.
pub const MAX_LEN: usize = ALLGATHER_LEN_MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Fence,
    Allgather {
        /// The same on all ranks: every rank starts the same allgathers in the same order.
        generation: usize,
        max_len: usize,
        /// The result is wanted as rows that lie in memory.
        shared: bool,
    },
}

/// How hard to try to finish.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// Only send what can be sent.
    Start,
    /// Also look whether this request is over.
    Test(Id),
    /// Also wait until this request is over.
    Wait(Id),
}

/// What an allgather has brought.
pub enum Gathered {
    /// One array of all values.
    Array(Values),
    /// The own value; the others are to be got from the server.
    Pairs { generation: usize, own: Vec<u8> },
}

impl Job {
    /// Starts a collective; makes no round trip.
    pub fn start(&mut self, kind: Kind, value: &[u8]) -> Result<Id> {
        if self.is_numbered() {
            return self.start_numbered(kind, value);
        }
        let id = self.requests.push(kind, value.to_vec());
        self.advance(Push::Start);
        Ok(id)
    }

    pub fn start_allgather(&mut self, value: &[u8], max_len: usize, shared: bool) -> Result<Id> {
        self.generation += 1;
        self.start(Kind::Allgather { generation: self.generation, max_len, shared }, value)
    }

    /// Waits until a fence is complete; the request is forgotten.
    pub fn finish(&mut self, id: Id) -> Result {
        self.end(id).map(drop)
    }

    /// Waits until an allgather is complete; the request is forgotten also where this fails.
    pub fn collect(&mut self, id: Id) -> Result<Gathered> {
        let Outstanding { kind, value, stage, .. } = self.end(id)?;
        match (kind, stage) {
            (Kind::Allgather { .. }, Stage::Over(Ok(Some(array)))) => Ok(Gathered::Array(array)),
            // There was no room for it.
            (Kind::Allgather { .. }, _) if self.is_numbered() => Err(Code::NOMEM),
            (Kind::Allgather { generation, .. }, _) => Ok(Gathered::Pairs { generation, own: value }),
            (Kind::Fence, _) => Err(Code::INVALID_ARG),
        }
    }

    /// Waits until nothing is outstanding.
    pub fn finish_all(&mut self) {
        self.advance(Push::Wait(Id::MAX));
    }

    /// Whether a request's end would not have to be waited for.
    pub fn is_over(&mut self, id: Id) -> Result<bool> {
        self.requests.get(id)?;
        self.advance(Push::Test(id));
        Ok(matches!(self.requests.get(id)?.stage, Stage::Over(_)))
    }

    fn end(&mut self, id: Id) -> Result<Outstanding> {
        self.requests.get(id)?;
        self.advance(Push::Wait(id));
        let outstanding = self.requests.remove(id)?;
        match outstanding.stage {
            Stage::Over(Ok(_)) => Ok(outstanding),
            Stage::Over(Err(failure)) => Err(failure.into()),
            Stage::Queued | Stage::UnderWay => Err(Code::FAIL),
        }
    }

    fn advance(&mut self, push: Push) {
        match &self.with {
            With::Server(_) if self.is_numbered() => self.advance_numbered(push),
            With::Server(_) => self.advance_emulated(push),
            With::Nobody(_) => {
                while let Some(first) = self.requests.first() {
                    first.stage = Stage::Over(Ok(None));
                }
            }
        }
    }

    /// Hands the values of `ranks` to `row`, in any order.
    pub fn values(&mut self, gathered: &Gathered, ranks: &[u32], row: &mut dyn FnMut(u32, &[u8]) -> Result) -> Result {
        match gathered {
            Gathered::Pairs { generation, own } => self.get_values(*generation, own, ranks, row),
            Gathered::Array(array) => {
                let array = Rows::read(array).map_err(|_| Code::FAIL)?;
                for (rank, value) in array.values().enumerate() {
                    let value = value.map_err(|_| Code::FAIL)?;
                    if ranks.contains(&(rank as u32)) {
                        // A row has padding; a C string has no zeros.
                        row(rank as u32, value.split(|byte| *byte == 0).next().unwrap_or_default())?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Writes all values as rows of `max_len` bytes, filled up with zeros.
    pub fn fill(&mut self, gathered: &Gathered, max_len: usize, rows: &mut [u8]) -> Result {
        if let Gathered::Array(array) = gathered {
            let array = Rows::read(array).map_err(|_| Code::FAIL)?;
            // Only where ranks do not agree on the maximum length can one be longer.
            let wrong = if array.stride() > max_len { Code::INVALID_VAL_LENGTH } else { Code::FAIL };
            return array.fill(rows, max_len).map_err(|_| wrong);
        }
        rows.fill(0);
        let ranks: Vec<u32> = (0..self.size).collect();
        self.values(gathered, &ranks, &mut |rank, value| {
            let row = &mut rows[rank as usize * max_len..][..max_len];
            row.get_mut(..value.len()).ok_or(Code::INVALID_VAL_LENGTH)?.copy_from_slice(value);
            Ok(())
        })
    }
}
