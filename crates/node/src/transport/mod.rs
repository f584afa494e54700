//! Links between agents: a Noise handshake before any byte is parsed, then frames, on whatever carries bytes.

pub mod addresses;
pub mod attempts;
pub mod carrier;
pub mod filter;
pub mod handshake;
pub mod link;
pub mod listener;
pub mod pause;
pub mod sealed;
pub mod socket;
