//! Records which jobs share a PID namespace on this node, and keeps the keepers of each such family of jobs.
//!
//! Ranks of one family of jobs communicate, and their libraries look up each other's processes by pid. So the keeper of
//! a later job, a *member*, joins the PID namespace of the family's first keeper. The first keeper is kept until the
//! last job of the family has ended on this node, since its end would make the kernel kill all members.
//!
//! Ranks that have spawned one job often spawn another, so idle members are kept for the next job: without that, and
//! without a member that is forked ahead, `PMIx_Spawn` of one child takes 1.05 times as long (1.02 to 1.09), and
//! `MPI_Comm_spawn` of four children by four ranks of MPICH 5 1.04 times (1.02 to 1.11; 40 and 24 interleaved pairs of
//! jobs on 2 CPUs). Any member can serve any job of the family, since a spawned job has the options of its parent job.
//!
//! ```text
//!   first job ──► Serving ── its job ended, other jobs remain ──► Held ── their last job ended ──► given back
//!                    └────── its job ended, no job remains ────────────────────────────────────────────┘
//! ```

use super::keeper_pool::{Idle, KeeperPool};
use super::pmix::StandbyServer;
use super::token::Token;
use crate::keeper::{Keeper, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use wireup_os::process::PidNamespace;
use wireup_os::reactor::Reactor;
use wireup_proto::io::KernelSession;
use wireup_wire::ids::JobId;

/// Number of idle members that a family keeps after its keepers have not changed for a while.
const IDLE_MEMBERS: usize = 1;

#[derive(Default)]
pub struct JobFamilies {
    /// The families with jobs on this node, by the first job of each family.
    here: BTreeMap<JobId, Family>,
    /// For each job that ranks of another job have spawned: the first job of its family.
    of: BTreeMap<JobId, JobId>,
}

struct Family {
    /// Pid of the keeper in whose PID namespace the family's ranks run.
    first: u32,
    jobs: BTreeSet<JobId>,
    /// The first keeper, kept for its namespace after its own job has ended; `None`: that job still runs.
    held: Option<Keeper>,
    /// Keepers in the family's PID namespace that have no job now.
    members: KeeperPool,
    /// The planned PMIx server process for the family's next job, which an idle member will start; `None`: none is
    /// planned.
    server: Option<StandbyServer>,
}

impl Family {
    fn fork(first: u32) -> io::Result<Keeper> {
        Keeper::fork_isolated(&PidNamespace::of(first)?)
    }

    /// Ends the family on this node: its idle members exit. Returns the family's first keeper, if that keeper was held
    /// after its own job had ended.
    fn end(self, reactor: &Reactor) -> Option<Keeper> {
        for member in self.members.into_keepers(reactor) {
            member.leave();
        }
        self.held
    }
}

impl JobFamilies {
    pub fn join(&mut self, job: JobId, family: JobId) {
        self.of.insert(job, family);
    }

    /// Whether the job was spawned by ranks of another job, so that it belongs to that job's family.
    pub fn has_joined(&self, job: JobId) -> bool {
        self.of.contains_key(&job)
    }

    /// Plans a PMIx server process for the next job of this job's family. Returns the server if no job of the family
    /// runs on this node.
    pub fn plan_standby(&mut self, job: JobId, server: StandbyServer) -> Option<StandbyServer> {
        let Some(family) = self.here.get_mut(&self.family_of(job)) else { return Some(server) };
        family.server = Some(server);
        None
    }

    fn family_of(&self, job: JobId) -> JobId {
        self.of.get(&job).copied().unwrap_or(job)
    }

    /// Adds a job to its family. Returns a keeper for the job: an idle member of the family, or one that is forked for
    /// it. `None`: no other job of the family runs on this node.
    pub fn member_for(&mut self, job: JobId, session: KernelSession, reactor: &Reactor) -> Option<io::Result<Idle>> {
        let family = self.here.get_mut(&self.family_of(job))?;
        family.jobs.insert(job);
        // If the first keeper has just died, its whole namespace is about to end.
        let idle = family.members.take_with_standby(session, reactor);
        let member = idle.map_or_else(|| Family::fork(family.first).map(Idle::from), Ok);
        Some(member.and_then(|member| member.settled(|| Family::fork(family.first))))
    }

    /// Adds a job that is the first of its family on this node. `first`: the pid of its keeper, which has a new
    /// namespace.
    pub fn add_first_job(&mut self, job: JobId, first: u32) {
        let (jobs, members) = (BTreeSet::from([job]), KeeperPool::default());
        self.here.insert(self.family_of(job), Family { first, jobs, held: None, members, server: None });
    }

    /// A job has ended on this node and gives back its keeper. Returns a keeper that no family needs: that of a job
    /// without a family here, the first keeper of a family whose last job this was, or a first keeper that has died.
    pub fn give_back(&mut self, job: JobId, mut keeper: Keeper, reactor: &Reactor) -> Option<Keeper> {
        let id = self.family_of(job);
        self.of.remove(&job);
        let Some(family) = self.here.get_mut(&id) else { return Some(keeper) };
        family.jobs.remove(&job);
        let (is_first, is_over) = (keeper.pid() == family.first, family.jobs.is_empty());
        if is_over {
            let held = self.here.remove(&id).and_then(|family| family.end(reactor));
            if is_first {
                return Some(keeper);
            }
            // A member cannot serve a job outside of the family.
            keeper.unwatched(reactor).leave();
            return held;
        }
        match (is_first, keeper.lost()) {
            (true, None) => {
                let _ = keeper.watch(Token::IdleKeeper(family.first).pack(), reactor);
                keeper.request(&Request::Sweep);
                keeper.send(reactor);
                family.held = Some(keeper);
                None
            }
            // The first keeper has died, so the kernel kills all members too.
            (true, Some(_)) => {
                family.server = None;
                Some(keeper)
            }
            (false, None) => {
                family.members.renew(keeper, reactor);
                None
            }
            (false, Some(_)) => {
                keeper.unwatched(reactor).leave();
                None
            }
        }
    }

    /// Removes a job for which no keeper could be obtained. Returns the first keeper of its family, if that keeper was
    /// held and this was the family's last job on this node.
    pub fn leave(&mut self, job: JobId, reactor: &Reactor) -> Option<Keeper> {
        let id = self.family_of(job);
        self.of.remove(&job);
        let family = self.here.get_mut(&id)?;
        family.jobs.remove(&job);
        if family.jobs.is_empty() { self.here.remove(&id)?.end(reactor) } else { None }
    }

    /// Starts the planned PMIx server process of each family, in a keeper of the family without a job.
    pub fn start_standbys(&mut self, reactor: &Reactor) {
        for family in self.here.values_mut() {
            family.members.start_standby(&mut family.server, || Family::fork(family.first), reactor);
        }
    }

    /// Ends idle members until each family has at most `IDLE_MEMBERS` of them.
    pub fn trim(&mut self, reactor: &Reactor) {
        self.here.values_mut().for_each(|family| family.members.trim(IDLE_MEMBERS, reactor));
    }

    /// An idle member, or a first keeper that is held, has sent something or has ended. When a held keeper ends, the
    /// kernel kills all members of its family.
    pub fn on_event(&mut self, pid: u32, reactor: &Reactor) {
        if self.here.values_mut().any(|family| family.members.on_event(pid, reactor)) {
            return;
        }
        let held = self.here.values_mut().find(|family| family.first == pid).and_then(|family| family.held.as_mut());
        if let Some(keeper) = held {
            // Even a held keeper that has ended is given back when the family's last job ends.
            let _ = keeper.take_events(&mut Vec::new(), reactor);
            keeper.send(reactor);
        }
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> {
        let held = |family: &Family| family.held.is_some().then_some(family.first);
        self.here.values().flat_map(move |family| family.members.pids().chain(held(family)))
    }

    /// Whether the keeper with this pid is the first one of a family.
    pub fn is_first(&self, pid: u32) -> bool {
        self.here.values().any(|family| family.first == pid)
    }

    /// All keepers of families that have no job: first the idle members, then the first keepers that are held.
    pub fn into_keepers(self, reactor: &Reactor) -> (Vec<Keeper>, Vec<Keeper>) {
        let (mut members, mut held) = (Vec::new(), Vec::new());
        for family in self.here.into_values() {
            members.extend(family.members.into_keepers(reactor));
            held.extend(family.held.map(|keeper| keeper.unwatched(reactor)));
        }
        (members, held)
    }
}
