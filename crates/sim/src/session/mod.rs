//! Standing sessions: many launchers and many jobs at once and after one another, while agents, links and launchers are lost.
//!
//! A world of its own beside that of single runs: its ranks do little (init, put, fence, get, output, finalize, or one of several
//! mischiefs), its agents live, die and return, its launchers come and go. What must hold is in `checks` and, after every event, in `rules`; `shrink` makes
//! worlds that break a rule small. As everywhere, a run is a
//! function of its spec.

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
