//! Jobs of a standing session: their start goes down the session's tree, their end leaves nothing behind.
//!
//! `Start` is passed on towards the job's nodes, also by agents that have none of it; these keep nothing. It names the jobs that
//! may still have something to say, so that agents know what came too late from what came too early.

use super::Agent;
use crate::job::{Job, JobInput, JobTree, Up, agents_of};
use crate::outbox::control_frame;
use crate::time::Instant;
use std::collections::BTreeSet;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Hop;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::Control;

impl Agent {
    /// At the root: a launcher's job begins.
    pub(super) fn start_job(&mut self, now: Instant, spec: JobSpec, mapping: &Mapping, agents: Vec<AgentId>) {
        let Some(frame) = self.start_frame(&spec) else { return };
        self.pass_on(&agents, &frame);
        self.begin_standing_job(now, spec, mapping, agents);
    }

    fn start_frame(&self, spec: &JobSpec) -> Option<Frame> {
        let (newest, live) = self.standing.as_ref()?.root.as_ref()?.live();
        Some(control_frame(spec.job, &Control::Start { spec: spec.clone(), newest, live }))
    }

    /// At the root: these agents may not have heard of jobs that began before.
    pub(super) fn start_again(&mut self, is_of_them: impl Fn(AgentId) -> bool) {
        let specs: Vec<_> = self.specs.values().cloned().collect();
        for spec in specs {
            let is_open = |job: &&Job| !job.is_ending() && !job.has_started();
            let Some(job) = self.jobs.get(&spec.job).filter(is_open) else { continue };
            let mut agents = job.agents();
            agents.retain(|agent| is_of_them(*agent));
            if !agents.is_empty()
                && let Some(frame) = self.start_frame(&spec)
            {
                self.pass_on(&agents, &frame);
            }
        }
    }

    /// Towards these agents, down the session's tree; each child gets it once.
    fn pass_on(&mut self, agents: &[AgentId], frame: &Frame) {
        let me = self.config.agent;
        let below = agents.iter().filter(|agent| **agent != me && self.tree.subtree_contains(me, **agent));
        let hop = |agent: &AgentId| match self.links.next_hop(*agent) {
            Hop::Child(child) => Some(child),
            Hop::Here | Hop::Parent => None,
        };
        for child in below.filter_map(hop).collect::<BTreeSet<_>>() {
            self.links.send_child(child, frame.clone(), &mut self.out);
        }
    }

    pub(super) fn on_start(&mut self, now: Instant, frame: &Frame, spec: JobSpec, newest: JobId, live: &[JobId]) {
        // The root has looked at it.
        let Ok(mapping) = self.config.placement(&spec) else { return };
        let agents = agents_of(&spec, &mapping);
        self.pass_on(&agents, frame);
        let pruned = self.early.on_live(newest, live);
        self.forget_frames_of(pruned);
        if agents.contains(&self.config.agent) && !agents.iter().any(|agent| self.links.is_lost(*agent)) {
            self.begin_standing_job(now, spec, &mapping, agents);
        }
    }

    fn begin_standing_job(&mut self, now: Instant, spec: JobSpec, mapping: &Mapping, agents: Vec<AgentId>) {
        if self.early.is_over(spec.job) {
            // It came twice, since somebody on its way was lost.
            return;
        }
        if self.is_root()
            && let Some(root) = self.standing.as_ref().and_then(|standing| standing.root.as_ref())
        {
            let (newest, live) = root.live();
            self.early.on_live(newest, &live);
        }
        let tree = JobTree::of(self.config.agent, self.tree.fanout(), agents);
        self.begin_job(now, spec.into(), mapping, tree, &[]);
    }

    /// A job is over here; at the root: everywhere.
    pub(in super::super) fn on_job_over(&mut self, id: JobId, job: &Job) {
        if job.up() == Up::Nowhere {
            // The others have given up on this agent.
            self.early.take_back(id);
        }
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else { return };
        root.begun.remove(&id);
        if let Some(links) = &mut self.links.standing {
            links.owners.forget_job(id);
        }
        self.early.forget(id);
        if job.leaves_traces() {
            let agents = job.agents();
            let frame = control_frame(id, &Control::Over { agents: agents.clone() });
            self.pass_on(&agents, &frame);
        }
    }

    pub(super) fn on_over(&mut self, now: Instant, id: JobId, agents: &[AgentId], frame: &Frame) {
        self.pass_on(agents, frame);
        if self.jobs.contains_key(&id) {
            self.tell_job(now, id, JobInput::Abandon);
        } else {
            self.early.forget(id);
            self.forget_frames_of(vec![id]);
        }
    }

    /// Of these jobs frames had come that nobody will want.
    pub(in super::super) fn forget_frames_of(&mut self, jobs: Vec<JobId>) {
        for job in jobs {
            self.links.direct.forget(job);
        }
        self.links.settle_direct(&mut self.out);
    }
}
