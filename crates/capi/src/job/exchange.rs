//! The engine's collectives, driven over the socket: started without a round trip, completed when the caller waits.

use super::{Job, Values};
use crate::codes::{Code, Result};
use crate::job_slot::With;
use crate::server::Failure;
use alloc::vec::Vec;
use wireup_client::emulated::Gather;
use wireup_client::requests::{CollectiveKind, Id, Outstanding, Stage};
use wireup_wire::limits::ALLGATHER_LEN_MAX;
use wireup_wire::shared::rows::Rows;

/// The longest value of an allgather.
pub const MAX_LEN: usize = ALLGATHER_LEN_MAX;

/// The result of an allgather.
pub enum Gathered {
    /// The answer of wireup's own server: the values of all ranks, in shared memory.
    Array(Values),
    /// The answer of another server, where the values are key-value pairs: this rank's own value, and the number of the
    /// allgather, by which the values of other ranks are fetched from the server.
    Pairs { generation: usize, own: Vec<u8> },
}

impl Job {
    /// Starts a fence, without a round trip.
    pub fn start_fence(&mut self) -> Id {
        let id = self.collectives.start_fence(self.with.server().ok().map(|server| &mut server.link));
        self.flush();
        id
    }

    /// Starts an allgather; needs no round trip, except for a long value with a server that is not ours.
    pub fn start_allgather(&mut self, value: &[u8], max_len: usize, shared: bool) -> Id {
        let link = self.with.server().ok().map(|server| &mut server.link);
        let id = self.collectives.start_allgather(link, value, max_len, shared);
        self.flush();
        // The other ranks may wait for this value before this rank calls again.
        self.advance(true, &|job| !job.collectives.is_putting());
        id
    }

    /// Sends the collected requests. If the server is gone, the caller learns it when it waits.
    fn flush(&mut self) {
        if let With::Server(server) = &mut self.with
            && server.flush().is_err()
        {
            self.collectives.requests.break_all();
        }
    }

    /// Waits until a fence is complete, and removes the request.
    pub fn finish(&mut self, id: Id) -> Result {
        self.end(id).map(drop)
    }

    /// Waits until an allgather is complete, and removes the request, even if it failed.
    pub fn collect(&mut self, id: Id) -> Result<Gathered> {
        let Outstanding { kind, value, stage, .. } = self.end(id)?;
        match (kind, stage) {
            (CollectiveKind::Allgather { .. }, Stage::Over(Ok(Some(array)))) => Ok(Gathered::Array(array)),
            // The array came from our own server, but could not be mapped.
            (CollectiveKind::Allgather { .. }, _) if self.collectives.own.is_some() => Err(Code::NOMEM),
            (CollectiveKind::Allgather { generation, .. }, _) => Ok(Gathered::Pairs { generation, own: value }),
            (CollectiveKind::Fence, _) => Err(Code::INVALID_ARG),
        }
    }

    /// Takes the answers that have arrived; `false`: the server is gone.
    pub fn take_answers(&mut self) -> bool {
        self.advance(false, &|_| false);
        self.with.server().is_ok_and(|server| !server.link.is_broken())
    }

    /// Waits until no collective is outstanding.
    pub fn finish_all(&mut self) {
        self.advance(true, &|job| job.collectives.are_over());
    }

    /// Whether the request could be finished without waiting.
    pub fn is_over(&mut self, id: Id) -> Result<bool> {
        self.collectives.is_over(id).ok_or(Code::INVALID_ARG)?;
        self.advance(false, &|job| job.collectives.is_over(id) != Some(false));
        Ok(self.collectives.is_over(id) == Some(true))
    }

    fn end(&mut self, id: Id) -> Result<Outstanding<crate::mapping::Shared>> {
        self.advance(true, &|job| job.collectives.is_over(id) != Some(false));
        let outstanding = self.collectives.requests.remove(id).ok_or(Code::INVALID_ARG)?;
        match outstanding.stage {
            Stage::Over(Ok(_)) => Ok(outstanding),
            Stage::Over(Err(failure)) => Err(failure.into()),
            Stage::Queued | Stage::Putting(_) | Stage::UnderWay => Err(Code::FAIL),
        }
    }

    /// Processes answers, and sends the requests that become possible, until `is_enough`. Waits only if `wait`.
    fn advance(&mut self, wait: bool, is_enough: &dyn Fn(&mut Job) -> bool) {
        loop {
            if let With::Server(server) = &mut self.with {
                self.collectives.advance(&mut server.link);
            }
            self.flush();
            if is_enough(self) {
                return;
            }
            match self.with.server().map(|server| server.advance(wait)) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) | Err(_) => return,
                // The connection is closed: no further answer will come.
                Ok(Err(_)) => return self.collectives.requests.break_all(),
            }
        }
    }

    /// Passes the values of `ranks` to `row`, in any order.
    pub fn values(&mut self, gathered: &Gathered, ranks: &[u32], row: &mut dyn FnMut(u32, &[u8]) -> Result) -> Result {
        match gathered {
            Gathered::Pairs { generation, own } => self.get_values(*generation, own, ranks, row),
            Gathered::Array(array) => {
                let array = Rows::read(array).map_err(|_| Code::FAIL)?;
                for (rank, value) in array.values().enumerate() {
                    let value = value.map_err(|_| Code::FAIL)?;
                    if ranks.contains(&(rank as u32)) {
                        // A row is padded with zeros, and a C string contains none.
                        row(rank as u32, value.split(|byte| *byte == 0).next().unwrap_or_default())?;
                    }
                }
                Ok(())
            }
        }
    }

    fn get_values(
        &mut self,
        generation: usize,
        own: &[u8],
        ranks: &[u32],
        row: &mut dyn FnMut(u32, &[u8]) -> Result,
    ) -> Result {
        let mut others = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            if rank == self.rank { row(rank, own)? } else { others.push(rank) }
        }
        if others.is_empty() {
            return Ok(());
        }
        let mut gather = Gather::new(generation, &others, self.server_is_known);
        let server = self.server()?;
        while gather.ask(&mut server.link)? {
            server.settle(&mut |answer| gather.on_answer(answer))?;
            while let Some(value) = gather.take() {
                let (rank, value) = value.map_err(|_: Failure| Code::OTHER)?;
                row(rank, &value)?;
            }
        }
        Ok(())
    }

    /// Writes all values as rows of `max_len` bytes, padded with zeros.
    pub fn fill(&mut self, gathered: &Gathered, max_len: usize, rows: &mut [u8]) -> Result {
        if let Gathered::Array(array) = gathered {
            let array = Rows::read(array).map_err(|_| Code::FAIL)?;
            // A value can be longer only if ranks passed different maximum lengths.
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
