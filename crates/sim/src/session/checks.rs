//! What must hold in every session.
//!
//! - A job that nobody disturbs succeeds, with the right values and all of its output; one that is disturbed fails for that reason and
//!   no other: a lost node is named, and it is one of the job's.
//! - When nothing is planned any more, no agent holds anything of a job, and (since nothing happens) no deadline is armed.
//! - The root knows exactly who is there; nobody is lost who was not struck.
//! - When the session is ended, nothing is left.

use super::spec::{Mischief, SessionSpec};
use super::world::World;
use std::collections::{BTreeMap, BTreeSet};
use wireup_proto::Holds;
use wireup_wire::ids::JobId;
use wireup_wire::peer::{Cause, Ended};
use wireup_wire::session::{NodeState, Presence};

/// Bytes that one agent may keep for each other one between jobs: some small frames that were not acknowledged.
const KEPT_BYTES_MAX: usize = 8 << 10;

#[derive(Default)]
pub struct Checks {
    problems: Vec<String>,
    /// By plan.
    fates: Vec<Fate>,
    plans: BTreeMap<JobId, usize>,
    /// The spec's job and the number of ranks, as its ranks were told.
    shapes: BTreeMap<JobId, (usize, u32)>,
    struck: BTreeSet<u32>,
    nodes: Option<(usize, usize)>,
    holds: Vec<Holds>,
}

#[derive(Default, Clone)]
struct Fate {
    id: Option<JobId>,
    agents: Vec<u32>,
    ranks: u32,
    output: Vec<u8>,
    ended: Option<Ended>,
    launcher_died: bool,
    was_killed: bool,
}

/// What came of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub seed: u64,
    pub problems: Vec<String>,
    pub digest: u64,
    pub events: u64,
    /// Jobs that were launched, that succeeded, and that lost a node.
    pub launched: u32,
    pub succeeded: u32,
    pub torn: u32,
    /// Nodes up, and lost, at the end.
    pub nodes: (usize, usize),
    /// What agents held when nothing was under way.
    pub holds: Vec<Holds>,
}

impl Report {
    /// # Panics
    /// If a rule was broken.
    pub fn expect_good(self) -> Report {
        assert!(self.problems.is_empty(), "seed {}: {}", self.seed, self.problems.join("; "));
        self
    }
}

impl Checks {
    pub fn new(spec: &SessionSpec) -> Self {
        Checks { fates: vec![Fate::default(); spec.jobs.len()], ..Checks::default() }
    }

    pub fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    pub fn is_broken(&self) -> bool {
        self.problems.len() > 5
    }

    /// Something is done to an agent by which others lose it.
    pub fn strike(&mut self, agent: u32) {
        self.struck.insert(agent);
    }

    pub fn on_launch(&mut self, of: usize, id: JobId, agents: Vec<u32>, ranks: u32) {
        self.plans.insert(id, of);
        let fate = &mut self.fates[of];
        (fate.id, fate.agents, fate.ranks) = (Some(id), agents, ranks);
    }

    pub fn on_spawn(&mut self, id: JobId, shape: (usize, u32), at: u32) {
        self.shapes.insert(id, shape);
        let is_its = self.plans.get(&id).is_some_and(|of| self.fates[*of].agents.contains(&at));
        if !is_its {
            self.problem(format!("agent {at} starts ranks of job {id}, which has none there"));
        }
    }

    pub fn shape(&self, id: JobId) -> Option<(usize, u32)> {
        self.shapes.get(&id).copied()
    }

    pub fn on_output(&mut self, of: usize, bytes: &[u8]) {
        let fate = &mut self.fates[of];
        // A flood is not kept.
        if fate.output.len() < 1 << 20 {
            fate.output.extend_from_slice(bytes);
        }
    }

    pub fn on_ended(&mut self, of: usize, ended: Ended) {
        self.fates[of].ended = Some(ended);
    }

    pub fn on_launcher_dies(&mut self, of: usize) {
        self.fates[of].launcher_died = true;
    }

    pub fn on_kill(&mut self, id: JobId) {
        if let Some(of) = self.plans.get(&id) {
            self.fates[*of].was_killed = true;
        }
    }

    /// Whether a job ends only if somebody ends it.
    pub fn is_endless(&self, spec: &SessionSpec, id: JobId) -> bool {
        let plan = self.plans.get(&id).map(|of| &spec.jobs[*of]);
        let is_endless = |mischief| matches!(mischief, Mischief::Floods { .. } | Mischief::Hangs { .. });
        plan.is_some_and(|plan| plan.mischief.is_some_and(is_endless))
    }

    pub fn on_nodes(&mut self, nodes: &[NodeState], living: &[bool]) {
        let (mut up, mut lost) = (0, 0);
        for (agent, node) in nodes.iter().enumerate() {
            let problem = match &node.presence {
                Presence::Starting => Some("is neither up nor lost".to_owned()),
                Presence::Up if !living[agent] => Some("is gone, and not known to be lost".into()),
                Presence::Lost { problem } if living[agent] => Some(format!("lives, and is taken for lost: {problem}")),
                Presence::Lost { problem } if !self.struck.contains(&(agent as u32)) => {
                    Some(format!("is lost, and nothing was done to it: {problem}"))
                }
                Presence::Lost { .. } => {
                    lost += 1;
                    None
                }
                Presence::Up => {
                    up += 1;
                    None
                }
            };
            problem.into_iter().for_each(|problem| self.problem(format!("agent {agent} {problem}")));
        }
        self.nodes = Some((up, lost));
    }

