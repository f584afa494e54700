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

use super::membership::Nodes;
use super::{Begin, Cx};
use crate::io::LinkId;
use crate::outbox::control_frame;
use crate::text;
use crate::time::Instant;
use attached::{Asks, Attached};
use deferred::{DeferredJob, Later};
use loads::Loads;
use ports::Ports;
use spawns::Spawns;
use std::collections::{BTreeMap, VecDeque};
use wireup_wire::frame::Frame;
use wireup_wire::ids::JobId;
use wireup_wire::job::JobSpec;
use wireup_wire::limits::KILLED_BY_LEN_MAX;
use wireup_wire::peer::{Cause, Ended, Failure};
use wireup_wire::session::{RankPortsReport, Welcome};
use wireup_wire::signal::is_fatal;
use wireup_wire::talk::{Control, FromLauncher, JobDown, SessionDown, ToLauncher};

/// The largest valid signal number.
const SIGNAL_MAX: i32 = 64;

#[derive(Default)]
pub struct Launchers {
    /// The last job number that was given to a launcher.
    newest: JobId,
    attached: BTreeMap<LinkId, Attached>,
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
    /// Requests to the agent, in order.
    asked: VecDeque<Asked>,
}

/// What the agent has to do for the launchers.
pub enum Asked {
    /// Starts all lost agents again.
    Revive,
    /// Gives numbers to the agents of the hosts that this job adds. `link`: the link of its launcher.
    Number { spec: Box<JobSpec>, link: LinkId },
    /// Starts the agents that were added for this job, which waits for them.
    StartAdded(JobId),
    /// Starts a job here, and delivers what its launcher has sent for it meanwhile. `live`: the newest job's number,
    /// and the jobs that may still send frames.
    Start { begin: Box<Begin>, live: (JobId, Vec<JobId>), later: Vec<Later> },
}

impl Launchers {
    /// Whether a link belongs to an attached launcher.
    pub fn is_attached(&self, link: LinkId) -> bool {
        self.attached.contains_key(&link)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deferred.values().filter_map(DeferredJob::deadline).min()
    }

