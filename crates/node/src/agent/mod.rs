//! The agent's driver: connects the state machine of `proto` to this machine's clock, sockets and processes.

mod directory;
pub mod driver;
mod fd_backoff;
mod fellows;
mod job_families;
mod jobs;
mod keeper_link;
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
mod pipes;
mod pmix;
mod rank_ports;
mod ranks;
pub(crate) mod read_timeout;
pub mod remote;
mod secondary_client_socket;
mod shells;
mod stack_taker;
pub mod start_methods;
pub(crate) mod step;
pub(crate) mod tail;
pub mod token;
pub mod transports;
mod turn;

pub use links::IN_MEMORY;
pub use main::main;
