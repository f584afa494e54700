//! How an agent gets its children: called by its remote shell, else by the nearest agent above that can, else missed.
//!
//! Whoever is missed is reported at once, and those behind it are asked whether they can be reached, so that one message
//! names all that is wrong. A child that takes half of its time is taken for missing that far: those behind it are asked
//! meanwhile.

use super::Agent;
use crate::io::{ExitStatus, LinkId, Output, ShellId};
use crate::job::{Job, JobInput};
use crate::starts::{Outcome, Purpose, Wish};
use crate::time::Instant;
use std::collections::BTreeSet;
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Bootstrap, Control, MissingAgent, Note, Secret};
use wireup_wire::session::Kin;

/// A child whose start took longer than this is told how much of the start time is left, since it counts from its birth (ns).
/// Chosen: all others are wrong by less, and launches of a blink stay without this message.
const LONG_START_NS: u64 = 500_000_000;

/// Notes that are passed on for each agent of a child's subtree. An agent that is refused at every level and tried again
/// causes ten a level.
const NOTES_PER_AGENT_MAX: u32 = 64;

/// How many notes of a child's subtree are passed on.
pub(super) fn notes_max(tree: Tree, child: AgentId) -> u32 {
    NOTES_PER_AGENT_MAX.saturating_mul(tree.subtree(child).count() as u32)
}

impl Agent {
    pub(super) fn start_child(&mut self, now: Instant, agent: AgentId, job: Option<JobId>) {
        self.children.on_start(now, agent, self.start_by);
        self.links.expect_child(agent);
        if !self.is_by_step() {
            self.starts.wish(Wish { agent, jobs: job.into_iter().collect(), purpose: Purpose::Child });
        }
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
        let (parent, by_parent, kin) = match &wish.purpose {
            Purpose::Child => (Vec::new(), true, self.kin_of(wish.agent)),
            Purpose::Stead { parent, kin, .. } => (parent.clone(), false, kin.clone()),
            Purpose::Probe { .. } | Purpose::ProbeFor { .. } => return None,
        };
        let mut session = self.config.session.clone();
        session.start_timeout_ns = self.start_by - now;
        // Of an agent that another call may have brought, only the one that links runs the program.
        session.hold_ranks = !by_parent || self.starts.is_called_again(wish.agent);
        let jobs = wish.jobs.iter().filter_map(|job| self.specs.get(job)).map(|spec| (**spec).clone()).collect();
        Some(Bootstrap { secret: Secret([0; 32]), agent: wish.agent, parent, by_parent, session, jobs, kin })
    }

    pub(super) fn on_child_up(&mut self, now: Instant, agent: AgentId, address: String) {
        let me = self.config.agent;
        self.starts.on_linked(agent);
        if let Some(links) = &mut self.links.standing {
            links.below.on_linked(agent);
        }
        let (_, shells) = self.starts.give_up(|wish| wish.purpose == Purpose::Probe { below: agent });
        self.stop(shells);
        let Some((since, delegated)) = self.children.on_up(agent, notes_max(self.tree, agent)) else {
            return;
        };
        self.tell_state(agent);
        if self.hurried || now - since > LONG_START_NS {
            self.tell_time_left(now, agent);
        }
        if delegated {
            let problem = self.refused.remove(&agent).unwrap_or_default();
            self.note(Note::StartedFor { agent, parent: me, starter: AgentId(0), problem });
        }
        if self.config.session.verbose && !address.is_empty() {
            self.note(Note::Linked { agent, parent: me, address });
        }
    }

    fn tell_time_left(&mut self, now: Instant, agent: AgentId) {
        let message = Control::TimeLeft { left_ns: self.start_by - now };
        self.links.control_child(agent, JobId(0), &message, &mut self.out);
    }

    /// The parent's start time ends earlier than ours, which began with our birth.
    pub(super) fn on_time_left(&mut self, now: Instant, left_ns: u64) {
        let start_by = now + left_ns;
        if start_by < self.start_by {
            self.start_by = start_by;
            self.hurried = true;
            self.children.hurry(now, start_by);
            for agent in self.links.linked_children() {
                self.tell_time_left(now, agent);
            }
        }
    }

