//! The exchange at MPI start-up (put, fence, get), measured.
//!
//! In each round every rank puts one key, fences, and gets keys of other ranks, beginning with its right neighbour's so
//! that the ranks do not all ask for the same key at once. The measurements go through the kvs too, in a last fence;
//! rank 0 prints the slowest rank's times as the mean over all rounds.

use super::flags::{Flags, number};
use super::session::{Outcome, Session};
use std::fmt::Write;
use wireup_os::clock::monotonic_ns;
use wireup_wire::pmi::{Dialect, Excerpt};

pub struct Exchange<'s> {
    session: &'s mut Session,
    flags: &'s Flags,
    init_ns: u64,
    rank: u32,
    size: u32,
}

/// One rank's measurements of one round, or the slowest times of all ranks in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Times {
    /// Identifies the clock: equal for ranks on one machine.
    clock: u64,
    init_ns: u64,
    put_ns: u64,
    /// The times at which the fence was entered and left, by the clock `clock`.
    in_ns: u64,
    out_ns: u64,
    get_ns: u64,
}

impl Times {
    /// Text of constant length, so that all runs exchange the same number of bytes.
    fn to_text(self) -> String {
        let Times { clock, init_ns, put_ns, in_ns, out_ns, get_ns } = self;
        format!("{clock:020},{init_ns:020},{put_ns:020},{in_ns:020},{out_ns:020},{get_ns:020}")
    }

    fn from_text(text: &str) -> Option<Times> {
        let numbers = text.split(',').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let [clock, init_ns, put_ns, in_ns, out_ns, get_ns] = numbers.try_into().ok()?;
        Some(Times { clock, init_ns, put_ns, in_ns, out_ns, get_ns })
    }
}

/// The result of one round over all ranks.
#[derive(Default)]
struct Round {
    slowest: Times,
    fence_ns: u64,
    one_clock: bool,
}

impl Round {
    /// The result of a round from the times of all ranks; `None` if there are no ranks.
    fn of(ranks: &[Times]) -> Option<Round> {
        let first = ranks.first()?;
        let one_clock = ranks.iter().all(|times| times.clock == first.clock);
        let max = |of: fn(&Times) -> u64| ranks.iter().map(of).max().unwrap_or(0);
        let fence_ns = if one_clock {
            max(|times| times.out_ns).saturating_sub(max(|times| times.in_ns))
        } else {
            // Without a common clock, the shortest wait is taken as the fence's time: it is that of the rank that
            // entered last.
            ranks.iter().map(|times| times.out_ns - times.in_ns).min().unwrap_or(0)
        };
        let slowest = Times {
            init_ns: max(|times| times.init_ns),
            put_ns: max(|times| times.put_ns),
            get_ns: max(|times| times.get_ns),
            ..Times::default()
        };
        Some(Round { slowest, fence_ns, one_clock })
    }
}

impl<'s> Exchange<'s> {
    pub fn new(session: &'s mut Session, flags: &'s Flags, init_ns: u64) -> Self {
        let (rank, size) = (session.rank(), session.size());
        Exchange { session, flags, init_ns, rank, size }
    }

    /// Runs all rounds. Returns the report of rank 0; the text of other ranks is empty.
    pub fn run(mut self) -> Result<String, String> {
        let mut measured = Vec::new();
        for round in 0..self.flags.rounds {
            measured.push(self.round(round)?);
        }
        if self.flags.check {
            self.check()?;
        }
        for (round, times) in measured.iter().enumerate() {
            self.session.put(&format!("wireup-times-{round}-{}", self.rank), times.to_text().as_bytes())?;
        }
        self.session.fence()?;
        if self.rank == 0 { self.report() } else { Ok(String::new()) }
    }

    fn round(&mut self, round: u32) -> Result<Times, String> {
        let clock = clock_name();
        let started_ns = monotonic_ns();
        self.session.put(&key(round, self.rank), &self.value(round, self.rank))?;
        let in_ns = monotonic_ns();
        self.session.fence()?;
        let out_ns = monotonic_ns();
        let gets = self.flags.gets.min(self.size);
        for step in 1..=gets {
            let of = (self.rank + step) % self.size;
            self.get_and_compare(&key(round, of), of, &self.value(round, of))?;
        }
        let get_ns = monotonic_ns() - out_ns;
        Ok(Times { clock, init_ns: self.init_ns, put_ns: in_ns - started_ns, in_ns, out_ns, get_ns })
    }

    /// The value that `rank` puts in a round: printable, without blanks, `value_len` bytes long.
    fn value(&self, round: u32, rank: u32) -> Vec<u8> {
        let mut value = format!("{rank}.{round}.").into_bytes();
        value.truncate(self.flags.value_len);
        let mut letter = b'a' + (rank % 26) as u8;
        value.resize_with(self.flags.value_len, || {
            letter = if letter == b'z' { b'a' } else { letter + 1 };
            letter
        });
        value
    }

    fn get_and_compare(&mut self, key: &str, of: u32, expected: &[u8]) -> Result<(), String> {
        let got = match self.session.get(key, Some(of))? {
            Outcome::Value(value) if value == expected => return Ok(()),
            Outcome::Value(value) => difference(&value, expected),
            other => other.into_text(),
        };
        Err(format!("get of {key}, put by rank {of}: {got}"))
    }

