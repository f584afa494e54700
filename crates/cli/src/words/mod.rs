//! What the user at the terminal is told while a job runs: at most a few lines for each notice.

mod failure;
mod missing;
mod notes;
mod profile;
mod ranges;
mod signals;
mod stall;

pub use missing::{lines as missing_lines, sentence as missing_sentence};
pub use profile::{Row, table};
pub use ranges::ranges;
pub use signals::{interrupt, number as signal_number};

use crate::flags::remote_shell::SSH;
use notes::Notes;
use stall::Stalls;
use std::collections::BTreeMap;
use wireup_proto::launcher_io::Notice;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Cause, Failure, RemoteShell, SessionSpec};

/// What the texts depend on besides the notice itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    pub job_size: u32,
    /// 0: not of a job that the user has launched.
    pub node_count: u32,
    pub label: bool,
    pub verbose: bool,
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

/// Turns notices into lines, each only once and in order.
pub struct Voice {
    setting: Setting,
    /// A failure was reported, and whether it ends the job.
    failed: Option<bool>,
    stalls: Stalls,
    notes: Notes,
}

impl Voice {
    pub fn new(setting: Setting) -> Voice {
        let stalls = Stalls::new(setting.node_count);
        Voice { setting, failed: None, stalls, notes: Notes::default() }
    }

    /// The text to write to standard error; may be empty.
    pub fn say(&mut self, notice: &Notice) -> String {
        self.lines(notice).iter().map(|line| format!("wireup: {line}\n")).collect()
    }

    /// The lines for a notice, without the prefix `wireup: `.
    fn lines(&mut self, notice: &Notice) -> Vec<String> {
        match notice {
            Notice::Started { ranks } => {
                let mut lines = self.notes.summary(&self.setting);
                lines.extend(self.setting.verbose.then(|| format!("{} started", count(*ranks, "rank"))));
                lines
            }
            Notice::Trace(_) => Vec::new(),
            Notice::Note(note) => self.notes.lines(note, &self.setting).iter().map(|line| one_line(line)).collect(),
            Notice::Failed(failure) => self.first_failure(failure),
            Notice::Stall(report) => self.stalls.lines(report),
            Notice::Interrupt { signal, first, starting } => vec![signals::interrupt(*signal, *first, *starting)],
            Notice::OfJob { job, notice } => {
                let of_job = |line: String| format!("job {job}: {line}");
                self.lines(notice).into_iter().map(of_job).collect()
            }
            Notice::NotStarted { job, failure } => {
                let setting = Setting { node_count: 0, ..self.setting.clone() };
                let line = failure::line(failure, &setting);
                vec![format!("job {job}, for which a rank has asked, cannot start: {line}")]
            }
            Notice::Added { agent, host } => {
                self.setting.added.insert(*agent, host.clone());
                let line = || format!("{host} is added to the nodes of this run");
                self.setting.verbose.then(line).into_iter().collect()
            }
            Notice::NotSpawned { from, problem } => {
                let of_job = from.job.map(|job| format!("job {job}: ")).unwrap_or_default();
                vec![format!(
                    "{of_job}rank {} asked for processes, which are not started: {}",
                    from.rank,
                    one_line(problem)
                )]
            }
            Notice::Ended(ended) => match &ended.failure {
                Some(Failure { cause: Cause::SessionEnded { reason }, .. }) if self.failed.is_none() => {
                    vec![format!(
                        "the job was not started, because its session ended at the same moment: {reason}; start \
                         the session again \
                         with wireup up, or run without it with --no-session"
                    )]
                }
                Some(failure) => self.first_failure(failure),
                // A short job ends before it is reported as started.
                None => self.notes.summary(&self.setting),
            },
        }
    }

    /// Reports the first failure, and the first one that ends the job; later ones follow from it and are not reported.
    fn first_failure(&mut self, failure: &Failure) -> Vec<String> {
        let ends_job = failure.cause.ends_job();
        if self.failed.is_some_and(|ended| ended || !ends_job) {
            return Vec::new();
        }
        self.failed = Some(ends_job);
        let mut lines = self.notes.summary(&self.setting);
        lines.push(failure::line(failure, &self.setting));
        lines
    }
}

/// `1 rank`, `2 ranks`.
pub fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
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
    use wireup_wire::peer::{Cause, Ended, Note};

    fn voice(verbose: bool) -> Voice {
        Voice::new(Setting { verbose, ..Setting::example() })
    }

    fn failure(code: u8) -> Failure {
        Failure { node: Default::default(), host: "n".into(), rank: None, pid: None, cause: Cause::Exited(code) }
    }

    #[test]
    fn durations_are_rounded_for_display() {
        assert_eq!([59, 60, 3700, 90_000].map(since), ["59 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn only_the_first_failure_is_reported() {
        let mut voice = voice(false);
        assert_eq!(voice.lines(&Notice::Failed(failure(1))).len(), 1);
        assert!(voice.lines(&Notice::Failed(failure(2))).is_empty());
        let ended = Ended { failure: Some(failure(1)), done: Default::default() };
        assert!(voice.lines(&Notice::Ended(ended)).is_empty());
    }

    #[test]
    fn a_failure_that_ends_the_job_is_reported_after_one_that_does_not() {
        let mut voice = voice(false);
        let late = Failure { cause: Cause::ExitedLate(3), ..failure(3) };
        let mut lines = |failure: &Failure| voice.lines(&Notice::Failed(failure.clone())).len();
        assert_eq!([lines(&late), lines(&late), lines(&failure(1)), lines(&failure(1))], [1, 0, 1, 0]);
    }

    #[test]
    fn a_failure_first_seen_at_the_end_is_reported() {
        let ended = Ended { failure: Some(failure(1)), done: Default::default() };
        assert_eq!(voice(false).lines(&Notice::Ended(ended)).len(), 1);
        assert!(voice(false).lines(&Notice::Ended(Ended { failure: None, done: Default::default() })).is_empty());
    }

    #[test]
    fn links_are_summarized_when_the_job_has_started() {
        let mut voice = voice(true);
        let note = Note::Linked { agent: AgentId(1), parent: AgentId(0), address: "127.0.0.1 (lo)".into() };
        assert!(voice.lines(&Notice::Note(note)).is_empty());
        assert_eq!(
            voice.lines(&Notice::Started { ranks: 4 }),
            ["links: 1 agent over lo (127.0.0.1)", "4 ranks started"]
        );
    }

    #[test]
    fn the_start_is_reported_only_with_verbose() {
        assert!(voice(false).lines(&Notice::Started { ranks: 4 }).is_empty());
        assert_eq!(voice(true).lines(&Notice::Started { ranks: 1 }), ["1 rank started"]);
    }
}