    pub(super) fn note(&mut self, note: Note) {
        self.links.control_up(JobId(0), &Control::Note(note), &mut self.out);
    }

    /// A child's note, on its way up. Whoever called the shell for another knows that it has come.
    pub(super) fn on_note(&mut self, branch: AgentId, mut note: Note) {
        if let Note::StartedFor { agent, starter, .. } = &mut note
            && self.is_strictly_below(branch, *agent)
            && self.starts.on_linked(*agent)
        {
            *starter = self.config.agent;
        }
        if self.children.may_note(branch) {
            self.note(note);
        }
    }

    fn is_strictly_below(&self, branch: AgentId, agent: AgentId) -> bool {
        agent != branch && self.tree.subtree_contains(branch, agent)
    }

    pub(super) fn on_shell_exited(&mut self, now: Instant, shell: ShellId, status: ExitStatus, stderr: &str) {
        if self.on_step_exited(now, shell, status, stderr) {
            return;
        }
        self.on_linked_shell_exited(now, shell, status, stderr);
        match self.starts.on_exited(now, self.start_by, shell, status, stderr) {
            Outcome::Nothing => {}
            Outcome::Again(note) => note.into_iter().for_each(|note| self.note(note)),
            Outcome::Lost(wish, problem) => self.on_start_lost(now, wish, problem),
            Outcome::Reached(wish) => self.on_reached(now, &wish),
        }
    }

    pub(super) fn on_shell_failed(&mut self, now: Instant, shell: ShellId, problem: String) {
        if self.on_step_failed(now, shell, &problem) {
            return;
        }
        if let Outcome::Lost(wish, problem) = self.starts.on_failed(shell, problem) {
            self.on_start_lost(now, wish, problem);
        }
    }

    /// A shell did not bring its agent. Above, another may.
    fn on_start_lost(&mut self, now: Instant, wish: Wish, problem: String) {
        let Wish { agent, jobs, purpose } = wish;
        let is_last = self.is_root() || !self.starts.is_remote();
        match purpose {
            Purpose::Child if !self.children.is_starting(agent) => {}
            // Without an address of ours it could not link, whoever started it.
            Purpose::Child if is_last || self.links.addresses().is_empty() => self.on_missing(now, agent, problem),
            Purpose::Child => {
                self.children.on_delegated(agent);
                self.refused.insert(agent, problem.clone());
                let kin = self.kin_of(agent);
                self.ask_above(agent, jobs, self.links.addresses().to_vec(), problem, kin);
            }
            Purpose::Stead { parent, kin, .. } if !is_last => self.ask_above(agent, jobs, parent, problem, kin),
            Purpose::Probe { .. } if !is_last => self.ask_probe_above(agent, self.config.agent),
            Purpose::ProbeFor { asker, .. } if !is_last => self.ask_probe_above(agent, asker),
            Purpose::Stead { .. } | Purpose::Probe { .. } | Purpose::ProbeFor { .. } => {
                self.conclude(now, Wish { agent, jobs, purpose }, problem);
            }
        }
    }

    /// Nobody above does any better.
    fn conclude(&mut self, now: Instant, wish: Wish, problem: String) {
        let Wish { agent, purpose, .. } = wish;
        match purpose {
            Purpose::Child => self.on_missing(now, agent, problem),
            Purpose::Stead { branch, .. } => self.tell_not_started(branch, agent, problem),
            Purpose::Probe { below } => self.on_probed(now, below, agent, Some(problem)),
            Purpose::ProbeFor { branch, asker } => self.tell_probed(branch, agent, asker, Some(problem)),
        }
    }

    /// A host answered, or nobody will ask it any more.
    fn on_reached(&mut self, now: Instant, wish: &Wish) {
        match wish.purpose {
            Purpose::Probe { below } => self.on_probed(now, below, wish.agent, None),
            Purpose::ProbeFor { branch, asker } => self.tell_probed(branch, wish.agent, asker, None),
            Purpose::Child | Purpose::Stead { .. } => {}
        }
    }

    fn tell_not_started(&mut self, branch: AgentId, agent: AgentId, problem: String) {
        let message = Control::NotStarted(MissingAgent { agent, problem });
        self.links.control_child(branch, JobId(0), &message, &mut self.out);
    }

