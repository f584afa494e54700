//! `wireup bench spawn`: MPI_Comm_spawn under wireup and under the launchers that belong to the MPIs.
//!
//! `contest` names the programs and launchers, `rounds` times calls in turn and splits each (`call`), `many` looks at
//! the launcher's memory during many calls of one job. All processes must share a clock, so jobs stay on this machine.
mod call;
mod contest;
mod flags;
mod many;
mod rounds;

pub use flags::{COMMAND, Flags, read};

use serde_json::json;

use crate::command::Invocation;
use crate::error::{BenchError, io};
use crate::machine::Machine;
use crate::setup::Setup;
use crate::summary::Summary;
use crate::verdict::Verdict;
use contest::Contest;
use flags::Part;

/// What a part gives.
struct Shown {
    text: String,
    json: serde_json::Value,
    csv: String,
    missed: usize,
    has_measured: bool,
}

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let wireup = flags.common_flags.program()?;
    let wireup = std::path::absolute(&wireup).map_err(io(wireup.display().to_string()))?;
    let setup = Setup::prepare(&[], None)?;
    let machine = Machine::look();
    println!("{}\nwireup: {}", machine.describe(), wireup.display());
    let (contests, obstacles) = contest::all(flags, &wireup, &setup);
    obstacles.iter().for_each(|why| println!("  ! not run: {why}"));
    if flags.common_flags.dry_run {
        contests.iter().for_each(|contest| print!("{}", commands(contest, flags, &setup)));
        if flags.parts.contains(&Part::Call) {
            let stamps = setup.scratch.file("stamps");
            print!("{}", line(rounds::bare(rounds::job(flags), &stamps, flags, &setup)));
        }
        return Ok(Summary::listed());
    }
    let parts: Vec<(Part, Shown)> = flags
        .parts
        .iter()
        .map(|part| {
            let shown = match part {
                Part::Call => rounds::run(flags, &contests, &setup),
                Part::Many => many::run(flags, &contests, &setup),
            };
            print!("\n{}", shown.text);
            (*part, shown)
        })
        .collect();
    let of = |wanted: Part| parts.iter().find(|(part, _)| *part == wanted).map(|(_, shown)| &shown.json);
    let json = json!({
        "benchmark": "spawn", "machine": machine, "not_run": obstacles, "call": of(Part::Call), "many": of(Part::Many),
    });
    let csv: String = parts.iter().map(|(_, shown)| &*shown.csv).collect();
    flags.common_flags.write(&json, &format!("part,mpi,launcher,number,name,unit,value\n{csv}"), Vec::new)?;
    Ok(Summary {
        missed: parts.iter().map(|(_, shown)| shown.missed).sum(),
        has_measured: !parts.is_empty() && parts.iter().all(|(_, shown)| shown.has_measured),
        interrupted: setup.interrupt.is_set(),
    })
}

fn commands(contest: &Contest, flags: &Flags, setup: &Setup) -> String {
    let jobs = flags.parts.iter().map(|part| match part {
        Part::Call => rounds::job(flags),
        Part::Many => many::job(flags),
    });
    let all = jobs
        .flat_map(|job| [0, 1].map(|who| contest.invocation(who, job, &setup.scratch.file("stamps"), flags, setup)));
    all.map(line).collect()
}

fn line(invocation: Invocation) -> String {
    invocation.argv.join(std::ffi::OsStr::new(" ")).to_string_lossy().into_owned() + "\n"
}

fn say(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Met(figure) => format!("pass: {figure}"),
        Verdict::Missed(figure) => format!("MISS: {figure}"),
        Verdict::NotJudged(why) => format!("not judged: {why}"),
    }
}
