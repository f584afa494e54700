//! The board: a file in shared memory in which the benchmark tells the ranks their next step and the ranks leave their
//! clock readings.
//!
//! The ranks map it (`programs/board.h` has the layout); here it is read and written as a file, which on tmpfs is the
//! same memory.
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use wireup_sim::rank_network::Cost;

use super::scheme::Step;

const MAGIC: u32 = 0x5755_4231;
const OPENED_AT: u64 = 16;
const STEP_AT: u64 = 24;
const SLOTS_AT: u64 = 4096;
const SLOT_LEN: usize = 128;
/// A folder of files in shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// One rank's readings of a step (ns of `CLOCK_MONOTONIC`; `start_cpu_ns` of its thread's CPU time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    pub network: Network,
}

/// What a rank has sent to other ranks, and what it holds (`programs/groups.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// In the step; before the first one, since the start.
    pub cost: Cost,
    /// Now.
    pub connections: u64,
    pub addresses: u64,
    /// Bytes of its own address.
    pub address_len: u64,
}

pub struct Board {
    file: File,
    path: PathBuf,
    job_size: u32,
}

impl Board {
    /// A board for one job; `number` makes its name unique in this process. Without `/dev/shm` it is created in
    /// `otherwise`.
    pub fn create(job_size: u32, number: u32, otherwise: &Path) -> io::Result<Board> {
        let folder = if Path::new(SHARED_MEMORY).is_dir() { Path::new(SHARED_MEMORY) } else { otherwise };
        let path = folder.join(format!("wireup-bench-board-{}-{number}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let board = Board { file, path, job_size };
        board.file.set_len(SLOTS_AT + u64::from(job_size) * SLOT_LEN as u64)?;
        board.file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
        board.file.write_all_at(&job_size.to_ne_bytes(), 4)?;
        Ok(board)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn write_step(&self, step: &Step, salt: u32) -> io::Result<()> {
        self.file.write_all_at(&step.encode(salt), STEP_AT)
    }

    /// When the gate was opened for the last step (ns).
    pub fn opened_ns(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, OPENED_AT)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// All ranks' readings, by rank.
    pub fn slots(&self) -> io::Result<Vec<Slot>> {
        let mut bytes = vec![0; self.job_size as usize * SLOT_LEN];
        self.file.read_exact_at(&mut bytes, SLOTS_AT)?;
        Ok(bytes.chunks_exact(SLOT_LEN).map(Slot::decode).collect())
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // A failure cannot be handled here; the file's name shows which process made it.
        let _ = fs::remove_file(&self.path);
    }
}

impl Slot {
    /// Decodes a slot of 128 bytes.
    fn decode(bytes: &[u8]) -> Slot {
        let number = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
            u64::from_ne_bytes(word)
        };
        Slot {
            pid: number(0),
            join_begin_ns: number(1),
            join_end_ns: number(2),
            step: number(3),
            start_ns: number(4),
            begun_ns: number(5),
            ready_ns: number(6),
            end_ns: number(7),
            start_cpu_ns: number(8),
            network: Network {
                cost: Cost { messages: number(9), bytes: number(10), rounds: number(11), questions: number(12) },
                connections: number(13),
                addresses: number(14),
                address_len: number(15),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_by_rank_and_the_file_is_removed() {
        let board = Board::create(2, 7, &std::env::temp_dir()).unwrap();
        let second = SLOTS_AT + SLOT_LEN as u64;
        board.file.write_all_at(&41u64.to_ne_bytes(), second).unwrap();
        board.file.write_all_at(&42u64.to_ne_bytes(), second + 64).unwrap();
        let slots = board.slots().unwrap();
        assert_eq!(slots, [Slot::default(), Slot { pid: 41, start_cpu_ns: 42, ..Slot::default() }]);
        let path = board.path().to_owned();
        drop(board);
        assert!(!path.exists());
    }
}
