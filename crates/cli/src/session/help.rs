//! The help texts of the commands of sessions.

use super::up;
use crate::flags::table::FLAGS;
use crate::help::{entry, shown};

const UP: &str = "\
wireup up: start a session: agents that keep running, so that runs need not start their own.

  wireup up --hosts n[0-63]             agents on 64 machines; returns when they have started
  wireup up --hostfile hosts --name lab
  wireup up --virtual-nodes 4           4 nodes that are all this machine
  wireup run -n 256 ./app               runs there: no ssh, no new agents; --session lab for one that is named
  wireup up                             restarts the lost nodes of a running session
  wireup down                           ends it

The session ends with the log-in that started it, unless --linger. Only this user can use it. Nodes that cannot be
started are reported; the session runs without them. If a node is lost later, its jobs end, but no others.

Flags:
";

const UP_OWN: &[(&str, &str)] = &[
    ("--name NAME", "The name of the session. Default: default, the one that wireup run looks for."),
    ("--linger", "The session keeps running when its log-in has ended, until wireup down."),
];

const UP_END: &str = "
Exit code: 0 all nodes are up, 1 some are not, 125 there is no session.
";

const DOWN: &str = "\
wireup down: end a session.

  wireup down                   if it has no jobs
  wireup down --kill            with its jobs
  wireup down --session lab

Returns when nothing of the session is left on this machine. Also removes what a killed session has left.
";

const STATUS: &str = "\
wireup status: the sessions of this user, their nodes, what is lost and why.

  wireup status                 all sessions
  wireup status --session lab
  wireup status --json          for programs

Exit code: 0 all nodes are up, 1 some are lost or a session does not answer, 125 there is no session.
";

const JOBS: &str = "\
wireup jobs: the jobs of a session, including finished detached jobs whose output was not shown yet.

  wireup jobs
  wireup jobs --session lab
  wireup jobs --json            for programs
";

const KILL: &str = "\
wireup kill: end a job of a session, or send it a signal, whoever started it.

  wireup kill 7                 SIGTERM to its ranks, after the time of --kill-grace SIGKILL
  wireup kill --signal USR1 7
  wireup kill --session lab 7

wireup jobs lists the numbers.
";

const ATTACH: &str = "\
wireup attach: the output of a detached job from its beginning, as it grows, to its end.

  job=$(wireup run --detach -n 64 ./app)
  wireup attach $job

Ctrl-C is passed on to the job, a second one ends it; a terminal that is closed leaves it alone. Of a job's output
32 MiB are kept; wireup run --output-dir keeps all. What was shown to its end is removed.

Exit code: that of the job.
";

/// The help of one of the commands.
pub fn of(command: &str) -> String {
    match command {
        "up" => up_text(),
        "down" => DOWN.to_owned(),
        "status" => STATUS.to_owned(),
        "jobs" => JOBS.to_owned(),
        "kill" => KILL.to_owned(),
        "attach" => ATTACH.to_owned(),
        other => panic!("{other} is not a command for sessions"),
    }
}

fn up_text() -> String {
    let mut text = UP.to_owned();
    text.extend(UP_OWN.iter().map(|(name, help)| entry(name, help)));
    let shared = FLAGS.iter().filter(|flag| up::COMMAND.shared.contains(&flag.id) && !flag.help.is_empty());
    text.extend(shared.map(|flag| entry(&shown(flag), flag.help)));
    text + UP_END
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit() {
        for command in ["up", "down", "status", "jobs", "kill", "attach"] {
            for line in of(command).lines() {
                assert!(line.len() <= 128 && line == line.trim_end(), "{line}");
            }
        }
        assert!(of("up").contains("--hostfile FILE") && of("up").contains("--linger"));
    }
}
