//! Connects the state machines of `proto` to this machine: processes, sockets, clock, terminal.

pub mod agent;
pub mod binding;
pub mod devices;
pub mod doctor;
pub mod hosts;
pub mod keeper;
pub mod launcher;
pub mod record;
pub mod sendable;
pub mod session;
pub mod trace;
mod transport;
