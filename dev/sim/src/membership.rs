//! The membership of a session that outlives its jobs: rules that hold after every event.
//!
//! - At most one process of an incarnation is linked.
//! - An agent that the root has not lost does not exit by itself as long as it can reach the root.
//! - An agent is lost only after a fault since its last return. An agent whose host was added for a job may leave when
//!   no rank of that job runs.
//! - After a loss, an agent dials the root a bounded number of times.
//!
//! The root's decisions are read from the messages that it sends.

use crate::agents::AgentProcess;
use crate::cx::Cx;
use crate::fault_injection::Culprit;
use crate::hosts::Agents;
use crate::jobs::{Job, Jobs};
use crate::net::Net;
use std::collections::{BTreeMap, BTreeSet};
use wireup_proto::Instant;
use wireup_proto::io::Peer;
use wireup_wire::frame::{Frame, FrameKind};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{self, Bootstrap};
use wireup_wire::session::{Entry, Log, SessionSnapshot};
use wireup_wire::talk::{Control, SessionDown, ToLauncher};

/// Most dials of an agent to the root for one loss. Chosen: twice the number for the longest chain of leases.
const DIALS_MAX: u32 = 60;
/// Number of the root's process, which is started first.
const ROOT: u32 = 0;

#[derive(Default)]
pub struct Membership {
    decided: Decided,
    is_ending: bool,
    /// Agents that a fault has affected since the log last returned them (`Entry::Return`), each with the time until
    /// which other agents may declare it lost because of that fault.
    struck: BTreeMap<u32, Instant>,
    /// Agents of the last `Lost` entry that were not affected by a fault themselves. The next entry must return them.
    without_cause: BTreeSet<u32>,
    /// Links that were broken by a fault.
    broken: BTreeSet<u32>,
    /// Links that the parent has accepted, each with the process at its lower end.
    linked: BTreeMap<u32, u32>,
    /// Links that the parent has neither accepted nor refused yet, each with the process at its lower end.
    undecided: BTreeMap<u32, u32>,
    /// Number of times that each process has dialled the root since it lost its parent.
    dials: BTreeMap<u32, u32>,
    /// Processes whose last dial to the root got no answer.
    unanswered: BTreeSet<u32>,
    /// Processes that have received a request to exit or whose links the root has closed, whatever the root's log says
    /// of these processes.
    dismissed: BTreeSet<u32>,
}

/// The membership that follows from the entries of the root's log that the root has sent to any agent so far.
#[derive(Default)]
struct Decided {
    at: u32,
    incarnations: BTreeMap<u32, u32>,
    lost: BTreeSet<u32>,
}

impl Decided {
    /// The entries of the log that are not in `Decided` yet.
    fn news<'a>(&self, log: &'a Log) -> &'a [Entry] {
        let known = self.at.saturating_sub(log.at) as usize;
        log.entries.get(known..).unwrap_or_default()
    }

    fn fold(&mut self, at: u32, entry: &Entry) {
        self.at = at;
        match entry {
            Entry::Lost(agents) => self.lost.extend(agents.iter().map(|agent| agent.0)),
            Entry::Return(agents) => {
                for agent in agents {
                    self.lost.remove(&agent.0);
                    self.incarnations.insert(agent.0, at);
                }
            }
        }
    }

    /// Takes over the state that the root sends to a new agent, which includes everything that was decided before.
    fn learn(&mut self, snapshot: &SessionSnapshot) {
        if snapshot.at > self.at {
            self.at = snapshot.at;
            self.incarnations = snapshot.places.iter().map(|(agent, place)| (agent.0, place.incarnation)).collect();
            self.lost = snapshot.places.iter().filter(|(_, place)| place.is_lost).map(|(agent, _)| agent.0).collect();
        }
    }

    fn has(&self, agent: u32, incarnation: u32) -> bool {
        self.incarnations.get(&agent).copied().unwrap_or(0) == incarnation && !self.lost.contains(&agent)
    }
}

impl Membership {
    /// Whether a fault has affected this agent since its last return.
    pub fn is_struck(&self, host: u32) -> bool {
        self.struck.contains_key(&host)
    }

    /// The root has written this entry. Returns the agents that it declares lost although no fault has affected them.
    fn on_entry(&mut self, entry: &Entry, now: Instant) -> Vec<u32> {
        let without_cause = std::mem::take(&mut self.without_cause);
        match entry {
            Entry::Lost(agents) => {
                let (struck, others): (BTreeSet<u32>, BTreeSet<u32>) =
                    agents.iter().map(|agent| agent.0).partition(|agent| self.is_struck(*agent));
                if struck.is_empty() {
                    return without_cause.into_iter().chain(others).collect();
                }
                self.without_cause = others;
                without_cause.into_iter().collect()
            }
            Entry::Return(agents) => {
                let returns = |agent: &u32| agents.contains(&AgentId(*agent));
                self.struck.retain(|agent, until| !returns(agent) || *until > now);
                without_cause.into_iter().filter(|agent| !returns(agent)).collect()
            }
        }
    }

