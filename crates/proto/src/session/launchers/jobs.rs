//! Jobs of launchers: starting them down the session's tree, and cleaning up after them.
//!
//! `Start` is forwarded towards the job's nodes, also by agents outside the job, which keep nothing. It lists the live
//! jobs, so that agents can distinguish frames that are too late from frames that are too early.

use super::deferred::Later;
use super::deferred::are_up;
use super::{Asked, Launchers, refuse_launch, start_frame};
use crate::io::LinkId;
use crate::job::{Job, JobTree, agents_of};
use crate::outbox::control_frame;
use crate::session::membership::Nodes;
use crate::session::{Begin, Cx, UNKNOWN_NODE, placement};
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::ADDED_HOSTS_MAX;
use wireup_wire::peer::{Cause, MissingAgent};
use wireup_wire::talk::{Control, JobDown, ToLauncher};

impl Launchers {
    /// The newest job's number, and the jobs that may still send frames.
    pub fn live(&self) -> (JobId, Vec<JobId>) {
        let is_to_come = |job: &JobId| !self.begun.contains_key(job);
        let may_launch = self.attached.values().filter(|launcher| !launcher.has_launched).map(|launcher| launcher.job);
        let reserved = may_launch.chain(self.deferred.keys().copied()).chain(self.spawns.jobs()).filter(is_to_come);
        let mut live: Vec<JobId> = self.begun.keys().copied().chain(reserved).collect();
        live.sort_unstable();
        live.dedup();
        (self.newest, live)
    }

    pub(super) fn on_launch(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, spec: JobSpec) {
        let Some(attached) = self.attached.get_mut(&link) else { return };
        let id = spec.job;
        if self.spawns.take_launch(id, link) {
            return self.number_or_begin(cx, nodes, link, spec);
        }
        if id != attached.job || attached.has_launched {
            let problem = match attached.job {
                own if own == id => format!("job {id} was launched before"),
                own => format!("job {id} belongs to another launcher; this one has job {own}"),
            };
            return cx.answer(link, &Control::ToLauncher(ToLauncher::Refused { problem }));
        }
        attached.has_launched = true;
        self.number_or_begin(cx, nodes, link, spec);
    }

    /// Starts a job; if it adds hosts, when their agents have numbers.
    fn number_or_begin(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, spec: JobSpec) {
        let starter = cx.session.remote_shell.starter();
        let added = spec.nodes.iter().filter(|node| node.agent == AgentId::ADDED).count();
        let problem = match placement(&spec) {
            _ if self.ending.is_some() || added == 0 => None,
            Err(problem) => Some(problem),
            Ok(_) if starter.same_machine || starter.by_step() => Some("no hosts can be added to this session".into()),
            Ok(_) if added > ADDED_HOSTS_MAX => {
                Some(format!("{ADDED_HOSTS_MAX} hosts are the most that a job can add"))
            }
            Ok(_) => {
                return self.asked.push_back(Asked::Number { spec: spec.into(), link });
            }
        };
        match problem {
            Some(problem) => refuse_launch(cx, link, spec.job, String::new(), Cause::Launcher { problem }),
            None => self.begin_or_hold(cx, nodes, link, spec, Vec::new()),
        }
    }

    /// The agents on added hosts that are needed no more: the job that each host was added for neither waits nor runs.
    pub fn unneeded(&self, cx: &Cx, nodes: &Nodes) -> Vec<AgentId> {
        let is_needed =
            |job: JobId| cx.jobs.has(job) || self.begun.contains_key(&job) || self.deferred.contains_key(&job);
        nodes.added().filter(|(_, job)| !is_needed(*job)).map(|(agent, _)| agent).collect()
    }

