//! What the user at the terminal is told while a job runs: at most a few lines for each notice.

mod failure;
mod missing;
mod notes;
mod profile;
mod signals;
mod stall;
mod voice;

pub use failure::line as failure_line;
pub use missing::{lines as missing_lines, sentence as missing_sentence};
pub use profile::{phase_table, table};
pub use signals::{interrupt, number as signal_number};
pub use stall::{Stalls, stack_lines};
pub use voice::Voice;

use crate::flags::remote_shell::SSH;
use std::collections::BTreeMap;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{RemoteShell, SessionSpec};

const RUNS_SHOWN: usize = 8;

/// What the texts depend on besides the notice itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    pub job_size: u32,
    /// The number of nodes of the job; 0: the notice is not about a job that the user has launched.
    pub node_count: u32,
    pub label: bool,
    pub verbose: bool,
    /// Whether lines are for a terminal that shows colours.
    pub in_colour: bool,
    /// Agents are children of this machine's launcher, not reached by a remote shell.
    pub local: bool,
    /// The remote shell as a user would type it.
    pub shell: String,
    /// Host names of the agents that the session began with, by the agent's number.
    pub agents: Vec<String>,
    /// Host names of the agents that were added while the session ran.
    pub added: BTreeMap<AgentId, String>,
}

impl Setting {
    pub fn of(job: &JobSpec, session: &SessionSpec) -> Setting {
        Setting {
            job_size: job.job_size(),
            node_count: job.nodes.len() as u32,
            label: job.options.stdio.label,
            ..Setting::of_session(session)
        }
    }

    /// The setting if there is no job.
    pub fn of_session(session: &SessionSpec) -> Setting {
        Setting {
            node_count: session.agents.len() as u32,
            verbose: session.verbose,
            local: session.remote_shell.start_method().same_machine || session.agents.len() == 1,
            shell: shell_for_host(&session.remote_shell),
            agents: session.agents.iter().map(|agent| agent.host.clone()).collect(),
            ..Setting::default()
        }
    }

    fn host(&self, agent: AgentId) -> &str {
        let host = self.agents.get(agent.index()).or_else(|| self.added.get(&agent));
        host.map_or("a node", String::as_str)
    }
}

/// The remote shell as a user would type it, without the options that we add for ssh and steps.
pub fn shell(remote_shell: &RemoteShell) -> String {
    let (starter, words) = (remote_shell.start_method(), remote_shell.words());
    let is_own = starter.by_step() || words.iter().eq(SSH.iter());
    match words.first() {
        _ if starter.same_machine => "sh -c".to_owned(),
        Some(program) if is_own => program.clone(),
        Some(_) | None => words.join(" "),
    }
}

/// What a user would type before a host and a command.
pub fn shell_for_host(remote_shell: &RemoteShell) -> String {
    match remote_shell.start_method().host_option {
        "" => shell(remote_shell),
        option => format!("{} {option}", shell(remote_shell)),
    }
}

/// Replaces control characters, so that foreign text cannot break our lines.
pub fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// `1 rank`, `2 ranks`.
pub fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Ascending numbers as runs: `0-3,8,10-11`; a long list ends in `(N in all)`.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    let mut total = 0u64;
    for number in numbers {
        total += 1;
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let shown = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let mut parts: Vec<String> = runs.iter().take(RUNS_SHOWN).map(shown).collect();
    if let Some(last) = runs.get(RUNS_SHOWN..).and_then(<[_]>::last) {
        if runs.len() > RUNS_SHOWN + 1 {
            parts.push("...".to_owned());
        }
        parts.push(shown(last));
        return format!("{} ({total} in all)", parts.join(","));
    }
    parts.join(",")
}

/// A duration, roughly, in the largest suitable unit.
pub fn since(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
impl Setting {
    /// A setting with two virtual nodes.
    fn example() -> Setting {
        Setting {
            job_size: 4,
            node_count: 2,
            label: true,
            local: true,
            shell: "sh -c".into(),
            agents: vec!["node0".into(), "node1".into()],
            ..Setting::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_for_display() {
        assert_eq!([59, 60, 3700, 90_000].map(since), ["59 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn consecutive_numbers_are_joined_and_long_lists_cut() {
        assert_eq!(ranges([]), "");
        assert_eq!(ranges([3]), "3");
        assert_eq!(ranges([0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges((0..64).step_by(4)), "0,4,8,12,16,20,24,28,...,60 (16 in all)");
        assert_eq!(ranges((0..18).step_by(2)), "0,2,4,6,8,10,12,14,16 (9 in all)");
        assert_eq!(ranges([u32::MAX]), "4294967295");
    }
}
