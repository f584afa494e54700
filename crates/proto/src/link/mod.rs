//! The links of one agent: those to its neighbours in the tree, and direct links to other agents.
//!
//! `links` knows the peer at the other end of each, `neighbours` the linked neighbours in the tree and the frames that
//! wait for the others, `direct` the direct links, `window` the sequence numbers that keep their frames in order,
//! `routes` the next hop to each agent in the current tree (`roster`).

mod direct;
mod links;
mod neighbours;
mod routes;
mod window;

pub use links::{Arrived, Links};
pub use neighbours::Neighbours;
#[cfg(test)]
pub use routes::Roster;
pub use routes::Routes;
