//! How a job ends: the first failure, the kill with grace and then by force.
//!
//! Every agent reports the first failure of its subtree upward and does nothing else about it. The root takes the first
//! that reaches it as the job's, tells the launcher, and kills the job down the tree. What fails from then on is a
//! consequence and is not reported.

use super::interface::Act;
use super::{Context, Job};
use crate::io::{Output, SignalTarget};
use crate::output::OutputStream;
use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::ids::{AgentId, NodeId, Rank};
use wireup_wire::peer::{Cause, Control, Departed, Failure, MissingAgent};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;

/// After the grace of a kill, what has not ended is waited for this much longer (ns), then given up: children that never
/// linked back or do not answer, ranks that the kernel cannot end. Chosen: SIGKILL takes milliseconds, a busy machine a
/// second; whoever pressed Ctrl-C twice waits for a prompt.
const UNENDED_NS_MAX: u64 = 3_000_000_000;

/// A rank that left without finalize is no failure if the whole job is over by then (ns); else others may wait for it for
/// ever, in a barrier of their own, where nobody can see them. A fence that it breaks says so at once.
const DESERTED_NS_MAX: u64 = 500_000_000;

/// Once an agent is missed, how long after the end of the start time the others may be waited for (ns). Chosen: what agents
/// at the end of their time say needs a few hops.
const MISSING_NS_MAX: u64 = 2_000_000_000;

#[derive(Default)]
pub struct Ends {
    phase: Phase,
    /// At the root: a rank that left without finalize, and when that counts.
    deserter: Option<(Instant, Departed)>,
    /// At the root: what the job died of. Elsewhere: what was reported.
    pub failure: Option<Failure>,
    /// At the root: agents that are not there; told when all are known, and then at the latest.
    missing: BTreeMap<AgentId, String>,
    name_missing_at: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Running,
    /// Asked to end; by force at `force_at`.
    Killing { force_at: Instant, give_up_at: Instant },
    /// Killed by force.
    Forced { give_up_at: Instant },
    /// Nothing more to wait for.
    GivenUp,
}

impl Ends {
    pub fn on_departed(&mut self, now: Instant, departed: Departed) {
        if departed.deserted && self.deserter.is_none() {
            self.deserter = Some((now + DESERTED_NS_MAX, departed));
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.deserter.map(|(at, _)| at).into_iter().chain(self.name_missing_at).min(),
            Phase::GivenUp => None,
            Phase::Killing { force_at, .. } => Some(force_at),
            Phase::Forced { give_up_at } => Some(give_up_at),
        }
    }

    /// What a rank gets that starts while the job is being ended.
    pub fn signal_for_newcomers(&self) -> Option<i32> {
        match self.phase {
            Phase::Running => None,
            Phase::Killing { .. } => Some(SIGTERM),
            Phase::Forced { .. } | Phase::GivenUp => Some(SIGKILL),
        }
    }
}

impl Job {
    /// The first failure counts; at the root it ends the job.
    pub fn fail(&mut self, mut failure: Failure, cx: &mut Context<'_>) {
        if self.ends.failure.is_some() || self.ends.phase != Phase::Running {
            return;
        }
        if let Some(reason) = self.take_missing() {
            // Whatever else happened: without these nodes there was no job.
            failure = reason;
        }
        cx.control_up(self.id(), &Control::Failed(failure.clone()));
        self.ends.failure = Some(failure);
        if self.facts.root {
            self.kill(self.facts.spec.options.kill_grace_ns, cx);
        }
    }

    pub(super) fn fail_rank(&mut self, rank: Rank, pid: Option<u32>, cause: Cause, cx: &mut Context<'_>) {
        let node = self.facts.node.unwrap_or_default();
        self.fail(Failure { node, host: self.host(), rank: Some(rank), pid, cause }, cx);
    }

    /// Something failed on this node that is no single rank's fault.
    pub fn fail_here(&mut self, cause: Cause, cx: &mut Context<'_>) {
        let node = self.facts.node.unwrap_or_default();
        self.fail(Failure { node, host: self.host(), rank: None, pid: None, cause }, cx);
    }

    /// Agents are not there. The root waits until all are known, so that one message names them all.
    pub fn on_missing(&mut self, missing: Vec<MissingAgent>, cx: &mut Context<'_>) {
        if self.facts.root {
            for MissingAgent { agent, problem } in missing {
                self.ends.missing.entry(agent).or_insert(problem);
            }
            let at = cx.now.max(cx.start_by) + MISSING_NS_MAX;
            self.ends.name_missing_at.get_or_insert(at);
        } else {
            cx.control_up(self.id(), &Control::Missing(missing));
        }
    }

    /// True if agents are missing, which ends the job.
    pub(super) fn name_missing(&mut self, cx: &mut Context<'_>) -> bool {
        match self.take_missing() {
            Some(failure) => {
                self.fail(failure, cx);
                true
            }
            None => false,
        }
    }

