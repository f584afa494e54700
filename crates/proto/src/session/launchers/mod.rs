//! Requests of the launchers that are attached to the root.
//!
//! Each link has a job number; a launcher's messages about other jobs are refused, except for requests to end them,
//! since all launchers belong to the same user. When a launcher detaches, its job ends, but no other. `jobs` starts the
//! jobs down the session's tree and ends them there.
//!
//! In a session of one run there is one launcher, which acts as the root's parent; nothing is attached. In both,
//! `spawns` passes requests of ranks for processes to the launcher of their job.

mod asks;
mod attached;
mod deferred;
mod deferring;
mod jobs;
mod loads;
mod ports;
mod spawning;
mod spawns;
#[cfg(test)]
mod tests;

use super::inputs::launchers::Input;
use super::inputs::membership;
use super::membership::Nodes;
use super::{Effect, Effects, View};
use crate::io::LinkId;
use crate::job::JobInput;
use crate::outbox::control_frame;
use crate::text;
use crate::time::Instant;
use attached::{Asks, Attached, Owners};
use deferred::DeferredJob;
use loads::Loads;
use ports::Ports;
use spawns::Spawns;
use std::collections::BTreeMap;
use std::sync::Arc;
use wireup_wire::frame::Frame;
use wireup_wire::ids::JobId;
use wireup_wire::job::JobSpec;
use wireup_wire::limits::KILLED_BY_LEN_MAX;
use wireup_wire::peer::{Cause, Ended, Failure};
use wireup_wire::session::Welcome;
use wireup_wire::signal::is_fatal;
use wireup_wire::talk::{Control, FromLauncher, JobDown, SessionDown, ToLauncher};

/// The largest valid signal number.
const SIGNAL_MAX: i32 = 64;

#[derive(Default)]
pub struct Launchers {
    /// The last job number that was given to a launcher.
    newest: JobId,
    attached: BTreeMap<LinkId, Attached>,
    owners: Owners,
    /// Jobs in progress, and when they started.
    begun: BTreeMap<JobId, Instant>,
    /// Jobs that wait for their nodes.
    deferred: BTreeMap<JobId, DeferredJob>,
    /// The ranks on each node.
    loads: Loads,
    /// Ports that agents have reserved for ranks.
    ports: Ports,
    /// Jobs that ranks have asked for.
    spawns: Spawns,
    /// The reason for which the session is ending; `None`: it is not ending.
    ending: Option<String>,
}

impl Launchers {
    /// Whether a link belongs to an attached launcher.
    pub fn is_attached(&self, link: LinkId) -> bool {
        self.attached.contains_key(&link)
    }

    /// The links to which messages about a job are sent; job 0 is the session itself.
    pub fn links_of(&self, job: JobId) -> Vec<LinkId> {
        match self.deferred.get(&job) {
            Some(deferred) => vec![deferred.link],
            None => self.owners.links_of(job),
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deferred.values().filter_map(DeferredJob::deadline).min()
    }

    /// Number of entries in all growing tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.attached.len() + self.begun.len() + self.deferred.len() + self.spawns.len() + self.loads.len()
    }

