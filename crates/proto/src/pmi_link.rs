//! The server's half of one rank's PMI conversation: requests in, replies out.
//!
//! This file holds the conversation; `turn` answers one request of it. What concerns others than the asking rank is an [`Effect`],
//! which the job applies. Replies are written into one buffer per input, so that a batch of requests is answered by one write.

mod collectives;
mod groups;
mod segments;
mod turn;
mod walk;

pub use collectives::{Ticket, Told};

use crate::exchange::Entry;
use crate::kvs::Kvs;
use crate::memory::{Memory, Shared};
use crate::node_attrs::{NodeAttrs, Parked};
use crate::pmi_state::{Event, State};
use collectives::WaitingGet;
use turn::{Next, Turn};
use wireup_wire::group::Group;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::job::PmiVersion;
use wireup_wire::pmi::{Command, Dialect, PmiError, Reply, RequestReader, encode_reply};

/// What every client of the job on this node is told.
pub struct Facts<'a> {
    pub nspace: &'a str,
    pub job_size: u32,
    /// `PMI_process_mapping`, if it fits a value.
    pub process_mapping: Option<&'a [u8]>,
    /// Fences of text clients are answered at once where they may be.
    pub lazy_fence: bool,
    /// Which PMI-1 is spoken.
    pub pmi_version: PmiVersion,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    pub local: LocalRank,
    pub rank: Rank,
    pub appnum: u16,
}

/// The tables that a request may read or change.
pub struct Tables<'a> {
    pub kvs: &'a mut Kvs,
    pub attrs: &'a mut NodeAttrs,
    /// Makes what the rank reads itself.
    pub memory: &'a mut dyn Memory,
    /// Of such memory: goes to the rank along with the replies.
    pub shares: Vec<Shared>,
}

/// What a request means for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    Initialised,
    /// The rank starts its next collective.
    Enter {
        entry: Entry,
        ticket: Ticket,
    },
    /// The rank enters the barrier of a group.
    EnterGroup(Group),
    /// The rank has done with what lies there in the arena.
    Freed {
        place: u32,
    },
    Finalized,
    Abort {
        code: i32,
        message: String,
    },
    /// Gets of other ranks that a put has answered, with the value.
    Woken {
        parked: Vec<Parked>,
        value: Vec<u8>,
    },
    /// The pairs of the fences cannot be read here: the job is over.
    Unreadable {
        problem: String,
    },
}

pub struct PmiLink {
    reader: RequestReader,
    state: State,
    dialect: Dialect,
    /// Of PMI-1.
    subversion: u32,
    /// Barriers of groups that the rank waits in.
    groups: usize,
    /// Our own client's collectives that are under way.
    outstanding: u32,
    /// The number of the arena that it knows; 0: none.
    arena: u32,
    /// Something was put since the last fence.
    has_put: bool,
    /// Fences that were answered and are not complete.
    lazy: u32,
    /// Holds up what comes behind it.
    waiting_get: Option<WaitingGet>,
}

impl Default for PmiLink {
    fn default() -> Self {
        PmiLink {
            reader: RequestReader::new(),
            state: State::Fresh,
            dialect: Dialect::Pmi1,
            subversion: 0,
            groups: 0,
            outstanding: 0,
            arena: 0,
            has_put: false,
            lazy: 0,
            waiting_get: None,
        }
    }
}

impl PmiLink {
    pub fn state(&self) -> State {
        self.state
    }

    /// Bytes of the rank. `reply` grows by the answers, `effects` by what others must know.
    ///
    /// # Errors
    /// The link is beyond repair: its framing is broken.
    pub fn on_bytes(
        &mut self,
        bytes: &[u8],
        who: Who,
        facts: &Facts<'_>,
        tables: &mut Tables<'_>,
        reply: &mut Vec<u8>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), PmiError> {
        self.reader.push(bytes)?;
        self.go_on(who, facts, tables, reply, effects)
    }

    /// Answers the get that has waited for the rank's lazy fences, and what came behind it.
    ///
    /// # Errors
    /// As [`PmiLink::on_bytes`].
    pub fn go_on(
        &mut self,
        who: Who,
        facts: &Facts<'_>,
        tables: &mut Tables<'_>,
        reply: &mut Vec<u8>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), PmiError> {
        loop {
            if self.waiting_get.is_some() && self.lazy > 0 {
                return Ok(());
            }
            let Self { reader, state, outstanding, has_put, lazy, waiting_get, dialect, subversion, groups, arena: _ } =
                &mut *self;
            let mut turn = Turn {
                state,
                outstanding,
                has_put,
                lazy,
                waiting_get,
                groups,
                dialect: *dialect,
                subversion: *subversion,
                who,
                facts,
                tables: &mut *tables,
                reply: &mut *reply,
                effects: &mut *effects,
            };
            turn.answer_waiting();
            let Some(envelope) = reader.next()? else {
                return Ok(());
            };
            match turn.on_request(&envelope) {
                Next::Go => {}
                Next::Wait => return Ok(()),
                Next::Agreed(spoken) => *subversion = spoken,
                Next::SwitchToPmi2 => {
                    *dialect = Dialect::Pmi2;
                    reader.switch_to_pmi2();
                }
            }
        }
    }

    /// Answers a get that was parked.
    pub fn wake(&self, parked: &Parked, value: &[u8], reply: &mut Vec<u8>) {
        encode_reply(self.dialect, Command::GetNodeAttr, parked.thread.as_deref(), &Reply::Value(value), reply);
    }

    /// The socket is closed. Returns the state before.
    pub fn close(&mut self) -> State {
        let before = self.state;
        self.state = before.next(Event::Close).unwrap_or(State::Closed);
        self.reader = RequestReader::new();
        before
    }
}

#[cfg(test)]
mod tests;
