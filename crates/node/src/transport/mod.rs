//! Links between agents: a Noise handshake before any other byte is parsed, then frames, over any carrier of bytes.

pub mod addresses;
pub mod handshake;
pub mod link;
pub mod listener;
