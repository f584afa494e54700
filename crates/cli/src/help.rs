//! The help texts: examples first, then the flags by purpose.

use crate::flags::table::{self, FLAGS, Flag, Group, Takes};
use std::fmt::Write as _;

pub const OVERVIEW: &str = "\
wireup starts parallel jobs: many processes (ranks), over many nodes, that find each other by PMI.

  wireup run -n 16 ./app                      16 ranks on this machine
  wireup run --hosts n0,n1,n2:8 -n 64 ./app   the same on other machines, by ssh
  sbatch -N 4 --wrap 'wireup run ./app'       in an allocation: its nodes, its number of ranks
  wireup run -n 64 --virtual-nodes 4 ./app    the same on 4 nodes that are all this machine
  wireup up --hosts n[0-63]                   a session there: runs find its agents and start at once
  wireup doctor --hosts n[0-63]               check whether these machines can run jobs
  wireup pmi exchange                         a PMI test client, for any launcher
  wireup bench launch                         this launcher beside the others installed here
  wireup bench exchange                       ranks' first exchange by every scheme

Commands:
  run       start a job
  up        start a session, whose agents serve many runs
  down      end it
  status    its nodes
  jobs      its jobs
  kill      end one of them, or send it a signal
  attach    show a job of wireup run --detach
  doctor    check whether machines can run jobs, and how to fix what is wrong
  pmi       a PMI client for tests
  bench     measure launchers side by side
  replay    run a recording of wireup run --record again
  install   put the program, libpmi and libpmi2 with their headers in place
  help      this text; wireup help run lists the flags of run
  version   the version
";

const RUN_BEGIN: &str = "\
wireup run: start a job.

  wireup run ./app                                    one rank per cpu of this machine
  wireup run -n 16 ./app input.dat                    16 ranks; what follows the program is the program's
  wireup run --hosts n[0-3] --ppn 16 ./app            4 machines, 16 ranks each
  wireup run --hostfile hosts --label ./app           machines from a file, a rank per slot
  wireup run -n 64 --virtual-nodes 4 ./app            4 nodes on this machine, 16 ranks each
  wireup run -n 8 --label ./app : -n 2 ./other        two programs in one job: ranks 0-7 and 8-9
  wireup run -n 4 -x OMP_NUM_THREADS=2 ./app          a variable for the ranks
  wireup run -n 64 --profile trace.json ./app         where the time of the start goes
  wireup run -n 64 --dry-run ./app                    what would happen

usage: wireup run [FLAGS] PROGRAM [ARGUMENTS] [: [FLAGS] PROGRAM [ARGUMENTS]]...
Flags come before the program; one dash is as good as two (-np, -wdir). \"Per program\" flags belong to the program
that follows them, all others to the job.
";

const RUN_END: &str = "
Ranks have WIREUP_RANK, WIREUP_SIZE, WIREUP_LOCAL_RANK, WIREUP_LOCAL_SIZE, WIREUP_NODE in their environment; the rest is
this environment without the variables of an outer launcher. In a job with other machines, variables that apply only to
this machine are removed too, unless -x names them: HOSTNAME, SSH_*, XDG_RUNTIME_DIR, XDG_SESSION_*,
DBUS_SESSION_BUS_ADDRESS. Working directory, umask and soft limits (ulimit) are those of wireup run on every machine, as
far as its hard limits allow.

Without --hosts and --hostfile the hosts are those of WIREUP_HOSTS (written as --hosts), else those of the surrounding
batch job (Slurm, PBS, LSF, Flux, Grid Engine), else this machine.

While a job runs: Ctrl-C is passed on to the ranks, a second one kills them; other signals are passed on; SIGALRM
(kill -ALRM) to wireup shows which ranks the others wait for.

Exit code: that of the first rank that failed, 128 + signal if a signal killed it; 124 after --timeout, 125 if wireup
itself could not do what was asked, 126 if the program cannot be executed, 127 if it is not found.
";

const GROUPS: &[(Group, &str)] = &[
    (Group::Placement, "How many, and where"),
    (Group::Machines, "Machines"),
    (Group::Session, "In a session (wireup up)"),
    (Group::Environment, "What ranks start with"),
    (Group::Output, "Standard input and output"),
    (Group::Ends, "Ends and hangs"),
    (Group::Insight, "To see what happens"),
];

/// The column where explanations begin, and the width of lines.
const TEXT_COLUMN: usize = 26;
const WIDTH: usize = 118;

/// The help of `wireup run`.
pub fn run() -> String {
    let mut text = RUN_BEGIN.to_owned();
    for (group, title) in GROUPS {
        write!(text, "\n{title}:\n").expect("a string takes every text");
        for flag in FLAGS.iter().filter(|flag| flag.group == *group) {
            text.push_str(&entry(&shown(flag), flag.help));
        }
    }
    text.push_str(RUN_END);
    text
}

/// The flag with its short names and its value.
pub fn shown(flag: &Flag) -> String {
    let short = flag.names[1..].iter().filter(|name| name.len() == 1 || **name == "np");
    let mut names: Vec<String> = short.map(|name| table::dashed(name)).collect();
    names.push(flag.name());
    names.sort_by_key(String::len);
    let value = match flag.takes {
        Takes::Nothing => String::new(),
        Takes::Word(value) => format!(" {value}"),
        Takes::Variable => " NAME=VALUE".to_owned(),
        Takes::MaybeNumber(value) => format!(" [{value}]"),
    };
    format!("{}{value}", names.join(", "))
}

/// One entry with its text wrapped.
pub fn entry(name: &str, help: &str) -> String {
    let mut text = String::new();
    let mut line = format!("  {name:<width$}", width = TEXT_COLUMN - 2);
    for word in help.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(TEXT_COLUMN);
        }
        if line.len() > TEXT_COLUMN || !line.ends_with(' ') {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
    text
}

#[cfg(test)]
mod page;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_listed_and_lines_fit() {
        let text = run();
        for flag in FLAGS.iter().filter(|flag| flag.group != Group::Hidden) {
            assert!(text.contains(&flag.name()), "{}", flag.name());
        }
        for line in text.lines() {
            assert!(line.len() <= WIDTH + 2 && line == line.trim_end(), "{line}");
        }
    }

    #[test]
    fn entries_break_between_words() {
        assert_eq!(entry("-n, -np N", "Number of ranks."), "  -n, -np N               Number of ranks.\n");
        let long = entry("--fanout K", &"word ".repeat(40));
        assert!(long.lines().skip(1).all(|line| line.starts_with("                          word")), "{long}");
    }

    #[test]
    fn short_names_come_first() {
        let label = table::find("label").expect("a flag");
        assert_eq!(shown(label), "-l, --label");
        assert_eq!(shown(table::find("pty").expect("a flag")), "--pty [RANK]");
    }
}
