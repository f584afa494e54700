//! Keeps requests of other nodes, for data of ranks of this node, until they are answered.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;
use wireup_wire::ids::Rank;
use wireup_wire::pmix::Wanted;

/// Maximum number of open requests: as many as a node may have pending, see [`wireup_wire::limits::PMIX_ASKS_MAX`].
pub const OPEN_MAX: usize = wireup_wire::limits::PMIX_ASKS_MAX;

/// Open requests of other nodes.
#[derive(Default)]
pub struct Tickets {
    /// Open requests by the number that this process gives them; the library passes this number back as a pointer.
    pub open: HashMap<usize, Ticket>,
    next: usize,
    /// Requests in [`State::Late`], each with the time until which it waits.
    pub late: BTreeSet<(Instant, usize)>,
    /// Ranks of this node that will not commit any more.
    pub left: HashSet<Rank>,
}

pub struct Ticket {
    /// The agent's number for the request.
    pub request: u64,
    pub wanted: Wanted,
    pub state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The rank has not committed anything; the library will answer when the rank has committed.
    Held,
    /// The rank has committed something, but not the wanted key.
    Late { until: Instant },
    /// The data was requested from the library, whose next answer is final.
    Fetched,
}

impl Tickets {
    pub fn insert(&mut self, ticket: Ticket) -> usize {
        self.next = self.next.wrapping_add(1);
        self.open.insert(self.next, ticket);
        self.next
    }

    pub fn set(&mut self, number: usize, state: State) {
        let Some(ticket) = self.open.get_mut(&number) else { return };
        if let State::Late { until } = ticket.state {
            self.late.remove(&(until, number));
        }
        if let State::Late { until } = state {
            self.late.insert((until, number));
        }
        ticket.state = state;
    }

    pub fn remove(&mut self, number: usize) -> Option<Ticket> {
        self.set(number, State::Fetched);
        self.open.remove(&number)
    }

    /// Time at which the time limit of the first request in [`State::Late`] ends; `None`: no request is in this state.
    pub fn first_late(&self) -> Option<Instant> {
        self.late.first().map(|(until, _)| *until)
    }
}