    pub fn on_ending(&mut self) {
        self.is_ending = true;
    }

    pub fn on_broken(&mut self, link: u32) {
        self.broken.insert(link);
    }

    pub fn on_unlinked(&mut self, link: u32) {
        self.linked.remove(&link);
        self.undecided.remove(&link);
    }

    pub fn on_gone(&mut self, agent: u32) {
        self.linked.retain(|_, child| *child != agent);
        self.undecided.retain(|_, child| *child != agent);
    }

    pub fn on_silent(&mut self, agent: u32) {
        self.unanswered.insert(agent);
    }

    pub fn on_reached(&mut self, agent: u32) {
        self.unanswered.remove(&agent);
    }
}

/// Reads the messages of the root, and follows the events that affect agents.
impl Membership {
    /// A fault affects an agent in such a way that other agents may declare it lost. `until`: time until which other
    /// agents may do so.
    pub fn strike(&mut self, cx: &mut Cx, jobs: &mut Jobs, host: u32, until: Instant) {
        let latest = self.struck.entry(host).or_insert(until);
        *latest = until.max(*latest);
        cx.checks.struck.insert(host);
        let jobs = jobs.all.iter_mut().filter(|job| job.plan.nodes.contains(&host));
        jobs.for_each(|job| job.expect_losses(cx));
    }

    /// Allows a failure of any running job to name an agent. `must`: whether a single run can no longer succeed.
    pub fn blame_agent(&mut self, cx: &mut Cx, jobs: &mut Jobs, host: u32, must: bool) {
        if cx.spec.is_standing {
            self.strike(cx, jobs, host, cx.clock.now());
        }
        let must = must && !cx.spec.is_standing;
        jobs.active().for_each(|job| job.checks.blame(Culprit::Agent(host), must));
    }

    /// An agent is being started by its parent or another agent.
    pub fn on_calls(&mut self, agent: u32, bootstrap: Option<&Bootstrap>) {
        if let Some(bootstrap) = bootstrap.filter(|_| agent == ROOT) {
            self.decided.learn(&bootstrap.snapshot);
        }
    }

    /// Called when an agent dials the root: counts its dials since it lost its parent.
    pub fn on_rejoin(&mut self, cx: &mut Cx, agents: &Agents, agent: u32) {
        let dials = self.dials.entry(agent).or_default();
        *dials += 1;
        if *dials == DIALS_MAX {
            cx.problem(format!("{} has dialled the root {DIALS_MAX} times", agents.name(agent)));
        }
    }

    /// Called when an agent closes one of its links.
    pub fn on_closes(&mut self, net: &Net, agent: u32, link: u32) {
        self.on_unlinked(link);
        // For a child of the root, a closed link is final. An agent that seeks a parent is only asked to try again.
        if agent == ROOT && matches!(net.peer(link, 0), Peer::Child { .. }) {
            let child = net.lower_end(link);
            self.dismissed.extend(child);
        }
    }

    /// The link of a child is up at its parent, which may accept or refuse it.
    pub fn on_child_link(&mut self, net: &Net, link: u32) {
        if let Some(agent) = net.lower_end(link) {
            self.undecided.insert(link, agent);
        }
    }

    /// Called when the root sends entries of its log.
    pub fn on_sends(&mut self, cx: &mut Cx, net: &Net, jobs: &mut Jobs, (agent, link): (u32, u32), frame: &Frame) {
        if !cx.spec.is_standing || frame.kind != FrameKind::Control || !(frame.job == 0 || agent == ROOT) {
            return;
        }
        let log = match peer::decode(&frame.payload) {
            Ok(Control::SessionDown(SessionDown::Log(log))) => log,
            Ok(Control::ToLauncher(ToLauncher::Added { agents })) => {
                let Some(job) = jobs.all.iter().rposition(|job| job.id.0 == frame.job) else { return };
                jobs.number_added(job as u32, &agents);
                if agents.iter().any(|agent| self.is_struck(agent.0)) {
                    jobs.all[job].expect_losses(cx);
                }
                return;
            }
            _ => return,
        };
        let is_rejoining = matches!(net.peer(link, 0), Peer::Rejoin { .. });
        if log.at == u32::MAX {
            // A parent other than the root sends this message too, if it has another process of the same incarnation.
            self.dismissed.extend(net.lower_end(link));
        } else if agent == ROOT {
            self.on_decided(cx, jobs, &log);
            if is_rejoining {
                self.on_child_link(net, link);
            }
        }
    }

