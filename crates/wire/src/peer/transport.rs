//! How agents that are no neighbours in the tree reach each other: what people choose from, as one table.
//!
//! A new transport is a variant at the end, a row, and its file in `node::agent::transports`.

use serde::{Deserialize, Serialize};

/// How frames between agents that are no neighbours in the tree travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum AgentTransport {
    /// As for `Tcp`.
    #[default]
    Auto,
    /// From hop to hop through the tree (S3: sRPC).
    Tree,
    /// The first through the tree, the others over a TCP connection of the two (S3: dTCP).
    Tcp,
    /// The same with endpoints of UCX (S3: dUCX).
    Ucx,
}

impl AgentTransport {
    /// The table: what people call it, and whether all agents must have it, so that they agree first whether all use it or none.
    const ROWS: &[(AgentTransport, &'static str, bool)] = &[
        (AgentTransport::Auto, "auto", false),
        (AgentTransport::Tree, "tree", false),
        (AgentTransport::Tcp, "tcp", false),
        (AgentTransport::Ucx, "ucx", true),
    ];

    /// All, by the names that people choose from.
    pub fn named() -> impl Iterator<Item = (&'static str, AgentTransport)> {
        Self::ROWS.iter().map(|(transport, name, _)| (*name, *transport))
    }

    /// All agents must have it, or none uses it: they agree first.
    pub fn is_agreed_on(self) -> bool {
        Self::ROWS.iter().any(|(transport, _, is_agreed_on)| *transport == self && *is_agreed_on)
    }
}
