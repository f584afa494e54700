//! How an agent gets its children: called by its remote shell, else by the nearest agent above that can, else missed.
//!
//! Whoever is missed is reported at once, and those behind it are asked whether they can be reached, so that one message
//! names all that is wrong. A child that takes half of its time is taken for missing that far: those behind it are asked
//! meanwhile.

use super::Agent;
use crate::io::{ExitStatus, Input, LinkId, Output, ShellId};
use crate::job::Job;
use crate::starts::{Outcome, Purpose, Wish};
use crate::time::Instant;
use std::collections::BTreeSet;
use wireup_coll::tree::Hop;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Bootstrap, Control, MissingAgent, Note, Secret};

impl Agent {
    pub(super) fn start_child(&mut self, now: Instant, agent: AgentId, job: JobId) {
        self.children.on_start(now, agent, self.start_by);
        self.links.expect_child(agent);
        self.starts.wish(Wish { agent, jobs: vec![job], purpose: Purpose::Child });
    }

    /// Calls remote shells while there is room.
    pub(super) fn call_shells(&mut self, now: Instant) {
        while let Some((shell, wish, how)) = self.starts.next(now) {
            let bootstrap = self.bootstrap(now, &wish).map(Box::new);
            self.out.push(Output::StartAgent { shell, agent: wish.agent, how, bootstrap });
        }
    }

    /// What the agent is told; a probe is told nothing.
    fn bootstrap(&self, now: Instant, wish: &Wish) -> Option<Bootstrap> {
        let (parent, by_parent) = match &wish.purpose {
            Purpose::Child => (Vec::new(), true),
            Purpose::Stead { parent, .. } => (parent.clone(), false),
            Purpose::Probe { .. } => return None,
        };
        let mut session = self.config.session.clone();
        session.start_timeout_ns = self.start_by - now;
        let jobs = wish.jobs.iter().filter_map(|job| self.specs.get(job)).map(|spec| (**spec).clone()).collect();
        Some(Bootstrap { secret: Secret([0; 32]), agent: wish.agent, parent, by_parent, session, jobs })
    }

    pub(super) fn on_child_up(&mut self, agent: AgentId, address: String) {
        let me = self.config.agent;
        self.starts.on_linked(agent);
        if self.children.on_up(agent) {
            let problem = self.refused.remove(&agent).unwrap_or_default();
            self.note(Note::StartedFor { agent, parent: me, starter: AgentId(0), problem });
        }
        if self.config.session.verbose && !address.is_empty() {
            self.note(Note::Linked { agent, parent: me, address });
        }
    }

    pub(super) fn note(&mut self, note: Note) {
        self.links.control_up(JobId(0), &Control::Note(note), &mut self.out);
    }

    /// A child's note, on its way up. Whoever called the shell for another knows that it has come.
    pub(super) fn on_note(&mut self, mut note: Note) {
        if let Note::StartedFor { agent, starter, .. } = &mut note
            && self.starts.on_linked(*agent)
        {
            *starter = self.config.agent;
        }
        self.note(note);
    }

    pub(super) fn on_shell_exited(&mut self, now: Instant, shell: ShellId, status: ExitStatus, stderr: &str) {
        self.on_linked_shell_exited(now, shell, status, stderr);
        match self.starts.on_exited(now, self.start_by, shell, status, stderr) {
            Outcome::Nothing => {}
            Outcome::Again(note) => note.into_iter().for_each(|note| self.note(note)),
            Outcome::Lost(wish, problem) => self.on_start_lost(now, wish, problem),
            Outcome::Reached(wish) => self.on_reached(now, &wish),
        }
    }

    pub(super) fn on_shell_failed(&mut self, now: Instant, shell: ShellId, problem: String) {
        if let Outcome::Lost(wish, problem) = self.starts.on_failed(shell, problem) {
            self.on_start_lost(now, wish, problem);
        }
    }

    /// A shell did not bring its agent. Above, another may.
    fn on_start_lost(&mut self, now: Instant, wish: Wish, problem: String) {
        let Wish { agent, purpose, .. } = wish;
        let is_last = self.is_root() || !self.starts.is_remote();
        match purpose {
            Purpose::Child if !self.children.is_starting(agent) => {}
            // Without an address of ours it could not link, whoever started it.
            Purpose::Child if is_last || self.addresses.is_empty() => self.on_missing(now, agent, problem),
            Purpose::Child => {
                self.children.on_delegated(agent);
                self.refused.insert(agent, problem.clone());
                self.ask_above(agent, self.addresses.clone(), problem);
            }
            Purpose::Stead { branch, .. } if is_last => {
                let message = Control::NotStarted(MissingAgent { agent, problem });
                self.links.control_child(branch, JobId(0), &message, &mut self.out);
            }
            Purpose::Stead { parent, .. } => self.ask_above(agent, parent, problem),
            Purpose::Probe { below } => self.on_probed(now, below, agent, Some(problem)),
        }
    }

    fn on_reached(&mut self, now: Instant, wish: &Wish) {
        if let Purpose::Probe { below } = wish.purpose {
            self.on_probed(now, below, wish.agent, None);
        }
    }

    fn ask_above(&mut self, agent: AgentId, parent: Vec<String>, problem: String) {
        let message = Control::StartFor { agent, parent, problem };
        self.links.control_up(JobId(0), &message, &mut self.out);
    }

