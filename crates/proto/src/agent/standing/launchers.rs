//! What launchers that are attached to the root ask for.
//!
//! Each link has a job's number of its own; what it says about another job is refused, but for the wish to end it: all launchers are
//! the same user's. A launcher that goes away takes its job along and nothing else.

use super::Agent;
use super::root::Asks;
use crate::io::LinkId;
use crate::job::{Job, JobInput, agents_of};
use crate::outbox::control_frame;
use crate::text;
use crate::time::Instant;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::JobId;
use wireup_wire::job::JobSpec;
use wireup_wire::limits::{KILLED_BY_LEN_MAX, LISTED_NAME_LEN_MAX};
use wireup_wire::peer::{self, Cause, Control, Ended, Failure, PeerError};
use wireup_wire::session::{JobEntry, JobState};

/// Signals are numbered 1 to that.
const SIGNAL_MAX: i32 = 64;

impl Agent {
    pub(in super::super) fn on_launcher_up(&mut self, link: LinkId) {
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else {
            // Nobody attaches to another agent.
            return self.turn_away(link);
        };
        let welcome = root.attach(link);
        self.out.send(link, control_frame(welcome.job, &Control::Welcome(welcome)));
    }

    pub(in super::super) fn on_launcher_down(&mut self, now: Instant, link: LinkId) {
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else { return };
        if let Some(attached) = root.launchers.remove(&link) {
            self.tell_job(now, attached.job, JobInput::LauncherGone);
        }
    }

    pub(in super::super) fn on_launcher_frame(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: Frame,
    ) -> Result<(), PeerError> {
        let root = self.standing.as_ref().and_then(|standing| standing.root.as_ref());
        let Some(own) = root.and_then(|root| root.launchers.get(&link)).map(|attached| attached.job) else {
            return Ok(());
        };
        let id = JobId(frame.job);
        if frame.kind != Kind::Control {
            if id == own {
                self.on_job_frame(now, None, frame);
            }
            return Ok(());
        }
        match peer::decode(&frame.payload)? {
            Control::Launch(spec) => self.on_launch(now, link, spec),
            Control::AskNodes => self.note_question(link, |asks| asks.nodes = true),
            Control::AskJobs => self.note_question(link, |asks| asks.jobs = true),
            Control::Revive => self.on_revive(now, link),
            Control::KillJob { job, signal, by } => self.on_kill_job(now, link, job, signal, by),
            Control::EndSession { kill } => self.on_end_session(now, link, kill),
            message @ (Control::Signal { .. }
            | Control::Kill { .. }
            | Control::Resize { .. }
            | Control::StallAsk { .. })
                if id == own =>
            {
                // What comes when the job is over is late and no mistake.
                self.on_job_control(now, None, id, message);
            }
            _ => {
                let problem = format!("no launcher says this of job {id}");
                self.answer(link, &Control::Refused { problem });
            }
        }
        Ok(())
    }

    fn note_question(&mut self, link: LinkId, note: impl FnOnce(&mut Asks)) {
        let root = self.standing.as_mut().and_then(|standing| standing.root.as_mut());
        if let Some(attached) = root.and_then(|root| root.launchers.get_mut(&link)) {
            note(&mut attached.asks);
        }
    }

    /// All that came with one read of a launcher's link was heard: what was asked, however often, is answered once. A question is
    /// some bytes, its answer some for each node or job.
    pub(in super::super) fn answer_questions(&mut self, now: Instant, link: LinkId) {
        let root = self.standing.as_mut().and_then(|standing| standing.root.as_mut());
        let Some(attached) = root.and_then(|root| root.launchers.get_mut(&link)) else { return };
        let asks = std::mem::take(&mut attached.asks);
        if asks.nodes {
            self.tell_nodes(link);
        }
        if asks.jobs {
            self.tell_jobs(now, link);
        }
        if asks.revived {
            self.tell_if_settled();
        }
    }

    /// A launcher's link is about to be closed, since this is wrong with it.
    pub(in super::super) fn refuse_launcher(&mut self, link: LinkId, problem: &str) {
        let root = self.standing.as_ref().and_then(|standing| standing.root.as_ref());
        let Some(attached) = root.and_then(|root| root.launchers.get(&link)) else { return };
        if !attached.has_launched {
            let cause = Cause::Launcher { problem: problem.to_owned() };
            self.refuse_launch(link, attached.job, String::new(), cause);
        }
    }

    fn answer(&mut self, link: LinkId, message: &Control) {
        self.out.send(link, control_frame(JobId(0), message));
    }

    fn on_launch(&mut self, now: Instant, link: LinkId, spec: JobSpec) {
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else { return };
        let Some(attached) = root.launchers.get_mut(&link) else { return };
        let id = spec.job;
        if id != attached.job || attached.has_launched {
            let problem = match attached.job {
                own if own == id => format!("job {id} was launched before"),
                own => format!("job {id} is not this launcher's, which is {own}"),
            };
            return self.answer(link, &Control::Refused { problem });
        }
        attached.has_launched = true;
        if let Some(reason) = &root.ending {
            let cause = Cause::SessionEnded { reason: reason.clone() };
            return self.refuse_launch(link, id, String::new(), cause);
        }
        let mapping = match self.config.placement(&spec) {
            Ok(mapping) => mapping,
            Err(problem) => return self.refuse_launch(link, id, String::new(), Cause::Launcher { problem }),
        };
        let agents = agents_of(&spec, &mapping);
        let problem = |agent| root.problem(agent).map(|problem| (agent, problem.to_owned()));
        if let Some((agent, problem)) = agents.iter().copied().find_map(problem) {
            let host = root.nodes()[agent.index()].host.clone();
            return self.refuse_launch(link, id, host, Cause::AgentLost { agent, problem });
        }
        root.begun.insert(id, now);
        if let Some(links) = &mut self.links.standing {
            links.owners.own(id, link);
        }
        self.start_job(now, spec, &mapping, agents);
    }

