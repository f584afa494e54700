//! `wireup bench` with few rounds: all figures are there, and nothing is left behind. Times are not checked.

mod link;
mod page;
mod s4;
mod spawn;
mod stage;
mod startup;
mod steps;
