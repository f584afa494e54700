//! Puts a text at the beginning of each line of output that agents cannot add: a label made from a pattern instead of
//! `[rank]`, or the time.

use super::files::Output;
use super::pattern::{Pattern, Places};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wireup_proto::Origin;
use wireup_wire::ids::Rank;

pub struct Decoration {
    label: Option<Pattern>,
    timestamp: bool,
    places: Arc<Places>,
}

impl Decoration {
    /// The decoration of a run's output; `None`: lines are shown as they arrive.
    pub fn new(output: &Output, places: &Arc<Places>) -> Option<Decoration> {
        let is_needed = output.timestamp || output.label.is_some();
        is_needed.then(|| Decoration {
            label: output.label.clone(),
            timestamp: output.timestamp,
            places: Arc::clone(places),
        })
    }

    /// The beginning of a line of this rank. `labelled`: whether lines have labels.
    pub fn line_start(&self, origin: Origin, labelled: bool) -> String {
        let mut text = self.time();
        match &self.label {
            // The nodes of other jobs' ranks are not known here, so the pattern cannot be filled in for them.
            Some(pattern) if origin.job.is_none() => text += &pattern.of(origin.rank, &self.places),
            _ if labelled => text += &format!("[{origin}] "),
            Some(_) | None => {}
        }
        text
    }

    /// Decorates whole lines, to which agents have added their labels.
    pub fn lines(&self, lines: &[u8], labelled: bool) -> Vec<u8> {
        let mut text = Vec::with_capacity(lines.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match label_of(line).filter(|_| labelled) {
                Some((rank, rest)) => {
                    text.extend_from_slice(self.line_start(Origin { job: None, rank }, true).as_bytes());
                    text.extend_from_slice(rest);
                }
                None => {
                    text.extend_from_slice(self.time().as_bytes());
                    text.extend_from_slice(line);
                }
            }
        }
        text
    }

    fn time(&self) -> String {
        let since = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.timestamp { stamp(since()) } else { String::new() }
    }
}

/// The rank and the text of a line `[12] text`.
fn label_of(line: &[u8]) -> Option<(Rank, &[u8])> {
    let rest = line.strip_prefix(b"[")?;
    let end = rest.iter().position(|&byte| byte == b']')?;
    let rank = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((Rank(rank), rest[end + 1..].strip_prefix(b" ")?))
}

/// The time since 1970 as text, in UTC: `2026-11-26T09:38:57.123Z `.
fn stamp(since: Duration) -> String {
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z ", since.subsec_millis())
}

/// The Gregorian date of a day, counted from 1970-01-01. Years begin in March here, so that a leap day is the last day
/// of a year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(stamp(Duration::from_millis(0)), "1970-01-01T00:00:00.000Z ");
        assert_eq!(stamp(Duration::from_millis(951_827_696_789)), "2000-02-29T12:34:56.789Z ");
        assert_eq!(stamp(Duration::from_secs(1_798_675_200)), "2026-12-31T00:00:00.000Z ");
    }

    #[test]
    fn labels_of_agents_are_recognised() {
        assert_eq!(label_of(b"[12] text\n"), Some((Rank(12), &b"text\n"[..])));
        for other in [&b"text"[..], b"[x] y", b"[1]y", b"[1"] {
            assert_eq!(label_of(other), None);
        }
    }
}
