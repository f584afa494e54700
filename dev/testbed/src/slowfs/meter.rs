//! The cost of an operation: writes the operation into the log and makes it last as long as it should.
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// One operation, as a line of the log contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub operation: String,
    /// The thread that caused the operation; 0: the kernel itself, for example when it closes a file or reads ahead.
    pub pid: u32,
    /// Path of the file relative to the source, which itself is `.`.
    pub path: PathBuf,
}

impl Line {
    /// The operations in all complete lines of a log.
    pub fn parse_all(log: &[u8]) -> Vec<Line> {
        let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(&log[..0], |end| &log[..end]);
        whole.split(|byte| *byte == b'\n').filter_map(Line::parse).collect()
    }

    fn parse(line: &[u8]) -> Option<Line> {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let operation = str::from_utf8(words.next()?).ok()?.to_owned();
        let pid = str::from_utf8(words.next()?).ok()?.parse().ok()?;
        Some(Line { operation, pid, path: OsStr::from_bytes(words.next()?).into() })
    }

    /// The line of the log, with its newline. A newline in the path becomes a question mark, so that each operation is
    /// one line.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} ", self.operation, self.pid).into_bytes();
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        let path = path.as_os_str().to_owned().into_vec();
        bytes.extend(path.into_iter().map(|byte| if byte == b'\n' { b'?' } else { byte }));
        bytes.push(b'\n');
        bytes
    }
}

pub struct Meter {
    log: File,
    delay: Duration,
    bandwidth_mb: u64,
}

impl Meter {
    /// A meter that writes to `log`, which is open for appending.
    pub fn new(log: File, delay: Duration, bandwidth_mb: u64) -> Meter {
        Meter { log, delay, bandwidth_mb }
    }

    /// Logs an operation that began at `begin`, and returns when it has lasted long enough. The caller answers the
    /// kernel afterwards.
    ///
    /// # Panics
    /// If the log cannot be written: a test would miss operations.
    pub fn charge(&mut self, line: &Line, begin: Instant, read_bytes: u64) {
        if let Err(error) = self.log.write_all(&line.to_bytes()) {
            panic!("the log of the slow file system: {error}");
        }
        let cost = self.delay + Duration::from_nanos(read_bytes * 1000 / self.bandwidth_mb);
        thread::sleep(cost.saturating_sub(begin.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip() {
        let line = |path: &[u8]| Line { operation: "read".into(), pid: 7, path: OsStr::from_bytes(path).into() };
        let mut log = [line(b"a b/\xff").to_bytes(), line(b"").to_bytes(), line(b"c\nd").to_bytes()].concat();
        log.extend_from_slice(b"read 7 inc");
        assert_eq!(Line::parse_all(&log), [line(b"a b/\xff"), line(b"."), line(b"c?d")]);
        assert_eq!(Line::parse_all(b""), []);
    }

    #[test]
    fn every_operation_costs_its_delay_and_its_bytes() {
        let log = File::options().append(true).open("/dev/null").expect("/dev/null");
        let mut meter = Meter::new(log, Duration::from_millis(3), 500);
        let line = Line { operation: "read".into(), pid: 7, path: "a".into() };
        for (read_bytes, cost_ms) in [(0, 3), (2_000_000, 3 + 4)] {
            let begin = Instant::now();
            meter.charge(&line, begin, read_bytes);
            assert!(begin.elapsed() >= Duration::from_millis(cost_ms), "{read_bytes} bytes");
        }
    }
}
