//! Agents that a batch system starts: all of them by one call, which the root makes.
//!
//! ```text
//!   root ── one step ──► task on each node ──► agent
//!     ▲  each says that it has begun, and where it listens │
//!     └────────────── through the step's output ───────────┘
//!     └─ where the parents listen, through its input ─► all
//! ```
//!
//! Nobody else calls anything: an agent expects its children, which come by themselves. What the step says of an agent goes
//! from here to that agent's parent. A program that no node has is looked for, then sent, by further steps; once one agent
//! has begun, its ranks run, and no other step is called for the same agents.
//!
//! Cost: a line from each agent, and from the root a line for each agent with children, which the step brings to all.

use super::steps::Step;
use super::{KinOf, Starter, next};
use crate::io::{ExitStatus, How, Output, ShellId};
use crate::job::JobInput;
use crate::session::inputs::membership;
use crate::session::inputs::starter::Next;
use crate::session::starts;
use crate::session::{Begin, Effect, Effects, View};
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Hop;
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Bootstrap, Control, MissingAgent, Note, Secret};

impl Starter {
    /// Calls a step for the agents of a job that were not called before.
    pub(super) fn call_step(&mut self, view: &View<'_>, kin: KinOf<'_>, begin: &Begin, fx: &mut Effects) {
        if !view.is_root() || !view.is_by_step() {
            return;
        }
        let mut agents = agents_up_to_root(view, &begin.spec, &begin.mapping);
        agents.retain(|agent| !self.steps.called.contains_key(agent));
        if !agents.is_empty() {
            self.start_step(view, kin, agents, Some(begin.spec.job), How::Plain, fx);
        }
    }

    /// Calls a step for agents of a standing session.
    pub(super) fn call_step_for(&mut self, view: &View<'_>, kin: KinOf<'_>, agents: Vec<AgentId>, fx: &mut Effects) {
        let agents: BTreeSet<AgentId> = agents.into_iter().filter(|agent| *agent != AgentId(0)).collect();
        if view.is_root() && view.is_by_step() && !agents.is_empty() {
            self.start_step(view, kin, agents, None, How::Plain, fx);
        }
    }

    fn start_step(
        &mut self,
        view: &View<'_>,
        kin: KinOf<'_>,
        agents: BTreeSet<AgentId>,
        job: Option<JobId>,
        how: How,
        fx: &mut Effects,
    ) {
        let shell = self.starts.new_shell();
        let mut session = view.session.clone();
        session.start_timeout_ns = self.start_by - view.now;
        session.hold_ranks = false;
        let bootstrap = Bootstrap {
            // Of all; each takes its part.
            kin: kin(AgentId(0)),
            secret: Secret([0; 32]),
            // Each of them finds itself.
            agent: AgentId(0),
            parent: Vec::new(),
            by_parent: false,
            session,
            jobs: job.and_then(|job| view.jobs.spec(job)).map(|spec| (**spec).clone()).into_iter().collect(),
        };
        self.steps.called.extend(agents.iter().map(|agent| (*agent, shell)));
        let list = agents.iter().copied().collect();
        let step = Step { agents, job, how, begun: BTreeSet::new(), failed: BTreeMap::new(), told: false };
        self.steps.running.insert(shell, step);
        fx.push(Effect::Do(Output::StartStep { shell, agents: list, how, bootstrap: Box::new(bootstrap) }));
    }

    /// A task of a step has begun, or something is wrong with it.
    pub(super) fn on_step_told(&mut self, shell: ShellId, agent: AgentId, problem: Option<String>, fx: &mut Effects) {
        if !self.steps.is_of(agent, shell) {
            return;
        }
        let Some(step) = self.steps.running.get_mut(&shell) else { return };
        match problem {
            None => drop(step.begun.insert(agent)),
            Some(problem) => drop(step.failed.entry(agent).or_insert(problem)),
        }
        if step.begun.is_empty() {
            return;
        }
        let failed = std::mem::take(&mut step.failed);
        step.told |= !failed.is_empty();
        for (agent, problem) in failed {
            if self.steps.is_of(agent, shell) {
                fx.push(next(Next::TaskLost { agent, problem }));
            }
        }
    }