    /// Handles an input. `nodes`: the root's table of nodes; only the root has launchers.
    pub fn handle(&mut self, view: &View<'_>, nodes: Option<&Nodes>, input: Input, fx: &mut Effects) {
        if let Input::ReleaseAdded = input {
            return nodes.into_iter().for_each(|nodes| self.release_added(view, nodes, fx));
        }
        let Some(nodes) = nodes.filter(|_| view.policy.has_many_launchers()) else {
            return match input {
                // Launchers attach only to the root.
                Input::Up(link) => fx.close(link),
                Input::Spawn { job, agent, asker, from, request } => {
                    self.on_spawn(view, job, (agent, asker), from, request, fx);
                }
                Input::Spawned { job, result } => self.spawns.on_result(job, None, result, fx),
                _ => {}
            };
        };
        match input {
            Input::Up(link) => self.attach(view, nodes, link, fx),
            Input::Down(link) => self.on_down(link, fx),
            Input::Ports(report) => self.ports.on_report(report),
            Input::Frame { link, frame } => {
                let job = JobId(frame.job);
                if !self.is_of(link, job) {
                    return;
                }
                let Some(deferred) = self.deferred.get_mut(&job) else { return view.jobs.on_frame(None, frame, fx) };
                if !deferred.keep(frame) {
                    let problem = "it sent more standard input than its credit allows".to_owned();
                    self.end_held(job, Cause::Launcher { problem }, fx);
                }
            }
            Input::Said { link, job, message } => self.on_said(view, nodes, link, job, *message, fx),
            Input::Answer(link) => self.answer_questions(view, nodes, link, fx),
            Input::Refuse { link, problem } => self.refuse_link(link, problem, fx),
            Input::Numbered { link, spec } => {
                let job = spec.job;
                self.begin_or_hold(view, nodes, link, Arc::unwrap_or_clone(spec), fx);
                if self.deferred.contains_key(&job) {
                    fx.push(Effect::Membership(membership::Input::StartAdded(job)));
                }
            }
            Input::NodesChanged => {
                self.ports.forget_lost(nodes);
                self.look_at_held(view, nodes, fx);
                self.tell_if_settled(nodes, fx);
            }
            Input::StartAgain(top) => self.start_again(view, top, fx),
            Input::JobOver { job, traces } => self.on_job_over(job, traces, fx),
            Input::Spawn { job, agent, asker, from, request } => {
                self.on_spawn(view, job, (agent, asker), from, request, fx);
            }
            // The message comes from the launcher of a single run, or is handled above.
            Input::Spawned { .. } | Input::ReleaseAdded => {}
            Input::EndSession { reason } => self.end(view, None, reason, fx),
            Input::EndIfIdle => {
                if self.ending.is_some() && view.jobs.is_empty() {
                    fx.push(Effect::Shutdown);
                }
            }
            Input::Tick => self.tell_of_deferred(view, nodes, fx),
        }
    }

    fn attach(&mut self, view: &View<'_>, nodes: &Nodes, link: LinkId, fx: &mut Effects) {
        self.newest = JobId(self.newest.0 + 1);
        let job = self.newest;
        let attached = Attached { job, has_launched: false, asks: Asks::default(), waits_for_nodes: false };
        self.attached.insert(link, attached);
        let welcome = Welcome {
            job,
            session: view.session.name.clone(),
            fanout: view.session.fanout,
            shared: view.session.remote_shell.starter().same_machine,
            by_step: view.is_by_step(),
            transport: view.session.transport,
            nodes: nodes.own().to_vec(),
        };
        fx.push(Effect::Send(link, control_frame(job, &Control::ToLauncher(ToLauncher::Welcome(welcome)))));
    }

    fn on_down(&mut self, link: LinkId, fx: &mut Effects) {
        let jobs = self.owners.jobs_of(link);
        self.owners.forget_link(link);
        self.forget_held_of(link);
        self.spawns.forget_link(link);
        if let Some(attached) = self.attached.remove(&link).filter(|attached| !self.begun.contains_key(&attached.job)) {
            self.loads.remove(attached.job);
        }
        fx.jobs(jobs, || JobInput::LauncherGone);
    }

    /// Whether a launcher may send frames for a job.
    fn is_of(&self, link: LinkId, job: JobId) -> bool {
        self.attached.get(&link).is_some_and(|attached| attached.job == job)
            || self.owners.is_owner(job, link)
            || self.deferred.get(&job).is_some_and(|deferred| deferred.link == link)
    }

    fn refuse_link(&mut self, link: LinkId, problem: String, fx: &mut Effects) {
        if let Some(attached) = self.attached.get(&link).filter(|attached| !attached.has_launched) {
            refuse_launch(link, attached.job, String::new(), Cause::Launcher { problem }, fx);
        }
    }

    fn on_said(
        &mut self,
        view: &View<'_>,
        nodes: &Nodes,
        link: LinkId,
        job: JobId,
        message: Control,
        fx: &mut Effects,
    ) {
        if !self.attached.contains_key(&link) {
            return;
        }
        match message {
            Control::FromLauncher(request) => self.on_request(view, nodes, (link, job), request, fx),
            Control::JobDown(
                message @ (JobDown::Signal { .. }
                | JobDown::Kill { .. }
                | JobDown::Resize { .. }
                | JobDown::StallAsk { .. }),
            ) if self.is_of(link, job) => {
                // Messages that arrive after the end of the job are not an error.
                if !self.tell_held(job, &message, fx) {
                    view.jobs.on_control_down(None, job, message, fx);
                }
            }
            Control::JobDown(_)
            | Control::JobUp(_)
            | Control::SessionDown(_)
            | Control::SessionUp(_)
            | Control::ToLauncher(_)
            | Control::Pulse(_)
            | Control::Note(_) => {
                let problem = format!("unexpected message about job {job}");
                fx.answer(link, &Control::ToLauncher(ToLauncher::Refused { problem }));
            }
        }
    }

