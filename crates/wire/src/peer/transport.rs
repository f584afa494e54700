//! How agents that are not neighbours in the tree reach each other: the choices for users, as one table.
//!
//! To add a transport, add a variant at the end, a row, and its file in `node::agent::transports`.

use serde::{Deserialize, Serialize};

/// How frames between agents that are not neighbours in the tree travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum AgentTransport {
    /// As `Tcp`; the user has not chosen a transport.
    #[default]
    Auto,
    /// Frames go hop by hop through the tree (S3: sRPC).
    Tree,
    /// The first frames go through the tree, later frames over a TCP connection between the two agents (S3: dTCP).
    Tcp,
    /// The first frames go through the tree, later frames over UCX endpoints of the two agents (S3: dUCX).
    Ucx,
}

impl AgentTransport {
    /// The table: the name for users, and whether the transport is used only if all agents have it, so that they must
    /// agree first.
    const ROWS: &[(AgentTransport, &'static str, bool)] = &[
        (AgentTransport::Auto, "auto", false),
        (AgentTransport::Tree, "tree", false),
        (AgentTransport::Tcp, "tcp", false),
        (AgentTransport::Ucx, "ucx", true),
    ];

    pub fn named() -> impl Iterator<Item = (&'static str, AgentTransport)> {
        Self::ROWS.iter().map(|(transport, name, _)| (*name, *transport))
    }

    /// Whether the transport is used only if all agents have it, so that they must agree first.
    pub fn is_agreed_on(self) -> bool {
        Self::ROWS.iter().any(|(transport, _, is_agreed_on)| *transport == self && *is_agreed_on)
    }
}