    /// Tests what the measured exchange does not cover: all bytes in a value, a missing key, `PMI_process_mapping`.
    fn check(&mut self) -> Result<(), String> {
        let dialect = self.session.dialect();
        // Hydra removes backslashes in PMI-1 and ends a PMI-2 value at the first ";".
        let disputed = if dialect == Dialect::Pmi2 { b';' } else { b'\\' };
        let every_byte: Vec<u8> = (33..=126).filter(|byte| *byte != disputed).collect();
        self.session.put(&format!("wireup-bytes-{}", self.rank), &every_byte)?;
        self.session.fence()?;
        let neighbour = (self.rank + 1) % self.size;
        self.get_and_compare(&format!("wireup-bytes-{neighbour}"), neighbour, &every_byte)?;
        let absent = self.session.get("wireup-nobody-put-this", None)?;
        if absent != Outcome::NotFound {
            return Err(format!("the get of a key that was never put returned {}", absent.into_text()));
        }
        let mapping = self.session.job_attr("PMI_process_mapping")?.into_text();
        if !mapping.starts_with("(vector,") {
            return Err(format!("PMI_process_mapping is no mapping: {mapping}"));
        }
        Ok(())
    }

    fn report(&mut self) -> Result<String, String> {
        let mut sum = Round { one_clock: true, ..Round::default() };
        for round in 0..self.flags.rounds {
            let mut ranks = Vec::new();
            for rank in 0..self.size {
                let key = format!("wireup-times-{round}-{rank}");
                let text = self.session.get(&key, Some(rank))?.into_text();
                let times = Times::from_text(&text);
                ranks.push(times.ok_or_else(|| format!("the value of {key} is not a list of times: {text}"))?);
            }
            let Some(all) = Round::of(&ranks) else { continue };
            sum.slowest.init_ns += all.slowest.init_ns;
            sum.slowest.put_ns += all.slowest.put_ns;
            sum.slowest.get_ns += all.slowest.get_ns;
            sum.fence_ns += all.fence_ns;
            sum.one_clock &= all.one_clock;
        }
        let rounds = u64::from(self.flags.rounds);
        let mut line = format!(
            "exchange ranks={} dialect={} value_bytes={} rounds={rounds}",
            self.size,
            number(self.session.dialect()),
            self.flags.value_len
        );
        let gets = self.flags.gets.min(self.size);
        for (name, ns) in [
            ("init_ms", sum.slowest.init_ns),
            ("put_ms", sum.slowest.put_ns),
            ("fence_ms", sum.fence_ns),
            ("get_ms", sum.slowest.get_ns),
        ] {
            write!(line, " {name}={}", milliseconds(ns / rounds)).expect("a String takes all");
        }
        let clock = if sum.one_clock { "shared" } else { "apart" };
        Ok(format!("{line} gets={gets} fence_clock={clock}\n"))
    }
}

pub fn milliseconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

fn key(round: u32, rank: u32) -> String {
    format!("wireup-{round}-{rank}")
}

/// Describes where a received value differs from the one that was put.
fn difference(got: &[u8], put: &[u8]) -> String {
    let at = got.iter().zip(put).take_while(|(got, put)| got == put).count();
    let (got_len, put_len) = (got.len(), put.len());
    let (got, put) = (Excerpt::of(&got[at..]), Excerpt::of(&put[at..]));
    format!("received {got_len} bytes instead of {put_len}; from byte {at} on the value is {got} instead of {put}")
}

/// A hash of the machine's boot id, hence equal for all processes that share a monotonic clock.
fn clock_name() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // FNV-1a: any well-spread hash will do.
    id.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_as_text() {
        let times = Times { clock: u64::MAX, init_ns: 1, put_ns: 2, in_ns: 3, out_ns: 4, get_ns: 5 };
        assert_eq!(Times::from_text(&times.to_text()), Some(times));
        assert_eq!(Times::from_text("1,2,x,4,5,6"), None);
        assert_eq!(Times::from_text("none"), None);
    }

    #[test]
    fn a_wrong_value_is_described_briefly() {
        let text = difference(&[b'x'; 1023], &[b'x'; 1024]);
        assert_eq!(text, "received 1023 bytes instead of 1024; from byte 1023 on the value is \"\" instead of \"x\"");
        assert!(difference(&[b'y'; 1024], &[b'x'; 1024]).len() < 250);
    }

    #[test]
    fn fence_time_is_from_the_last_entry_to_the_last_exit() {
        let early = Times { in_ns: 100, out_ns: 520, put_ns: 9, ..Times::default() };
        let late = Times { in_ns: 500, out_ns: 510, get_ns: 7, ..Times::default() };
        let round = Round::of(&[early, late]).unwrap();
        assert_eq!((round.fence_ns, round.slowest.put_ns, round.slowest.get_ns), (20, 9, 7));
        let elsewhere = Times { clock: 1, in_ns: 70_000, out_ns: 70_015, ..Times::default() };
        let round = Round::of(&[early, elsewhere]).unwrap();
        assert_eq!((round.fence_ns, round.one_clock), (15, false));
    }
}
