//! The cost of an operation: writes the operation into the log and makes it last as long as it should.
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Totals of all operations since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub operations: u64,
    /// Bytes of the contents of files that were read.
    pub read_bytes: u64,
    /// Sum of the simulated durations of all operations. They do not overlap, so the server was busy at least this
    /// long.
    pub delay: Duration,
}

impl Totals {
    pub fn to_words(self) -> String {
        format!("{} {} {}", self.operations, self.read_bytes, self.delay.as_nanos())
    }

    pub fn parse(words: &str) -> Option<Totals> {
        let numbers: Vec<u64> = words.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [operations, read_bytes, delay_ns] = numbers[..] else { return None };
        Some(Totals { operations, read_bytes, delay: Duration::from_nanos(delay_ns) })
    }
}

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
    totals: Totals,
}

impl Meter {
    /// A meter that writes to `log`, which is open for appending.
    pub fn new(log: File, delay: Duration, bandwidth_mb: u64) -> Meter {
        Meter { log, delay, bandwidth_mb, totals: Totals::default() }
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Logs an operation that began at `begin`, and returns when it has lasted long enough. The caller answers the
    /// kernel afterwards.
    ///
    /// # Panics
    /// If the log cannot be written: a test would miss operations.
    pub fn charge(&mut self, line: &Line, begin: Instant, read_bytes: u64) {
        let cost = self.delay + transfer(read_bytes, self.bandwidth_mb);
        self.totals.operations += 1;
        self.totals.read_bytes += read_bytes;
        self.totals.delay += cost;
        if let Err(error) = self.log.write_all(&line.to_bytes()) {
            panic!("the log of the slow file system: {error}");
        }
        thread::sleep(cost.saturating_sub(begin.elapsed()));
    }
}

/// The time that `bytes` take at `bandwidth_mb` * 10^6 bytes per second.
fn transfer(bytes: u64, bandwidth_mb: u64) -> Duration {
    Duration::from_nanos(bytes * 1000 / bandwidth_mb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_totals_round_trip() {
        let line = |path: &[u8]| Line { operation: "read".into(), pid: 7, path: OsStr::from_bytes(path).into() };
        let mut log = [line(b"a b/\xff").to_bytes(), line(b"").to_bytes(), line(b"c\nd").to_bytes()].concat();
        log.extend_from_slice(b"read 7 inc");
        assert_eq!(Line::parse_all(&log), [line(b"a b/\xff"), line(b"."), line(b"c?d")]);
        assert_eq!(Line::parse_all(b""), []);
        let totals = Totals { operations: 1, read_bytes: 2, delay: Duration::from_nanos(3) };
        assert_eq!(Totals::parse(&totals.to_words()), Some(totals));
    }

    #[test]
    fn every_operation_costs_its_delay_and_its_bytes() {
        let log = File::options().append(true).open("/dev/null").expect("/dev/null");
        let mut meter = Meter::new(log, Duration::from_micros(3), 500);
        let line = Line { operation: "read".into(), pid: 7, path: "a".into() };
        meter.charge(&line, Instant::now(), 0);
        meter.charge(&line, Instant::now(), 2000);
        let delay = Duration::from_micros(3 + 3 + 4);
        assert_eq!(meter.totals(), Totals { operations: 2, read_bytes: 2000, delay });
    }
}
