//! The agent's driver: connects the state machine of `proto` to this machine's clock, sockets and processes.

mod directory;
pub mod driver;
mod job_families;
mod keeper_pool;
mod keepers;
pub mod link_config;
pub mod link_end;
pub mod links;
mod local_jobs;
pub mod main;
mod memory;
mod munge;
mod orphans;
mod outgoing;
mod parent_weight;
mod pmix;
mod rank_ports;
mod ranks;
pub mod remote;
mod shells;
pub mod start_methods;
pub(crate) mod step;
mod stores;
pub(crate) mod tail;
pub mod token;
pub mod transports;
mod turn;

pub use links::IN_MEMORY;
pub use main::main;