    fn tell_probed(&mut self, branch: AgentId, agent: AgentId, asker: AgentId, problem: Option<String>) {
        let message = Control::Probed { agent, asker, problem };
        self.links.control_child(branch, JobId(0), &message, &mut self.out);
    }

    fn ask_probe_above(&mut self, agent: AgentId, asker: AgentId) {
        self.links.control_up(JobId(0), &Control::Probe { agent, asker }, &mut self.out);
    }

    fn ask_above(&mut self, agent: AgentId, jobs: Vec<JobId>, parent: Vec<String>, problem: String, kin: Kin) {
        let message = Control::StartFor { agent, jobs, parent, problem, kin };
        self.links.control_up(JobId(0), &message, &mut self.out);
    }

    /// A child asks for an agent of its subtree.
    pub(super) fn on_start_for(&mut self, now: Instant, branch: AgentId, mut wish: Wish, problem: String) {
        let Wish { agent, jobs, .. } = &mut wish;
        let agent = *agent;
        if !self.is_strictly_below(branch, agent) {
            return;
        }
        jobs.retain(|id| self.jobs.get(id).is_some_and(|job| job.has_child(branch)));
        if (jobs.is_empty() && !self.is_standing()) || now >= self.start_by || !self.asked.insert(agent) {
            return self.tell_not_started(branch, agent, problem);
        }
        self.starts.wish(wish);
    }

    /// An agent of a child's subtree could not ask a host that should be below it.
    pub(super) fn on_probe_for(&mut self, now: Instant, branch: AgentId, agent: AgentId, asker: AgentId) {
        if !self.tree.subtree_contains(branch, asker) || !self.is_strictly_below(asker, agent) {
            return;
        }
        if now >= self.start_by || !self.asked_about.insert((agent, asker)) {
            return self.tell_probed(branch, agent, asker, None);
        }
        self.starts.wish(Wish { agent, jobs: Vec::new(), purpose: Purpose::ProbeFor { branch, asker } });
    }

