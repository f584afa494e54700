//! `wireup bench` with few rounds: all values are there, and nothing is left behind. Times are not checked.

mod link;
mod page;
mod results;
mod spawn;
mod stage;
mod startup;
