//! The message on a remote shell's standard input: a header, then a compressed body (`packed`).

use super::{PROTOCOL_VERSION, PeerError, Secret, SessionSpec, decode, encode};
use crate::ids::AgentId;
use crate::job::JobSpec;
use crate::packed;
use crate::session::SessionSnapshot;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// First bytes of a bootstrap message: magic, then the version and the length of what follows.
pub const BOOTSTRAP_MAGIC: [u8; 4] = *b"WUP\n";
/// Length of a bootstrap header: magic, version (u16), zero (u16), length (u32), all little-endian.
pub const BOOTSTRAP_HEADER_LEN: usize = 12;
/// Longest bootstrap body, compressed or not: a job message with a full environment (at most 2 MiB on Linux) and a node list.
pub const BOOTSTRAP_LEN_MAX: usize = 64 << 20;

/// What a starting agent reads from its standard input.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Zeros if it is sealed.
    pub secret: Secret,
    /// The secret as munge has sealed it, for a message that others may read on its way; otherwise empty.
    pub sealed: Vec<u8>,
    pub agent: AgentId,
    /// Addresses of the parent, `ip:port`, best first.
    pub parent: Vec<String>,
    /// The parent itself called the remote shell: the address of the caller is an address of the parent.
    pub by_parent: bool,
    pub session: SessionSpec,
    /// Jobs to start at once, without waiting for the link.
    pub jobs: Vec<Arc<JobSpec>>,
    /// For a standing session.
    pub snapshot: SessionSnapshot,
}

/// A message that only checks whether an agent could start on a host: a header without a body.
pub fn probe() -> Vec<u8> {
    header(0).to_vec()
}

fn header(length: u32) -> [u8; BOOTSTRAP_HEADER_LEN] {
    let mut header = [0; BOOTSTRAP_HEADER_LEN];
    header[..4].copy_from_slice(&BOOTSTRAP_MAGIC);
    header[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    header[8..].copy_from_slice(&length.to_le_bytes());
    header
}

impl Bootstrap {
    /// Header and compressed body, ready for the remote shell's standard input.
    pub fn encode(&self) -> Vec<u8> {
        let body = packed::compress(&encode(self));
        let mut bytes = Vec::with_capacity(BOOTSTRAP_HEADER_LEN + body.len());
        bytes.extend_from_slice(&header(body.len() as u32));
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Decodes the body that follows a header.
    pub fn decode_body(body: &[u8]) -> Result<Bootstrap, PeerError> {
        let plain = packed::decompress(body, BOOTSTRAP_LEN_MAX);
        decode(&plain.map_err(|_| PeerError::Malformed)?)
    }

    /// The length of the body that follows a header; 0 for a probe.
    pub fn decode_header(header: &[u8; BOOTSTRAP_HEADER_LEN]) -> Result<usize, PeerError> {
        if header[..4] != BOOTSTRAP_MAGIC {
            return Err(PeerError::Magic);
        }
        let theirs = u16::from_le_bytes([header[4], header[5]]);
        if theirs != PROTOCOL_VERSION {
            return Err(PeerError::Version { theirs });
        }
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if length as usize > BOOTSTRAP_LEN_MAX {
            return Err(PeerError::TooLong(length));
        }
        Ok(length as usize)
    }
}
