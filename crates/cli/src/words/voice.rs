//! What a job's notices become on the terminal: at most a few lines for each.

use super::notes::Notes;
use super::stall::Stalls;
use super::{Setting, count, failure, one_line, signals};
use crate::out;
use wireup_proto::launcher_io::Notice;
use wireup_wire::peer::{Cause, Failure};

/// Turns notices into lines, each only once and in order.
pub struct Voice {
    setting: Setting,
    /// Whether the failure that was reported ends the job; `None`: no failure was reported yet.
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
        let is_failure = match notice {
            Notice::Failed(_) | Notice::RankError(_) | Notice::NotStarted { .. } | Notice::NotSpawned { .. } => true,
            Notice::Ended(ended) => ended.failure.is_some(),
            _ => false,
        };
        let prefix = out::prefix(is_failure, self.setting.in_colour);
        self.lines(notice).iter().map(|line| format!("{prefix}{line}\n")).collect()
    }

    /// The lines for a notice, without the prefix `wireup: `.
    fn lines(&mut self, notice: &Notice) -> Vec<String> {
        match notice {
            Notice::Started { ranks } => {
                let mut lines = self.notes.summary(&self.setting);
                let all_run = self.setting.verbose && self.failed.is_none();
                lines.extend(all_run.then(|| format!("{} started", count(*ranks, "rank"))));
                lines
            }
            Notice::Trace(_) => Vec::new(),
            Notice::Note(note) => self.notes.lines(note, &self.setting).iter().map(|line| one_line(line)).collect(),
            Notice::Failed(failure) => self.first_failure(failure),
            Notice::Stall(report) => self.stalls.lines(report),
            Notice::Stacks(stacks) => super::stack_lines(stacks),
            Notice::RankError(error) => failure::rank_error_lines(error),
            Notice::Interrupt { signal, first, starting } => vec![signals::interrupt(*signal, *first, *starting)],
            Notice::OfJob { job, notice } => {
                let of_job = |line: String| format!("job {job}: {line}");
                self.lines(notice).into_iter().map(of_job).collect()
            }
            Notice::NotStarted { job, failure } => {
                let setting = Setting { node_count: 0, ..self.setting.clone() };
                let line = failure::line(failure, &setting);
                vec![format!("job {job} (MPI_Comm_spawn) cannot start: {line}")]
            }
            Notice::Added { agent, host } => {
                self.setting.added.insert(*agent, host.clone());
                let line = || format!("{host} was added to the nodes of this run");
                self.setting.verbose.then(line).into_iter().collect()
            }
            Notice::NotSpawned { from, problem } => {
                let of_job = from.job.map(|job| format!("job {job}: ")).unwrap_or_default();
                vec![format!("{of_job}rank {}: MPI_Comm_spawn failed: {}", from.rank, one_line(problem))]
            }
            Notice::Ended(ended) => match &ended.failure {
                Some(Failure { cause: Cause::SessionEnded { reason }, .. }) if self.failed.is_none() => {
                    vec![format!(
                        "the job was not started, because its session ended at the same moment: {reason}; start \
                         the session again with wireup up, or run without it (--no-session)"
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

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::AgentId;
    use wireup_wire::peer::{Ended, Note};

    fn voice(verbose: bool) -> Voice {
        Voice::new(Setting { verbose, ..Setting::example() })
    }

    fn failure(code: u8) -> Failure {
        Failure { node: Default::default(), host: "n".into(), rank: None, pid: None, cause: Cause::Exited(code) }
    }

    fn ended(failure: Option<Failure>) -> Notice {
        Notice::Ended(Ended { failure, done: Default::default() })
    }

    #[test]
    fn only_the_first_failure_is_reported() {
        let mut voice = voice(false);
        assert_eq!(voice.lines(&Notice::Failed(failure(1))).len(), 1);
        assert!(voice.lines(&Notice::Failed(failure(2))).is_empty());
        assert!(voice.lines(&ended(Some(failure(1)))).is_empty());
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
        assert_eq!(voice(false).lines(&ended(Some(failure(1)))).len(), 1);
        assert!(voice(false).lines(&ended(None)).is_empty());
    }

    #[test]
    fn in_colour_a_failure_stands_out() {
        let text =
            |in_colour, notice| Voice::new(Setting { in_colour, verbose: true, ..Setting::example() }).say(&notice);
        assert!(text(false, Notice::Failed(failure(1))).starts_with("wireup: "));
        assert!(text(true, Notice::Failed(failure(1))).starts_with("\x1b[1;31mwireup:\x1b[0m "));
        assert_eq!(text(true, Notice::Started { ranks: 1 }), "\x1b[1mwireup:\x1b[0m 1 rank started\n");
    }

    #[test]
    fn links_are_summarized_when_the_job_has_started() {
        let mut voice = voice(true);
        let note = Note::Linked { agent: AgentId(1), parent: AgentId(0), address: "127.0.0.1 (lo)".into() };
        assert!(voice.lines(&Notice::Note(note)).is_empty());
        let expected = ["links: 1 agent over lo (127.0.0.1)", "4 ranks started"];
        assert_eq!(voice.lines(&Notice::Started { ranks: 4 }), expected);
        assert!(self::voice(false).lines(&Notice::Started { ranks: 4 }).is_empty());
    }
}
