//! The schemes of table 1 of S4 and the hypercube of its section 6, and what each of them sends.
//!
//! The section *Bytes* of `README.md` has the formulas that [`Scheme::formula`] computes. The star has the launcher in
//! its middle; the channel joins processes; hops are those from agent to agent; local is what an agent and its own
//! processes send each other. A request and its answer make one round of the ring of agents, A hops, half of all such
//! hops by requests. With MPD each of the N(N-1) gets is for all values of another process, and takes a round if that
//! process belongs to another agent: N(N-p) rounds. In a ring of processes only the first and the last process of an
//! agent have a neighbour at another agent: 2M rounds, if M > 1.
use std::io;
use std::ops::Range;

use super::sockets::VALUE_LEN;
use super::wire::{Count, SECRET_LEN, sent, sum, wrong};

/// Maximum number of processes: more were not measured (chosen: a process may have 1,024 descriptors).
pub const SIZE_MAX: u16 = 512;
/// Length of the job in a launch request: scheme and size.
pub const JOB_LEN: usize = 4;
/// Length of the name of a value: its rank and its slot.
pub const SLOT_LEN: usize = 4;

/// Messages and bytes that were sent: by the star, the channel, hops and locally.
pub type Traffic = [Count; 4];
pub const PARTS: [&str; 4] = ["star", "channel", "hops", "local"];
pub const STAR: usize = 0;
pub const CHANNEL: usize = 1;
pub const HOPS: usize = 2;
pub const LOCAL: usize = 3;

/// Who starts the processes and serves them until they have connections of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// The launcher, by a remote shell for each process, one after the other.
    Star,
    /// Agents in a ring, each of which sends to the next one.
    Ring,
    /// Agents in a hypercube, each of which sends to those whose number differs in one bit.
    Cube,
}

/// How the values get from process to process, before these have connections to all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Through the launcher, which sends all values to each process.
    Whole,
    /// Through the launcher, which sends to each process only the values for it (data reassembly).
    Reassembled,
    /// Through the agents, each of which keeps what its own processes put: a get for each other process.
    Database,
    /// Around a ring of the processes (bootstrap channel).
    Ring,
    /// In log2 N rounds between processes whose ranks differ in one bit.
    Cube,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    pub name: &'static str,
    pub starter: Starter,
    pub exchange: Exchange,
}

const fn scheme(name: &'static str, starter: Starter, exchange: Exchange) -> Scheme {
    Scheme { name, starter, exchange }
}

pub const SCHEMES: [Scheme; 6] = [
    scheme("original", Starter::Star, Exchange::Whole),
    scheme("ssh-dr", Starter::Star, Exchange::Reassembled),
    scheme("ssh-bc", Starter::Star, Exchange::Ring),
    scheme("mpd", Starter::Ring, Exchange::Database),
    scheme("mpd-bc", Starter::Ring, Exchange::Ring),
    scheme("hypercube", Starter::Cube, Exchange::Cube),
];

impl Scheme {
    pub fn named(name: &str) -> io::Result<Scheme> {
        SCHEMES.into_iter().find(|scheme| scheme.name == name).ok_or_else(|| wrong(format!("no scheme {name}")))
    }

    /// The ranks to which a process has connections before it knows all values, in the order of its slots.
    pub fn neighbours(self, rank: u16, size: u16) -> Vec<u16> {
        match self.exchange {
            Exchange::Whole | Exchange::Reassembled | Exchange::Database => Vec::new(),
            Exchange::Ring => vec![(rank + size - 1) % size, (rank + 1) % size],
            Exchange::Cube => (0..size.ilog2()).map(|bit| rank ^ (1 << bit)).collect(),
        }
    }

    /// Number of bytes that a process puts: a value for each neighbour, or for each other process.
    pub fn put_len(self, size: u16) -> usize {
        let peers = if self.exchange == Exchange::Database { size.into() } else { self.neighbours(0, size).len() + 1 };
        (peers - 1) * VALUE_LEN
    }

    /// Number of bytes that a get brings: one value, or all that a process has put.
    pub fn got_len(self, size: u16) -> usize {
        if self.exchange == Exchange::Database { self.put_len(size) } else { VALUE_LEN }
    }

    /// Number of gets of all processes that go around the ring of agents.
    pub fn remote_gets(self, size: u16, agents: u16) -> u32 {
        let [size, used] = [size, size.min(agents)].map(u32::from);
        match self.exchange {
            Exchange::Database => size * (size - size / used),
            Exchange::Ring if used > 1 => 2 * used,
            _ => 0,
        }
    }

    /// The position of the values put by these ranks among those of all ranks.
    pub fn puts_of(self, ranks: Range<u16>, size: u16) -> Range<usize> {
        usize::from(ranks.start) * self.put_len(size)..usize::from(ranks.end) * self.put_len(size)
    }

    /// The slot, at the neighbour, of the value that belongs to a process's own slot.
    pub fn far_slot(self, slot: u16) -> u16 {
        // The left neighbour's slot for this process is the right one. In a hypercube both sides use the same bit.
        if self.exchange == Exchange::Ring { 1 - slot } else { slot }
    }

    /// Whether this process connects to its neighbour; otherwise the neighbour connects to this process.
    pub fn calls(self, rank: u16, slot: u16) -> bool {
        if self.exchange == Exchange::Ring { slot == 1 } else { rank & (1 << slot) == 0 }
    }

    /// Whether the scheme allows these numbers of processes and agents.
    pub fn fits(self, size: u16, agents: u16) -> Result<(), String> {
        if self.exchange == Exchange::Cube && !(size.is_power_of_two() && agents.is_power_of_two()) {
            return Err(format!("a hypercube needs powers of two, not {size} processes on {agents} hosts"));
        }
        Ok(())
    }

