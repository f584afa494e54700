//! What each scheme sends, by formula and as counted.
//!
//! ```text
//!   N processes, A agents (M = min(N, A) of them with processes), V bytes a value, H bytes of header a message, L = log2 N
//!
//!   Original      star      N(H + T) + N(H + (N-1)V) + N(H + N(N-1)V)
//!   SSH-DR        star      N(H + T) + 2N(H + (N-1)V)
//!   SSH-BC        star      N(H + T) + 2N(H + 2V)
//!                 channel   N(N-1)(H + (N-1)V)
//!   MPD-BC        star      (H + T) + (H + J)
//!                 channel   N(N-1)(H + (N-1)V)
//!                 hops      A(H + J) + 2AH + MA(2H + 2G + V)
//!                 local     N(7H + 4G + 4V)
//!   Hypercube     star      (H + T) + (H + J)
//!                 channel   NL(H + N/2 V)
//!                 hops      (A-1)(H + J) + A log2 A H + (A-1)NLV
//!                 local     N((3 + 2L)H + 2LG + 2LV)
//! ```
//!
//! The star has the launcher in its middle; the channel joins processes; hops are those from agent to agent; local is
//! what an agent and its own processes send each other. T is the secret with which a connection begins, J the job of a
//! launch request, G names a value. A process of a ring gets two values from other agents. A request and its answer
//! make one round of the ring of agents, A hops; with M > 1 there are 2M of these, whose requests take MA hops in all
//! and whose answers as many. In S4's terms W_N is (N-1)V: per process W_N in, and W_N² (Original), W_N (DR) or N
//! messages of W_N (BC) out.
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use super::message::{HEADER_LEN, JOB_LEN, SECRET_LEN, SLOT_LEN};
use super::scheme::{Scheme, agents_used};
use super::values::VALUE_LEN;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub messages: u64,
    pub bytes: u64,
}

impl Count {
    pub fn of(messages: u64, bytes_each: u64) -> Count {
        Count { messages, bytes: messages * (HEADER_LEN as u64 + bytes_each) }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

impl Add for Count {
    type Output = Count;

    fn add(mut self, other: Count) -> Count {
        self += other;
        self
    }
}

/// Everything that was sent from the start to the last connection, without the reports of what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Between the launcher and processes, or the first agent.
    pub star: Count,
    /// Over the bootstrap channel of the processes.
    pub channel: Count,
    /// From agent to agent.
    pub hops: Count,
    /// Between agents and their processes.
    pub local: Count,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.star += other.star;
        self.channel += other.channel;
        self.hops += other.hops;
        self.local += other.local;
    }
}

impl Traffic {
    /// Eight numbers.
    pub const LEN: usize = 64;

    pub fn encoded(&self) -> Vec<u8> {
        let parts = [self.star, self.channel, self.hops, self.local];
        parts.iter().flat_map(|count| [count.messages, count.bytes]).flat_map(u64::to_le_bytes).collect()
    }

    /// `None` if the length is wrong.
    pub fn decoded(bytes: &[u8]) -> Option<Traffic> {
        let numbers: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let &[_, _, _, _, _, _, _, _] = &numbers[..] else { return None };
        let count = |at: usize| Count { messages: numbers[2 * at], bytes: numbers[2 * at + 1] };
        Some(Traffic { star: count(0), channel: count(1), hops: count(2), local: count(3) })
    }
}

/// The scheme's formula.
pub fn formula(scheme: Scheme, size: u16, agents: u16) -> Traffic {
    let used = u64::from(agents_used(size, agents));
    let (n, a) = (u64::from(size), u64::from(agents));
    let [v, t, j, g] = [VALUE_LEN, SECRET_LEN, JOB_LEN, SLOT_LEN].map(|len| len as u64);
    let (dimensions, agent_dimensions) = (u64::from(size.ilog2()), u64::from(agents.ilog2()));
    let called_back = Count::of(n, t);
    let requested = Count::of(1, t) + Count::of(1, j);
    let around = Count::of(n * (n - 1), (n - 1) * v);
    match scheme {
        Scheme::Original => Traffic {
            star: called_back + Count::of(n, (n - 1) * v) + Count::of(n, n * (n - 1) * v),
            ..Traffic::default()
        },
        Scheme::SshDr => Traffic { star: called_back + Count::of(2 * n, (n - 1) * v), ..Traffic::default() },
        Scheme::SshBc => Traffic { star: called_back + Count::of(2 * n, 2 * v), channel: around, ..Traffic::default() },
        Scheme::MpdBc => {
            let asked = if used > 1 { Count::of(used * a, g) + Count::of(used * a, g + v) } else { Count::default() };
            // A put of two values, a fence and its answer, two gets and their answers.
            let local = Count::of(n, 2 * v) + Count::of(2 * n, 0) + Count::of(2 * n, g) + Count::of(2 * n, g + v);
            Traffic { star: requested, channel: around, hops: Count::of(a, j) + Count::of(2 * a, 0) + asked, local }
        }
        Scheme::Hypercube => {
            let spread = Count {
                messages: a * agent_dimensions,
                bytes: Count::of(a * agent_dimensions, 0).bytes + (a - 1) * n * dimensions * v,
            };
            let gets = Count::of(n * dimensions, g) + Count::of(n * dimensions, g + v);
            Traffic {
                star: requested,
                channel: Count::of(n * dimensions, n / 2 * v),
                hops: Count::of(a - 1, j) + spread,
                local: Count::of(n, dimensions * v) + Count::of(2 * n, 0) + gets,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values alone, without headers and secrets, in the source's terms.
    #[test]
    fn the_formulas_are_those_of_the_source() {
        let (n, v, h, t) = (128_u64, VALUE_LEN as u64, HEADER_LEN as u64, SECRET_LEN as u64);
        let w = (n - 1) * v;
        let values = |scheme| {
            let Traffic { star, channel, .. } = formula(scheme, 128, 16);
            star.bytes - star.messages * h - n * t + channel.bytes - channel.messages * h
        };
        assert_eq!(values(Scheme::Original), n * (w + n * w), "N (W + N W)");
        assert_eq!(values(Scheme::SshDr), 2 * n * w, "2 N W");
        assert_eq!(values(Scheme::SshBc), 4 * n * v + n * (n - 1) * w, "N - 1 messages of W for each process");
        let Traffic { hops, channel, .. } = formula(Scheme::MpdBc, 128, 16);
        assert_eq!((hops.messages, channel.messages), (16 + 32 + 2 * 16 * 16, 128 * 127));
    }

    #[test]
    fn traffic_survives_as_bytes() {
        let traffic = formula(Scheme::MpdBc, 8, 4);
        assert_eq!(Traffic::decoded(&traffic.encoded()), Some(traffic));
        assert_eq!(traffic.encoded().len(), Traffic::LEN);
        assert_eq!(Traffic::decoded(&[0; 63]), None);
    }

    #[test]
    fn one_agent_has_nobody_to_ask() {
        assert_eq!(formula(Scheme::MpdBc, 4, 1).hops.messages, 3);
        assert_eq!(formula(Scheme::Hypercube, 4, 1).hops, Count::default());
    }
}
