//! What an agent does beyond one run, in a session that outlives its jobs.
//!
//! ```text
//!   born ──► starts its children ──► Here ↑ (it and who is below) ──► jobs: Start ↓ … Over ↓
//!                                                                     a loss:  Missing ↑, Lost ↓   (`loss`)
//!                                                                     its parent's: an orphan      (`orphans`, `moves`)
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
mod moves;
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
    /// Told to those above as lost, and not heard of since; why.
    reported: BTreeMap<AgentId, String>,
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
            reported: BTreeMap::new(),
            orphans: BTreeMap::new(),
            seeking: None,
            root: (config.agent == AgentId(0)).then(|| Root::new(standing, session)),
        })
    }

    pub fn deadline(&self) -> Option<Instant> {
        let orphans = self.orphans.values().copied();
        orphans.chain(self.seeking.as_ref().and_then(Seeking::deadline)).min()
    }

    /// Entries of all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        let root = self.root.as_ref().map_or(0, Root::size);
        self.reported.len() + self.orphans.len() + root
    }
}

impl Agent {
    /// An agent of a standing session begins: it starts its children without waiting for a job.
    pub fn begin(&mut self, now: Instant) {
        if !self.is_standing() {
            return;
        }
        self.adopt_children_of(now, self.config.agent);
        self.ask_for_ucx(self.links.all_children());
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
        let Some(links) = &self.links.standing else { return Kin::default() };
        let is_below = |agent: &AgentId| self.tree.subtree_contains(child, *agent);
        let there = links.below.there().into_iter().filter(|agent| *agent != child && is_below(agent));
        let lives = links.lives.iter().map(|(agent, life)| (*agent, *life));
        let is_gone = |agent: &AgentId| is_below(agent) && self.is_lost(*agent);
        let lost = links.lost.iter().chain(self.standing.iter().flat_map(|standing| standing.reported.keys()));
        let lost = lost.copied().filter(|agent| *agent != child && is_gone(agent)).collect::<BTreeSet<_>>();
        Kin {
            parent: self.config.agent,
            ancestors: self.ancestors_of_children(),
            there: there.filter(|agent| !lost.contains(agent)).collect(),
            lost: lost.iter().copied().collect(),
            lives: lives.collect(),
            newest: self.early.newest(),
            live: self.early.live(),
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
            (None, Control::Here(agents)) => self.on_elsewhere(agents),
            (None, Control::Moved { agents, newest, live }) => self.on_moved(agents, newest, live),
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
            session: self.standing.as_ref().map_or(0, Standing::size)
                + self.links.standing.as_ref().map_or(0, |standing| standing.below.len() + standing.lives.len()),
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
