//! The links of one agent: those to its neighbours in the tree, and direct links to other agents.
//!
//! `links` knows the peer at the other end of each, `neighbours` the linked neighbours in the tree and the frames that
//! wait for the others, `direct` the direct links, `window` the sequence numbers that keep their frames in
//! order.

mod direct;
mod links;
mod neighbours;
mod window;

pub use links::Links;
pub use neighbours::Neighbours;
