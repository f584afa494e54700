//! Brings every peer's block to every peer of a set; one algorithm per file.
//!
//! ```text
//!            messages per peer    after    bytes into a peer       for
//! tree       1 up, k down         2 log_k  up: its subtree's,      few bytes: the links exist already
//!                                          down: all
//! ring       N-1                  N-1      all but its own, once   many bytes: each crosses each link once
//! bruck      ceil(log2 N)         log2 N   all but its own, once   in between: few messages, no byte twice
//! ```
//!
//! [`Allgather`] is one complete allgather, whatever its scheme: sizes and small data go up the session's tree; large
//! data goes over direct links between peers `0..n`, by an algorithm of the table [`DIRECT`]. [`choice`] picks one from
//! the numbers of peers and bytes. The caller decides who the peers are: it passes their number and each peer's index.
//!
//! No block is copied: a message is a list of shared slices ([`Rope`](wireup_wire::rope::Rope)), and each slice holds
//! whole blocks.

mod bruck;
pub mod choice;
mod direct;
mod peers;
mod refused;
mod ring;
mod rounds;
mod whole;

pub use direct::{DIRECT, find, fitting, schemes};
pub use peers::{PeerSet, Peers, Progress, Receiver, Rules, Sender};
pub use refused::Refused;
pub use rounds::{Direct, Message, Rounds, Step};
pub use whole::Allgather;

#[cfg(test)]
mod tests;
