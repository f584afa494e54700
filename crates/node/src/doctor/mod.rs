//! `wireup doctor`: checks whether a run could start on these machines, and what problems it would have.
//!
//! ```text
//!   doctor ── remote shell, as in a run ──► wireup agent VERSION report     the question is on its standard input
//!          ◄── lines on standard output: facts, then whether it reached the doctor, then whether it reached its neighbour
//!          ◄── a TCP connection to the addresses of a parent, dialled as by a child
//!                                                      node ── remote shell ──► its neighbour
//! ```
//!
//! The answers are interpreted elsewhere. Cost: two messages and a connection per host, one probe between neighbours.

mod back;
mod calls;
mod examine;
mod facts;
mod guests;
mod onward;
mod report;
mod serve;

pub use calls::End;
pub use examine::{ExamineError, Plan, Seen, examine};
pub use facts::read as facts_here;
pub use report::{Address, Back, Cache, Facts, Limits, LimitsOf, Space};
pub use serve::main as serve;

#[cfg(test)]
mod tests;
