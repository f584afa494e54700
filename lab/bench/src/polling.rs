//! Ranks that poll for each other while other processes want the same cpus.
//!
//! A busy machine is simulated by as many busy processes as there are cpus, each in a session of its own, like another
//! user's programs. When ranks poll and yield, the other ranks should run next, not those processes. With Linux'
//! autogroups, or with a single group for all, that depends on how the launcher starts the ranks.
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::programs::{Program, Scratch};

/// How often the ranks meet. Chosen: a launcher whose ranks become extremely slow still ends within its limit.
pub const TURNS: u32 = 2000;
/// Time for the busy processes to start (chosen).
const LEAD: Duration = Duration::from_millis(50);

/// Bytes of the file that ranks map: two words, then the two times, as in `programs/polling.c`.
const BOARD_BYTES: usize = 24;

/// A file that no rank has used yet.
pub fn empty_board(path: &Path) -> io::Result<()> {
    fs::write(path, [0; BOARD_BYTES])
}

/// From the arrival of the last rank until all have met for the last time (s); `None` if they have not.
pub fn elapsed_s(board: &[u8]) -> Option<f64> {
    let time = |at: usize| Some(u64::from_ne_bytes(board.get(at..at + 8)?.try_into().ok()?));
    let (begin, end) = (time(8)?, time(16)?);
    (0 < begin && begin <= end).then(|| (end - begin) as f64 / 1e9)
}

/// One busy process for each cpu; they are ended on drop.
pub struct BusyCpus(Vec<Child>);

impl BusyCpus {
    pub fn begin(scratch: &Scratch) -> io::Result<BusyCpus> {
        let mut busy = BusyCpus(Vec::new());
        for _ in 0..thread::available_parallelism()?.get() {
            let mut command = Command::new(scratch.program(Program::Polling));
            command.arg("--busy").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            busy.0.push(command.spawn()?);
        }
        thread::sleep(LEAD);
        Ok(busy)
    }
}

impl Drop for BusyCpus {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have exited already; then it is only reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_only_from_a_finished_board() {
        let board = |begin: u64, end: u64| [[0; 8], begin.to_ne_bytes(), end.to_ne_bytes()].concat();
        assert_eq!(elapsed_s(&board(1_000_000_000, 3_500_000_000)), Some(2.5));
        for unfinished in [board(0, 0), board(5, 0), board(0, 5), Vec::new()] {
            assert_eq!(elapsed_s(&unfinished), None);
        }
    }

    #[test]
    fn polling_ranks_finish_and_busy_processes_end() {
        let scratch = Scratch::create().unwrap();
        let busy = BusyCpus::begin(&scratch).unwrap();
        let pids: Vec<u32> = busy.0.iter().map(Child::id).collect();
        let board = scratch.file("board");
        empty_board(&board).unwrap();
        let start = || Command::new(scratch.program(Program::Polling)).args(["2", "9"]).arg(&board).spawn().unwrap();
        for mut rank in [start(), start()] {
            assert!(rank.wait().unwrap().success());
        }
        assert!(elapsed_s(&fs::read(&board).unwrap()).is_some());
        drop(busy);
        assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
    }
}
