//! Reads from the kernel's log whether the kernel killed a process because memory ran out: its exit status does not
//! show that.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};

/// Longest record of the kernel's log (the kernel's `PRINTKRB_RECORD_MAX`, doubled); each read returns one record.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// Most records that are read: more than a log of 16 MiB can have.
const RECORDS_MAX: usize = 1 << 18;

/// Whether the kernel's log contains that this process was killed because memory ran out. Always `false` if this user
/// may not read the log, or if pids differ from those in the log because this process is in a PID namespace.
pub fn ran_out_of_memory(pid: u32) -> bool {
    let Ok(log) = open("/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut buffer = vec![0; RECORD_BYTES_MAX];
    for _ in 0..RECORDS_MAX {
        match read(&log, &mut buffer) {
            Ok(length @ 1..) if is_about(&String::from_utf8_lossy(&buffer[..length]), pid) => return true,
            // `EPIPE`: the record was overwritten before it was read.
            Ok(1..) | Err(Errno::PIPE | Errno::INTR) => {}
            Ok(0) | Err(_) => return false,
        }
    }
    false
}

/// Whether a record is about the kill of this process: `3,1042,5123456789,-;Memory cgroup out of memory: Killed process
/// 4711 (app) total-vm:…`
fn is_about(record: &str, pid: u32) -> bool {
    record.contains("ut of memory") && record.contains(&format!(" process {pid} ("))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_about_lack_of_memory_name_the_process() {
        let record = |text: &str| format!("3,1042,5123456789,-;{text}\n SUBSYSTEM=memory\n");
        let killed = record("Out of memory: Killed process 471 (app) total-vm:9kB, UID:0");
        assert_eq!([471, 47, 71, 4711].map(|pid| is_about(&killed, pid)), [true, false, false, false]);
        assert!(is_about(&record("Memory cgroup out of memory: Killed process 471 (app)"), 471));
        assert!(!is_about(&record("sending signal to process 471 (app)"), 471));
        assert!(!ran_out_of_memory(0), "no process has this number");
    }
}
