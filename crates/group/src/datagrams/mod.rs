//! A reliable stream of bytes to one peer, over datagrams that may be lost, repeated or reordered.
//!
//! ```text
//!   push ──► cut into numbered segments ──► in flight, WINDOW at most ──► datagrams
//!                      ▲ again: when three later ones have arrived, or nothing for a while
//!   Ack: all before `next` have arrived, and which of the WINDOW after it
//!                      ▼
//!   bytes in order ◄── held until the gap before them is filled ◄── segments
//! ```
//!
//! [`Sender`] and [`Receiver`] are the two halves of a connection's end; [`Replay`] tells repeated datagrams apart by
//! their counters. None of them knows what a datagram looks like, or has a clock: times come in with the input, in
//! milliseconds.
//!
//! The congestion control is that of TCP Reno: one segment more per acknowledged segment at first, later one more per
//! round trip; half as many after a loss; one after a silence. A peer that computes does not answer. It is not lost:
//! the pause between repetitions doubles up to [`PAUSE_MS_MAX`], without end.

mod receiver;
mod replay;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::Receiver;
pub use replay::Replay;
pub use sender::{PAUSE_MS_MAX, Sender};

/// Maximum number of segments in flight; `Ack::seen` has a bit for each. Chosen: with segments of 1.2 KB, this allows
/// 150 KB per round trip.
pub const WINDOW: usize = 128;

/// An acknowledgement: which segments the receiver has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// All segments before this one have arrived.
    pub next: u64,
    /// Bit `n`: segment `next + 1 + n` has arrived.
    pub seen: u128,
}

impl Ack {
    fn has(&self, number: u64) -> bool {
        match number.checked_sub(self.next) {
            None => true,
            Some(0) => false,
            Some(after) => after <= WINDOW as u64 && self.seen >> (after - 1) & 1 == 1,
        }
    }
}
