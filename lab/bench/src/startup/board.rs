//! The board: a file in shared memory in which the benchmark tells the ranks their next step and the ranks leave their
//! clock readings.
//!
//! The ranks map the file (`programs/board.h` has the layout); this module reads and writes it as a file, which is the
//! same memory. The file has no name but the path of the benchmark's descriptor, so nothing of it is left however the
//! benchmark ends. All ranks read the same `CLOCK_MONOTONIC`, so times of different ranks can be compared; this works
//! on one machine with virtual nodes.
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use zerocopy::{FromBytes, IntoBytes};

use super::scheme::Step;
use crate::command::{Failure, wrong};
use crate::samples::{Measures, of_ranks, seconds};

const MAGIC: u32 = 0x5755_4231;
const OPENED_AT: u64 = 16;
const STEP_AT: u64 = 24;
const SLOTS_AT: u64 = 4096;

/// One rank's clock readings of a step (ns; `start_cpu_ns`: CPU time of its thread), as the rank writes them.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
#[repr(C)]
pub struct Slot {
    pub pid: u64,
    pub join_begin_ns: u64,
    pub join_end_ns: u64,
    pub step: u64,
    pub start_ns: u64,
    pub begun_ns: u64,
    pub ready_ns: u64,
    pub end_ns: u64,
    pub start_cpu_ns: u64,
    /// Counts that `programs/groups.c` writes. For this step (before the first step: since the start of the rank):
    /// messages and bytes sent to other ranks, consecutive waits for messages, messages that asked for an address.
    /// Totals: connections and addresses that the rank holds, and the length of its own address (bytes).
    pub counts: [u64; 7],
}

pub struct Board {
    file: File,
    job_size: u32,
}

impl Board {
    pub fn create(job_size: u32) -> io::Result<Board> {
        let file = File::from(memfd_create("bench-board", MemfdFlags::CLOEXEC)?);
        file.set_len(SLOTS_AT + u64::from(job_size) * size_of::<Slot>() as u64)?;
        file.write_all_at(&[MAGIC.to_ne_bytes(), job_size.to_ne_bytes()].concat(), 0)?;
        Ok(Board { file, job_size })
    }

    /// The path by which other processes of this machine open the board.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    pub fn write_step(&self, step: &Step, salt: u32) -> io::Result<()> {
        self.file.write_all_at(&step.encode(salt), STEP_AT)
    }

    /// Time at which the ranks were released for the last step (ns of `CLOCK_MONOTONIC`).
    pub fn opened_ns(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, OPENED_AT)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The readings of all ranks, by rank.
    pub fn slots(&self) -> io::Result<Vec<Slot>> {
        let mut slots = vec![Slot::default(); self.job_size as usize];
        self.file.read_exact_at(slots.as_mut_bytes(), SLOTS_AT)?;
        Ok(slots)
    }
}

/// The times per repetition of step number `step`, which was released at `opened_ns` and repeated `repeat` times.
pub fn evaluate(slots: &[Slot], step: u64, opened_ns: u64, repeat: u32) -> Result<Measures, Failure> {
    for (rank, slot) in slots.iter().enumerate() {
        if slot.step != step {
            return Err(wrong(format!("rank {rank} has not done the step")));
        }
        // A wait begins after the call that starts the operation; for a blocking operation `begun` may be anywhere
        // before the end.
        if ![opened_ns, slot.start_ns, slot.begun_ns, slot.ready_ns, slot.end_ns].is_sorted() {
            return Err(wrong(format!("rank {rank}'s clock readings are out of order")));
        }
    }
    let last = |of: fn(&Slot) -> u64| slots.iter().map(of).max().unwrap_or(0);
    let each = |ns: u64| (ns / u64::from(repeat)) as f64 / 1e9;
    let mut measures = vec![
        seconds("time", each(last(|slot| slot.end_ns) - last(|slot| slot.start_ns))),
        seconds("whole", each(last(|slot| slot.end_ns) - opened_ns)),
    ];
    measures.extend(of_ranks("rank", slots.iter().map(|slot| each(slot.end_ns - slot.start_ns))));
    measures.extend(of_ranks("ready", slots.iter().map(|slot| each(slot.ready_ns - slot.start_ns))));
    // Only the last repetition's start call is timed.
    measures.extend(of_ranks("start-cpu", slots.iter().map(|slot| slot.start_cpu_ns as f64 / 1e9)));
    Ok(measures)
}

/// Times of the call that joins the job: the time of the median rank and the time of the slowest rank.
pub fn joins(slots: &[Slot]) -> Measures {
    let time_s = |slot: &Slot| slot.join_end_ns.saturating_sub(slot.join_begin_ns) as f64 / 1e9;
    of_ranks("join", slots.iter().map(time_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::value_of;

    fn slot(start_ns: u64, ready_ns: u64, end_ns: u64) -> Slot {
        Slot { step: 3, start_ns, begun_ns: start_ns + 1, ready_ns, end_ns, start_cpu_ns: 40, ..Slot::default() }
    }

    #[test]
    fn times_are_from_the_last_start_to_the_last_end() {
        let slots = [slot(1000, 1500, 9000), slot(3000, 3200, 5000), slot(2000, 2600, 8000)];
        let measures = evaluate(&slots, 3, 500, 2).unwrap();
        let ns = |name: &str| (value_of(&measures, name).unwrap() * 1e9).round();
        let names = ["time", "whole", "rank", "rank-max", "ready", "start-cpu-max"];
        assert_eq!(names.map(ns), [3000.0, 4250.0, 3000.0, 4000.0, 250.0, 40.0]);
        // A rank whose readings are of an earlier step is an error, and so are readings out of order.
        let one = |step, opened_ns, ready_ns, end_ns| evaluate(&[slot(1000, ready_ns, end_ns)], step, opened_ns, 1);
        assert!(one(4, 500, 1500, 9000).is_err() && one(3, 500, 1500, 1200).is_err());
        assert!(one(3, 1001, 1500, 9000).is_err() && one(3, 500, 1500, 9000).is_ok());
    }
}