    /// Formula for everything that the scheme sends from the start to the last connection.
    pub fn formula(self, size: u16, agents: u16) -> Traffic {
        let [n, a] = [size, agents].map(u64::from);
        let [v, t, j, g] = [VALUE_LEN, SECRET_LEN, JOB_LEN, SLOT_LEN].map(|len| len as u64);
        let [bits, agent_bits] = [n, a].map(|number| u64::from(number.ilog2()));
        let [called_back, requested] = [sent(n, t), sum([sent(1, t), sent(1, j)])];
        let (around, none) = (sent(n * (n - 1), (n - 1) * v), [0, 0]);
        // For each process: a put, a fence and its answer, and `count` gets and their answers.
        let [put, got] = [self.put_len(size), self.got_len(size)].map(|len| len as u64);
        let local = |count| {
            let gets = [sent(n * count, g), sent(n * count, g + got)];
            sum([sent(n, put), sent(2 * n, 0), sum(gets)])
        };
        match (self.starter, self.exchange) {
            (Starter::Star, Exchange::Whole) => {
                [sum([called_back, sent(n, (n - 1) * v), sent(n, n * (n - 1) * v)]), none, none, none]
            }
            (Starter::Star, Exchange::Reassembled) => [sum([called_back, sent(2 * n, (n - 1) * v)]), none, none, none],
            (Starter::Star, _) => [sum([called_back, sent(2 * n, 2 * v)]), around, none, none],
            (Starter::Ring, exchange) => {
                let gets = u64::from(self.remote_gets(size, agents)) * a / 2;
                let hops = sum([sent(a, j), sent(2 * a, 0), sent(gets, g), sent(gets, g + got)]);
                match exchange {
                    Exchange::Database => [requested, none, hops, local(n - 1)],
                    _ => [requested, around, hops, local(2)],
                }
            }
            (Starter::Cube, _) => {
                let [messages, headers] = sent(a * agent_bits, 0);
                let spread = [messages, headers + (a - 1) * n * bits * v];
                [requested, sent(n * bits, n / 2 * v), sum([sent(a - 1, j), spread]), local(bits)]
            }
        }
    }
}

/// Whether `size` processes can be divided among `agents`.
pub fn divides(size: u16, agents: u16) -> Result<(), String> {
    match size > agents && !size.is_multiple_of(agents) {
        true => Err(format!("{size} processes cannot be divided evenly among {agents} hosts")),
        false => Ok(()),
    }
}

/// The ranks of some consecutive agents: the first of all `agents` get equal parts.
pub fn ranks_of(some: Range<u16>, agents: u16, size: u16) -> Range<u16> {
    let each = size / size.min(agents);
    (some.start * each).min(size)..(some.end * each).min(size)
}

/// Two numbers as a body: scheme and size of a job, rank and slot of a value.
pub fn encode_pair(first: u16, second: u16) -> [u8; 4] {
    (u32::from(second) << 16 | u32::from(first)).to_le_bytes()
}

pub fn decode_pair(body: &[u8]) -> io::Result<(u16, u16)> {
    match body {
        [a, b, c, d, ..] => Ok((u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]))),
        _ => Err(wrong("a message is too short")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s4::wire::HEADER_LEN;

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let fits = |name, size, agents| Scheme::named(name).unwrap().fits(size, agents);
        assert!(fits("hypercube", 128, 16).is_ok() && fits("mpd-bc", 6, 3).is_ok());
        assert!(fits("hypercube", 12, 4).unwrap_err().contains("powers of two"));
        assert!(
            divides(10, 4).unwrap_err().contains("evenly") && divides(6, 3).is_ok() && Scheme::named("rsh").is_err()
        );
        assert_eq!((decode_pair(&encode_pair(3, 512)).unwrap(), decode_pair(&[1]).is_err()), ((3, 512), true));
    }

    /// The values alone, without headers and secrets, in the source's terms.
    #[test]
    fn the_formulas_are_those_of_the_source() {
        let formula = |name, size, agents| Scheme::named(name).unwrap().formula(size, agents);
        let (n, v, h, t) = (128_u64, VALUE_LEN as u64, HEADER_LEN as u64, SECRET_LEN as u64);
        let w = (n - 1) * v;
        let values = |name| {
            let [[stars, star], [channels, channel], ..] = formula(name, 128, 16);
            star - stars * h - n * t + channel - channels * h
        };
        assert_eq!(values("original"), n * (w + n * w), "N (W + N W)");
        assert_eq!(values("ssh-dr"), 2 * n * w, "2 N W");
        assert_eq!(values("ssh-bc"), 4 * n * v + n * (n - 1) * w, "N - 1 messages of W for each process");
        let messages = |traffic: Traffic| traffic.map(|count| count[0]);
        assert_eq!(messages(formula("mpd-bc", 128, 16))[1..3], [128 * 127, 16 + 32 + 2 * 16 * 16]);
        // Every process asks for W of every other one; eight processes of each agent do not ask other agents.
        assert_eq!(formula("mpd", 128, 16)[HOPS][0], 16 + 32 + 128 * 120 * 16);
        let [gets, bytes] = formula("mpd", 128, 16)[LOCAL];
        let gotten = bytes - gets * h - n * w - 2 * n * (n - 1) * SLOT_LEN as u64;
        assert_eq!((gets, gotten), (n * (3 + 2 * (n - 1)), n * (n - 1) * w), "N - 1 answers of W for each process");
        // A single agent has no other agent to ask.
        assert_eq!((formula("mpd-bc", 4, 1)[HOPS][0], formula("hypercube", 4, 1)[HOPS]), (3, [0, 0]));
    }
}
