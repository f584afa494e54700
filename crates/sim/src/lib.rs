//! Thousands of nodes in one thread: the agents and the launcher of a real run on a virtual clock.
//!
//! [`run`] takes a [`WorldSpec`] and gives a [`Report`]; a run is a function of its spec, so a seed is a bug report.
//! Processes, links and the terminal are scripted; the machines are `wireup-proto`'s, the ranks speak through
//! `wireup-client`. Checkers watch every run.
#![forbid(unsafe_code)]

mod batch;
mod birth;
mod calls;
mod checkers;
mod client;
mod clock;
mod collecting;
mod contributions;
pub mod digest;
mod direct;
pub mod faults;
mod fifo;
mod hosts;
mod launch;
mod lives;
mod memory;
mod misfortune;
mod net;
pub mod random;
mod ranks;
pub mod remote;
pub mod replay;
pub mod report;
pub mod rng;
pub mod servers;
pub mod session;
mod sockets;
pub mod spec;
mod stdio;
mod steps;
mod teams;
pub mod workload;
mod world;

pub use report::Report;
pub use spec::WorldSpec;
pub use world::run;
