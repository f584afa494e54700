//! Keeps at most one connection to each rank: it is dialled when first needed, and one survives if both ends dial at
//! once. The least recently used ones may be closed, which loses no message.
//!
//! ```text
//!   none ──need──► dialling ──connected──► open ──goodbye──► left
//!     │  └──────── a hello arrives ─────────▲ │
//!     │                                     │ ├──too many: says Close──► asked ──Agree──► none
//!     │                            Decline ─┴─┼──────────────────────────┘ └──Close: says Agree──► yielding
//!     │                                       └──Close arrives: says Agree──► yielding
//!     └────────────── Agree, all has arrived, or a hello ────────────────────────┘
//!   dialling, and a hello arrives: the connection that the lower rank dialled stays
//! ```
//!
//! An end that has sent Close sends only Agree after it, and after Agree nothing; messages queue meanwhile. The other
//! end declines if it waits for a message of this rank, because it notices that a rank has exited by its connection. An
//! end that agrees has received everything, and dials again only when the other end has received everything too. A
//! hello carries the number of connections of the pair that were closed in this way: the hello of an abandoned dial has
//! a number that is too low, however late it arrives.
//!
//! A hello that arrives after the rank's goodbye is refused: it belongs to a dial that the rank gave up before it left.

use alloc::collections::BTreeMap;

/// The driver's number for a connection; never used twice.
pub type Number = u64;

/// What one end of a connection says to the other about the connection itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The sender leaves the job in an orderly way, so its closed connection is no failure.
    Goodbye,
    /// The sender does not need the connection any more and asks to close it.
    Close,
    Agree,
    Decline,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Dialling(Number),
    Open {
        number: Number,
        was_dialled: bool,
        /// Value of the counter `uses` when this connection was last used.
        used: u64,
        /// The peer has declined to close the connection, and no message has passed since.
        is_kept: bool,
    },
    /// This end has sent Close and waits for the peer's answer.
    Asked {
        number: Number,
        was_dialled: bool,
    },
    /// This end has agreed to close the connection, and sends nothing more on it.
    Yielding(Number),
    Left,
}

impl State {
    fn number(self) -> Option<Number> {
        match self {
            State::Dialling(number)
            | State::Open { number, .. }
            | State::Asked { number, .. }
            | State::Yielding(number) => Some(number),
            State::Left => None,
        }
    }
}

#[derive(Default)]
pub struct Connections {
    peers: BTreeMap<u32, State>,
    /// Number of connections that were closed by agreement, by peer.
    closed: BTreeMap<u32, u32>,
    open: usize,
    uses: u64,
    /// Whether this rank has said goodbye to all its peers.
    pub is_leaving: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    Open(Number),
    /// Messages wait: the rank is being dialled, or the connection to it is being closed.
    Wait,
    /// Messages wait, and the caller must dial the rank: no connection leads to it.
    Dial,
    /// Messages cannot be sent: the rank has left the job.
    Nowhere,
}

/// What to do with an incoming connection whose dialler has proved its rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Keep,
    /// Keep the new connection, and close the one with this number, which this end was dialling or which the peer no
    /// longer uses.
    KeepInsteadOf(Number),
    Refuse,
}

impl Connections {
    pub fn route(&self, to: u32) -> Route {
        match self.peers.get(&to) {
            None => Route::Dial,
            Some(State::Dialling(_) | State::Asked { .. } | State::Yielding(_)) => Route::Wait,
            Some(State::Open { number, .. }) => Route::Open(*number),
            Some(State::Left) => Route::Nowhere,
        }
    }

    /// Number of connections to this rank that were closed by agreement, which a hello carries.
    pub fn closed(&self, peer: u32) -> u32 {
        self.closed.get(&peer).copied().unwrap_or(0)
    }

    pub fn on_dial(&mut self, to: u32, number: Number) {
        self.put(to, State::Dialling(number));
    }

    /// This process's dial has succeeded: the peer has proved that it is rank `to`.
    pub fn on_dialled(&mut self, to: u32, number: Number) {
        self.put_open(to, number, true, false);
    }

    /// Another process has connected and proved that it is `from`. `closed`: the number of connections of the pair that
    /// were closed by agreement, from its hello. `is_begun`: whether the other end may have heard of a dial of this
    /// process; if not, it does not wait for that dial, and its own connection is kept.
    pub fn on_hello(
        &mut self,
        me: u32,
        (from, closed): (u32, u32),
        number: Number,
        is_begun: impl Fn(Number) -> bool,
    ) -> Verdict {
        let is_old = closed <= self.closed(from);
        let verdict = match self.peers.get(&from) {
            Some(State::Left) => Verdict::Refuse,
            _ if closed < self.closed(from) => Verdict::Refuse,
            None => Verdict::Keep,
            // The peer counts the old connection as closed: it has received all that was sent on it.
            Some(State::Yielding(old)) if !is_old => Verdict::KeepInsteadOf(*old),
            Some(State::Yielding(_) | State::Asked { .. }) => Verdict::Refuse,
            // The peer's hello is late: this process's own dial has been accepted, and has priority.
            Some(State::Open { was_dialled: true, .. }) if me < from => Verdict::Refuse,
            Some(State::Dialling(dialled)) if me < from && is_begun(*dialled) => Verdict::Refuse,
            Some(State::Dialling(dialled)) => Verdict::KeepInsteadOf(*dialled),
            // The peer has given up the open connection, and this process has not noticed that yet.
            Some(State::Open { number, .. }) => Verdict::KeepInsteadOf(*number),
        };
        if verdict != Verdict::Refuse {
            if closed > 0 {
                self.closed.insert(from, closed);
            }
            self.put_open(from, number, false, false);
        }
        verdict
    }