    /// Starts a job, or lets it wait until the state of all its nodes is known. `later`: what the job's launcher has
    /// already sent for its ranks.
    pub(super) fn begin_or_hold(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, spec: JobSpec, later: Vec<Later>) {
        let id = spec.job;
        match self.look_at(nodes, &spec) {
            Ok((mapping, agents)) if !are_up(nodes, &agents) => {
                self.loads.launch(&spec, &mapping);
                self.defer(cx, link, spec, later);
            }
            Ok((mapping, agents)) => {
                self.loads.launch(&spec, &mapping);
                self.begun.insert(id, cx.now);
                cx.links.owners.own(id, link);
                self.start(cx, spec, mapping, agents, later);
            }
            Err((host, cause)) => {
                self.loads.remove(id);
                cx.links.owners.forget_job(id);
                refuse_launch(cx, link, id, host, cause);
            }
        }
    }

    /// The placement of a job and its agents; or, if the job cannot start, the host concerned and the reason.
    pub(super) fn look_at(&self, nodes: &Nodes, spec: &JobSpec) -> Result<(Mapping, Vec<AgentId>), (String, Cause)> {
        if let Some(reason) = &self.ending {
            return Err((String::new(), Cause::SessionEnded { reason: reason.clone() }));
        }
        let refused = |problem| (String::new(), Cause::Launcher { problem });
        if !nodes.have_all(spec) {
            return Err(refused(UNKNOWN_NODE.into()));
        }
        let mapping = placement(spec).map_err(refused)?;
        let agents = agents_of(spec, &mapping);
        for &agent in &agents {
            if let Some(problem) = nodes.problem(agent).filter(|_| nodes.is_own(agent)) {
                return Err((nodes.host(agent).to_owned(), Cause::AgentLost { agent, problem: problem.to_owned() }));
            }
        }
        // Hosts that the job adds: all that cannot be used are named at once, when none is starting any more.
        let missing = |agent: &AgentId| {
            let problem = nodes.problem(*agent)?.to_owned();
            Some(MissingAgent { agent: *agent, problem })
        };
        let missing: Vec<MissingAgent> = agents.iter().filter_map(missing).collect();
        if let Some(MissingAgent { agent, .. }) = missing.first()
            && !agents.iter().any(|agent| nodes.is_starting(*agent))
        {
            return Err((nodes.host(*agent).to_owned(), Cause::AgentsMissing { missing }));
        }
        Ok((mapping, agents))
    }

    fn start(&mut self, cx: &mut Cx, spec: JobSpec, mapping: Mapping, agents: Vec<AgentId>, later: Vec<Later>) {
        let spec = JobSpec { endpoints: self.ports.allot(&spec, &mapping), ..spec };
        let (newest, live) = self.live();
        cx.pass_on(&agents, &start_frame(&spec, newest, live.clone()));
        let tree = JobTree::of(cx.me, cx.tree.fanout(), agents);
        let begin = Box::new(Begin { spec: spec.into(), mapping, tree, lost: Vec::new() });
        self.asked.push_back(Asked::Start { begin, live: (newest, live), later });
    }

    /// Sends jobs that have not started everywhere again to agents that may not have received them.
    pub fn start_again(&self, cx: &mut Cx, top: AgentId) {
        for spec in cx.jobs.specs().cloned().collect::<Vec<_>>() {
            let is_open = |job: &&Job| !job.is_ending() && !job.has_started();
            let Some(job) = cx.jobs.get(spec.job).filter(is_open) else { continue };
            let mut agents = job.facts.agents();
            agents.retain(|agent| cx.tree.subtree_contains(top, *agent));
            if !agents.is_empty() {
                let (newest, live) = self.live();
                cx.pass_on(&agents, &start_frame(&spec, newest, live));
            }
        }
    }

    /// A job has ended everywhere. `traces`: the agents that must be told, because they may still store data of the job
    /// or keep ports for it.
    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId, traces: Option<Vec<AgentId>>) {
        self.begun.remove(&job);
        self.loads.remove(job);
        cx.links.owners.forget_job(job);
        if let Some(agents) = traces {
            let frame = control_frame(job, &Control::JobDown(JobDown::Over { agents: agents.clone() }));
            cx.pass_on(&agents, &frame);
        }
    }
}
