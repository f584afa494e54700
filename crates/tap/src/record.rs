//! A record of one rank's startup, with a fixed size, which the rank's tap passes to the tap of rank 0. It contains the
//! counts of the rank's page as plain numbers (`Tally`).

use crate::page::{FAMILIES, FENCES_KEPT, Family, PAGE_BYTES, Page};
use crate::place::RANKS_MAX;
use crate::process::Effort;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub const RECORD_BYTES: usize = 1024;
const MAGIC: &[u8; 8] = b"wuptap03";
/// Bytes of the magic and the checksum.
const HEAD_BYTES: usize = 16;
const NODE_BYTES: usize = 64;
const NAME_BYTES: usize = 32;

/// The protocol that a rank spoke with its PMI server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Spoke {
    /// The rank made no request.
    #[default]
    Not,
    Pmi1,
    Pmi2,
    Pmix,
}

/// How a rank ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum End {
    Exit(u8),
    Signal(u8),
}

/// Sums over all requests of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Requests {
    pub calls: u64,
    pub sent: u64,
    pub received: u64,
    pub wait_ns: u64,
    pub longest_ns: u64,
}

/// The counts of one rank's PMI requests. A time of 0: the event did not happen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub pid: u64,
    pub loaded_ns: u64,
    pub first_ns: u64,
    pub finalize_ns: u64,
    /// Time of the last answer.
    pub last_ns: u64,
    pub fences: u64,
    /// Times at which the rank entered and left each fence, in the order of the entries.
    pub fence_times: [(u64, u64); FENCES_KEPT],
    pub families: [Requests; FAMILIES],
}

impl Tally {
    pub fn of(page: &Page) -> Tally {
        let of = |number: &AtomicU64| number.load(Relaxed);
        let mut tally = Tally {
            pid: of(&page.pid),
            loaded_ns: of(&page.loaded_ns),
            first_ns: of(&page.first_ns),
            finalize_ns: of(&page.finalize_ns),
            last_ns: of(&page.last_ns),
            fences: of(&page.fences),
            ..Tally::default()
        };
        for (number, times) in tally.fence_times.iter_mut().enumerate() {
            *times = (of(&page.fence_in_ns[number]), of(&page.fence_out_ns[number]));
        }
        for (requests, sums) in tally.families.iter_mut().zip(&page.families) {
            *requests = Requests {
                calls: of(&sums.calls),
                sent: of(&sums.sent),
                received: of(&sums.received),
                wait_ns: of(&sums.wait_ns),
                longest_ns: of(&sums.longest_ns),
            };
        }
        tally
    }

    /// The counts on the page with these bytes, which may have any values, since the rank can write to the page.
    pub fn of_bytes(bytes: &[u8; PAGE_BYTES]) -> Tally {
        let page = Page::default();
        let before = [&page.magic, &page.pid, &page.loaded_ns, &page.first_ns, &page.finalize_ns, &page.last_ns];
        let fences = std::iter::once(&page.fences).chain(&page.fence_in_ns).chain(&page.fence_out_ns);
        let families =
            page.families.iter().flat_map(|of| [&of.calls, &of.sent, &of.received, &of.wait_ns, &of.longest_ns]);
        let all = before.into_iter().chain(fences).chain(families);
        let (words, _) = bytes.as_chunks();
        all.zip(words).for_each(|(slot, word)| slot.store(u64::from_ne_bytes(*word), Relaxed));
        Tally::of(&page)
    }

    pub fn family(&self, family: Family) -> &Requests {
        &self.families[family as usize]
    }

    pub fn calls(&self) -> u64 {
        // The sum may not overflow: the rank can write anything to the page.
        self.families.iter().fold(0, |sum, family| sum.saturating_add(family.calls))
    }
}

/// Times are of the node's wall clock, in ns; 0: the event did not happen, or its time is not known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    pub rank: u32,
    /// Number of ranks; 0: the launcher did not tell it.
    pub size: u32,
    pub node: String,
    pub launcher: String,
    /// Name of the launcher's first process on that node.
    pub process: String,
    pub spoke: Spoke,
    pub end: End,
    /// Whether the bytes of the rank's PMI link could not be parsed, so that requests are missing in `tally`.
    pub is_lost: bool,
    /// Whether the tap could not watch the requests.
    pub is_bare: bool,
    pub launcher_ns: u64,
    pub tap_ns: u64,
    pub exec_ns: u64,
    pub end_ns: u64,
    /// Resources that the rank's process had used until its first request.
    pub effort: Effort,
    pub tally: Tally,
}

