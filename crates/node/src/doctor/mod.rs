//! `wireup doctor`: whether a run could start on these machines, and what would be odd about it.
//!
//! ```text
//!   doctor ── remote shell, as a run would call it ──► wireup agent VERSION report     asked on standard input
//!          ◄── lines on standard output: facts, then whether it got back, then whether it gets onward
//!          ◄── a TCP connection to where a parent would listen, as a child would dial it
//!                                                      node ── remote shell ──► its neighbour
//! ```
//!
//! What the answers mean is for others to say. Two messages and a connection a host, one probe between neighbours.

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