    pub fn is_dialling(&self, peer: u32) -> bool {
        matches!(self.peers.get(&peer), Some(State::Dialling(_)))
    }

    /// A connection has closed. Returns whether the peer is lost or has refused, which is so if this was the connection
    /// in use to it. Always `false` while this rank leaves the job, because a peer that leaves too may close without
    /// waiting: a leaving rank does not report a peer that crashes.
    pub fn on_closed(&mut self, peer: u32, number: Number) -> bool {
        let is_current = self.is_current(peer, number);
        if is_current {
            self.take(peer);
        }
        is_current && !self.is_leaving
    }

    pub fn on_left(&mut self, peer: u32) {
        self.put(peer, State::Left);
    }

    /// Records that a message was sent to this peer or received from it.
    pub fn on_used(&mut self, peer: u32) {
        self.uses += 1;
        if let Some(State::Open { used, is_kept, .. }) = self.peers.get_mut(&peer) {
            (*used, *is_kept) = (self.uses, false);
        }
    }

    /// If more than `open_max` connections are open, selects the one that was not used for the longest time. The caller
    /// says Close on the connection with the returned number.
    pub fn close_one(&mut self, open_max: usize, is_awaited: impl Fn(u32) -> bool) -> Option<Number> {
        if self.open <= open_max {
            return None;
        }
        let idle = self.peers.iter().filter_map(|(peer, state)| match state {
            State::Open { number, was_dialled, used, is_kept: false } if !is_awaited(*peer) => {
                Some((*used, *peer, *number, *was_dialled))
            }
            _ => None,
        });
        let (_, peer, number, was_dialled) = idle.min()?;
        self.put(peer, State::Asked { number, was_dialled });
        Some(number)
    }

    /// The peer has said Close; `is_wanted`: this end still needs the connection. Returns the answer to send; `None`:
    /// this is not the connection in use to the peer.
    pub fn on_close(&mut self, peer: u32, number: Number, is_wanted: bool) -> Option<Word> {
        match self.peers.get(&peer) {
            Some(State::Open { number: at, .. }) if *at == number && is_wanted => Some(Word::Decline),
            Some(State::Open { number: at, .. } | State::Asked { number: at, .. }) if *at == number => {
                self.put(peer, State::Yielding(number));
                Some(Word::Agree)
            }
            _ => None,
        }
    }

    /// The peer has declined to close a connection. Returns whether messages can be sent on it again.
    pub fn on_declined(&mut self, peer: u32, number: Number) -> bool {
        let Some(State::Asked { number: at, was_dialled }) = self.peers.get(&peer).copied() else { return false };
        if at == number {
            self.put_open(peer, number, was_dialled, true);
        }
        at == number
    }

    /// The peer of a connection that is being closed has received everything: it has said Agree, or all that was sent
    /// is known to have arrived. Returns whether a new connection to the peer can be dialled now.
    pub fn on_finished(&mut self, peer: u32, number: Number) -> bool {
        let is_closing = matches!(self.peers.get(&peer), Some(State::Asked { .. } | State::Yielding(_)));
        if !is_closing || !self.is_current(peer, number) {
            return false;
        }
        self.take(peer);
        *self.closed.entry(peer).or_default() += 1;
        true
    }

    pub fn open(&self) -> usize {
        self.open
    }

    /// Number of connections that are being closed: they wait for the peer's answer, or for confirmation that
    /// everything has arrived.
    pub fn closing(&self) -> usize {
        self.peers.values().filter(|state| matches!(state, State::Asked { .. } | State::Yielding(_))).count()
    }

    /// Number of connections that were closed by agreement, with all peers.
    pub fn closed_by_agreement(&self) -> u64 {
        self.closed.values().map(|count| u64::from(*count)).sum()
    }

    fn is_current(&self, peer: u32, number: Number) -> bool {
        self.peers.get(&peer).and_then(|state| state.number()) == Some(number)
    }

    fn put_open(&mut self, peer: u32, number: Number, was_dialled: bool, is_kept: bool) {
        self.uses += 1;
        self.put(peer, State::Open { number, was_dialled, used: self.uses, is_kept });
    }

    fn put(&mut self, peer: u32, state: State) {
        self.open += usize::from(matches!(state, State::Open { .. }));
        let before = self.peers.insert(peer, state);
        self.open -= usize::from(matches!(before, Some(State::Open { .. })));
    }

    fn take(&mut self, peer: u32) {
        let before = self.peers.remove(&peer);
        self.open -= usize::from(matches!(before, Some(State::Open { .. })));
    }
}

#[cfg(test)]
mod tests;
