//! One rank's start, as numbers of fixed size: what a tap leaves for the tap of rank 0.

use crate::page::FAMILIES;
use crate::place::RANKS_MAX;
use crate::process::Effort;
use crate::tally::{Requests, Tally};
use thiserror::Error;

pub const RECORD_BYTES: usize = 1024;
const MAGIC: u64 = u64::from_le_bytes(*b"wuptap02");
const NODE_BYTES: usize = 64;
const NAME_BYTES: usize = 32;
/// Bytes before the texts.
const WORDS: usize = 80;

/// How a rank reached its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spoke {
    /// It made no request.
    #[default]
    Not,
    Pmi1,
    Pmi2,
    Pmix,
}

/// How a rank ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Exit(u8),
    Signal(u8),
}

/// Times are of the node's wall clock, in ns; 0: it did not happen, or is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub rank: u32,
    /// 0: the launcher did not say.
    pub size: u32,
    pub node: String,
    pub launcher: String,
    /// The first process of the launcher on that node.
    pub process: String,
    pub spoke: Spoke,
    pub end: End,
    /// The bytes of the link could not be read.
    pub is_lost: bool,
    /// The tap could not watch the requests.
    pub is_bare: bool,
    pub launcher_ns: u64,
    pub tap_ns: u64,
    pub exec_ns: u64,
    pub end_ns: u64,
    /// Until the first request.
    pub effort: Effort,
    pub tally: Tally,
}

/// Why bytes are no record.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadRecord {
    #[error("it is not a record of this version of wireup")]
    Foreign,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("{0} makes no sense")]
    Senseless(&'static str),
}

impl Record {
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let (end, code) = match self.end {
            End::Exit(code) => (0, code),
            End::Signal(signal) => (1, signal),
        };
        let spoke = match self.spoke {
            Spoke::Not => 0,
            Spoke::Pmi1 => 1,
            Spoke::Pmi2 => 2,
            Spoke::Pmix => 3,
        };
        let seen = u64::from(self.is_lost) | u64::from(self.is_bare) << 1;
        let (effort, tally) = (&self.effort, &self.tally);
        let mut words = vec![self.rank.into(), self.size.into(), spoke, end, code.into(), seen];
        words.extend([self.launcher_ns, self.tap_ns, self.exec_ns, self.end_ns]);
        words.extend([effort.cpu_ns, effort.core_wait_ns, effort.major_faults]);
        words.extend([effort.read_calls, effort.read_bytes, effort.mapped_files]);
        words.extend([tally.pid, tally.loaded_ns, tally.first_ns, tally.finalize_ns, tally.last_ns, tally.fences]);
        words.extend(tally.fence_times.iter().flat_map(|&(from, to)| [from, to]));
        words.extend(tally.families.iter().flat_map(|of| [of.calls, of.sent, of.received, of.wait_ns, of.longest_ns]));
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        for (slot, word) in bytes[16..8 * WORDS].chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let mut at = 8 * WORDS;
        for (text, room) in [(&self.node, NODE_BYTES), (&self.launcher, NAME_BYTES), (&self.process, NAME_BYTES)] {
            let shown: String = text.chars().filter(char::is_ascii_graphic).take(room).collect();
            bytes[at..at + shown.len()].copy_from_slice(shown.as_bytes());
            at += room;
        }
        let sum = checksum(&bytes[16..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// # Errors
    /// The bytes are no record, or say what cannot be.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, BadRecord> {
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let mut next = || words.next().unwrap_or(0);
        if next() != MAGIC {
            return Err(BadRecord::Foreign);
        }
        if next() != checksum(&bytes[16..]) {
            return Err(BadRecord::Checksum);
        }
        let small = |word: u64, what| u32::try_from(word).map_err(|_| BadRecord::Senseless(what));
        let (rank, size) = (small(next(), "its rank")?, small(next(), "its number of ranks")?);
        let spoke = match next() {
            0 => Spoke::Not,
            1 => Spoke::Pmi1,
            2 => Spoke::Pmi2,
            3 => Spoke::Pmix,
            _ => return Err(BadRecord::Senseless("its kind of PMI")),
        };
        let (end, code) = (next(), next());
        let code = u8::try_from(code).map_err(|_| BadRecord::Senseless("its exit code"))?;
        let end = if end == 0 { End::Exit(code) } else { End::Signal(code) };
        let seen = next();
        let (is_lost, is_bare) = (seen & 1 != 0, seen & 2 != 0);
        let [launcher_ns, tap_ns, exec_ns, end_ns] = [next(), next(), next(), next()];
        let effort = Effort {
            cpu_ns: next(),
            core_wait_ns: next(),
            major_faults: next(),
            read_calls: next(),
            read_bytes: next(),
            mapped_files: next(),
        };
        let mut tally = Tally {
            pid: next(),
            loaded_ns: next(),
            first_ns: next(),
            finalize_ns: next(),
            last_ns: next(),
            fences: next(),
            ..Tally::default()
        };
        tally.fence_times.iter_mut().for_each(|times| *times = (next(), next()));
        for of in &mut tally.families {
            *of = Requests { calls: next(), sent: next(), received: next(), wait_ns: next(), longest_ns: next() };
        }
        let text = |from: usize, room: usize| text(&bytes[from..from + room]).ok_or(BadRecord::Senseless("a name"));
        let at = 8 * WORDS;
        let record = Record {
            rank,
            size,
            node: text(at, NODE_BYTES)?,
            launcher: text(at + NODE_BYTES, NAME_BYTES)?,
            process: text(at + NODE_BYTES + NAME_BYTES, NAME_BYTES)?,
            spoke,
            end,
            is_lost,
            is_bare,
            launcher_ns,
            tap_ns,
            exec_ns,
            end_ns,
            effort,
            tally,
        };
        record.check().map_err(BadRecord::Senseless)?;
        Ok(record)
    }

    /// What cannot be, whoever has written it.
    ///
    /// # Errors
    /// It says what.
    pub fn check(&self) -> Result<(), &'static str> {
        /// No sum over the numbers of one rank overflows.
        const MAX: u64 = 1 << 52;
        if self.rank >= RANKS_MAX || self.size > RANKS_MAX {
            return Err("its place in the job");
        }
        if self.node.is_empty() || (self.size > 0 && self.rank >= self.size) {
            return Err("its place in the job");
        }
        let tally = &self.tally;
        let within = |at: u64| at == 0 || (self.exec_ns..=self.end_ns).contains(&at);
        let stamps = [tally.loaded_ns, tally.first_ns, tally.finalize_ns, tally.last_ns];
        let fences = tally.fence_times.iter().flat_map(|&(from, to)| [from, to]);
        let is_ordered = self.launcher_ns <= self.tap_ns && self.tap_ns <= self.exec_ns && self.exec_ns > 0;
        // A fence may also be one that never ended.
        let are_fences = tally.fence_times.iter().all(|&(from, to)| to == 0 || (from > 0 && from <= to));
        if !is_ordered || !are_fences || !stamps.into_iter().chain(fences).all(within) {
            return Err("one of its times");
        }
        let effort = &self.effort;
        let numbers = [effort.cpu_ns, effort.core_wait_ns, effort.major_faults, effort.read_calls, effort.read_bytes];
        let sums = tally.families.iter().flat_map(|of| [of.calls, of.sent, of.received, of.wait_ns, of.longest_ns]);
        if numbers.into_iter().chain(sums).chain([effort.mapped_files, tally.fences]).any(|number| number > MAX) {
            return Err("one of its numbers");
        }
        Ok(())
    }
}