impl Record {
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let shown = |text: &str, room| text.chars().filter(char::is_ascii_graphic).take(room).collect();
        let [launcher, process] = [&self.launcher, &self.process].map(|name| shown(name, NAME_BYTES));
        let record = Record { node: shown(&self.node, NODE_BYTES), launcher, process, ..self.clone() };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        postcard::to_slice(&record, &mut bytes[HEAD_BYTES..]).expect("there is room for the longest one");
        let sum = hash(&bytes[HEAD_BYTES..]);
        bytes[8..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// # Errors
    /// The bytes are no record, or contain impossible values.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, String> {
        if bytes[..8] != *MAGIC {
            return Err("it is not a record of this version of wireup".into());
        }
        if bytes[8..HEAD_BYTES] != hash(&bytes[HEAD_BYTES..]).to_le_bytes() {
            return Err("its checksum is wrong".into());
        }
        let record: Record = postcard::from_bytes(&bytes[HEAD_BYTES..]).map_err(|error| error.to_string())?;
        let is_name = |text: &str, room| text.len() <= room && text.bytes().all(|byte| byte.is_ascii_graphic());
        let are_names = [&record.launcher, &record.process].iter().all(|name| is_name(name, NAME_BYTES));
        let possible = if are_names && is_name(&record.node, NODE_BYTES) { record.check() } else { Err("a name") };
        possible.map(|()| record).map_err(|what| format!("{what} is not valid"))
    }

    /// Checks the record for impossible values; any program may have written it.
    ///
    /// # Errors
    /// A value is impossible; the error names the part of the record.
    pub fn check(&self) -> Result<(), &'static str> {
        /// Largest number in a record: sums over the numbers of one rank do not overflow.
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
        // A fence that never ended has no end time.
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

// A 64-bit number takes at most 10 bytes; the last 2 numbers account for the shorter fields.
const _: () = assert!(
    HEAD_BYTES + (4 + 6 + 6 + 2 * FENCES_KEPT + 5 * FAMILIES + 2) * 10 + NODE_BYTES + 2 * NAME_BYTES <= RECORD_BYTES
);

/// FNV-1a hash, which anyone can compute: as a checksum it detects bytes that were written incompletely, and not
/// deliberate changes.
pub fn hash(bytes: &[u8]) -> u64 {
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
    fn the_longest_record_has_room() {
        let (most, name) = (u64::MAX, |room| "n".repeat(room + 1));
        let requests = Requests { calls: most, sent: most, received: most, wait_ns: most, longest_ns: most };
        let mut tally = Tally { pid: most, loaded_ns: most, first_ns: most, finalize_ns: most, ..Tally::default() };
        (tally.last_ns, tally.fences) = (most, most);
        (tally.fence_times, tally.families) = ([(most, most); FENCES_KEPT], [requests; FAMILIES]);
        let (node, launcher, process) = (name(NODE_BYTES), name(NAME_BYTES), name(NAME_BYTES));
        let longest = Record { size: u32::MAX, rank: u32::MAX, node, launcher, process, tally, ..record(0) };
        let times = Record { launcher_ns: most, tap_ns: most, exec_ns: most, end_ns: most, ..longest };
        assert!(Record::decode(&times.encode()).is_err_and(|why| why.starts_with("its place in the job")));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: fn(&mut Record)| {
            let mut record = record(3);
            change(&mut record);
            Record::decode(&record.encode()).unwrap_err()
        };
        assert_eq!(refused(|record| record.rank = 4), "its place in the job is not valid");
        let of_no_job = |record: &mut Record| (record.size, record.rank) = (u32::MAX, u32::MAX - 1);
        assert_eq!(refused(of_no_job), "its place in the job is not valid");
        assert_eq!(refused(|record| record.node.clear()), "its place in the job is not valid");
        assert_eq!(refused(|record| record.tally.fence_times[1].1 = 69), "one of its times is not valid");
        assert_eq!(refused(|record| record.tally.first_ns = 91), "one of its times is not valid");
        assert_eq!(refused(|record| record.tally.families[0].sent = u64::MAX), "one of its numbers is not valid");
        let mut bytes = record(3).encode();
        bytes[100] ^= 1;
        assert_eq!(Record::decode(&bytes), Err("its checksum is wrong".into()));
        assert_eq!(Record::decode(&[7; RECORD_BYTES]), Err("it is not a record of this version of wireup".into()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), RECORD_BYTES - 16)) {
            let mut whole = record(0).encode();
            whole[HEAD_BYTES..].copy_from_slice(&bytes);
            let sum = hash(&whole[HEAD_BYTES..]);
            whole[8..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
            let _ = Record::decode(&whole);
        }
    }
}
