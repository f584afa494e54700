//! The server's half of one rank's PMI conversation: requests in, replies out.
//!
//! `requests` answers a single request. Whatever concerns others than the requesting rank is an
//! [`Effect`](super::turn::Effect), which the job applies. Replies are written into one buffer per input, so that a
//! batch of requests is answered by one write.

use super::node_attrs::Parked;
use super::own_groups::OwnGroups;
use super::state::{Event, State};
use super::turn::{Effect, Facts, Next, Requester, Tables, Turn, WaitingGet, WaitingName};
use wireup_wire::pmi::{Command, Dialect, PmiError, Reply, RequestReader, encode_reply};

pub struct PmiLink {
    /// Whether the conversation is that of a secondary client, to which requests about the whole rank are refused.
    is_further: bool,
    reader: RequestReader,
    pub(super) state: State,
    pub(super) dialect: Dialect,
    /// Subversion of PMI-1 that was agreed on.
    pub(super) subversion: u32,
    /// Number of group barriers in which the rank waits.
    pub(super) groups: usize,
    /// Number of our own client's collectives in progress.
    pub(super) outstanding: u32,
    /// Number of the arena that the rank uses; 0: none.
    pub(super) arena: u32,
    /// Whether something was put since the last fence.
    has_put: bool,
    /// Number of fences that were answered and are not complete.
    pub(super) lazy: u32,
    /// A get that delays the requests after it.
    pub(super) waiting_get: Option<WaitingGet>,
    /// A request about a name that delays the requests after it.
    pub(super) waiting_name: Option<WaitingName>,
    pub(super) own_groups: OwnGroups,
    /// Number of requests for addresses that are not answered.
    pub(super) questions: u32,
}

impl Default for PmiLink {
    fn default() -> Self {
        PmiLink {
            is_further: false,
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
            waiting_name: None,
            own_groups: OwnGroups::default(),
            questions: 0,
        }
    }
}

impl PmiLink {
    pub fn further() -> Self {
        PmiLink { is_further: true, ..PmiLink::default() }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Handles bytes from the rank. Appends answers to `reply` and consequences for others to `effects`.
    ///
    /// # Errors
    /// The framing is invalid: the link cannot recover.
    pub fn on_bytes(
        &mut self,
        bytes: &[u8],
        who: Requester,
        facts: &Facts<'_>,
        tables: &mut Tables<'_>,
        reply: &mut Vec<u8>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), PmiError> {
        self.reader.push(bytes)?;
        self.go_on(who, facts, tables, reply, effects)
    }

    /// Answers the get that waited for the rank's lazy fences, and the requests after it.
    ///
    /// # Errors
    /// As for [`PmiLink::on_bytes`].
    pub fn go_on(
        &mut self,
        who: Requester,
        facts: &Facts<'_>,
        tables: &mut Tables<'_>,
        reply: &mut Vec<u8>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), PmiError> {
        loop {
            if self.waiting_name.is_some() || (self.waiting_get.is_some() && self.lazy > 0) {
                return Ok(());
            }
            let Self {
                is_further,
                reader,
                state,
                outstanding,
                has_put,
                lazy,
                waiting_get,
                waiting_name,
                dialect,
                subversion,
                groups,
                own_groups,
                questions,
                arena: _,
            } = &mut *self;
            let mut turn = Turn {
                is_further: *is_further,
                state,
                outstanding,
                has_put,
                lazy,
                waiting_get,
                waiting_name,
                groups,
                own_groups,
                questions,
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

    /// Answers a parked get.
    pub fn wake(&self, parked: &Parked, value: &[u8], reply: &mut Vec<u8>) {
        encode_reply(self.dialect, Command::GetNodeAttr, parked.thread.as_deref(), &Reply::Value(value), reply);
    }

    /// The socket is closed. Returns the previous state.
    pub fn close(&mut self) -> State {
        let before = self.state;
        self.state = before.next(Event::Close).unwrap_or(State::Closed);
        self.reader = RequestReader::new();
        before
    }
}

#[cfg(test)]
mod tests;