    fn refuse_launch(&mut self, link: LinkId, job: JobId, host: String, cause: Cause) {
        let failure = Failure { node: Default::default(), host, rank: None, pid: None, cause };
        let ended = Control::Ended(Ended { failure: Some(failure), done: Default::default() });
        self.out.send(link, control_frame(job, &ended));
    }

    fn tell_nodes(&mut self, link: LinkId) {
        if let Some(root) = self.standing.as_ref().and_then(|standing| standing.root.as_ref()) {
            self.answer(link, &Control::Nodes(root.nodes().to_vec()));
        }
    }

    /// All nodes are up or known to be missing: those that wait for it hear it.
    pub(super) fn tell_if_settled(&mut self) {
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else { return };
        if !root.is_settled() {
            return;
        }
        let mut waiting = Vec::new();
        for (link, attached) in &mut root.launchers {
            if std::mem::take(&mut attached.waits_for_nodes) {
                waiting.push(*link);
            }
        }
        waiting.into_iter().for_each(|link| self.tell_nodes(link));
    }

    fn on_revive(&mut self, now: Instant, link: LinkId) {
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else { return };
        if let Some(reason) = &root.ending {
            let problem = format!("the session is being ended: {reason}");
            return self.answer(link, &Control::Refused { problem });
        }
        if let Some(attached) = root.launchers.get_mut(&link) {
            attached.asks.revived = true;
            attached.waits_for_nodes = true;
        }
        if let Some(links) = &mut self.links.standing {
            links.owners.listen(link);
        }
        self.revive(now);
    }

    fn tell_jobs(&mut self, now: Instant, link: LinkId) {
        let entries = self.job_entries(now);
        self.answer(link, &Control::JobList(entries));
    }

    fn job_entries(&self, now: Instant) -> Vec<JobEntry> {
        let Some(root) = self.standing.as_ref().and_then(|standing| standing.root.as_ref()) else { return Vec::new() };
        let entry = |(id, job): (&JobId, &Job)| {
            let spec = self.specs.get(id)?;
            let program = spec.apps.first().and_then(|app| app.argv.first()).map(Vec::as_slice).unwrap_or_default();
            let program = String::from_utf8_lossy(&program[..program.len().min(LISTED_NAME_LEN_MAX)]);
            Some(JobEntry {
                job: *id,
                nspace: text::beginning(&spec.nspace, LISTED_NAME_LEN_MAX).to_owned(),
                program: text::beginning(&program, LISTED_NAME_LEN_MAX).to_owned(),
                ranks: spec.job_size(),
                nodes: job.agents(),
                age_ns: root.begun.get(id).map_or(0, |since| now - *since),
                state: match job.has_started() {
                    _ if job.is_ending() => JobState::Ending,
                    true => JobState::Running,
                    false => JobState::Starting,
                },
            })
        };
        self.jobs.iter().filter_map(entry).collect()
    }

    fn on_kill_job(&mut self, now: Instant, link: LinkId, id: JobId, signal: Option<i32>, by: String) {
        if !self.jobs.contains_key(&id) {
            let problem = format!("there is no job {id}; wireup jobs lists them");
            return self.answer(link, &Control::Refused { problem });
        }
        match signal {
            Some(signal) if !(1..=SIGNAL_MAX).contains(&signal) => {
                return self.answer(link, &Control::Refused { problem: format!("there is no signal {signal}") });
            }
            Some(signal) => {
                self.tell_job(now, id, JobInput::ControlDown(Control::Signal { signal }));
            }
            None => {
                let by = text::line(&by, KILLED_BY_LEN_MAX);
                self.tell_job(now, id, JobInput::FailBy(Cause::Killed { by }));
            }
        }
        self.answer(link, &Control::Granted);
    }

    fn on_end_session(&mut self, now: Instant, link: LinkId, kill: bool) {
        self.tell_jobs(now, link);
        let root = self.standing.as_ref().and_then(|standing| standing.root.as_ref());
        let is_ending = root.is_some_and(|root| root.ending.is_some());
        if !kill && !is_ending && !self.jobs.is_empty() {
            return self.answer(link, &Control::Refused { problem: "the session has jobs".into() });
        }
        self.answer(link, &Control::Granted);
        self.end_session(now, "it was told to end".into());
    }

    /// The session is to end: its jobs first, then its agents.
    pub(in super::super) fn end_session(&mut self, now: Instant, reason: String) {
        let Some(root) = self.standing.as_mut().and_then(|standing| standing.root.as_mut()) else { return };
        root.ending.get_or_insert_with(|| reason.clone());
        self.tell_all_jobs(now, || JobInput::FailBy(Cause::SessionEnded { reason: reason.clone() }));
    }

    /// When its jobs are over, the agents of a session that is to end leave.
    pub(in super::super) fn end_if_idle(&mut self, now: Instant) {
        let root = self.standing.as_ref().and_then(|standing| standing.root.as_ref());
        if root.is_some_and(|root| root.ending.is_some()) && self.jobs.is_empty() {
            self.on_shutdown(now);
        }
    }
}
