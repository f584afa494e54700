//! What an agent does beyond one run, in a session that outlives its jobs.
//!
//! ```text
//!   born ──► starts its children ──► Here ↑ (it and who is below) ──► jobs: Start ↓ … Over ↓
//!                                                                     a loss:  Missing ↑, Lost ↓   (`loss`)
//!                                                                     its parent's: an orphan      (`orphans`)
//!                                                                     the lost again: Return ↓     (`returns`)
//! ```
//!
//! The root alone knows who is there (`root`), hears launchers (`launchers`) and starts jobs, whose `Start` goes down the session's tree
//! (`jobs`). All other frames of a job go along its own tree. An agent keeps nothing of a job that is over, and arms no deadline when
//! nothing is under way.
//!
//! Cost: for each agent one message up for each level above it, once; for each loss one up and one to every agent.

mod jobs;
mod launchers;
mod loss;
mod orphans;
mod returns;
mod root;

use super::{Agent, AgentConfig};
use crate::time::Instant;
use orphans::Seeking;
use root::Root;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Control;
use wireup_wire::session::{Ancestor, Kin};

pub struct Standing {
    /// Agents of the subtree that are linked below this one, with itself.
    here: BTreeSet<AgentId>,
    /// Agents of the subtree that are linked elsewhere: they were adopted by somebody further up.
    elsewhere: BTreeSet<AgentId>,
    /// Told to those above as lost, and not heard of since; why.
    reported: BTreeMap<AgentId, String>,
    /// Which of its lives an agent lives, where it is not the first.
    lives: BTreeMap<AgentId, u32>,
    /// Agents whose parent is lost: they should dial this one by then.
    orphans: BTreeMap<AgentId, Instant>,
    /// This agent's own parent is gone.
    seeking: Option<Seeking>,
    root: Option<Root>,
}

impl Standing {
    pub fn new(config: &AgentConfig) -> Option<Self> {
        let session = &config.session;
        session.standing.as_ref().map(|standing| Standing {
            here: [config.agent].into(),
            elsewhere: config.kin.there.iter().copied().collect(),
            reported: BTreeMap::new(),
            lives: config.kin.lives.iter().copied().collect(),
            orphans: BTreeMap::new(),
            seeking: None,
            root: (config.agent == AgentId(0)).then(|| Root::new(standing, session)),
        })
    }

    fn life(&self, agent: AgentId) -> u32 {
        self.lives.get(&agent).copied().unwrap_or(0)
    }

    pub fn deadline(&self) -> Option<Instant> {
        let orphans = self.orphans.values().copied();
        orphans.chain(self.seeking.as_ref().and_then(Seeking::deadline)).min()
    }

    /// Entries of all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        let root = self.root.as_ref().map_or(0, Root::size);
        self.here.len() + self.elsewhere.len() + self.reported.len() + self.lives.len() + self.orphans.len() + root
    }
}

impl Agent {
    /// An agent of a standing session begins: it starts its children without waiting for a job.
    pub fn begin(&mut self, now: Instant) {
        let Some(standing) = &self.standing else { return };
        let there = &standing.elsewhere;
        let children: Vec<AgentId> = self.tree.children(self.config.agent).map(AgentId).collect();
        let missing: Vec<AgentId> = children.iter().copied().filter(|child| !there.contains(child)).collect();
        for &child in &missing {
            self.start_child(now, child, None);
        }
        self.ask_for_ucx(missing);
        self.call_step_for(now, self.tree.subtree(AgentId(0)));
        self.call_shells(now);
    }

    pub(super) fn is_standing(&self) -> bool {
        self.standing.is_some()
    }

    /// Whether nothing is to be said to an agent any more, as far as is known here.
    fn is_lost(&self, agent: AgentId) -> bool {
        self.links.is_lost(agent)
            || self.standing.as_ref().is_some_and(|standing| standing.reported.contains_key(&agent))
    }

    /// What a child is told of its kin.
    pub(super) fn kin_of(&self, child: AgentId) -> Kin {
        let Some(standing) = &self.standing else { return Kin::default() };
        let is_below = |agent: &AgentId| self.tree.subtree_contains(child, *agent);
        let there =
            standing.here.union(&standing.elsewhere).copied().filter(|agent| *agent != child && is_below(agent));
        let lives = standing.lives.iter().map(|(agent, life)| (*agent, *life)).filter(|(agent, _)| is_below(agent));
        Kin {
            parent: self.config.agent,
            ancestors: self.ancestors_of_children(),
            there: there.collect(),
            lives: lives.collect(),
        }
    }

