//! `wireup simulate`: the start of a large job on a described machine, in virtual time, with the code that agents,
//! launcher and ranks run.
//!
//! ```text
//!   command_line ──► plan, machine    what is simulated, and on which machine
//!                ├─► memory           what that will take
//!                ├─► simulation       one run, watched; its result as text, as JSON and as a trace
//!                ├─► table            published starts, with predictions
//!                ├─► advise           which flags are fastest, from simulations of the candidates
//!                ├─► calibrate        a machine file of this machine, from runs of the real wireup
//!                └─► compare          runs of the real wireup beside predictions
//! ```
#![forbid(unsafe_code)]

mod advise;
mod calibrate;
mod command_line;
mod compare;
mod lines;
pub mod machine;
mod memory;
pub mod plan;
mod problem;
mod simulation;
mod table;
mod timed;

pub use command_line::main;
