//! Links between agents: bytes on TCP, a Noise handshake before any of them is parsed.

pub mod handshake;
pub mod link;
pub mod listener;
