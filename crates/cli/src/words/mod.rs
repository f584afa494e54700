//! What a person at the terminal is told while a job runs: each notice as one line, or none.

mod failure;
mod profile;
mod ranges;
mod signals;
mod stall;

pub use profile::table;
pub use ranges::ranges;

use stall::Stalls;
use wireup_proto::launcher_io::Notice;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Failure, RemoteShell};

/// What the words depend on besides the notice itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    pub job_size: u32,
    pub node_count: u32,
    pub label: bool,
    pub verbose: bool,
    /// Agents are children of this machine, not reached by a remote shell.
    pub local: bool,
}

impl Setting {
    pub fn of(job: &JobSpec, remote_shell: &RemoteShell, verbose: bool) -> Setting {
        Setting {
            job_size: job.job_size(),
            node_count: job.nodes.len() as u32,
            label: job.options.label,
            verbose,
            local: *remote_shell == RemoteShell::Local,
        }
    }
}

/// Says things once and in order.
pub struct Voice {
    setting: Setting,
    failed: bool,
    stalls: Stalls,
}

impl Voice {
    pub fn new(setting: Setting) -> Voice {
        Voice { setting, failed: false, stalls: Stalls::new(setting.node_count) }
    }

    /// What to write to standard error; empty: nothing.
    pub fn say(&mut self, notice: &Notice) -> String {
        self.lines(notice).iter().map(|line| format!("wireup: {line}\n")).collect()
    }

    /// The lines for a notice, without `wireup: ` in front.
    fn lines(&mut self, notice: &Notice) -> Vec<String> {
        match notice {
            Notice::Started { ranks } if self.setting.verbose => vec![format!("{} started", count(*ranks, "rank"))],
            Notice::Started { .. } | Notice::Trace(_) | Notice::Note(_) => Vec::new(),
            Notice::Failed(failure) => self.first_failure(failure),
            Notice::Stall(report) => self.stalls.lines(report),
            Notice::Interrupt { signal, again } => vec![signals::interrupt(*signal, *again)],
            Notice::Ended(ended) => ended.failure.iter().flat_map(|failure| self.first_failure(failure)).collect(),
        }
    }

    /// What ended the job is said once; what follows from it is not news.
    fn first_failure(&mut self, failure: &Failure) -> Vec<String> {
        if std::mem::replace(&mut self.failed, true) {
            return Vec::new();
        }
        vec![failure::line(failure, &self.setting)]
    }
}

/// `1 rank`, `2 ranks`.
pub fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::peer::{Cause, Ended};

    fn voice(verbose: bool) -> Voice {
        Voice::new(Setting { job_size: 4, node_count: 2, label: true, verbose, local: true })
    }

    fn failure(code: u8) -> Failure {
        Failure { node: Default::default(), host: "n".into(), rank: None, pid: None, cause: Cause::Exited(code) }
    }

    #[test]
    fn only_the_first_failure_is_told() {
        let mut voice = voice(false);
        assert_eq!(voice.lines(&Notice::Failed(failure(1))).len(), 1);
        assert!(voice.lines(&Notice::Failed(failure(2))).is_empty());
        let ended = Ended { failure: Some(failure(1)), done: Default::default() };
        assert!(voice.lines(&Notice::Ended(ended)).is_empty());
    }

    #[test]
    fn a_failure_that_only_the_end_knows_is_told() {
        let ended = Ended { failure: Some(failure(1)), done: Default::default() };
        assert_eq!(voice(false).lines(&Notice::Ended(ended)).len(), 1);
        assert!(voice(false).lines(&Notice::Ended(Ended { failure: None, done: Default::default() })).is_empty());
    }

    #[test]
    fn the_start_is_news_for_the_curious_only() {
        assert!(voice(false).lines(&Notice::Started { ranks: 4 }).is_empty());
        assert_eq!(voice(true).lines(&Notice::Started { ranks: 1 }), ["1 rank started"]);
    }
}
