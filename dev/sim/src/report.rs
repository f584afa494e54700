//! The report of a run.

use crate::checkers::ending::check_end;
use crate::checkers::{Checks, JobChecks};
use crate::jobs::Job;
use crate::launchers::LauncherState;
use crate::net::ClassCount;
use crate::rank_links::RankTraffic;
use crate::traffic::Recording;
use crate::world::World;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use wireup_proto::launcher_io::Notice;
use wireup_wire::collective::Collective;
use wireup_wire::frame::Class;
use wireup_wire::peer::{Cause, Failure, Note};

/// Maximum length of the text of an input or output in a trace (chosen).
const SHORT_MAX: usize = 300;

/// The result and the measurements of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunReport {
    pub seed: u64,
    /// Digest of the run; equal runs have equal digests.
    pub digest: u64,
    pub events: u64,
    /// Virtual time until the launcher exited or died.
    pub elapsed_ns: u64,
    /// The exit code of the first job's launcher; `None` if it was killed or never exited.
    pub code: Option<u8>,
    /// Notices of all launchers.
    pub notices: Vec<Notice>,
    pub jobs: JobCounts,
    /// The numbers that checkers counted, and the rules that were broken.
    pub checks: Checks,
    /// Nodes that were up, and nodes that were lost, when a session was ended.
    pub nodes: (usize, usize),
    /// Number of frames and bytes over all links, by class.
    pub classes: [ClassCount; Class::ALL.len()],
    /// Number of hops of frames that were routed through the tree because there was no direct link.
    pub routed_frames: u64,
    /// The number of direct links.
    pub direct_links: u32,
    /// Traffic in the network of the first job whose ranks have made one; `None`: there is no such job.
    pub rank_traffic: Option<RankTraffic>,
    /// The inputs of the agents that the spec asks to record, if they were started.
    pub recordings: BTreeMap<u32, Recording>,
}

/// Sums over all jobs of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobCounts {
    /// Number of jobs that were launched, that succeeded (`succeeded`), and that lost a node (`torn`).
    pub launched: u32,
    pub succeeded: u32,
    pub torn: u32,
    /// Number of fences, and of collectives of all kinds, that all ranks have completed.
    pub fences: u32,
    pub collectives: u32,
    /// Number of group barriers that released all members, counting each round.
    pub barriers: u32,
    /// Number of times that a PMIx server was asked by other nodes for the data of a rank of its node.
    pub modex_wanted: u64,
    /// Number of PMIx calls that completed without members that had left, of PMIx calls that timed out, and of events
    /// that servers received.
    pub excused: u32,
    pub timeouts: u32,
    pub events_told: u64,
    /// Number of PMIx fences and groups that completed, counted on each node.
    pub pmix_complete: u32,
    pub output_bytes: u64,
}

impl RunReport {
    pub(crate) fn new(mut world: World) -> Self {
        if !world.cx.checks.is_broken() && !world.cx.checks.is_stopped {
            let problems = check_end(&world);
            problems.into_iter().for_each(|problem| world.cx.problem(problem));
        }
        let elapsed_ns = world.launchers.elapsed_ns(&world.cx);
        RunReport {
            seed: world.cx.spec.seed,
            digest: world.cx.digest.value(),
            events: world.cx.clock.happened(),
            elapsed_ns,
            code: world.jobs.all.first().and_then(|job| match world.launchers.all[job.launcher as usize].state {
                LauncherState::Left { code } => Some(code),
                LauncherState::Running | LauncherState::Killed => None,
            }),
            notices: world.jobs.all.iter().flat_map(|job| job.checks.notices.iter().cloned()).collect(),
            jobs: JobCounts::new(&world.jobs.all),
            nodes: world.cx.checks.nodes.unwrap_or_default(),
            classes: world.net.classes,
            routed_frames: world.net.routed_frames,
            direct_links: (0..world.net.next_link()).filter(|link| world.net.is_direct(*link)).count() as u32,
            rank_traffic: world.jobs.all.iter().find_map(Job::rank_traffic),
            recordings: world.agents.recordings,
            checks: world.cx.checks,
        }
    }

    /// Returns this report if no rule was broken.
    #[track_caller]
    pub fn expect_good(self) -> Self {
        assert!(
            self.checks.problems.is_empty(),
            "seed {}: {:#?}\nnotices: {:?}",
            self.seed,
            self.checks.problems,
            self.notices
        );
        self
    }

    /// The failure that ended the first job that failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.notices.iter().find_map(|notice| match notice {
            Notice::Failed(failure) => Some(failure),
            _ => None,
        })
    }

    /// The agents that are reported as missing.
    pub fn missing(&self) -> Vec<u32> {
        match self.failure() {
            Some(Failure { cause: Cause::AgentsMissing { missing }, .. }) => {
                missing.iter().map(|one| one.agent.0).collect()
            }
            _ => Vec::new(),
        }
    }

    pub fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notices.iter().filter_map(|notice| match notice {
            Notice::Note(note) => Some(note),
            _ => None,
        })
    }
}

impl JobCounts {
    fn new(jobs: &[Job]) -> Self {
        let checks = || jobs.iter().map(|job| &job.checks);
        let count = |one: &dyn Fn(&JobChecks) -> u32| checks().map(one).sum::<u32>();
        let is_torn = |failure: &Failure| matches!(failure.cause, Cause::AgentLost { .. });
        JobCounts {
            launched: jobs.len() as u32,
            succeeded: count(&|checks| u32::from(checks.has_succeeded())),
            torn: count(&|checks| u32::from(checks.failure().is_some_and(is_torn))),
            fences: count(&|checks| checks.collectives.complete(Some(Collective::Fence))),
            collectives: count(&|checks| checks.collectives.complete(None)),
            barriers: count(&|checks| checks.group_barriers.complete()),
            modex_wanted: checks().map(|checks| checks.modex.wanted).sum(),
            excused: count(&|checks| checks.modex.excused),
            timeouts: count(&|checks| checks.modex.timeouts),
            events_told: checks().map(|checks| checks.modex.events).sum(),
            pmix_complete: count(&|checks| checks.modex.complete),
            output_bytes: checks().map(|checks| checks.output.bytes).sum(),
        }
    }
}

/// The beginning of a value's text for a trace, because contents of frames are long.
pub(crate) fn short(value: &impl fmt::Debug) -> String {
    let mut text = Short(String::new());
    if write!(text, "{value:?}").is_err() {
        text.0.push('…');
    }
    text.0
}

/// A text of limited length; writing more fails, so that the formatter stops.
struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = SHORT_MAX.saturating_sub(self.0.len());
        self.0.extend(part.chars().take(room));
        if part.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}
