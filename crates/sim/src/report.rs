//! The report of a run.

use crate::launch::LauncherLife;
use crate::net::ClassCount;
use crate::replay::Recording;
use crate::world::World;
use wireup_proto::launcher_io::Notice;
use wireup_wire::collective::Collective;
use wireup_wire::frame::Class;

/// The result and the measurements of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub seed: u64,
    /// Equal runs have equal digests.
    pub digest: u64,
    pub events: u64,
    /// Virtual time until the launcher left.
    pub elapsed_ns: u64,
    /// The launcher's exit code; `None` if it was killed or never left.
    pub code: Option<u8>,
    pub notices: Vec<Notice>,
    /// Frames and bytes over all links, by class.
    pub classes: [ClassCount; Class::ALL.len()],
    /// Hops of frames that were routed through the tree because there was no direct link.
    pub routed_frames: u64,
    /// The number of direct links.
    pub direct_links: u32,
    pub ranks_started: u32,
    /// Fences, and collectives of all kinds, that all ranks have left.
    pub fences: u32,
    pub collectives: u32,
    /// Rounds of group barriers that released all members.
    pub barriers: u32,
    pub gets: u64,
    /// How often a PMIx server was asked by other nodes for the data of a rank of its node.
    pub modex_wanted: u64,
    /// PMIx calls that completed without members that had left, PMIx calls that timed out, and events that servers were told.
    pub excused: u32,
    pub timeouts: u32,
    pub events_told: u64,
    pub output_bytes: u64,
    /// The most output that was in flight on any link.
    pub output_peak_bytes: i64,
    /// The most output that was held by any agent.
    pub held_peak_bytes: usize,
    /// Faults that happened before the launcher left.
    pub strikes: u32,
    /// When the first frames of the exchange class were sent (ns from the start).
    pub exchange_ns: Vec<u64>,
    /// How often agents were checked for state of completed collectives.
    pub quiet: u32,
    /// The inputs of the agent that the spec asks to record, if it was started.
    pub recording: Option<Recording>,
    /// Broken rules; empty in a good run.
    pub problems: Vec<String>,
}

impl World {
    pub(crate) fn into_report(mut self) -> Report {
        if !self.checks.is_broken() {
            self.check_end();
        }
        Report {
            seed: self.spec.seed,
            digest: self.digest.value(),
            events: self.clock.happened(),
            elapsed_ns: self.elapsed_ns(),
            code: match self.launcher.life {
                LauncherLife::Left { code } => Some(code),
                LauncherLife::Alive | LauncherLife::Killed => None,
            },
            notices: self.checks.notices,
            classes: self.net.classes,
            routed_frames: self.net.routed_frames,
            direct_links: (0..self.net.next_link()).filter(|link| self.net.is_direct(*link)).count() as u32,
            ranks_started: self.checks.started,
            fences: self.checks.collectives.complete(Some(Collective::Fence)),
            collectives: self.checks.collectives.complete(None),
            barriers: self.checks.teams.complete(),
            gets: self.checks.gets,
            modex_wanted: self.checks.modex.wanted,
            excused: self.checks.modex.excused,
            timeouts: self.checks.modex.timeouts,
            events_told: self.checks.modex.events,
            output_bytes: self.checks.output.bytes,
            output_peak_bytes: self.checks.bounds.output_peak,
            held_peak_bytes: self.checks.bounds.held_peak,
            strikes: self.checks.strikes,
            exchange_ns: self.checks.exchange_ns,
            quiet: self.checks.quiet,
            recording: self.recording,
            problems: self.checks.problems,
        }
    }
}

impl Report {
    /// Returns a good run.
    ///
    /// # Panics
    /// If a rule was broken; the message contains the seed.
    #[track_caller]
    pub fn expect_good(self) -> Self {
        assert!(self.problems.is_empty(), "seed {}: {:#?}\nnotices: {:?}", self.seed, self.problems, self.notices);
        self
    }
}
