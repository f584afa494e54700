//! The message on the standard input of a remote shell, or of a batch system's step.
//!
//! ```text
//! +------+---------+------------+---------+------------+------+
//! | WUP\n | version | credential | len     | credential | body |
//! +------+---------+------------+---------+------------+------+
//!
//!   version, credential (length): u16; len: u32, of all that follows it
//! ```
//!
//! Without a credential the body is a compressed [`Bootstrap`] (`packed`). With one it is the same, encrypted and
//! authenticated with a key that the credential holds; `node` makes and opens both.

use super::{PROTOCOL_VERSION, PeerError, Secret, SessionSpec, decode, encode};
use crate::ids::AgentId;
use crate::job::JobSpec;
use crate::packed;
use crate::session::SessionSnapshot;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// First bytes of a bootstrap message.
pub const BOOTSTRAP_MAGIC: [u8; 4] = *b"WUP\n";
/// Length of a bootstrap header; its numbers are little-endian.
pub const BOOTSTRAP_HEADER_LEN: usize = 12;
/// Longest bootstrap body, compressed or not: a job message with a full environment (at most 2 MiB on Linux) and a node
/// list.
pub const BOOTSTRAP_LEN_MAX: usize = 64 << 20;

/// What a starting agent reads from its standard input.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bootstrap {
    pub secret: Secret,
    pub agent: AgentId,
    /// Addresses of the parent, `ip:port`, best first.
    pub parent: Vec<String>,
    /// Whether the parent itself started the remote shell, so that the address of the shell's caller is the parent's.
    pub by_parent: bool,
    pub session: SessionSpec,
    /// Jobs to start at once, without waiting for the link.
    pub jobs: Vec<Arc<JobSpec>>,
    /// The state of a standing session; empty in a session of one run.
    pub snapshot: SessionSnapshot,
}

/// Lengths of the parts that follow a bootstrap header (bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootstrapLengths {
    /// Length of the credential; 0: the body is not encrypted.
    pub credential: usize,
    pub body: usize,
}

/// A message that only checks whether an agent could start on a host: a header without a body.
pub fn probe() -> Vec<u8> {
    bootstrap_message(&[], &[])
}

/// A whole bootstrap message. `body` is encrypted with the key in `credential`, or `credential` is empty.
///
/// # Panics
/// If the credential is longer than 65,535 bytes.
pub fn bootstrap_message(credential: &[u8], body: &[u8]) -> Vec<u8> {
    let credential_len = u16::try_from(credential.len()).expect("a credential holds only a key");
    let mut message = Vec::with_capacity(BOOTSTRAP_HEADER_LEN + credential.len() + body.len());
    message.extend_from_slice(&BOOTSTRAP_MAGIC);
    message.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    message.extend_from_slice(&credential_len.to_le_bytes());
    message.extend_from_slice(&((credential.len() + body.len()) as u32).to_le_bytes());
    message.extend_from_slice(credential);
    message.extend_from_slice(body);
    message
}

impl Bootstrap {
    /// The message for the remote shell's standard input.
    pub fn encode(&self) -> Vec<u8> {
        bootstrap_message(&[], &self.encode_body())
    }

    /// The compressed body alone.
    pub fn encode_body(&self) -> Vec<u8> {
        packed::compress(&Zeroizing::new(encode(self)))
    }

    /// Decodes a body that was not encrypted, or is decrypted.
    pub fn decode_body(body: &[u8]) -> Result<Bootstrap, PeerError> {
        let plain = packed::decompress(body, BOOTSTRAP_LEN_MAX).map_err(|_| PeerError::Malformed)?;
        decode(&Zeroizing::new(plain))
    }

    /// The lengths of the parts that follow a header; both are 0 in a probe.
    pub fn decode_header(header: &[u8; BOOTSTRAP_HEADER_LEN]) -> Result<BootstrapLengths, PeerError> {
        if header[..4] != BOOTSTRAP_MAGIC {
            return Err(PeerError::Magic);
        }
        let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        if number(4) != PROTOCOL_VERSION {
            return Err(PeerError::Version { theirs: number(4) });
        }
        let credential = usize::from(number(6));
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if length as usize > BOOTSTRAP_LEN_MAX {
            return Err(PeerError::TooLong(length));
        }
        let body = (length as usize).checked_sub(credential).ok_or(PeerError::Malformed)?;
        Ok(BootstrapLengths { credential, body })
    }
}
