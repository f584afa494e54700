//! The commands, and the text that lists them.

use crate::flags::table::RUN;
use crate::generate::flags as generate;
use crate::install::flags as install;
use crate::{advise, clean, configuration, doctor, front, pmi, replay, report, session, stage, tap};
use std::ffi::OsStr;
use wireup_flags::Command;

/// The commands with a table of flags, in the order of the list; `wireup bench` and `wireup simulate` are separate
/// programs.
pub const COMMANDS: [&Command; 20] = [
    &RUN,
    &session::up::COMMAND,
    &session::down::COMMAND,
    &session::status::COMMAND,
    &session::jobs::COMMAND,
    &session::kill::COMMAND,
    &session::logs::COMMAND,
    &session::attach::COMMAND,
    &session::why::COMMAND,
    &stage::command::COMMAND,
    &doctor::COMMAND,
    &advise::COMMAND,
    &tap::COMMAND,
    &pmi::COMMAND,
    &report::COMMAND,
    &replay::COMMAND,
    &install::COMMAND,
    &clean::COMMAND,
    &configuration::COMMAND,
    &generate::COMMAND,
];

/// The command of this name; `ps` is another name of `jobs`.
pub fn find(name: &OsStr) -> Option<&'static Command> {
    let name = if name == "ps" { OsStr::new(session::jobs::COMMAND.name) } else { name };
    COMMANDS.into_iter().find(|command| name == command.name)
}

/// Commands without a table of flags here.
pub const OTHERS: [(&str, &str); 5] = [
    ("mpiexec", front::PURPOSE),
    ("bench", "compare the speed of launchers"),
    ("simulate", "predict the start of a large job on a described machine"),
    ("help", "show this text; wireup help COMMAND explains a command and its flags"),
    ("version", "show the version"),
];

pub const OVERVIEW: &str = "\
wireup starts parallel jobs, such as MPI and PyTorch programs: many processes (ranks) on one or more nodes.

  wireup -n 16 ./app                          16 ranks on this machine; the same as wireup run -n 16 ./app
  wireup run --hosts 'n[0-3]' -n 64 ./app     64 ranks on 4 other machines, by ssh
  sbatch -N 4 --wrap 'wireup run ./app'       in a batch job: its nodes, its number of ranks
  wireup run -n 64 --virtual-nodes 4 ./app    64 ranks on 4 virtual nodes, which are all on this machine
  wireup up --hosts 'n[0-63]'                 a session: agents that keep running, so jobs start at once
  wireup doctor --hosts 'n[0-63]'             check whether these machines can run jobs
  wireup advise --hosts 'n[0-63]' -n 1024     which flags start such a job fastest
  mpirun -n 64 wireup tap ./app               profile the start under another launcher
  wireup report trace.json                    show a profile of wireup run in a web browser
  wireup pmi exchange                         a PMI test client, for any launcher
  wireup bench launch                         compare the launchers installed here
  wireup bench exchange                       compare the exchange schemes
  wireup simulate -n 73728 --machine s2       predict the start on a machine you do not have
";

/// The names and purposes of all commands.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.into_iter().map(|command| (command.name, command.purpose)).chain(OTHERS)
}

pub fn overview() -> String {
    let lines = all().map(|(name, purpose)| format!("  {name:10}{purpose}\n"));
    format!("{OVERVIEW}\nCommands:\n{}", lines.collect::<String>())
}

#[cfg(test)]
pub mod page;

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_flags::Help;

    #[test]
    fn help_lines_have_at_most_120_columns() {
        for text in COMMANDS.map(|command| command.help(Help::All)).into_iter().chain([overview()]) {
            for line in text.lines() {
                assert!(line.len() <= 120 && line == line.trim_end(), "{line}");
            }
        }
    }
}
