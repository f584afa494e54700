//! Bytes to messages and back: nothing here remembers more than a half-read frame.
//!
//! `frame` cuts a link's byte stream, `route` says how a frame reaches an agent that is no neighbour; `peer` and `job` are
//! what agents say to each other, `session` and `attach` what launchers and standing sessions do; `pmi` is what ranks say to
//! their agent; `blob`, `values` and `block` are what an exchange carries, `rope` how it does so without copies; `shared` is what ranks read in their agent's memory. Every bound on what another process may send is in `limits`.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod attach;
pub mod blob;
pub mod block;
pub mod collective;
pub mod frame;
pub mod group;
pub mod ids;
pub mod job;
pub mod limits;
pub mod modex;
pub mod packed;
pub mod peer;
pub mod pmi;
pub mod pmix;
pub mod rope;
pub mod route;
pub mod session;
pub mod shared;
pub mod values;
mod varint;