    fn on_request(
        &mut self,
        view: &View<'_>,
        nodes: &Nodes,
        (link, job): (LinkId, JobId),
        request: FromLauncher,
        fx: &mut Effects,
    ) {
        match request {
            FromLauncher::Launch(spec) => self.on_launch(view, nodes, link, *spec, fx),
            FromLauncher::AskNodes => self.note(link, |asks| asks.nodes = true),
            FromLauncher::AskJobs => self.note(link, |asks| asks.jobs = true),
            FromLauncher::AskSeats(request) => self.give_seats(nodes, link, &request, fx),
            FromLauncher::Revive => self.on_revive(link, fx),
            FromLauncher::Spawned(result) => self.spawns.on_result(job, Some(link), result, fx),
            FromLauncher::KillJob { job, signal, by } => self.on_kill_job(view, link, job, signal, &by, fx),
            FromLauncher::EndSession { kill } => self.on_end_session(view, link, kill, fx),
        }
    }

    fn on_end_session(&mut self, view: &View<'_>, link: LinkId, kill: bool, fx: &mut Effects) {
        self.tell_jobs(view, link, fx);
        if !kill && self.ending.is_none() && !(view.jobs.is_empty() && self.deferred.is_empty()) {
            return fx
                .answer(link, &Control::ToLauncher(ToLauncher::Refused { problem: "the session has jobs".into() }));
        }
        fx.answer(link, &Control::ToLauncher(ToLauncher::Granted));
        self.end(view, Some(link), "it was ended by wireup down".into(), fx);
    }

    /// Ends the session; `asker` is the launcher that asked for it, which has no launch on its way.
    fn end(&mut self, view: &View<'_>, asker: Option<LinkId>, reason: String, fx: &mut Effects) {
        self.ending.get_or_insert_with(|| reason.clone());
        let cause = Cause::SessionEnded { reason };
        // A launch that is on its way may not be read any more.
        let may_launch = |(link, attached): &(&LinkId, &mut Attached)| Some(**link) != asker && !attached.has_launched;
        for (link, attached) in self.attached.iter_mut().filter(may_launch) {
            attached.has_launched = true;
            refuse_launch(*link, attached.job, String::new(), cause.clone(), fx);
        }
        self.end_all_held(&cause, fx);
        fx.jobs(view.jobs.ids(), || JobInput::FailBy(cause.clone()));
    }

    fn on_kill_job(
        &mut self,
        view: &View<'_>,
        link: LinkId,
        id: JobId,
        signal: Option<i32>,
        by: &str,
        fx: &mut Effects,
    ) {
        let is_held = self.deferred.contains_key(&id);
        if !view.jobs.has(id) && !is_held {
            let problem = format!("there is no job {id}; see wireup jobs");
            return fx.answer(link, &Control::ToLauncher(ToLauncher::Refused { problem }));
        }
        let killed = || Cause::Killed { by: text::line(by, KILLED_BY_LEN_MAX) };
        match signal {
            Some(signal) if !(1..=SIGNAL_MAX).contains(&signal) => {
                return fx.answer(
                    link,
                    &Control::ToLauncher(ToLauncher::Refused { problem: format!("there is no signal {signal}") }),
                );
            }
            // The job has no ranks yet.
            Some(signal) if is_held && !is_fatal(signal) => {}
            _ if is_held => {
                self.end_held(id, killed(), fx);
            }
            Some(signal) => fx.push(Effect::Job(id, JobInput::ControlDown(JobDown::Signal { signal }))),
            None => fx.push(Effect::Job(id, JobInput::FailBy(killed()))),
        }
        fx.answer(link, &Control::ToLauncher(ToLauncher::Granted));
    }
}

fn refuse_launch(link: LinkId, job: JobId, host: String, cause: Cause, fx: &mut Effects) {
    let failure = Failure { node: Default::default(), host, rank: None, pid: None, cause };
    let ended = Control::ToLauncher(ToLauncher::Ended(Ended { failure: Some(failure), done: Default::default() }));
    fx.push(Effect::Send(link, control_frame(job, &ended)));
}

/// The frame that sends a job's description to the agents that run it.
fn start_frame(spec: &JobSpec, newest: JobId, live: Vec<JobId>) -> Frame {
    control_frame(spec.job, &Control::SessionDown(SessionDown::Start { spec: Box::new(spec.clone()), newest, live }))
}