    fn ancestors_of_children(&self) -> Vec<Ancestor> {
        // Of the root there are no addresses.
        let parent = Ancestor { agent: self.config.kin.parent, addresses: self.config.parent.clone() };
        let known = std::iter::once(parent).chain(self.config.kin.ancestors.iter().cloned());
        known.filter(|ancestor| !ancestor.addresses.is_empty() && !self.links.is_lost(ancestor.agent)).collect()
    }

    /// A message of a standing session; handed back if it is none.
    pub(super) fn on_standing_control(
        &mut self,
        now: Instant,
        branch: Option<AgentId>,
        frame: &Frame,
        message: Control,
    ) -> Option<Control> {
        if !self.is_standing() {
            return Some(message);
        }
        match (branch, message) {
            (None, Control::Start { spec, newest, live }) => self.on_start(now, frame, spec, newest, &live),
            (None, Control::Over { agents }) => self.on_over(now, JobId(frame.job), &agents, frame),
            (Some(branch), Control::Here(agents)) => self.on_here(branch, agents),
            (None, Control::Here(agents)) => self.on_elsewhere(agents, frame),
            (Some(branch), Control::Missing(missing)) if frame.job == 0 => {
                for missing in missing {
                    if self.tree.subtree_contains(branch, missing.agent) {
                        self.report_lost(now, missing.agent, missing.problem);
                    }
                }
            }
            (None, Control::Lost { agent }) => self.on_lost(now, agent),
            (None, Control::Return { agents, life }) => self.on_return(now, &agents, life),
            (_, message) => return Some(message),
        }
        None
    }

    /// These agents of a child's subtree are linked.
    fn on_here(&mut self, branch: AgentId, mut agents: Vec<AgentId>) {
        agents.retain(|agent| self.tree.subtree_contains(branch, *agent));
        for &agent in agents.iter().filter(|agent| **agent != branch) {
            self.forget_orphan(agent);
            self.tell_others(agent, branch);
        }
        let Some(standing) = &mut self.standing else { return };
        for agent in &agents {
            standing.here.insert(*agent);
            standing.elsewhere.remove(agent);
        }
        match &mut standing.root {
            Some(root) => {
                root.on_here(&agents);
                self.tell_if_settled();
            }
            None if self.links.has_up() => {
                self.links.control_up(JobId(0), &Control::Here(agents), &mut self.out);
            }
            // With the link it is said anyway.
            None => {}
        }
    }

    /// The link to a parent is up: the first, or a new one. What the last one may have kept is said again.
    pub(super) fn on_parent_up(&mut self) {
        let Some(standing) = &mut self.standing else { return };
        standing.seeking = None;
        let here = Control::Here(standing.here.iter().copied().collect());
        let reported = standing.reported.iter();
        let missing = reported.map(|(agent, problem)| loss::missing(*agent, problem.clone())).collect::<Vec<_>>();
        self.links.control_up(JobId(0), &here, &mut self.out);
        if !missing.is_empty() {
            self.links.control_up(JobId(0), &Control::Missing(missing), &mut self.out);
        }
    }

    /// The batch system wants this agent gone: it goes when its jobs are over. Others above and below it find their way without.
    pub(super) fn leave_if_told(&mut self) {
        if self.told_to_end && self.is_standing() && !self.is_root() && self.jobs.is_empty() {
            self.leave();
        }
    }

    pub(super) fn check_standing(&mut self, now: Instant) {
        self.check_orphans(now);
        self.check_seeking(now);
    }

    /// What this agent holds, for the simulator's checkers: how many entries in tables that jobs come and go through, and
    /// bytes of frames that wait or are kept.
    pub fn holds(&self) -> Holds {
        Holds {
            jobs: self.jobs.len() + self.specs.len(),
            early_frames: self.early.len(),
            direct_jobs: self.links.direct.jobs().len(),
            direct_bytes: self.links.direct.held_bytes(),
            session: self.standing.as_ref().map_or(0, Standing::size),
        }
    }
}

/// What an agent holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds {
    pub jobs: usize,
    pub early_frames: usize,
    pub direct_jobs: usize,
    pub direct_bytes: usize,
    pub session: usize,
}
