//! `wireup advise`: finds hosts, ranks and the way agents are started as `wireup run` does, estimates the times of
//! reading and of staging the program's files, then runs `wireup-simulate advise`.

use crate::environment::Reached;
use crate::flags::chosen::look_around;
use crate::flags::parsed::{Parsed, Stage};
use crate::flags::resolved::{self, Resolved};
use crate::flags::table as flag;
use crate::{external, stage};
use std::ffi::{OsStr, OsString};
use wireup_flags::{Command, Flag, Given, Line, Section, Words};

/// The external program `wireup-simulate` (`PROGRAM`), and its subcommand.
pub const PROGRAM: &str = "simulate";
const ADVISE: &str = "advise";

/// Flags that are passed unchanged to `wireup-simulate advise`.
const MACHINE: Flag = Flag::value(
    &["--machine"],
    "FILE",
    "The machine: here, s4, s2, frontier-like, or a machine file (default: wireup/machine-local.toml, machine-ssh.toml \
     or machine-srun.toml in $XDG_CONFIG_HOME or ~/.config, by how agents are started; otherwise a built-in one).",
);
const VALUE_BYTES: Flag =
    Flag::value(&["--value-bytes"], "B", "Bytes that each rank publishes for the others (default: 256).");
const JSON: Flag = Flag {
    help: "Print the advice as one JSON object, and all else on standard error; =FILE writes it to FILE.",
    ..wireup_flags::JSON
};
const PASSED_ON: [Flag; 3] = [MACHINE, VALUE_BYTES, JSON];

pub const COMMAND: Command = Command {
    name: ADVISE,
    purpose: "find the flags of wireup run that start a job fastest",
    intro: "
  wireup advise --hosts 'n[0-63]:16' ./app      which fan-out, exchange, session and staging to choose, and why
  wireup advise -n 1024                         in a batch job: its nodes
  wireup advise --virtual-nodes 8 -n 64 --json=advice.json

Simulates the start of the job with each candidate, using the code of the real agents and ranks; starts nothing. Needs
the separate program wireup-simulate (cargo build --release -p wireup-simulate). If the job's program is given, also
says whether staging its files saves time.
",
    words: Words::Program,
    sections: &[
        Section { title: "The job, as for wireup run", flags: JOB },
        Section { title: "The prediction", flags: &PASSED_ON },
    ],
    end: "
Exit code: 0 success; 2 wireup-simulate refused a flag, the job or a file; 130 interrupted; 125 any other failure, such
as a wrong list of hosts or no wireup-simulate.
",
};

const JOB: &[Flag] = &[
    flag::RANKS,
    flag::PPN,
    flag::SLOTS,
    flag::OVERSUBSCRIBE,
    flag::VIRTUAL_NODES,
    flag::HOSTS_ALONE,
    flag::HOST_FILE,
    flag::REMOTE_SHELL,
];

pub fn run(line: &Line) -> Result<u8, String> {
    let passed_on = line.given.iter().filter(|given| PASSED_ON.iter().any(|flag| given.is(*flag)));
    let word = |given: &Given| [OsStr::new(given.flag.name()), given.value.word.as_os_str()].join(OsStr::new("="));
    let passed_on: Vec<OsString> = passed_on.map(word).collect();
    let words = line.words.clone();
    let parsed = |words: Vec<OsString>| Parsed::of_lines(vec![Line { words, ..line.clone() }], &[], "wireup advise");
    let surroundings = look_around(&Parsed::read(line)?)?;
    let names_program = !words.is_empty();
    // The job is only described, so any program that exists will do.
    let words = if names_program { words } else { vec![surroundings.program.clone().into()] };
    let resolved = resolved::resolve(parsed(words)?, surroundings)?;
    let mut arguments = arguments(&resolved);
    if names_program {
        let choice = stage::Needed::of_job(&Stage::default(), &resolved.job)?.choice(resolved.job.job_size());
        let ms = |seconds: f64| ((seconds * 1e3) as u32).to_string();
        arguments.extend(["--read-ms".into(), ms(choice.read_s), "--stage-ms".into(), ms(choice.stage_s)]);
    }
    let arguments = arguments.into_iter().map(OsString::from).chain(passed_on);
    Ok(external::run_of_sources(PROGRAM, arguments))
}

fn arguments(resolved: &Resolved) -> Vec<String> {
    let (nodes, ranks) = (resolved.job.nodes.len().to_string(), resolved.job.job_size().to_string());
    [ADVISE, "--nodes", &nodes, "-n", &ranks, "--start", start(resolved)].map(str::to_owned).into()
}

/// How agents are started, as `wireup-simulate` calls it.
pub fn start(resolved: &Resolved) -> &'static str {
    match resolved.reached {
        Reached::ThisMachine => "local",
        Reached::ByStep => "srun",
        Reached::Elsewhere => "ssh",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parsed::parsed_words;
    use crate::surroundings::Surroundings;

    fn arguments_of(words: &str, surroundings: Surroundings) -> Result<String, String> {
        Ok(arguments(&resolved::resolve(parsed_words(words.split(' ')), surroundings)?).join(" "))
    }

    #[test]
    fn nodes_ranks_and_start_are_those_of_wireup_run() {
        let of = |words| arguments_of(words, Surroundings::example());
        assert_eq!(of("--hosts n[0-3]:4 ./a"), Ok("advise --nodes 4 -n 16 --start ssh".into()));
        assert_eq!(of("--hosts n[0-3]:4 -n 6 ./a"), Ok("advise --nodes 4 -n 6 --start ssh".into()));
        assert_eq!(of("--virtual-nodes 3 --ppn 5 ./a"), Ok("advise --nodes 3 -n 15 --start local".into()));
        assert!(of("--hosts n0:2 -n 5 ./a").expect_err("no slots").contains("--oversubscribe"));
    }

    #[test]
    fn an_allocation_is_used_without_hosts() {
        let variables = [
            ("SLURM_JOB_ID", "77"),
            ("SLURM_JOB_NODELIST", "n[1-4]"),
            ("SLURM_TASKS_PER_NODE", "8(x4)"),
            ("SLURM_JOB_CPUS_PER_NODE", "8(x4)"),
        ];
        let env = variables.map(|(name, value)| (name.into(), value.into())).to_vec();
        let of = arguments_of("./a", Surroundings { env, ..Surroundings::example() });
        assert_eq!(of, Ok("advise --nodes 4 -n 32 --start srun".into()));
    }
}