const _: () = assert!(16 + (6 + 4 + 6 + 6 + 16 + 5 * FAMILIES) * 8 <= 8 * WORDS);
const _: () = assert!(8 * WORDS + NODE_BYTES + 2 * NAME_BYTES <= RECORD_BYTES);

/// A text that ends at the first 0; `None`: not one that is written here.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let is_text = bytes[..end].iter().all(u8::is_ascii_graphic) && bytes[end..].iter().all(|&byte| byte == 0);
    is_text.then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// FNV-1a: finds bytes that were written in part, not bytes that somebody has made up.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn record(rank: u32) -> Record {
        let mut tally =
            Tally { pid: 7, loaded_ns: 30, first_ns: 40, finalize_ns: 80, last_ns: 85, fences: 2, ..Tally::default() };
        tally.fence_times[0] = (50, 60);
        tally.fence_times[1] = (70, 75);
        tally.families[4] = Requests { calls: 2, sent: 26, received: 28, wait_ns: 15, longest_ns: 10 };
        Record {
            rank,
            size: 4,
            node: format!("n{}", rank / 2),
            launcher: "Hydra".into(),
            process: "mpiexec".into(),
            spoke: Spoke::Pmi1,
            end: End::Exit(3),
            is_lost: false,
            is_bare: true,
            launcher_ns: 1,
            tap_ns: 10,
            exec_ns: 20,
            end_ns: 90,
            effort: Effort {
                cpu_ns: 5,
                core_wait_ns: 6,
                major_faults: 1,
                read_calls: 9,
                read_bytes: 99,
                mapped_files: 3,
            },
            tally,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = record(3);
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: fn(&mut Record)| {
            let mut record = record(3);
            change(&mut record);
            Record::decode(&record.encode()).unwrap_err()
        };
        assert_eq!(refused(|record| record.rank = 4), BadRecord::Senseless("its place in the job"));
        let of_no_job = |record: &mut Record| (record.size, record.rank) = (u32::MAX, u32::MAX - 1);
        assert_eq!(refused(of_no_job), BadRecord::Senseless("its place in the job"));
        assert_eq!(refused(|record| record.node.clear()), BadRecord::Senseless("its place in the job"));
        assert_eq!(refused(|record| record.tally.fence_times[1].1 = 69), BadRecord::Senseless("one of its times"));
        assert_eq!(refused(|record| record.tally.first_ns = 91), BadRecord::Senseless("one of its times"));
        assert_eq!(
            refused(|record| record.tally.families[0].sent = u64::MAX),
            BadRecord::Senseless("one of its numbers")
        );
        let mut bytes = record(3).encode();
        bytes[100] ^= 1;
        assert_eq!(Record::decode(&bytes), Err(BadRecord::Checksum));
        assert_eq!(Record::decode(&[7; RECORD_BYTES]), Err(BadRecord::Foreign));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), RECORD_BYTES - 16)) {
            let mut whole = record(0).encode();
            whole[16..].copy_from_slice(&bytes);
            let sum = checksum(&whole[16..]);
            whole[8..16].copy_from_slice(&sum.to_le_bytes());
            let _ = Record::decode(&whole);
        }
    }
}
