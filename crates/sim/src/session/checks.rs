//! The rules that hold in every session.
//!
//! - A job that no fault affects succeeds, with the right values and all of its output. A job that a fault affects fails for that reason
//!   only; if it reports a lost node, that node is one of the job's and was affected by a fault.
//! - When nothing is planned any more, no agent keeps anything of a job, and (since nothing happens) no deadline is armed.
//! - The root knows exactly which agents are up, and each of these has one process. An agent is lost only after a fault since its last
//!   return.
//! - After the end of the session nothing is left.

use super::spec::{Mischief, SessionSpec};
use super::world::World;
use std::collections::{BTreeMap, BTreeSet};
use wireup_proto::{Holds, Instant};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Cause, Ended};
use wireup_wire::session::{Entry, NodeState, Presence};

/// The most bytes that an agent may keep for each other agent between jobs: some small frames that were not acknowledged.
const KEPT_BYTES_MAX: usize = 8 << 10;

#[derive(Default)]
pub struct Checks {
    problems: Vec<String>,
    /// Indexed like the job plans.
    fates: Vec<Fate>,
    plans: BTreeMap<JobId, usize>,
    /// The index of the job's plan and the number of ranks, as its ranks were told.
    shapes: BTreeMap<JobId, (usize, u32)>,
    /// Agents affected by a fault since their last return, and the end of the fault.
    struck: BTreeMap<u32, Instant>,
    /// Agents ever affected by a fault.
    were_struck: BTreeSet<u32>,
    /// Agents of the last `Lost` entry that were not affected by a fault themselves. The next entry must return them.
    unheard: BTreeSet<u32>,
    nodes: Option<(usize, usize)>,
    copies_most: usize,
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

/// The result of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub seed: u64,
    pub problems: Vec<String>,
    pub digest: u64,
    pub events: u64,
    /// Jobs that were launched, jobs that succeeded, and jobs that lost a node.
    pub launched: u32,
    pub succeeded: u32,
    pub torn: u32,
    /// Nodes that were up, and nodes that were lost, at the end.
    pub nodes: (usize, usize),
    /// The most copies of one agent that existed at the same time.
    pub copies_most: usize,
    /// What agents kept when nothing was in progress.
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

    /// A fault affects an agent in such a way that others may lose it.
    pub fn strike(&mut self, agent: u32, until: Instant) {
        let latest = self.struck.entry(agent).or_insert(until);
        *latest = until.max(*latest);
        self.were_struck.insert(agent);
    }

    /// An agent has this many copies.
    pub fn on_copies(&mut self, copies: usize) {
        self.copies_most = self.copies_most.max(copies);
    }

    /// The root has written this entry.
    pub fn on_entry(&mut self, entry: &Entry, now: Instant) {
        let unheard = std::mem::take(&mut self.unheard);
        match entry {
            Entry::Lost(agents) => {
                self.causeless(unheard);
                let (struck, others): (BTreeSet<u32>, BTreeSet<u32>) =
                    agents.iter().map(|agent| agent.0).partition(|agent| self.struck.contains_key(agent));
                if struck.is_empty() {
                    self.causeless(others);
                } else {
                    self.unheard = others;
                }
            }
            Entry::Return(agents) => {
                self.causeless(unheard.into_iter().filter(|agent| !agents.contains(&AgentId(*agent))));
                let returns = |agent: &u32| agents.contains(&AgentId(*agent));
                self.struck.retain(|agent, until| !returns(agent) || *until > now);
            }
        }
    }

    fn causeless(&mut self, agents: impl IntoIterator<Item = u32>) {
        let problem = |agent| format!("agent {agent} is lost without a fault since it was started");
        self.problems.extend(agents.into_iter().map(problem));
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
            self.problem(format!("agent {at} starts ranks of job {id}, which has none on this node"));
        }
    }

    pub fn shape(&self, id: JobId) -> Option<(usize, u32)> {
        self.shapes.get(&id).copied()
    }

    pub fn on_output(&mut self, of: usize, bytes: &[u8]) {
        let fate = &mut self.fates[of];
        // The output of a rank that writes without end is not kept.
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

    /// Whether a job ends only if it is ended from outside.
    pub fn is_endless(&self, spec: &SessionSpec, id: JobId) -> bool {
        let plan = self.plans.get(&id).map(|of| &spec.jobs[*of]);
        plan.is_some_and(|plan| plan.mischief.is_some_and(Mischief::is_endless))
    }

    pub fn on_nodes(&mut self, nodes: &[NodeState], living: &[usize]) {
        let (mut up, mut lost) = (0, 0);
        for (agent, node) in nodes.iter().enumerate() {
            let problem = match &node.presence {
                Presence::Starting => Some("is neither up nor lost".to_owned()),
                Presence::Up if living[agent] == 0 => Some("has no process and is not lost".into()),
                Presence::Up if living[agent] > 1 => Some(format!("has {} processes", living[agent])),
                Presence::Lost { problem } if living[agent] > 0 => {
                    Some(format!("has a process and is lost: {problem}"))
                }
                Presence::Lost { problem } if !self.struck.contains_key(&(agent as u32)) => {
                    Some(format!("is lost without a fault: {problem}"))
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
                    Some(format!("succeeds although rank {rank} fails"))
                }
                _ => self.missing_output(fate, id, plan.lines),
            },
            Some((Cause::AgentLost { agent, .. }, _)) => {
                let is_its = fate.agents.contains(&agent.0) && self.were_struck.contains(&agent.0);
                (!is_its).then(|| format!("fails since agent {agent} is lost, which had no fault or is not in the job"))
            }
            Some((Cause::Killed { .. }, _)) => (!fate.was_killed).then(|| "was killed without a request".to_owned()),
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
        for copy in 0..self.copies.len() as u32 {
            self.check_idle_copy(copy);
        }
    }

    fn check_idle_copy(&mut self, copy: u32) {
        let Some(living) = self.living(copy).filter(|living| !living.is_stopped()) else { return };
        let (holds, sets, is_due) = (living.machine.holds(), living.jobs.len(), living.machine.deadline());
        let kept_max = KEPT_BYTES_MAX * self.hosts.len();
        let holds_jobs = holds.jobs + holds.early_frames + holds.direct_jobs + sets > 0;
        if holds_jobs || holds.direct_bytes > kept_max {
            self.checks.problem(format!("{} still holds {holds:?}, {sets} sets of ranks", self.name(copy)));
        }
        if let Some(due) = is_due {
            self.checks.problem(format!("{} is idle and has a deadline at {due:?}", self.name(copy)));
        }
        self.checks.holds.push(holds);
    }

    /// The session was ended.
    pub(super) fn check_end(&mut self) {
        for copy in 0..self.copies.len() as u32 {
            if self.living(copy).is_some_and(|living| !living.is_stopped()) {
                self.checks.problem(format!("{} outlives its session", self.name(copy)));
            }
        }
        if self.checks.nodes.is_none() {
            self.checks.problem("the root does not report its nodes".into());
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
            copies_most: self.checks.copies_most,
            holds: self.checks.holds,
            problems: self.checks.problems,
        }
    }
}
