//! Authenticates datagrams that precede a connection: a code (MAC) with the job's secret, which is cheap to check.
//!
//! A stranger's datagram costs one check of the code: nothing is allocated for it, and no Diffie-Hellman is computed.

use super::proof::{Broken, Secret};
use alloc::boxed::Box;
use alloc::vec::Vec;
use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Hash;

const CODE_LEN: usize = 16;
/// Label for deriving the key of the codes from the secret: the secret itself is the key of the handshake.
const PURPOSE: &[u8] = b"wireup datagrams 3";

/// Computes and checks codes (the first 16 bytes of an HMAC with BLAKE2s).
pub struct Codes {
    hash: Box<dyn Hash>,
    key: [u8; 32],
}

impl Codes {
    pub fn new(secret: &Secret) -> Result<Codes, Broken> {
        let mut hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s).ok_or(Broken)?;
        let mut key = [0; 32];
        hash.hmac(secret, PURPOSE, &mut key);
        Ok(Codes { hash, key })
    }

    fn code(&mut self, bytes: &[u8]) -> [u8; 32] {
        let mut code = [0; 32];
        self.hash.hmac(&self.key, bytes, &mut code);
        code
    }

    /// The datagram of these parts, with its code at the end.
    pub fn with_code(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = parts.concat();
        let code = self.code(&bytes);
        bytes.extend_from_slice(&code[..CODE_LEN]);
        bytes
    }

    /// The bytes before the code; `None`: the code is wrong, so the datagram comes from a stranger.
    pub fn checked<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (content, code) = bytes.split_at_checked(bytes.len().checked_sub(CODE_LEN)?)?;
        let right = self.code(content);
        let difference = right.iter().zip(code).fold(0, |difference, (one, other)| difference | (one ^ other));
        (difference == 0).then_some(content)
    }
}
