//! The values that a benchmark measures: one JSON line for each value, and a table of medians on the screen; and the
//! machine on which they were measured.
//!
//! `lab/SCHEMA.md` describes the lines. A *case* is the setting that all contestants share, such as a number of ranks;
//! values of the same case, quantity and round were measured side by side, so ratios are taken round by round and then
//! their median: a disturbance that lasts for a whole round affects both values and cancels out.
use std::fs::File;
use std::io::{self, Write};
use std::time::SystemTime;

use humantime::format_rfc3339_seconds;
use procfs::{CpuInfo, Current, LoadAverage, Meminfo};
use serde::Serialize;
use serde_json::{Value, json};

use crate::command::Failure;

/// Writes to standard output. When its reader has gone, as `head` does, the measurement goes on, and the file of
/// `--json` still gets its lines.
pub fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Increased when a reader of older lines would misread newer ones.
const SCHEMA: u32 = 1;
/// Number of the warm-up round, whose values are not used; only its failures are recorded.
pub const WARM_UP: i64 = -1;

/// One value that one run has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    pub quantity: String,
    pub unit: Unit,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Bytes,
    PerSecond,
    /// A number without a unit.
    Count,
}

/// All values that one run has measured.
pub type Measures = Vec<Measure>;

macro_rules! measures {
    ($($name:ident: $unit:ident,)*) => {
        $(pub fn $name(quantity: impl Into<String>, value: f64) -> Measure {
            Measure { quantity: quantity.into(), unit: Unit::$unit, value }
        })*
    };
}

measures! { seconds: Seconds, bytes: Bytes, rate: PerSecond, count: Count, }

pub fn value_of(measures: &[Measure], quantity: &str) -> Option<f64> {
    measures.iter().find(|measure| measure.quantity == quantity).map(|measure| measure.value)
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Bytes => "B",
            Unit::PerSecond => "1/s",
            Unit::Count => "count",
        }
    }

    /// `value` in its unit as text, with three significant digits.
    pub fn show(self, value: f64) -> String {
        let (scaled, unit) = match (self, value.abs()) {
            (_, 0.0) => return "0".into(),
            (Unit::Seconds, v) if v >= 1.0 => (value, " s"),
            (Unit::Seconds, v) if v >= 1e-3 => (value * 1e3, " ms"),
            (Unit::Seconds, _) => (value * 1e6, " us"),
            (Unit::Bytes, v) if v >= 1048576.0 => (value / 1048576.0, " MiB"),
            (Unit::Bytes, v) if v >= 1024.0 => (value / 1024.0, " KiB"),
            (Unit::Bytes, _) => (value, " B"),
            (Unit::PerSecond, _) => (value, " /s"),
            (Unit::Count, _) => (value, ""),
        };
        let decimals = match scaled.abs() {
            v if v >= 100.0 || v.fract() == 0.0 => 0,
            v if v >= 10.0 => 1,
            _ => 2,
        };
        format!("{scaled:.decimals$}{unit}")
    }
}

/// The median; for an even number of values, the mean of the two middle ones.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The median of each quantity over several runs of the same step.
pub fn medians(all: &[Measures]) -> Measures {
    let of = |quantity: &str| median(all.iter().filter_map(|measures| value_of(measures, quantity)));
    let first = all.first().into_iter().flatten();
    first.filter_map(|measure| Some(Measure { value: of(&measure.quantity)?, ..measure.clone() })).collect()
}

/// A time of all ranks (s): the time of the median rank, and as `QUANTITY-max` the time of the slowest rank.
pub fn of_ranks(quantity: &str, times_s: impl Iterator<Item = f64> + Clone) -> Measures {
    let slowest = times_s.clone().fold(0.0, f64::max);
    vec![seconds(quantity, median(times_s).unwrap_or(0.0)), seconds(format!("{quantity}-max"), slowest)]
}

/// The machine on which something is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub host: String,
    pub cpus: usize,
    pub kernel: String,
    pub cpu: String,
    pub memory_bytes: u64,
}

impl Machine {
    pub fn look() -> Machine {
        let uname = rustix::system::uname();
        let info = CpuInfo::current().ok();
        let cpu = info.as_ref().and_then(|info| info.model_name(0)).unwrap_or("unknown");
        Machine {
            host: uname.nodename().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
            kernel: uname.release().to_string_lossy().into_owned(),
            cpu: cpu.to_owned(),
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
        }
    }

