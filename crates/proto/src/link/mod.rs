//! The links of one agent: streams to its neighbours in the tree, and those that are made beside it.
//!
//! `links` knows who is at the other end of each, `neighbours` who is linked in the tree and what waits for those that are not
//! yet, `direct` the links beside the tree, `window` the numbers that keep their frames in order.

mod direct;
mod links;
mod neighbours;
mod window;

pub use links::Links;
pub use neighbours::Neighbours;
