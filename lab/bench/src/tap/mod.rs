//! `wireup bench tap`: what `wireup tap` costs, by one launcher and one program, and what the same start takes under wireup.
//!
//! In each round the program is started as it is, with the tap, and, if asked for, under wireup with the tap. Ratios
//! are of the same round.
mod flags;

pub use flags::{COMMAND, Flags, read};

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::command::{Failure, Invocation};
use crate::error::{BenchError, io};
use crate::machine::Machine;
use crate::setup::Setup;
use crate::stats::{median, summarize};
use crate::summary::Summary;
use crate::turns::turn;

/// The tap may make a start longer by so much.
const TARGET: f64 = 1.05;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    Tapped,
    /// Under wireup, with the tap as well, so that both starts are measured by the same means.
    Wireup,
}

/// What one start gave, by the round.
#[derive(Default)]
struct Measured {
    plain_s: Vec<f64>,
    tapped_s: Vec<f64>,
    wireup_ms: Vec<f64>,
    theirs_ms: Vec<f64>,
}

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let wireup = flags.common_flags.program()?;
    let setup = Setup::prepare_in(flags.shared.as_deref())?;
    let kinds: &[Kind] = match flags.under {
        None => &[Kind::Plain, Kind::Tapped],
        Some(_) => &[Kind::Plain, Kind::Tapped, Kind::Wireup],
    };
    let profile = setup.scratch.file("profile.json");
    let invocation = |kind| Invocation {
        argv: argv(flags, kind, &wireup, &profile),
        env: Vec::new(),
        stdout: None,
        stderr: setup.scratch.file("stderr"),
        limit: flags.common_flags.limit,
    };
    if flags.common_flags.dry_run {
        for &kind in kinds {
            let words: Vec<String> =
                invocation(kind).argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            println!("{}", words.join(" "));
        }
        return Ok(Summary::listed());
    }
    let machine = Machine::look();
    println!("{}\nwireup: {}", machine.describe(), wireup.display());
    let mut measured = Measured::default();
    // The first round warms up.
    'all: for round in 0..=flags.rounds {
        for at in turn(round, kinds.len()) {
            // That of another start would be taken for this one's.
            let _ = fs::remove_file(&profile);
            let begin = Instant::now();
            match invocation(kinds[at]).run(&setup.interrupt) {
                Ok(_) if round == 0 => {}
                Ok(_) => measured
                    .take(kinds[at], begin.elapsed().as_secs_f64(), &profile)
                    .map_err(io("no profile of the start; see --shared"))?,
                Err(Failure::Interrupted) => break 'all,
                Err(failure) => return Err(BenchError::Unmeasured(failure.to_string())),
            }
        }
    }
    let missed = usize::from(measured.ratio().is_some_and(|ratio| ratio > TARGET));
    print!("{}", measured.text());
    flags.common_flags.write(&measured.json(&machine.describe()), &measured.csv(), Vec::new)?;
    let interrupted = setup.interrupt.is_set();
    Ok(Summary { missed, has_measured: !measured.tapped_s.is_empty(), interrupted })
}

fn argv(flags: &Flags, kind: Kind, wireup: &Path, profile: &Path) -> Vec<OsString> {
    let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<OsString>>();
    let tap = || {
        let folder = profile.parent().unwrap_or(Path::new("."));
        let mut words: Vec<OsString> = vec![wireup.into(), "tap".into(), "--output".into(), "/dev/null".into()];
        words.extend(["--json".into(), profile.into(), "--dir".into(), folder.into()]);
        words
    };
    let mut argv = match (kind, &flags.under) {
        (Kind::Plain, _) => words(&flags.launcher),
        (Kind::Tapped, _) | (Kind::Wireup, None) => [words(&flags.launcher), tap()].concat(),
        (Kind::Wireup, Some(under)) => [vec![wireup.into(), "run".into()], words(under), tap()].concat(),
    };
    argv.extend(flags.program.iter().cloned());
    argv
}

impl Measured {
    fn take(&mut self, kind: Kind, wall_s: f64, profile: &Path) -> std::io::Result<()> {
        if kind == Kind::Plain {
            self.plain_s.push(wall_s);
            return Ok(());
        }
        let text = fs::read_to_string(profile)?;
        let profile: Json = serde_json::from_str(&text)?;
        let whole_ms = profile["start"]["whole_ms"].as_f64().unwrap_or(f64::NAN);
        if kind == Kind::Tapped {
            self.tapped_s.push(wall_s);
            self.theirs_ms.push(whole_ms);
        } else {
            self.wireup_ms.push(whole_ms);
        }
        Ok(())
    }

    fn ratios(&self) -> Vec<f64> {
        self.plain_s.iter().zip(&self.tapped_s).map(|(plain, tapped)| tapped / plain).collect()
    }

    /// The median of the rounds.
    fn ratio(&self) -> Option<f64> {
        median(&self.ratios())
    }

    fn rows(&self) -> [(&'static str, &'static str, Vec<f64>); 5] {
        let ms = |seconds: &[f64]| seconds.iter().map(|s| s * 1e3).collect();
        [
            ("without the tap", "ms", ms(&self.plain_s)),
            ("with the tap", "ms", ms(&self.tapped_s)),
            ("with / without", "", self.ratios()),
            ("until the last fence, as measured by the tap", "ms", self.theirs_ms.clone()),
            ("the same under wireup", "ms", self.wireup_ms.clone()),
        ]
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, unit, values) in self.rows() {
            let Some(of) = summarize(&values) else { continue };
            text += &format!("{name:<46} {:>9.3} {unit:<3} {:>9.3} to {:.3}\n", of.median, of.min, of.max);
        }
        if let Some(ratio) = self.ratio() {
            let met = if ratio <= TARGET { "met" } else { "missed" };
            text += &format!("target: at most {TARGET}: {met}\n");
        }
        text
    }

    fn json(&self, machine: &str) -> Json {
        let rows: Vec<Json> = self
            .rows()
            .into_iter()
            .map(|(name, unit, values)| json!({ "name": name, "unit": unit, "values": values }))
            .collect();
        json!({ "machine": machine, "rows": rows })
    }

    fn csv(&self) -> String {
        let mut text = "name,round,value\n".to_owned();
        for (name, _, values) in self.rows() {
            values.iter().enumerate().for_each(|(round, value)| text += &format!("\"{name}\",{round},{value}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common_flags::line;

    #[test]
    fn the_same_program_is_started_in_each_way() {
        let flags = read(&line(&COMMAND, "--launcher mpiexec --under -n_4 ./app -v").unwrap()).unwrap();
        let shown = |kind| {
            let words = argv(&flags, kind, Path::new("wireup"), Path::new("/tmp/x/profile"));
            words.join(&OsString::from(" ")).into_string().unwrap()
        };
        let tap = "wireup tap --output /dev/null --json /tmp/x/profile --dir /tmp/x ./app -v";
        assert_eq!(shown(Kind::Plain), "mpiexec ./app -v");
        assert_eq!(shown(Kind::Tapped), format!("mpiexec {tap}"));
        assert_eq!(shown(Kind::Wireup), format!("wireup run -n_4 {tap}"));
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let measured = Measured { plain_s: vec![1.0, 2.0, 4.0], tapped_s: vec![1.1, 2.0, 4.4], ..Measured::default() };
        assert!((measured.ratio().unwrap() - 1.1).abs() < 1e-9);
        assert!(measured.text().contains("target: at most 1.05: missed"), "{}", measured.text());
    }
}
