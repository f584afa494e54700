//! Support for this crate's tests.
//!
//! Whole agents: a [`TestAgent`] is an agent whose driver and neighbours are played by the test; a [`Net`] joins
//! several of them by links, starts them as they request it, and runs their ranks. Single parts: [`one_run`] and
//! [`in_session`] make the `Cx` of a part. Parts of several nodes that exchange messages: [`facts_of`] and [`Transit`].
//!
//! The clock is a field that the test sets. All random choices follow from a seed ([`Dice`]).

mod agent;
mod net;
mod scene;
mod specs;
mod transit;

pub use agent::{Look, TestAgent, UP, cause};
pub use net::{Faults, Net};
pub use scene::{agent_of, down, in_session, one_run};
pub use specs::{SECOND, T, by_step, departed, facts_of, job, job_on, local, places_of, session, small_job, standing};
pub use transit::{Dice, Transit};
