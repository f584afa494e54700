//! What `wireup doctor` does on a node: `rank` is the program that its job runs there, one rank on each node.
//!
//! ```text
//!   doctor ── standard input: Question ──► rank ── remote shell (probe) ──► the node of the next rank
//!          ◄── standard output: Report as a line of JSON, with the facts, then with the result of the probe
//! ```
//!
//! The doctor itself (`cli`) starts the agents and the job, and judges the facts. Cost: two output lines for each node,
//! and one use of the remote shell between neighbours.

mod facts;
mod rank;
mod shell_probe;

pub use facts::{Address, Cache, Facts, Limits, LimitsOf, Space, read as facts_here, wall_clock_ns};
pub use rank::{DoctorReport, Question, main as rank};
