//! All peers' blocks to all peers of a set; one algorithm per file.
//!
//! ```text
//!            messages a peer      after    bytes into a peer       for
//! tree       1 up, k down         2 log_k  up: its subtree's,      few bytes: the links are there already
//!                                          down: all
//! ring       N-1                  N-1      all but its own, once   many bytes: each crosses each link once
//! bruck      ceil(log2 N)         log2 N   all but its own, once   between: few messages, no byte twice
//! ```
//!
//! [`Allgather`] is one of them as a whole, by whatever scheme: sizes and few bytes go up the session's tree; many go over links
//! of their own between peers `0..n`, by an algorithm of the table [`DIRECT`]. [`choice`] picks by peers and bytes. Who peers are is the
//! caller's: it gives their number and a place among them.
//!
//! No block is copied: a message is a list of shared slices ([`Rope`](wireup_wire::rope::Rope)), and each slice holds whole
//! blocks.

mod bruck;
pub mod choice;
mod peers;
mod refused;
mod ring;
mod rounds;
mod tree;
mod whole;

pub use peers::{PeerSet, Progress, Receiver, Rules, Sender};
pub use refused::Refused;
pub use rounds::{Direct, Message, Rounds, Step, find, fitting};
pub use whole::Allgather;

use wireup_wire::collective::{Algorithm, ExchangeScheme};

/// The algorithms over direct links. A new one is a file with a [`Rounds`], and a line here: what `--exchange` calls it, and a
/// number that no other has.
pub const DIRECT: &[Direct] = &[
    // A number is below `Algorithm::COUNT_MAX`, or this does not compile.
    Direct::of::<ring::Ring>("ring", Algorithm::RING),
    Direct::of::<bruck::Bruck>("log", Algorithm::BRUCK),
];

/// What `--exchange` takes, with what that means.
pub fn schemes() -> impl Iterator<Item = (&'static str, ExchangeScheme)> {
    let direct = DIRECT.iter().map(|direct| (direct.name, ExchangeScheme::Direct(direct.algorithm)));
    [("auto", ExchangeScheme::Auto), ("tree", ExchangeScheme::Tree)].into_iter().chain(direct)
}

#[cfg(test)]
mod tests;
