//! `wireup bench tap`: the cost of `wireup tap`, with one launcher and one program.
//!
//! The program is started without the tap, with the tap, and, if requested, under wireup with the tap. The last two
//! runs give start times that are measured by the same means.
use std::ffi::OsString;
use std::fs;

use serde_json::{Value as Json, json};
use wireup_flags::{Command, Error, Flag, Section, Value, Words};

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{DRY_RUN, JSON, LIMIT, ROUNDS, SHARED, WIREUP};
use crate::launch::words;
use crate::samples::{Measures, seconds};

const LAUNCHER: Flag =
    Flag::value(&["--launcher"], "WORDS", "The launcher with its flags, split at blanks.").or("mpiexec -n 4");
const UNDER: Flag =
    Flag::value(&["--under"], "WORDS", "Also start it by wireup run with these words, such as '-n 16'.");

pub const COMMAND: Command = Command {
    name: "bench tap",
    purpose: "time a start with wireup tap and without it",
    intro: "
  wireup bench tap --launcher 'mpiexec -n 16' ./initfin
  wireup bench tap --launcher 'srun --mpi=pmi2 -N 4 -n 16' --under '--hosts n[0-3] -n 16' ./initfin

Starts the program in turn without the tap, with it, and with --under by wireup run.
",
    words: Words::Program,
    sections: &[Section { title: "Flags", flags: &[LAUNCHER, UNDER, SHARED, ROUNDS, WIREUP, LIMIT, DRY_RUN, JSON] }],
    end: "",
};

const ROUNDS_DEFAULT: u32 = 20;
const LIMIT_S: u64 = 120;

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    if line.words.is_empty() {
        return Err(Error::MissingWord { command: COMMAND.name, word: "PROGRAM" }.into());
    }
    let wireup: OsString = bench.wireup()?.into();
    let profile = bench.scratch.file("profile.json");
    let mut json = OsString::from("--json=");
    json.push(&profile);
    let mut tap = [vec![wireup.clone()], words("tap --output /dev/null")].concat();
    tap.extend([json, "--dir".into(), bench.scratch.file("").into()]);
    let launcher = words(&line.one(LAUNCHER, Value::text)?);
    let mut contestants =
        vec![("without", launcher.clone(), false), ("with tap", [launcher, tap.clone()].concat(), true)];
    if let Some(under) = line.last(UNDER, Value::text)? {
        contestants.push(("wireup", [vec![wireup, "run".into()], words(&under), tap].concat(), true));
    }
    let rounds = bench.rounds.unwrap_or(ROUNDS_DEFAULT);
    let case = json!({ "program": line.words[0].to_string_lossy() });
    let turn = |(name, argv, is_tapped): (&str, Vec<OsString>, bool)| {
        let what = ([argv, line.words.clone()].concat(), is_tapped);
        Turn { contestant: name.to_owned(), case: case.clone(), rounds, what }
    };
    let turns: Vec<_> = contestants.into_iter().map(turn).collect();
    bench.turns(&turns, |(argv, is_tapped), _| -> Result<Measures, Failure> {
        // Without the removal, the profile of an earlier start could be taken for the profile of this start.
        let _ = fs::remove_file(&profile);
        let (mut measures, _) = bench.run(argv.clone(), bench.limit_or(LIMIT_S))?;
        if *is_tapped {
            let text =
                fs::read(&profile).map_err(|error| wrong(format!("no profile of the start; see --shared: {error}")))?;
            let told: Json = serde_json::from_slice(&text).map_err(wrong)?;
            let ms = told["start"]["whole_ms"].as_f64().ok_or_else(|| wrong("a profile without the start"))?;
            // Time until the end of the last fence, as `wireup tap` has measured it.
            measures.push(seconds("start", ms / 1e3));
        }
        Ok(measures)
    });
    Ok(())
}
