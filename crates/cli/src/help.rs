//! The commands, and the text that lists them.

use crate::flags::table::RUN;
use crate::generate::flags as generate;
use crate::install::flags as install;
use crate::{advise, doctor, pmi, replay, session, stage, tap};
use wireup_flags::Command;

/// In the order of the list; `wireup bench` and `wireup simulate` are programs of their own.
pub const COMMANDS: [&Command; 15] = [
    &RUN,
    &session::up::COMMAND,
    &session::down::COMMAND,
    &session::status::COMMAND,
    &session::jobs::COMMAND,
    &session::kill::COMMAND,
    &session::attach::COMMAND,
    &stage::command::COMMAND,
    &doctor::COMMAND,
    &advise::COMMAND,
    &tap::COMMAND,
    &pmi::COMMAND,
    &replay::COMMAND,
    &install::COMMAND,
    &generate::COMMAND,
];

/// Commands without a table of flags.
pub const OTHERS: [(&str, &str); 4] = [
    ("bench", "measure launchers side by side"),
    ("simulate", "predict the start of a large job on a described machine"),
    ("help", "this text; wireup help COMMAND explains a command and its flags"),
    ("version", "the version"),
];

pub const OVERVIEW: &str = "\
wireup starts parallel jobs: many processes (ranks), over many nodes, that find each other by PMI.

  wireup run -n 16 ./app                      16 ranks on this machine
  wireup run --hosts n0,n1,n2:8 -n 64 ./app   the same on other machines, by ssh
  sbatch -N 4 --wrap 'wireup run ./app'       in an allocation: its nodes, its number of ranks
  wireup run -n 64 --virtual-nodes 4 ./app    the same on 4 nodes that are all this machine
  wireup up --hosts n[0-63]                   a session there: runs find its agents and start at once
  wireup doctor --hosts n[0-63]               check whether these machines can run jobs
  wireup advise --hosts n[0-63] -n 1024       which flags start such a job soonest
  mpirun -n 64 wireup tap ./app               a profile of a start under another launcher
  wireup pmi exchange                         a PMI test client, for any launcher
  wireup bench launch                         this launcher beside the others installed here
  wireup bench exchange                       ranks' first exchange by every scheme
  wireup simulate -n 73728 --machine s2       a start on a machine that you do not have
";

pub fn overview() -> String {
    let commands = COMMANDS.map(|command| (command.name, command.purpose));
    let lines = commands.into_iter().chain(OTHERS).map(|(name, purpose)| format!("  {name:10}{purpose}\n"));
    format!("{OVERVIEW}\nCommands:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod page;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lines_have_at_most_120_columns() {
        for text in COMMANDS.map(Command::help).into_iter().chain([overview()]) {
            for line in text.lines() {
                assert!(line.len() <= 120 && line == line.trim_end(), "{line}");
            }
        }
    }
}
