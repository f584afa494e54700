//! Simulates thousands of nodes in one thread: the agents and the launcher of a real run on a virtual clock.
//!
//! [`run`] takes a [`WorldSpec`] and returns a [`RunReport`]. A run is a function of its spec, so a bug report is a
//! seed. Processes, links and the terminal are simulated; the state machines are those of `wireup-proto`, and the ranks
//! use `wireup-client`. Checkers watch every run.
//!
//! ```text
//!   world: the main loop, on clock ──► hosts, remote, calls, batch    machines, remote shells, steps of a batch system
//!                                  ├─► agents, lifecycle, dials, net  agents and the links between them
//!                                  ├─► launchers, jobs, ranks         launchers; jobs with their simulated processes
//!                                  ├─► client, sockets, servers       the ranks' PMI and PMIx
//!                                  └─► checkers                       the rules that hold in every run
//! ```
//!
//! [`spec`] describes a world, [`workload`] what its ranks do, [`fault_injection`] its faults; [`random`] makes worlds
//! by seed, [`shrink`] reduces one that breaks a rule.
//!
//! [`rank_network`] is apart from that: the network that ranks make among themselves, without agents, with the code of
//! `wireup-group`.
#![forbid(unsafe_code)]

mod agents;
mod batch;
mod calls;
mod checkers;
mod client;
mod clock;
mod collecting;
mod configs;
mod contributions;
mod dials;
pub mod digest;
pub mod fault_injection;
mod fifo;
mod file_server;
mod group_barriers;
mod hosts;
mod jobs;
mod launchers;
mod lifecycle;
mod membership;
mod memory;
mod net;
pub mod random;
pub mod rank_network;
mod ranks;
pub mod remote;
pub mod report;
pub mod rng;
pub mod servers;
pub mod shrink;
mod sockets;
pub mod spec;
mod stdio;
mod steps;
pub mod workload;
mod world;

pub use report::RunReport;
pub use spec::{JobPlan, WorldSpec};
pub use world::run;