    /// A child asks for an agent of its subtree.
    pub(super) fn on_start_for(&mut self, branch: AgentId, agent: AgentId, parent: Vec<String>) {
        if agent != branch && self.tree.subtree_contains(branch, agent) {
            let jobs = self.jobs.iter().filter(|(_, job)| job.has_child(branch)).map(|(id, _)| *id).collect();
            self.starts.wish(Wish { agent, jobs, purpose: Purpose::Stead { branch, parent } });
        }
    }

    /// Nobody above could start it.
    pub(super) fn on_not_started(&mut self, now: Instant, missing: MissingAgent) {
        let MissingAgent { agent, problem } = missing;
        if self.children.is_starting(agent) {
            self.on_missing(now, agent, problem);
        } else if let Hop::Child(child) = self.tree.next_hop(self.config.agent, agent) {
            let message = Control::NotStarted(MissingAgent { agent, problem });
            self.links.control_child(child, JobId(0), &message, &mut self.out);
        }
    }

    /// A child is not there and will not come.
    fn on_missing(&mut self, now: Instant, agent: AgentId, problem: String) {
        if !self.children.is_starting(agent) || !self.children.on_lost(agent) {
            return;
        }
        self.links.forget_child(agent);
        if now < self.start_by {
            self.probe_below(agent);
        }
        let mut missing = vec![MissingAgent { agent, problem }];
        missing.extend(self.children.take_unreachable(agent));
        self.report_missing(now, agent, missing);
    }

    fn report_missing(&mut self, now: Instant, child: AgentId, missing: Vec<MissingAgent>) {
        let settled = self.children.is_settled(child);
        self.with_all_jobs(now, |job, cx| {
            if job.has_child(child) {
                job.on_child_missing(child, settled);
                if !missing.is_empty() {
                    job.on_missing(missing.clone(), cx);
                }
            }
        });
    }

    /// Asks all hosts behind a child that is in doubt.
    fn probe_below(&mut self, child: AgentId) {
        if self.children.is_probed(child) {
            return;
        }
        let mut below: BTreeSet<AgentId> = self.tree.subtree(child).filter(|agent| *agent != child).collect();
        if !self.starts.is_remote() {
            // All are this machine.
            below.clear();
        }
        for &agent in &below {
            self.starts.wish(Wish { agent, jobs: Vec::new(), purpose: Purpose::Probe { below: child } });
        }
        self.children.on_probing(child, below);
    }

    fn on_probed(&mut self, now: Instant, below: AgentId, agent: AgentId, problem: Option<String>) {
        self.children.on_probed(below, agent, problem);
        let missing = self.children.take_unreachable(below);
        if !missing.is_empty() || self.children.is_settled(below) {
            self.report_missing(now, below, missing);
        }
    }

    pub(super) fn check_starts(&mut self, now: Instant) {
        if now >= self.start_by && self.starts.is_busy() {
            let (wishes, shells) = self.starts.give_up(|wish| matches!(wish.purpose, Purpose::Probe { .. }));
            self.stop(shells);
            for wish in wishes {
                let problem = self.too_late("it did not answer");
                self.on_start_lost(now, wish, problem);
            }
        }
        for agent in self.children.late(now) {
            self.give_up_child(agent);
            let problem = self.too_late("its agent did not link back");
            self.on_missing(now, agent, problem);
        }
        for agent in self.children.suspects(now) {
            self.probe_below(agent);
        }
    }

    fn too_late(&self, what: &str) -> String {
        let seconds = self.config.session.start_timeout_ns.div_ceil(1_000_000_000);
        format!("{what} within {seconds} s")
    }

    fn give_up_child(&mut self, agent: AgentId) {
        let (_, shells) = self.starts.give_up(|wish| wish.agent == agent);
        self.stop(shells);
    }

    fn stop(&mut self, shells: Vec<ShellId>) {
        for shell in shells {
            self.out.push(Output::StopShell { shell });
        }
    }

    /// All jobs are being ended: nobody else is called. Those on their way get as long as the ranks do, so that what they
    /// have to say arrives.
    pub(super) fn stop_starting(&mut self, now: Instant) {
        if self.jobs.is_empty() || !self.starts.is_busy() || !self.jobs.values().all(Job::is_ending) {
            return;
        }
        let is_probe = |wish: &Wish| matches!(wish.purpose, Purpose::Probe { .. });
        let (mut wishes, shells) = if self.jobs.values().all(Job::is_forced) {
            self.starts.give_up(|_| true)
        } else {
            self.starts.give_up(is_probe)
        };
        wishes.extend(self.starts.give_up_uncalled());
        self.stop(shells);
        for Wish { agent, purpose, .. } in wishes {
            match purpose {
                Purpose::Child => {
                    self.children.on_lost(agent);
                    self.links.forget_child(agent);
                    self.with_all_jobs(now, |job, _| job.on_child_missing(agent, true));
                }
                Purpose::Probe { below } => self.on_probed(now, below, agent, None),
                Purpose::Stead { .. } => {}
            }
        }
    }

    /// The first guest of a link is the child that was called; a second one is not needed.
    pub(super) fn is_expected(&self, agent: AgentId) -> bool {
        self.children.is_starting(agent)
    }

    pub(super) fn turn_away(&mut self, link: LinkId) {
        self.out.push(Output::CloseLink { link });
    }

    pub(super) fn on_listening(&mut self, input: Input) {
        if let Input::Listening { addresses } = input {
            self.addresses = addresses;
        }
    }
}