    pub(super) fn on_probed_above(&mut self, now: Instant, agent: AgentId, asker: AgentId, problem: Option<String>) {
        match self.tree.next_hop(self.config.agent, asker) {
            Hop::Child(branch) => self.tell_probed(branch, agent, asker, problem),
            Hop::Here => {
                if let Hop::Child(below) = self.tree.next_hop(asker, agent) {
                    self.on_probed(now, below, agent, problem);
                }
            }
            Hop::Parent => {}
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
    pub(super) fn on_missing(&mut self, now: Instant, agent: AgentId, problem: String) {
        self.on_missing_with(now, agent, problem, Vec::new());
    }

    /// The same, and `below` are known to be missing too.
    pub(super) fn on_missing_with(&mut self, now: Instant, agent: AgentId, problem: String, below: Vec<MissingAgent>) {
        if !self.children.is_starting(agent) || !self.children.on_lost(agent) {
            return;
        }
        self.links.forget_child(agent);
        if self.is_standing() {
            self.take_place_of(now, agent);
            return self.report_lost(now, agent, problem);
        }
        if now < self.start_by {
            self.probe_below(agent);
        }
        let mut missing = vec![MissingAgent { agent, problem }];
        missing.extend(below);
        missing.extend(self.children.take_unreachable(agent));
        self.report_missing(now, agent, missing);
    }

    fn report_missing(&mut self, now: Instant, child: AgentId, missing: Vec<MissingAgent>) {
        let settled = self.children.is_settled(child);
        for id in self.jobs_where(|job| job.has_child(child)) {
            let missing = missing.clone();
            self.tell_job(now, id, JobInput::ChildMissing { agent: child, settled, missing });
        }
    }

    /// Asks all hosts behind a child that is in doubt.
    fn probe_below(&mut self, child: AgentId) {
        if self.children.is_probed(child) {
            return;
        }
        let mut below: BTreeSet<AgentId> = self.tree.subtree(child).filter(|agent| *agent != child).collect();
        if !self.starts.is_remote() || self.is_by_step() || self.is_standing() {
            // All are this machine, or the step says it; or those behind it will be called in any case.
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
        if now >= self.start_by && self.starts.serves_others() {
            for wish in self.starts.give_up_uncalled(|wish| wish.purpose.is_probe()) {
                self.on_reached(now, &wish);
            }
            let (wishes, shells) = self.starts.give_up(|wish| wish.purpose != Purpose::Child);
            self.stop(shells);
            for wish in wishes {
                let problem = self.too_late("it did not answer");
                self.conclude(now, wish, problem);
            }
        }
        for agent in self.children.late(now) {
            let what = if self.is_by_step() {
                self.late_task(agent)
            } else if self.starts.is_queued(agent) {
                "its turn to be called did not come"
            } else {
                "its remote shell did not bring an agent"
            };
            let mut problem = self.too_late(what);
            if let Some(reason) = self.refused.remove(&agent).or_else(|| self.starts.busy_words(agent)) {
                problem = format!("{problem}: {reason}");
            }
            self.give_up_child(agent);
            let unheard = self.unheard_below(agent).into_iter();
            let below = unheard.map(|agent| MissingAgent { agent, problem: self.too_late(self.late_task(agent)) });
            self.on_missing_with(now, agent, problem, below.collect());
        }
        for agent in self.children.suspects(now) {
            self.probe_below(agent);
        }
    }

    pub(super) fn too_late(&self, what: &str) -> String {
        let seconds = self.config.session.start_timeout_ns.div_ceil(1_000_000_000);
        format!("{what} within {seconds} s")
    }

    pub(super) fn give_up_child(&mut self, agent: AgentId) {
        let (_, shells) = self.starts.give_up(|wish| wish.agent == agent);
        self.stop(shells);
    }

    fn stop(&mut self, shells: Vec<ShellId>) {
        for shell in shells {
            self.out.push(Output::StopShell { shell });
        }
    }

    /// A child is lost: what its subtree wanted is in vain.
    pub(super) fn forget_wishes_below(&mut self, child: AgentId) {
        let (_, shells) = self.starts.give_up(|wish| match wish.purpose {
            Purpose::Stead { branch, .. } | Purpose::ProbeFor { branch, .. } => branch == child,
            Purpose::Child | Purpose::Probe { .. } => false,
        });
        self.stop(shells);
    }

    /// All jobs are being ended, or there are none: nobody else is called. Those on their way get as long as the ranks do,
    /// so that what they have to say arrives.
    pub(super) fn stop_starting(&mut self, now: Instant) {
        if !self.jobs.values().all(Job::is_ending) || (self.is_standing() && self.leaving.is_none()) {
            return;
        }
        if !self.starts.is_busy() && self.children.starting().next().is_none() {
            return;
        }
        let forced = self.jobs.values().all(Job::is_forced);
        let (mut wishes, shells) = self.starts.give_up(|wish| forced || wish.purpose.is_probe());
        wishes.extend(self.starts.give_up_uncalled(|_| true));
        self.stop(shells);
        for wish in wishes {
            match wish.purpose {
                Purpose::Child => self.forget_starting(now, wish.agent),
                Purpose::Stead { branch, .. } => {
                    self.tell_not_started(branch, wish.agent, "the job was ended meanwhile".into());
                }
                Purpose::Probe { .. } | Purpose::ProbeFor { .. } => self.on_reached(now, &wish),
            }
        }
        if forced {
            // Somebody above may still be starting them.
            for agent in self.children.starting().collect::<Vec<_>>() {
                self.forget_starting(now, agent);
            }
        }
    }

    pub(super) fn forget_starting(&mut self, now: Instant, agent: AgentId) {
        self.children.on_lost(agent);
        self.links.forget_child(agent);
        self.tell_all_jobs(now, || JobInput::ChildMissing { agent, settled: true, missing: Vec::new() });
    }

    /// The first guest of a link is the child that was called; a second one is not needed.
    pub(super) fn is_expected(&self, agent: AgentId) -> bool {
        self.children.is_starting(agent) && self.links.expects(agent)
    }

    pub(super) fn turn_away(&mut self, link: LinkId) {
        self.out.push(Output::CloseLink { link });
    }
}