    /// A description of the machine, with a warning if other processes compete for the cpus.
    pub fn describe(&self) -> String {
        // Number of processes that are ready to run, averaged over the last minute.
        let load = LoadAverage::current().map_or(0.0, |load| load.one);
        let busy = "\n  ! the machine is busy: expect wide spreads, trust ratios more than seconds";
        let busy = if load > 0.25 * self.cpus as f32 { busy } else { "" };
        let Machine { cpus, cpu, memory_bytes, kernel, .. } = self;
        format!("machine: {cpus} cpus of {cpu}, {} GiB, Linux {kernel}, load {load:.2}{busy}", memory_bytes >> 30)
    }
}

/// The values of one quantity of one contestant in one case, by round.
struct Row {
    case: Value,
    contestant: String,
    quantity: String,
    unit: Unit,
    rounds: Vec<(i64, f64)>,
}

/// A case, a contestant in it, and the reason why the contestant failed.
type Failed = (Value, String, String);

#[derive(Default)]
pub struct Samples {
    benchmark: &'static str,
    file: Option<File>,
    /// The error if the file of lines could not be written.
    pub broken: Option<io::Error>,
    rows: Vec<Row>,
    failures: Vec<Failed>,
    /// Numbers of rows and of failures that have been printed already.
    shown: (usize, usize),
}

impl Samples {
    /// Results without values yet; their lines go to `file`, if there is one.
    pub fn create(benchmark: &'static str, words: &[String], machine: &Machine, file: Option<File>) -> Samples {
        let mut samples = Samples { benchmark, file, ..Samples::default() };
        let date = format_rfc3339_seconds(SystemTime::now()).to_string();
        samples.write(&json!({
            "record": "run", "schema": SCHEMA, "benchmark": benchmark, "version": env!("CARGO_PKG_VERSION"),
            "commit": option_env!("WIREUP_COMMIT"), "date": date, "machine": machine, "words": words,
        }));
        samples
    }

    fn write(&mut self, record: &Value) {
        if let Some(Err(error)) = self.file.as_mut().map(|file| writeln!(file, "{record}")) {
            self.broken.get_or_insert(error);
        }
    }

    /// Adds the values of one run, or the reason why the run has no values.
    pub fn add(&mut self, case: &Value, contestant: &str, round: i64, outcome: Result<Measures, Failure>) {
        let benchmark = self.benchmark;
        match outcome {
            Ok(_) if round == WARM_UP => {}
            Ok(measures) => measures.into_iter().for_each(|measure| self.add_one(case, contestant, round, measure)),
            Err(failure) => {
                let why = failure.to_string();
                self.write(&json!({
                    "record": "failed", "benchmark": benchmark, "contestant": contestant, "case": case,
                    "round": round, "why": why,
                }));
                self.failures.push((case.clone(), contestant.to_owned(), why));
            }
        }
    }

    fn add_one(&mut self, case: &Value, contestant: &str, round: i64, Measure { quantity, unit, value }: Measure) {
        self.write(&json!({
            "record": "sample", "benchmark": self.benchmark, "contestant": contestant, "case": case,
            "quantity": quantity, "unit": unit.name(), "round": round, "value": value,
        }));
        let is_its = |row: &&mut Row| row.contestant == contestant && row.quantity == quantity && row.case == *case;
        match self.rows.iter_mut().find(is_its) {
            Some(row) => row.rounds.push((round, value)),
            None => {
                let (case, contestant, rounds) = (case.clone(), contestant.to_owned(), vec![(round, value)]);
                self.rows.push(Row { case, contestant, quantity, unit, rounds });
            }
        }
    }

    /// The values of a contestant in one round.
    pub fn measured(&self, case: &Value, contestant: &str, round: i64) -> Measures {
        let its = self.rows.iter().filter(|row| row.contestant == contestant && row.case == *case);
        let measure = |row: &Row| {
            let (_, value) = *row.rounds.iter().find(|(number, _)| *number == round)?;
            Some(Measure { quantity: row.quantity.clone(), unit: row.unit, value })
        };
        its.filter_map(measure).collect()
    }

    /// Prints that a contestant is not available on this machine, and the reason.
    pub fn absent(&mut self, contestant: &str, why: &str) {
        print(&format!("missing: {contestant}: {why}\n"));
        self.write(&json!({ "record": "absent", "contestant": contestant, "why": why }));
    }

    /// Whether a value was measured in each case; with `by_contestant`, for each contestant in each case.
    pub fn is_complete(&self, by_contestant: bool) -> bool {
        let is_measured = |(case, contestant, _): &Failed| {
            self.rows.iter().any(|row| row.case == *case && (!by_contestant || row.contestant == *contestant))
        };
        !self.rows.is_empty() && self.failures.iter().all(is_measured)
    }

    /// Prints the values that have been added since the last call: for each case its contestants with their medians,
    /// and the ratio to the first contestant that has the quantity.
    pub fn show(&mut self) {
        print(&text(&self.rows[self.shown.0..], &self.failures[self.shown.1..]));
        self.shown = (self.rows.len(), self.failures.len());
    }
}

