//! Bytes to messages and back. The only state kept is a partially read frame.
//!
//! `frame` splits a link's byte stream into frames, `route` carries a frame to an agent that is not a neighbour; `talk`
//! has the messages between agents and launchers, of which `peer`, `job`, `session` and `attach` have the parts;
//! `pmi` is the protocol between ranks and their agent, `names` what they publish, `inter_job` what ranks of different
//! jobs have to do with each other, `addresses` where they are reached, `relay` the bytes of connections that agents
//! carry for them, `secondary_client` how more libraries in a rank join; `torch_store` is PyTorch's protocol for pairs
//! and counters, `store` what agents tell each other about them; `blob`, `values` and `block` are the data of
//! an exchange, and `rope` avoids copying it; `shared` is what ranks read in memory provided by their agent. Every
//! bound on what another process may send is in `limits`.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod addresses;
pub mod attach;
pub mod blob;
pub mod block;
pub mod collective;
pub mod frame;
pub mod group;
pub mod hex;
pub mod ids;
pub mod inter_job;
pub mod job;
pub mod limits;
pub mod modex;
pub mod names;
pub mod packed;
pub mod peer;
pub mod pmi;
pub mod pmix;
pub mod pmix_types;
pub mod rank_address;
pub mod relay;
pub mod rope;
pub mod route;
pub mod secondary_client;
pub mod session;
pub mod shared;
pub mod signal;
pub mod store;
pub mod talk;
pub mod torch_store;
pub mod values;
mod varint;
