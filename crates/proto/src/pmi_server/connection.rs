//! The server's half of one rank's PMI conversation: requests in, replies out.
//!
//! `requests` answers a single request. What a request needs of other parts of the job is an [`Asked`], which ends the
//! reading until the job has acted on it. Replies are collected in [`Tables`].

use super::own_groups::OwnGroups;
use super::state::{Event, State};
use super::tables::{Asked, Tables};
use crate::job::cx::Cx;
use wireup_wire::ids::{Client, Rank};
use wireup_wire::pmi::{Command, Dialect, PmiError, RequestReader};

/// A conversation, and the bytes that were received and not handled yet.
pub struct Line {
    reader: RequestReader,
    pub link: PmiLink,
}

pub struct PmiLink {
    pub(super) client: Client,
    pub(super) rank: Rank,
    pub(super) appnum: u16,
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
    pub(super) has_put: bool,
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

/// A get that waits until the rank's lazy fences are complete.
pub enum WaitingGet {
    Key {
        key: Vec<u8>,
        thread: Option<Vec<u8>>,
    },
    /// A step of the iteration over all pairs.
    Number(u32),
}

/// A request about a name or for processes that the root has not answered.
pub struct WaitingName {
    pub command: Command,
    pub thread: Option<Vec<u8>>,
}

impl Line {
    /// The conversation of a rank, or of a secondary client in its process.
    pub fn new(client: Client, rank: Rank, appnum: u16) -> Line {
        let link = PmiLink {
            client,
            rank,
            appnum,
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
        };
        Line { reader: RequestReader::new(), link }
    }

    /// Takes bytes from the rank, and handles requests until one needs something of another part, or all have been
    /// handled, or the next ones must wait.
    ///
    /// # Errors
    /// The framing is invalid: the link cannot recover.
    pub fn on_bytes(&mut self, cx: &mut Cx<'_>, tables: &mut Tables, bytes: &[u8]) -> Result<Option<Asked>, PmiError> {
        let Line { reader, link } = self;
        if !bytes.is_empty() {
            reader.push(bytes)?;
        }
        loop {
            if link.waiting_name.is_some() || (link.waiting_get.is_some() && link.lazy > 0) {
                return Ok(None);
            }
            link.answer_waiting(cx, tables);
            let Some(envelope) = reader.next()? else { return Ok(None) };
            let dialect = link.dialect;
            let asked = link.on_request(cx, tables, &envelope);
            if link.dialect != dialect {
                reader.switch_to_pmi2();
            }
            if asked.is_some() {
                return Ok(asked);
            }
        }
    }

    /// The socket is closed. Returns the previous state.
    pub fn close(&mut self) -> State {
        let before = self.link.state;
        self.link.state = before.next(Event::Close).unwrap_or(State::Closed);
        self.reader = RequestReader::new();
        before
    }
}

impl PmiLink {
    /// Whether the conversation is that of a secondary client, to which requests about the whole rank are refused.
    pub(super) fn is_secondary(&self) -> bool {
        self.client.is_secondary()
    }
}

#[cfg(test)]
mod tests;