/// Each different value of `all` once, in the order of their first occurrence.
pub fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    all.for_each(|one| {
        if !found.contains(&one) {
            found.push(one)
        }
    });
    found
}

fn text(rows: &[Row], failures: &[Failed]) -> String {
    let mut text = String::new();
    for case in distinct(rows.iter().map(|row| &row.case).chain(failures.iter().map(|failed| &failed.0))) {
        text += &format!("\n{}\n", describe(case));
        let rows: Vec<&Row> = rows.iter().filter(|row| row.case == *case).collect();
        let width = rows.iter().map(|row| row.contestant.len()).max().unwrap_or(0);
        let quantity_width = rows.iter().map(|row| row.quantity.len()).max().unwrap_or(0);
        for quantity in distinct(rows.iter().map(|row| &row.quantity)) {
            let alike: Vec<&&Row> = rows.iter().filter(|row| row.quantity == *quantity).collect();
            for row in &alike {
                let values: Vec<f64> = row.rounds.iter().map(|(_, value)| *value).collect();
                let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let ratio = ratio(row, alike[0]).map_or("-".into(), |ratio| format!("{ratio:.3}"));
                let [middle, least, most] =
                    [median(values.iter().copied()).unwrap_or(0.0), least, most].map(|value| row.unit.show(value));
                let (name, count) = (&row.contestant, values.len());
                text += &format!("  {quantity:<quantity_width$}  {name:<width$}  {middle:>9}  ({least} to {most})");
                text += &format!("  x {ratio}  {count} rounds\n");
            }
        }
        let failed: Vec<&Failed> = failures.iter().filter(|failed| failed.0 == *case).collect();
        for contestant in distinct(failed.iter().map(|failed| &failed.1)) {
            let its: Vec<&&Failed> = failed.iter().filter(|failed| failed.1 == *contestant).collect();
            text += &format!("  ! {contestant}: {} runs failed: {}\n", its.len(), its[0].2);
        }
    }
    text
}

/// The median of the ratios of the rounds that both rows have; `None` if a base is 0.
fn ratio(row: &Row, base: &Row) -> Option<f64> {
    let of_base = |round: i64| base.rounds.iter().find(|(other, _)| *other == round).map(|(_, value)| *value);
    let ratios = row.rounds.iter().filter_map(|(round, value)| Some(value / of_base(*round)?));
    median(ratios).filter(|ratio| ratio.is_finite())
}

/// The fields of a case as text: `name value, name value`.
pub fn describe(case: &Value) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields = case.as_object().into_iter().flatten().map(|(name, value)| format!("{name} {}", plain(value)));
    fields.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_medians_of_the_rounds_ratios() {
        let (mut samples, case) = (Samples::default(), json!({ "ranks": 4 }));
        for (round, [base, ours]) in [[9.0, 1.0], [1.0, 1.2], [1.0, 1.5], [10.0, 12.0]].into_iter().enumerate() {
            let round = round as i64 - 1;
            samples.add(&case, "base", round, Ok(vec![seconds("wall", base)]));
            samples.add(&case, "ours", round, Ok(vec![seconds("wall", ours)]));
        }
        // A disturbance in the third round affects both contestants; the ratio of the medians would be 1.5, but the
        // median of the ratios is not.
        let text = text(&samples.rows, &samples.failures);
        assert!(
            text.contains("ranks 4\n") && text.contains("wall  ours     1.50 s  (1.20 s to 12 s)  x 1.200  3 rounds"),
            "{text}"
        );
    }

    #[test]
    fn what_was_not_measured_is_noticed() {
        let (mut samples, case) = (Samples::default(), json!({ "ranks": 4 }));
        assert!(!samples.is_complete(false));
        samples.add(&case, "a", 0, Ok(vec![seconds("wall", 1.0)]));
        samples.add(&case, "b", WARM_UP, Err(Failure::Wrong("no".into())));
        assert!(samples.is_complete(false) && !samples.is_complete(true));
        samples.add(&json!({ "ranks": 8 }), "a", 0, Err(Failure::Wrong("no".into())));
        assert!(!samples.is_complete(false));
        assert!(text(&samples.rows, &samples.failures).contains("ranks 8\n  ! a: 1 runs failed: no\n"));
    }

    #[test]
    fn values_are_shown() {
        let shown = [
            Unit::Seconds.show(0.001234),
            Unit::Bytes.show(2048.0),
            Unit::PerSecond.show(123.4),
            Unit::Count.show(7.0),
        ];
        assert_eq!(shown, ["1.23 ms", "2 KiB", "123 /s", "7"]);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
