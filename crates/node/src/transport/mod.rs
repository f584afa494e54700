//! Links between agents: bytes on TCP, a Noise handshake before any of them is parsed.

pub mod addresses;
pub mod attempts;
pub mod filter;
pub mod greeting;
pub mod handshake;
pub mod link;
pub mod listener;
pub mod pause;
pub mod sealed;
