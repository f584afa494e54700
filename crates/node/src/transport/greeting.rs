//! The first message each way over UCX: who speaks, and that it knows a key which was told over links that have proved the secret.
//!
//! ```text
//!   offers (its worker's address and key)      dials
//!     ◄─ hello: who, to whom, tag, address, MAC ──   the tag that the offering side is to use from now on
//!     ── answer: who, to whom, tag, echo, MAC ────►   the same the other way; the echo is the hello's tag
//! ```
//!
//! Both MACs are keyed BLAKE2s with the offering side's key. Tags are random: what comes with another one is no message of a link.

use blake2::Blake2sMac256;
use blake2::digest::Mac;
use serde::{Deserialize, Serialize};
use wireup_wire::ids::AgentId;
use wireup_wire::peer;

const MAC_LEN: usize = 32;
/// Longest greeting that is looked at: a worker's address has some hundred bytes for each of its networks.
pub const GREETING_LEN_MAX: usize = 16 << 10;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Greeting {
    pub from: AgentId,
    pub to: AgentId,
    /// What messages to `from` are to carry.
    pub tag: u64,
    /// Of an answer: the tag of the hello that it answers.
    pub echo: Option<u64>,
    /// Of a hello: where `from` is reached.
    pub address: Vec<u8>,
}

impl Greeting {
    pub fn encode(&self, key: &[u8; 32]) -> Vec<u8> {
        let mut bytes = peer::encode(self);
        let mac = mac(key, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(&mac);
        bytes
    }

    /// What a message says that knows the key.
    pub fn decode(bytes: &[u8], key: &[u8; 32]) -> Option<Greeting> {
        if bytes.len() > GREETING_LEN_MAX {
            return None;
        }
        let (message, tag) = bytes.split_at_checked(bytes.len().checked_sub(MAC_LEN)?)?;
        mac(key, message).verify_slice(tag).ok()?;
        peer::decode(message).ok()
    }
}

fn mac(key: &[u8; 32], message: &[u8]) -> Blake2sMac256 {
    let mut mac = Blake2sMac256::new_from_slice(key).expect("a key of 32 bytes is as long as may be");
    mac.update(message);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_key_is_heard() {
        let greeting = Greeting { from: AgentId(3), to: AgentId(4), tag: 5, echo: Some(6), address: vec![7; 300] };
        let bytes = greeting.encode(&[1; 32]);
        assert_eq!(Greeting::decode(&bytes, &[1; 32]), Some(greeting));
        assert_eq!(Greeting::decode(&bytes, &[2; 32]), None);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Greeting::decode(&changed, &[1; 32]), None, "byte {at}");
            assert_eq!(Greeting::decode(&bytes[..at], &[1; 32]), None, "{at} bytes");
        }
    }
}
