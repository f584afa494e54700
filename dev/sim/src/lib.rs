//! Simulates thousands of nodes in one thread: the agents and the launcher of a real run on a virtual clock.
//!
//! [`run`] takes a [`WorldSpec`] and returns a [`RunReport`]. A run is a function of its spec, so a bug report is a
//! seed. Processes, links and the terminal are simulated; the state machines are those of `wireup-proto`, and the ranks
//! use `wireup-client`. Checkers watch every run.
//!
//! ```text
//!   World (world, agents, lifecycle)   owns the parts, gives each event to its owner, does what agents ask for
//!   ├─ Agents (hosts, agents, dials)   machines and agents' processes
//!   ├─ Net (net)                       the links between agents, and of launchers
//!   ├─ Calls (calls), Batch (batch)    what starts agents: remote shells, steps of a batch system
//!   ├─ Launchers (launchers)           launchers with their terminals
//!   ├─ Jobs (jobs, ranks)              jobs, and the part of each on a node; and in these:
//!   │  ├─ Proc (steps, collecting, stdio, sockets, store_clients)   a rank's process, which does a script
//!   │  └─ Server (servers)                                          the PMIx server of a node
//!   ├─ Membership (membership)         what the root has decided about agents, and the rules for that
//!   └─ Cx (cx)                         clock, random numbers, results: every part uses them
//! ```
//!
//! `checkers` read the world and say which rules are broken. `fault_injection` acts on its parts from outside.
//!
//! `staging` has the file server, and the job that copies files to all nodes before another job.
//!
//! [`spec`] describes a world, [`workload`] what its ranks do, [`fault_injection`] its faults; [`random`] makes worlds
//! by seed, [`shrink`] reduces one that breaks a rule. [`traffic`] records what agents of a world have received, and
//! counts it, also for agents of a real run.
//!
//! `rank_links` is the network that ranks make among themselves, with the code of `wireup-group`; [`rank_network`]
//! counts its messages without a world.
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
pub mod costs;
mod cx;
mod dials;
pub mod digest;
pub mod fault_injection;
mod hosts;
mod jobs;
mod launchers;
mod lifecycle;
mod membership;
mod memory;
mod net;
pub mod phases;
pub mod random;
mod rank_links;
pub mod rank_network;
mod ranks;
pub mod remote;
pub mod report;
pub mod rng;
pub mod servers;
pub mod shrink;
mod sockets;
pub mod spec;
mod staging;
mod stdio;
mod steps;
mod store_clients;
pub mod traffic;
pub mod workload;
mod world;

pub use clock::START;
pub use rank_links::RankTraffic;
pub use report::RunReport;
pub use spec::{JobPlan, WorldSpec};
pub use world::{run, run_watched};