    /// An agent's task will not bring it, or has ended.
    pub(super) fn on_task_lost(&mut self, view: &View<'_>, agent: AgentId, problem: String, fx: &mut Effects) {
        match view.tree.next_hop(AgentId(0), agent) {
            _ if self.children.is_starting(agent) => self.on_missing(view, agent, problem, fx),
            Hop::Child(child) if view.policy.survives_losses() && self.children.is_lost(child) => {
                fx.push(Effect::Membership(membership::Input::ReportLost(MissingAgent { agent, problem })));
            }
            Hop::Child(child) if child == agent => self.on_last_words(agent, problem),
            Hop::Child(child) if self.children.is_lost(child) => {
                let missing = vec![MissingAgent { agent, problem }];
                fx.jobs(view.jobs.of_child(child), || JobInput::Missing(missing.clone()));
            }
            Hop::Child(child) => fx.child(child, Control::NotStarted(MissingAgent { agent, problem })),
            Hop::Here | Hop::Parent => {}
        }
    }

    /// True if it was a step.
    pub(super) fn on_step_exited(
        &mut self,
        view: &View<'_>,
        kin: KinOf<'_>,
        shell: ShellId,
        status: ExitStatus,
        stderr: &str,
        fx: &mut Effects,
    ) -> bool {
        let Some(step) = self.steps.take(shell) else {
            return false;
        };
        let may_help = view.now < self.start_by && is_wanted(view, step.job);
        if let Some(how) = step.other_way(status, stderr).filter(|_| may_help) {
            if how == How::Send {
                step.agents.iter().for_each(|agent| fx.note(Note::Sent { agent: *agent }));
            }
            self.start_step(view, kin, step.agents, step.job, how, fx);
            return true;
        }
        give_up_step(step, &starts::step_words(status, stderr), fx);
        true
    }

    /// A step could not even be called. True if it was one.
    pub(super) fn on_step_failed(&mut self, shell: ShellId, problem: &str, fx: &mut Effects) -> bool {
        let step = self.steps.take(shell);
        step.map(|step| give_up_step(step, problem, fx)).is_some()
    }

    /// Nobody else comes. Where the step has named some, the others went with it.
    pub(super) fn end_step(&mut self, view: &View<'_>, step: Step, words: String, fx: &mut Effects) {
        for child in self.children.starting().filter(|child| step.agents.contains(child)) {
            if step.told {
                fx.push(next(Next::ForgetStarting(child)));
                continue;
            }
            let gone = |agent: &AgentId| *agent != child && step.agents.contains(agent) && !step.begun.contains(agent);
            let below = view.tree.subtree(child).filter(gone);
            let below = below.map(|agent| MissingAgent { agent, problem: words.clone() }).collect();
            fx.push(next(Next::Missing { child, problem: words.clone(), below }));
        }
        for &agent in step.agents.difference(&step.begun).filter(|_| !step.told) {
            fx.push(next(Next::TaskLost { agent, problem: words.clone() }));
        }
        fx.push(next(Next::EndLastWords { agents: step.agents, words }));
    }

    /// What to say of a child that is late.
    pub(super) fn late_task(&self, view: &View<'_>, agent: AgentId) -> &'static str {
        match (view.is_root(), self.steps.has_begun(agent)) {
            (true, true) => "its agent began and did not link back",
            (true, false) => "its task of the step did not begin",
            (false, _) => "it did not link back",
        }
    }

    /// Agents behind a child that is late, of which nothing was heard either.
    pub(super) fn unheard_below(&self, view: &View<'_>, child: AgentId) -> Vec<AgentId> {
        let unheard = |agent: &AgentId| *agent != child && self.steps.holds(*agent) && !self.steps.has_begun(*agent);
        view.tree.subtree(child).filter(unheard).collect()
    }
}

/// The agents with ranks of a job, and those between them and the root.
fn agents_up_to_root(view: &View<'_>, spec: &JobSpec, mapping: &Mapping) -> BTreeSet<AgentId> {
    let mut agents = BTreeSet::new();
    for (index, node) in spec.nodes.iter().enumerate() {
        let mut at = node.agent;
        if mapping.local_size(NodeId(index as u32)) == 0 {
            continue;
        }
        while let Some(parent) = view.tree.parent(at).filter(|_| agents.insert(at)) {
            at = parent;
        }
        agents.remove(&AgentId(0));
    }
    agents
}

fn is_wanted(view: &View<'_>, job: Option<JobId>) -> bool {
    match job {
        Some(job) => view.jobs.get(job).is_some_and(|job| !job.is_ending()),
        None => !view.is_leaving,
    }
}

/// A step brings nobody any more: first those of which it has said why.
fn give_up_step(mut step: Step, words: &str, fx: &mut Effects) {
    for (agent, problem) in std::mem::take(&mut step.failed) {
        fx.push(next(Next::TaskLost { agent, problem }));
    }
    fx.push(next(Next::EndStep { step, words: words.to_owned() }));
}
