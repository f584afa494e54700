//! The links of one agent: those to its neighbours in the tree, and direct links to other agents.
//!
//! `links` knows the peer at the other end of each, `direct` the direct links, `window` the sequence numbers that keep
//! their frames in order, `routes` the next hop to each agent in the current tree (`roster`), the neighbours in the
//! tree that are linked, and the frames for neighbours that are not linked yet.

mod direct;
mod links;
mod routes;
mod window;

pub use links::{Arrived, Links};
#[cfg(test)]
pub use routes::Roster;
pub use routes::{Neighbours, Routes};
