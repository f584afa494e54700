//! The links of one agent: those to its neighbours in the tree, and direct links to other agents.
//!
//! `links` knows the peer at the other end of each link, `direct` the direct links, `window` the sequence numbers that
//! keep frames between two agents in order, `routes` the next hop to each agent in the current tree ([`Routes`]), the
//! neighbours in the tree that are linked or expected, and the frames that wait for such links ([`Neighbours`]).

mod direct;
mod links;
mod routes;
mod window;

pub use links::{Arrived, Links, UpHop};
#[cfg(test)]
pub use routes::Roster;
pub use routes::{Neighbours, Routes};