    fn on_decided(&mut self, cx: &mut Cx, jobs: &mut Jobs, log: &Log) {
        let first = log.at.max(self.decided.at);
        for (at, entry) in (first + 1..).zip(self.decided.news(log).to_vec()) {
            self.decided.fold(at, &entry);
            if cx.spec.trace {
                eprintln!("  entry {at}: {entry:?}");
            }
            if let Entry::Lost(agents) = &entry {
                let is_lost = |node: &u32| agents.contains(&AgentId(*node));
                let jobs = jobs.all.iter_mut().filter(|job| job.plan.nodes.iter().any(is_lost));
                jobs.for_each(|job| job.expect_losses(cx));
            }
            if !self.is_ending {
                let without_cause = self.on_entry(&entry, cx.clock.now());
                let kept: Vec<u32> =
                    without_cause.into_iter().filter(|agent| !self.may_leave(cx, jobs, *agent)).collect();
                for agent in kept {
                    cx.problem(format!("agent {agent} is lost without a fault since it was started"));
                }
            }
        }
    }

    /// Whether the host of this agent was added for a job that has ended: no rank of the job runs, or the job has lost
    /// an agent. (In that case agents end their ranks when they receive the news, or when they exit.)
    fn may_leave(&self, cx: &Cx, jobs: &Jobs, agent: u32) -> bool {
        let is_whole = |host: &u32| !self.is_struck(*host) && !self.decided.lost.contains(host);
        let runs = |job: &Job| job.procs().any(|id| jobs.procs[id as usize].exists());
        let needs = |job: &Job| job.plan.nodes.contains(&agent) && job.plan.nodes.iter().all(is_whole) && runs(job);
        agent >= cx.spec.agents && !jobs.all.iter().any(needs)
    }

    /// Called when an agent exits by itself: checks that it may do so.
    pub fn check_leaves(&self, cx: &mut Cx, agents: &Agents, net: &Net, agent: u32) {
        let (AgentProcess { host, incarnation, up, .. }, rules) = (&agents[agent], self);
        let is_wanted = rules.decided.has(*host, *incarnation) && !rules.dismissed.contains(&agent);
        let was_roots = up.is_some_and(|up| rules.broken.contains(&up) && net.upper_end(up) == Some(ROOT));
        if !rules.is_ending && is_wanted && !was_roots && !rules.unanswered.contains(&agent) {
            cx.problem(format!("{} exits, and the root has not lost it", agents.name(agent)));
        }
    }

    /// Checks the rules about links; called after every event.
    pub fn check_links(&mut self, cx: &mut Cx, agents: &Agents, net: &Net) {
        if self.undecided.is_empty() {
            return;
        }
        let is_settled = |link: u32| {
            let parent = net.upper_end(link).map(|parent| &agents[parent]);
            parent.is_none_or(|parent| !parent.is_running() || parent.is_settled())
        };
        let settled: Vec<u32> = self.undecided.keys().copied().filter(|link| is_settled(*link)).collect();
        for link in &settled {
            if let Some(agent) = self.undecided.remove(link) {
                self.linked.insert(*link, agent);
                self.dials.remove(&agent);
            }
        }
        if !settled.is_empty() && agents.hosts.iter().any(|host| host.processes.len() > 1) {
            self.check_twins(cx, agents, net);
        }
    }

    /// At most one process of an incarnation is connected to the root.
    fn check_twins(&self, cx: &mut Cx, agents: &Agents, net: &Net) {
        let mut seen = BTreeMap::new();
        let above: BTreeMap<u32, u32> =
            self.linked.iter().filter_map(|(link, agent)| Some((*agent, net.upper_end(*link)?))).collect();
        let is_in_tree =
            |agent: u32| std::iter::successors(Some(agent), |agent| above.get(agent).copied()).any(|at| at == ROOT);
        for agent in above.keys().copied().filter(|agent| is_in_tree(*agent)) {
            let AgentProcess { host, incarnation, .. } = agents[agent];
            if let Some(twin) = seen.insert((host, incarnation), agent) {
                cx.problem(format!(
                    "{} and {} are linked, and have the same incarnation",
                    agents.name(twin),
                    agents.name(agent)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_folded_once_however_often_it_is_told() {
        let mut decided = Decided::default();
        let entries = vec![Entry::Lost(vec![AgentId(3)]), Entry::Return(vec![AgentId(3)])];
        let log = Log { entries, ..Log::default() };
        assert!(decided.has(3, 0));
        decided.fold(1, &log.entries[0]);
        assert!(!decided.has(3, 0));
        assert_eq!(decided.news(&log), &log.entries[1..]);
        decided.fold(2, &log.entries[1]);
        assert!(decided.has(3, 2) && !decided.has(3, 0) && decided.news(&log).is_empty());
    }
}