    /// Number of entries in all growing tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.attached.len() + self.begun.len() + self.deferred.len() + self.spawns.len() + self.loads.len()
    }

    /// Removes and returns the oldest request to the agent.
    pub fn take_asked(&mut self) -> Option<Asked> {
        self.asked.pop_front()
    }

    /// An agent has reserved ports for ranks, or renewed some.
    pub fn on_ports(&mut self, report: RankPortsReport) {
        self.ports.on_report(report);
    }

    /// Handles a frame that is not a control message.
    pub fn on_frame(&mut self, cx: &mut Cx, link: LinkId, frame: Frame) {
        let job = JobId(frame.job);
        if !self.is_of(cx, link, job) {
            return;
        }
        let Some(deferred) = self.deferred.get_mut(&job) else { return cx.on_job_frame(None, frame) };
        if !deferred.keep(frame) {
            let problem = "it sent more standard input than its credit allows".to_owned();
            self.end_held(cx, job, Cause::Launcher { problem });
        }
    }

    /// The agents of the hosts that a launcher's job adds have numbers.
    pub fn on_numbered(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, spec: JobSpec) {
        let job = spec.job;
        self.begin_or_hold(cx, nodes, link, spec, Vec::new());
        if self.deferred.contains_key(&job) {
            self.asked.push_back(Asked::StartAdded(job));
        }
    }

    /// The state of some nodes has changed.
    pub fn on_nodes_changed(&mut self, cx: &mut Cx, nodes: &Nodes) {
        self.ports.forget_lost(nodes);
        self.look_at_held(cx, nodes);
        self.tell_if_settled(cx, nodes);
    }

    /// Whether the agents of the session can leave: the session is ending, and its last job has ended.
    pub fn may_end(&self, cx: &Cx) -> bool {
        self.ending.is_some() && cx.jobs.is_empty()
    }

    pub fn attach(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId) {
        self.newest = JobId(self.newest.0 + 1);
        let job = self.newest;
        let attached = Attached { job, has_launched: false, asks: Asks::default(), waits_for_nodes: false };
        self.attached.insert(link, attached);
        let welcome = Welcome {
            job,
            session: cx.session.name.clone(),
            fanout: cx.session.fanout,
            shared: cx.session.remote_shell.starter().same_machine,
            by_step: cx.is_by_step(),
            transport: cx.session.links.transport,
            nodes: nodes.own().to_vec(),
        };
        cx.send(link, control_frame(job, &Control::ToLauncher(ToLauncher::Welcome(welcome))));
    }

    pub fn on_down(&mut self, cx: &mut Cx, link: LinkId) {
        let jobs = cx.links.owners.jobs_of(link);
        cx.links.owners.forget_link(link);
        self.forget_held_of(link);
        self.spawns.forget_link(link);
        if let Some(attached) = self.attached.remove(&link).filter(|attached| !self.begun.contains_key(&attached.job)) {
            self.loads.remove(attached.job);
        }
        cx.tell_jobs(jobs, |job, cx| job.on_launcher_gone(cx));
    }

    /// Whether a launcher may send frames for a job.
    fn is_of(&self, cx: &Cx, link: LinkId, job: JobId) -> bool {
        self.attached.get(&link).is_some_and(|attached| attached.job == job) || cx.links.owners.is_owner(job, link)
    }

    /// A link is about to be closed because of this problem.
    pub fn refuse_link(&mut self, cx: &mut Cx, link: LinkId, problem: String) {
        if let Some(attached) = self.attached.get(&link).filter(|attached| !attached.has_launched) {
            refuse_launch(cx, link, attached.job, String::new(), Cause::Launcher { problem });
        }
    }

    /// Handles a control message of a launcher.
    pub fn on_said(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, job: JobId, message: Control) {
        if !self.attached.contains_key(&link) {
            return;
        }
        match message {
            Control::FromLauncher(request) => self.on_request(cx, nodes, (link, job), request),
            Control::JobDown(
                message @ (JobDown::Signal { .. }
                | JobDown::Kill { .. }
                | JobDown::Resize { .. }
                | JobDown::StallAsk { .. }),
            ) if self.is_of(cx, link, job) => {
                // Messages that arrive after the end of the job are not an error.
                if !self.tell_held(cx, job, &message) {
                    cx.on_job_down(None, job, message);
                }
            }
            _message => {
                let problem = format!("unexpected message about job {job}");
                cx.answer(link, &Control::ToLauncher(ToLauncher::Refused { problem }));
            }
        }
    }

    fn on_request(&mut self, cx: &mut Cx, nodes: &Nodes, (link, job): (LinkId, JobId), request: FromLauncher) {
        match request {
            FromLauncher::Launch(spec) => self.on_launch(cx, nodes, link, *spec),
            FromLauncher::AskNodes => self.note(link, |asks| asks.nodes = true),
            FromLauncher::AskJobs => self.note(link, |asks| asks.jobs = true),
            FromLauncher::AskSeats(request) => self.give_seats(cx, nodes, link, &request),
            FromLauncher::Revive => self.on_revive(cx, link),
            FromLauncher::Spawned(result) => self.spawns.on_result(cx, job, Some(link), result),
            FromLauncher::KillJob { job, signal, by } => self.on_kill_job(cx, link, job, signal, &by),
            FromLauncher::EndSession { kill } => self.on_end_session(cx, link, kill),
        }
    }

    fn on_end_session(&mut self, cx: &mut Cx, link: LinkId, kill: bool) {
        self.tell_jobs(cx, link);
        if !kill && self.ending.is_none() && !(cx.jobs.is_empty() && self.deferred.is_empty()) {
            return cx
                .answer(link, &Control::ToLauncher(ToLauncher::Refused { problem: "the session has jobs".into() }));
        }
        cx.answer(link, &Control::ToLauncher(ToLauncher::Granted));
        self.end(cx, Some(link), "it was ended by wireup down".into());
    }

    /// Ends the session: first its jobs, then its agents. `asker`: the launcher that has requested the end; no job from
    /// it can be in transit to the root.
    pub fn end(&mut self, cx: &mut Cx, asker: Option<LinkId>, reason: String) {
        self.ending.get_or_insert_with(|| reason.clone());
        let cause = Cause::SessionEnded { reason };
        // A launch that is on its way may not be read any more.
        let may_launch = |(link, attached): &(&LinkId, &mut Attached)| Some(**link) != asker && !attached.has_launched;
        for (link, attached) in self.attached.iter_mut().filter(may_launch) {
            attached.has_launched = true;
            refuse_launch(cx, *link, attached.job, String::new(), cause.clone());
        }
        self.end_all_held(cx, &cause);
        cx.tell_jobs(cx.jobs.ids(), |_, cx| cx.fail_by(cause.clone()));
    }

    fn on_kill_job(&mut self, cx: &mut Cx, link: LinkId, id: JobId, signal: Option<i32>, by: &str) {
        let is_held = self.deferred.contains_key(&id);
        if !cx.jobs.has(id) && !is_held {
            let problem = format!("there is no job {id}; see wireup jobs");
            return cx.answer(link, &Control::ToLauncher(ToLauncher::Refused { problem }));
        }
        let killed = || Cause::Killed { by: text::line(by, KILLED_BY_LEN_MAX) };
        match signal {
            Some(signal) if !(1..=SIGNAL_MAX).contains(&signal) => {
                return cx.answer(
                    link,
                    &Control::ToLauncher(ToLauncher::Refused { problem: format!("there is no signal {signal}") }),
                );
            }
            // The job has no ranks yet.
            Some(signal) if is_held && !is_fatal(signal) => {}
            _ if is_held => self.end_held(cx, id, killed()),
            Some(signal) => cx.tell_job(id, |job, cx| job.on_control_down(cx, JobDown::Signal { signal })),
            None => cx.tell_job(id, |_, cx| cx.fail_by(killed())),
        }
        cx.answer(link, &Control::ToLauncher(ToLauncher::Granted));
    }
}

fn refuse_launch(cx: &mut Cx, link: LinkId, job: JobId, host: String, cause: Cause) {
    let failure = Failure { node: Default::default(), host, rank: None, pid: None, cause };
    let ended = Control::ToLauncher(ToLauncher::Ended(Ended { failure: Some(failure), done: Default::default() }));
    cx.send(link, control_frame(job, &ended));
}

/// The frame that sends a job's description to the agents that run it.
fn start_frame(spec: &JobSpec, newest: JobId, live: Vec<JobId>) -> Frame {
    control_frame(spec.job, &Control::SessionDown(SessionDown::Start { spec: Box::new(spec.clone()), newest, live }))
}
