//! How a secondary client, a PMI library in a rank whose inherited socket another library uses, connects to the rank's
//! agent. It sends one datagram, and gets one with an [`Answer`] and, if that is `Joined`, one end of a pair of
//! sockets, over which the two then speak PMI-2.
//!
//! ```text
//! +--------+------------+---------+---------------+
//! | job    | local rank | "wu1 "  | name          |     to the abstract Unix socket that WIREUP_AGENT names
//! | u32 LE | u16 LE     | 4 bytes | 1 to 30 bytes |
//! +--------+------------+---------+---------------+
//! ```
//!
//! `WIREUP_AGENT` is `JOB:NAME`: the job's number, and the name of the agent's socket.

use crate::ids::{JobId, LocalRank};
use alloc::vec::Vec;

/// The environment variable with the name of the agent's socket, and the one with the local rank of a process.
pub const VARIABLE: &str = "WIREUP_AGENT";
pub const LOCAL_RANK_VARIABLE: &str = "WIREUP_LOCAL_RANK";
/// Longest name of a library (bytes).
pub const NAME_LEN_MAX: usize = 30;
pub const HELLO_LEN_MAX: usize = 10 + NAME_LEN_MAX;

const MAGIC: &[u8; 4] = b"wu1 ";

/// The datagram of a secondary client that wants to join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    pub job: JobId,
    pub local: LocalRank,
    pub name: &'a [u8],
}

impl<'a> Hello<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HELLO_LEN_MAX);
        out.extend_from_slice(&self.job.0.to_le_bytes());
        out.extend_from_slice(&self.local.0.to_le_bytes());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(self.name);
        out
    }

    /// Reads the datagram; `None`: the bytes are not one of a secondary client.
    pub fn decode(bytes: &'a [u8]) -> Option<Hello<'a>> {
        let (job, rest) = bytes.split_first_chunk()?;
        let (local, rest) = rest.split_first_chunk()?;
        let name = rest.strip_prefix(MAGIC).filter(|name| is_name(name))?;
        Some(Hello { job: JobId(u32::from_le_bytes(*job)), local: LocalRank(u16::from_le_bytes(*local)), name })
    }
}

/// The agent's answer, as one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Joined,
    /// The agent has no rank with this number, or the rank has not started.
    NoRank,
    /// A library of this rank has, or has had, this name.
    Taken,
    /// The rank has had too many libraries.
    Full,
    /// The agent has no descriptors left.
    NoRoom,
}

impl Answer {
    const ALL: [Answer; 5] = [Answer::Joined, Answer::NoRank, Answer::Taken, Answer::Full, Answer::NoRoom];

    pub fn encode(self) -> u8 {
        self as u8
    }

    /// Reads the answer; `None`: the bytes are not an answer.
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let [byte] = bytes else { return None };
        Answer::ALL.get(usize::from(*byte)).copied()
    }
}

/// Whether a library may have this name: letters, digits, `-`, `_` and `.`.
pub fn is_name(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.iter().all(is_plain)
}

/// The job's number and the socket's name, from the value of [`VARIABLE`].
pub fn agent(value: &[u8]) -> Option<(JobId, &[u8])> {
    let colon = value.iter().position(|byte| *byte == b':')?;
    let job = core::str::from_utf8(&value[..colon]).ok()?.parse().ok()?;
    Some((JobId(job), &value[colon + 1..])).filter(|(_, name)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_round_trip_and_others_are_none() {
        let hello = Hello { job: JobId(7), local: LocalRank(65_535), name: b"my-lib.2" };
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Some(hello));
        for len in 0..=10 {
            assert_eq!(Hello::decode(&bytes[..len]), None);
        }
        assert_eq!(Hello::decode(&[&bytes[..], &[b'x'; NAME_LEN_MAX]].concat()), None);
        assert_eq!(Hello::decode(&[&bytes[..], b" "].concat()), None);
    }

    #[test]
    fn answers_round_trip() {
        for answer in Answer::ALL {
            assert_eq!(Answer::decode(&[answer.encode()]), Some(answer));
        }
        assert_eq!((Answer::decode(&[]), Answer::decode(&[5]), Answer::decode(&[0, 0])), (None, None, None));
    }

    #[test]
    fn the_variable_has_a_number_and_a_name() {
        assert_eq!(agent(b"3:wireup-8f"), Some((JobId(3), &b"wireup-8f"[..])));
        for wrong in [&b""[..], b"3", b"3:", b":a", b"x:a", b"-1:a", b"4294967296:a"] {
            assert_eq!(agent(wrong), None);
        }
    }
}