    fn judge(&mut self, spec: &SessionSpec, of: usize) {
        let (fate, plan) = (&self.fates[of], &spec.jobs[of]);
        let Some(id) = fate.id.filter(|_| !fate.launcher_died) else { return };
        let Some(ended) = &fate.ended else {
            return self.problem(format!("job {id} on {:?} never ends", fate.agents));
        };
        let culprit = |rank: u32| rank < fate.ranks;
        let by_mischief = |failed: Option<u32>| match plan.mischief {
            Some(Mischief::Crashes { rank } | Mischief::Fails { rank, .. } | Mischief::Lies { rank }) => {
                failed == Some(rank)
            }
            _ => false,
        };
        let problem = match ended.failure.as_ref().map(|failure| (&failure.cause, failure.rank)) {
            None => match plan.mischief {
                Some(Mischief::Crashes { rank } | Mischief::Fails { rank, .. } | Mischief::Lies { rank })
                    if culprit(rank) =>
                {
                    Some(format!("succeeds although rank {rank} does not"))
                }
                _ => self.missing_output(fate, id, plan.lines),
            },
            Some((Cause::AgentLost { agent, .. }, _)) => {
                let is_its = fate.agents.contains(&agent.0) && self.struck.contains(&agent.0);
                (!is_its).then(|| format!("fails since agent {agent} is lost, which is not so, or not its own"))
            }
            Some((Cause::Killed { .. }, _)) => (!fate.was_killed).then(|| "was killed by nobody".to_owned()),
            Some((Cause::Signalled { .. } | Cause::Exited(_) | Cause::Pmi { .. }, rank)) => {
                (!by_mischief(rank.map(|rank| rank.0))).then(|| format!("fails: {:?}", ended.failure))
            }
            Some(_) => Some(format!("fails: {:?}", ended.failure)),
        };
        if let Some(problem) = problem {
            let problem = format!("job {id} on {:?} {problem}", fate.agents);
            self.problem(problem);
        }
    }

    fn missing_output(&self, fate: &Fate, id: JobId, lines: u32) -> Option<String> {
        let text = String::from_utf8_lossy(&fate.output);
        let mut told: Vec<&str> = text.lines().collect();
        told.sort_unstable();
        let all = (0..fate.ranks).flat_map(|rank| (0..lines).map(move |line| format!("{rank} of {id}: {line}")));
        let mut wanted: Vec<String> = all.collect();
        wanted.sort_unstable();
        (told != wanted).then(|| format!("succeeds with {} of {} lines", told.len(), wanted.len()))
    }
}

impl World {
    /// Nothing is planned any more.
    pub(super) fn check_idle(&mut self) {
        for job in 0..self.spec.jobs.len() {
            self.checks.judge(&self.spec, job);
        }
        for at in 0..self.hosts.len() {
            let Some(living) = &self.hosts[at].living else { continue };
            let holds = living.machine.holds();
            let kept_max = KEPT_BYTES_MAX * self.hosts.len();
            let holds_jobs = holds.jobs + holds.early_frames + holds.direct_jobs + living.jobs.len() > 0;
            let is_due = living.machine.deadline();
            if holds_jobs || holds.direct_bytes > kept_max {
                self.checks.problem(format!("agent {at} still holds {holds:?}, {} sets of ranks", living.jobs.len()));
            }
            if let Some(due) = is_due {
                self.checks.problem(format!("agent {at} is idle and waits for {due:?}"));
            }
            self.checks.holds.push(holds);
        }
    }

    /// The session was ended.
    pub(super) fn check_end(&mut self) {
        for (at, host) in self.hosts.iter().enumerate() {
            if host.living.is_some() {
                self.checks.problems.push(format!("agent {at} outlives its session"));
            }
        }
        if self.checks.nodes.is_none() {
            self.checks.problem("the root does not tell of its nodes".into());
        }
    }

    pub(super) fn into_report(self) -> Report {
        let fates = || self.checks.fates.iter().filter_map(|fate| fate.ended.as_ref());
        let is_torn = |ended: &&Ended| {
            ended.failure.as_ref().is_some_and(|failure| matches!(failure.cause, Cause::AgentLost { .. }))
        };
        Report {
            seed: self.spec.seed,
            launched: self.checks.plans.len() as u32,
            succeeded: fates().filter(|ended| ended.failure.is_none()).count() as u32,
            torn: fates().filter(is_torn).count() as u32,
            digest: self.digest.value(),
            events: self.clock.happened(),
            nodes: self.checks.nodes.unwrap_or_default(),
            holds: self.checks.holds,
            problems: self.checks.problems,
        }
    }
}
