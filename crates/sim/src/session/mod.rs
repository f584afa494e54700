//! Standing sessions: many launchers and jobs, concurrently and one after another, while agents, links and launchers are lost.
//!
//! This simulator is separate from that of single runs. Its ranks do little (init, put, fence, get, output, finalize, or one of several
//! faults); its agents start, die and return; its launchers come and go. The rules are in `checks` and, for those checked after every
//! event, in `rules`. `shrink` reduces worlds that break a rule. As everywhere, a run is a function of its spec.

mod checks;
mod dials;
mod faults;
mod hosts;
mod launchers;
mod processes;
pub mod random;
mod rules;
pub mod shrink;
pub mod spec;
mod words;
mod world;

pub use checks::Report;
pub use spec::SessionSpec;
pub use world::run;