    fn take_missing(&mut self) -> Option<Failure> {
        let missing = std::mem::take(&mut self.ends.missing).into_iter();
        let missing: Vec<_> = missing.map(|(agent, problem)| MissingAgent { agent, problem }).collect();
        self.ends.name_missing_at = None;
        let node =
            self.facts.spec.nodes.iter().position(|node| Some(node.agent) == missing.first().map(|first| first.agent));
        let node = NodeId(node.unwrap_or_default() as u32);
        let host = self.facts.spec.nodes.get(node.index()).map(|node| node.name.clone()).unwrap_or_default();
        (!missing.is_empty()).then_some(Failure {
            node,
            host,
            rank: None,
            pid: None,
            cause: Cause::AgentsMissing { missing },
        })
    }

    /// Whether the ranks were told to end.
    pub fn is_ending(&self) -> bool {
        self.ends.phase != Phase::Running
    }

    /// Whether they were killed.
    pub fn is_forced(&self) -> bool {
        matches!(self.ends.phase, Phase::Forced { .. } | Phase::GivenUp)
    }

    pub(super) fn fail_departed(&mut self, departed: &Departed, cause: Cause, cx: &mut Context<'_>) {
        let host = self.facts.spec.nodes.get(departed.node.index()).map(|node| node.name.clone()).unwrap_or_default();
        self.fail(Failure { node: departed.node, host, rank: Some(departed.rank), pid: Some(departed.pid), cause }, cx);
    }

    /// A child agent could not be started, or its link broke.
    pub fn fail_agent(&mut self, agent: AgentId, cause: Cause, cx: &mut Context<'_>) {
        self.is_torn = true;
        let index = self.facts.spec.nodes.iter().position(|node| node.agent == agent);
        let node = NodeId(index.unwrap_or_default() as u32);
        let host =
            index.map(|index| self.facts.spec.nodes[index].name.clone()).unwrap_or_else(|| format!("agent {agent}"));
        self.fail(Failure { node, host, rank: None, pid: None, cause }, cx);
    }

    /// Ends all ranks of the subtree: gently, and by force after `grace_ns`; at once if that is 0.
    pub fn kill(&mut self, grace_ns: u64, cx: &mut Context<'_>) {
        if matches!(self.ends.phase, Phase::Forced { .. } | Phase::GivenUp) {
            return;
        }
        self.forward_down(&Control::Kill { grace_ns }, cx);
        self.drop_held(cx);
        let give_up_at = cx.now + grace_ns + UNENDED_NS_MAX;
        if grace_ns == 0 {
            self.force(give_up_at, cx);
        } else if self.ends.phase == Phase::Running {
            self.ends.phase = Phase::Killing { force_at: cx.now + grace_ns, give_up_at };
            self.signal_all(SIGTERM, cx);
            // A stopped rank hears SIGTERM only when it goes on.
            self.signal_all(SIGCONT, cx);
        }
    }

    fn force(&mut self, give_up_at: Instant, cx: &mut Context<'_>) {
        self.ends.phase = Phase::Forced { give_up_at };
        self.signal_all(SIGKILL, cx);
    }

    pub(super) fn signal_all(&mut self, signal: i32, cx: &mut Context<'_>) {
        if self.busy > 0 {
            self.tell_ranks(Output::Signal { job: self.id(), target: SignalTarget::All, signal }, cx);
        }
    }

    pub(super) fn check_ends(&mut self, cx: &mut Context<'_>) {
        match self.ends.phase {
            Phase::Running => {
                if self.ends.name_missing_at.is_some_and(|at| cx.now >= at) {
                    self.name_missing(cx);
                }
                if let Some((_, departed)) = self.ends.deserter.take_if(|(at, _)| cx.now >= *at) {
                    self.fail_departed(&departed, Cause::NotFinalized, cx);
                }
            }
            Phase::Killing { force_at, give_up_at } if cx.now >= force_at => self.force(give_up_at, cx),
            Phase::Forced { give_up_at } if cx.now >= give_up_at => {
                self.ends.phase = Phase::GivenUp;
                self.give_up(cx);
            }
            Phase::Killing { .. } | Phase::Forced { .. } | Phase::GivenUp => {}
        }
    }

    /// The kill did not reach everybody in time. Where output waits for a reader, that is the reason, and no failure.
    fn give_up(&mut self, cx: &mut Context<'_>) {
        let held_up = !self.output.iter().all(OutputStream::is_empty);
        // In a standing session one job's end decides nothing about an agent.
        let is_standing = cx.standing;
        for child in self.children.iter_mut().filter(|child| child.done.is_none()) {
            if !held_up || (!is_standing && !(cx.is_linked)(child.agent)) {
                self.is_torn = true;
                if is_standing {
                    cx.control_child(child.agent, self.facts.spec.job, &Control::Over { agents: Vec::new() });
                } else {
                    cx.out.act(Act::DropChild(child.agent));
                }
                child.started.get_or_insert(0);
                child.done.get_or_insert_default();
            }
        }
        if self.alive > 0 {
            self.give_processes_up();
        }
        if !held_up {
            self.on_server_lost();
        }
        if held_up && self.is_unwanted {
            self.discard_output();
        }
        if held_up {
            self.ends.phase = Phase::Forced { give_up_at: cx.now + UNENDED_NS_MAX };
        }
    }
}
