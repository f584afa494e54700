//! Forks and reuses the keepers of jobs. In a standing session, and when ranks have spawned other jobs, each keeper
//! serves one job after another (`keeper_pool`); their number follows the number of concurrent jobs, and after a quiet
//! time all but a few are ended.
//!
//! Agents that share a machine share a PID namespace too, because MPI libraries treat their ranks as processes of one
//! host. The first process of the namespace is a keeper of the root agent that serves no job. Processes that killed
//! keepers leave behind become its children, and are killed when a job has ended at the root.
//!
//! The jobs of a family (`job_families`) share a namespace too: the keepers of its later jobs join the namespace of its
//! first keeper.
//!
//! Agents that remote shells have started on one machine under different host names (fellows) share a namespace too:
//! the first of them makes it when a second one appears. Jobs that already run on the first agent stay outside.
//!
//! ```text
//!   first agent     listens at a name that only agents of this run can make;
//!                   when it is asked, it starts the first process of a namespace and keeps it
//!   later agents    find the name taken, ask, and get the number of that process
//! ```
//!
//! Abstract names exist once in a network namespace. The name is a digest of the run's secret, so that nobody else can
//! take it first. Once the name exists, other users can read it, so both ends ask the kernel whose process is at the
//! other end, and whether its PID namespace is this one: only then does the number mean the same process here. Cost
//! where an agent has its machine to itself: one socket.

use super::job_families::JobFamilies;
use super::keeper_pool::{Idle, KeeperPool};
use super::pmix::StandbyServer;
use super::token::Token;
use crate::keeper::{Keeper, Request};
use blake2::{Blake2s256, Digest};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::local::{self, PeerProcess};
use wireup_os::process::PidNamespace;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket;
use wireup_proto::io::KernelSession;
use wireup_wire::ids::JobId;
use wireup_wire::peer::{Containment, Secret};

/// Number of idle keepers that are kept after `QUIET_NS` without a change.
const IDLE: usize = 2;
/// Time for which no keeper is taken or given back before most idle keepers are ended (ns).
const QUIET_NS: u64 = 1_000_000_000;
/// Delay from the start of a spawned job's ranks to that of the PMIx server for the next job (ns), so that those ranks
/// start first. Programs need ten times as long until they can spawn another job.
const SERVER_DELAY_NS: u64 = 5_000_000;

#[derive(Default)]
pub struct Keepers {
    /// The PID namespace for keepers of ranks; `None`: these keepers stay in the agent's namespace.
    namespace: Option<PidNamespace>,
    /// The first process of the PID namespace that all agents share; only the root, or the first agent on a machine,
    /// has it. It is to be ended after all other keepers, because the kernel then kills all processes in the namespace.
    pub first: Option<Keeper>,
    /// How this agent finds agents of the run on this machine under other host names; `None`: it has not looked for
    /// any.
    fellows: Option<Fellows>,
    families: JobFamilies,
    /// Whether keepers serve more than one job.
    standing: bool,
    pool: KeeperPool,
    /// Jobs that have a keeper.
    jobs: BTreeSet<JobId>,
    /// The planned PMIx server process for the next job that ranks spawn; an idle keeper will start it.
    server: Option<StandbyServer>,
    /// Time at which the planned standby PMIx servers (`server`, and those in `families`) are started (ns).
    server_due_ns: Option<u64>,
    /// Time at which idle keepers are ended, except for a few (ns).
    quiet_ns: Option<u64>,
}

impl Keepers {
    /// Makes the PID namespace that all agents share, if `containment` asks for it. If none can be made, ranks run
    /// without one.
    pub fn new(containment: &mut Containment) -> Keepers {
        let mut keepers = Keepers::default();
        match containment {
            Containment::Machine { process: 0, by_user } => {
                let first = Keeper::fork_isolated(&PidNamespace::New { by_user: *by_user });
                keepers.share(first.and_then(|keeper| keeper.settled(Keeper::fork)).ok(), containment);
            }
            Containment::Machine { process, .. } => keepers.namespace = PidNamespace::of(*process).ok(),
            Containment::EachNode { by_user } => {
                keepers.namespace = Some(PidNamespace::New { by_user: *by_user });
            }
            Containment::None => {}
        }
        keepers
    }

    /// Once the run's secret is known: looks for other agents on this machine. Only the first call has an effect.
    pub fn meet_fellows(&mut self, secret: &Secret, reactor: &Reactor) {
        if self.fellows.is_some() || !matches!(self.namespace, Some(PidNamespace::New { .. })) {
            return;
        }
        self.fellows = Fellows::meet(secret, reactor);
        if let Some(Fellows::Of(process)) = self.fellows
            && let Ok(namespace) = PidNamespace::of(process)
        {
            self.namespace = Some(namespace);
        }
    }

    /// Answers agents on this machine that have asked for the PID namespace that all of them are to share.
    pub fn answer_fellows(&mut self, reactor: &Reactor) {
        if let Some(fellows) = self.fellows.take() {
            fellows.answer(|| self.first_of_machine(reactor));
            self.fellows = Some(fellows);
        }
    }

    /// Pid of the first process of the PID namespace that all agents on this machine share; the first call starts it.
    fn first_of_machine(&mut self, reactor: &Reactor) -> Option<u32> {
        if let Some(PidNamespace::New { by_user }) = self.namespace {
            let new = PidNamespace::New { by_user };
            let first = Keeper::fork_isolated(&new).and_then(|first| first.settled(|| Keeper::fork_isolated(&new)));
            self.share(Some(first.ok()?), &mut Containment::Machine { process: 0, by_user });
            // Idle keepers are ended, since each has a PID namespace of its own.
            self.pool.trim(0, reactor);
        }
        self.first.as_ref().map(Keeper::pid)
    }

    fn share(&mut self, first: Option<Keeper>, containment: &mut Containment) {
        let namespace =
            first.as_ref().filter(|first| first.isolates()).and_then(|first| PidNamespace::of(first.pid()).ok());
        match (first, namespace) {
            (Some(mut first), Some(namespace)) => {
                // The first process must outlive a kill of the agent's process group.
                first.begin_kernel_session(KernelSession::Own);
                // Errors are ignored: a new socket has room for the request, and if the process is gone, the first
                // keeper that is to join its namespace reports that.
                let _ = first.flush();
                if let Containment::Machine { process, .. } = containment {
                    *process = first.pid();
                }
                self.namespace = Some(namespace);
                self.first = Some(first);
            }
            (without, _) => {
                *containment = Containment::None;
                without.into_iter().for_each(Keeper::leave);
            }
        }
    }

    /// From now on keepers whose job has ended are kept for later jobs.
    pub fn stand(&mut self) {
        self.standing = true;
    }

    /// A keeper for ranks, which begins this kernel session: an idle one, or one that is forked now.
    pub fn for_ranks(&mut self, job: JobId, session: KernelSession, reactor: &Reactor) -> io::Result<Idle> {
        self.answer_fellows(reactor);
        self.jobs.insert(job);
        let mut idle = match self.families.member_for(job, session, reactor) {
            Some(member) => member?,
            None => self.first_for(job, session, reactor)?,
        };
        idle.keeper.begin_kernel_session(session);
        Ok(idle)
    }

    /// A keeper for a job that is the first one of its family on this node.
    fn first_for(&mut self, job: JobId, session: KernelSession, reactor: &Reactor) -> io::Result<Idle> {
        let idle = match self.take_keeper(session, self.families.has_joined(job), reactor) {
            Some(idle) => idle,
            None => fork(self.namespace.as_ref())?.into(),
        };
        let idle = idle.settled(|| match &self.namespace {
            // The first process may have been killed; then another keeper can have the namespace.
            Some(namespace @ PidNamespace::Of { .. }) => Keeper::fork_isolated(namespace),
            Some(PidNamespace::New { .. }) | None => Keeper::fork(),
        })?;
        if matches!(self.namespace, Some(PidNamespace::New { .. })) && idle.keeper.isolates() {
            self.families.add_first_job(job, idle.keeper.pid());
        }
        Ok(idle)
    }

    /// Call it when the ranks of a job have been started. If ranks of another job have spawned it, plans to start
    /// `server`, a PMIx server process like the job's own, ahead of the next such job.
    pub fn plan_standby(&mut self, job: JobId, server: StandbyServer) {
        if self.families.has_joined(job) {
            self.server = self.families.plan_standby(job, server);
            self.server_due_ns = Some(monotonic_ns() + SERVER_DELAY_NS);
        }
    }

    /// Records that a job about to start belongs to the family of another one. More such jobs are likely, so keepers
    /// are kept from now on; where each keeper has its own PID namespace, `families` keeps them.
    pub fn join(&mut self, job: JobId, family: JobId) {
        self.families.join(job, family);
        self.standing |= !matches!(self.namespace, Some(PidNamespace::New { .. }));
    }

    /// A keeper for remote shells. It has no PID namespace, so that processes that `ssh` leaves behind on purpose, such
    /// as a shared connection, survive, and that agents on this machine see each other's pids.
    pub fn for_shells(&mut self, reactor: &Reactor) -> io::Result<Keeper> {
        let session = KernelSession::Own;
        let idle = if self.namespace.is_none() { self.pool.take_without_modules(session, reactor) } else { None };
        self.await_quiet();
        let mut keeper = idle.map_or_else(Keeper::fork, |idle| Ok(idle.keeper))?;
        keeper.begin_kernel_session(session);
        Ok(keeper)
    }

    fn take_keeper(&mut self, session: KernelSession, may_have_standby: bool, reactor: &Reactor) -> Option<Idle> {
        let keeper = match may_have_standby {
            true => self.pool.take_with_standby(session, reactor),
            false => self.pool.take_keeper(session, reactor),
        };
        self.await_quiet();
        keeper
    }

    /// Call it when a keeper was taken or given back: if keepers are kept, the time after which idle ones are ended
    /// begins anew.
    fn await_quiet(&mut self) {
        if self.standing {
            self.quiet_ns = Some(monotonic_ns() + QUIET_NS);
        }
    }

    /// Whether the keeper is outside of the PID namespace that all agents share, because that namespace has ended.
    pub fn is_namespace_lost(&self, keeper: &Keeper) -> bool {
        matches!(self.namespace, Some(PidNamespace::Of { .. })) && !keeper.isolates()
    }

    /// Takes back the keeper of a job that has ended. Processes that the job left behind are killed when the keeper
    /// exits or, if it is kept, handles `Request::Renew`.
    pub fn give_back(&mut self, job: JobId, keeper: Keeper, reactor: &Reactor) {
        self.jobs.remove(&job);
        let own = self.families.give_back(job, keeper, reactor);
        if let Some(own) = own {
            self.retire(own, reactor);
        }
    }

    /// Removes a job for which no keeper could be obtained.
    pub fn leave(&mut self, job: JobId, reactor: &Reactor) {
        self.jobs.remove(&job);
        if let Some(held) = self.families.leave(job, reactor) {
            self.retire(held, reactor);
        }
    }

    fn retire(&mut self, keeper: Keeper, reactor: &Reactor) {
        self.await_quiet();
        if !self.standing || keeper.lost().is_some() {
            return keeper.unwatched(reactor).leave();
        }
        self.pool.renew(keeper, reactor);
    }

    /// A keeper without a job has sent something, or has ended.
    pub fn on_event(&mut self, pid: u32, reactor: &Reactor) {
        if !self.pool.on_event(pid, reactor) {
            self.families.on_event(pid, reactor);
        }
        // There may be too many idle keepers, or one that has ended.
        self.quiet_ns.get_or_insert_with(|| monotonic_ns() + QUIET_NS);
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.server_due_ns.into_iter().chain(self.quiet_ns).min()
    }

    /// Starts the planned PMIx servers that are due, and ends idle keepers after `QUIET_NS` without a change.
    pub fn on_tick(&mut self, now_ns: u64, reactor: &Reactor) {
        let is_quiet = self.quiet_ns.take_if(|at| *at <= now_ns).is_some();
        if self.server_due_ns.take_if(|at| *at <= now_ns).is_none() && !is_quiet {
            return;
        }
        if is_quiet {
            if self.jobs.is_empty() {
                // No ranks that might spawn another job are on this node.
                self.server = None;
                self.pool.stop_standbys(reactor);
            }
            self.families.trim(reactor);
            self.pool.trim(IDLE, reactor);
        }
        self.families.start_standbys(reactor);
        if self.standing {
            let namespace = self.namespace.as_ref();
            self.pool.start_standby(&mut self.server, || fork(namespace), reactor);
        }
    }

    /// Pids of the keepers that have no job.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        let own = self.pool.pids().chain(self.families.pids());
        own.chain(self.first.iter().map(Keeper::pid))
    }

    /// Call it when a job has ended at the root. Kills the children that the first process of the shared PID namespace
    /// has inherited: they are leftovers of killed keepers.
    pub fn on_job_over(&mut self) {
        if let Some(first) = self.first.as_mut().filter(|_| self.standing) {
            // The first process answers each request at once, so its socket has room for this one; answers are read
            // here.
            first.request(&Request::Sweep);
            let _ = first.receive(&mut Vec::new());
            let _ = first.flush();
        }
    }

    /// All keepers except `first`, with those in `of_ranks`, in the order in which to wait for them: the
    /// first keeper of a family comes late, since it waits for all processes in its PID namespace.
    pub fn into_keepers(
        self,
        of_ranks: impl Iterator<Item = Keeper>,
        reactor: &Reactor,
    ) -> impl Iterator<Item = Keeper> {
        let (firsts, of_ranks): (Vec<_>, Vec<_>) = of_ranks.partition(|keeper| self.families.is_first(keeper.pid()));
        let (members, held) = self.families.into_keepers(reactor);
        let idle = self.pool.into_keepers(reactor).chain(members);
        idle.chain(of_ranks).chain(firsts).chain(held)
    }
}

fn fork(namespace: Option<&PidNamespace>) -> io::Result<Keeper> {
    namespace.map_or_else(Keeper::fork, Keeper::fork_isolated)
}

/// Longest wait of a later agent for the answer of the first one, which comes at once unless that process is stopped.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Most agents that are answered in one turn of the driver's loop. Chosen: more than one machine has host names.
const ANSWERS_PER_TURN: usize = 64;

/// What an agent finds on its machine.
pub enum Fellows {
    /// This agent is the first one of the run on this machine. Later agents connect to this socket to get the pid.
    First(OwnedFd),
    /// The pid, in this agent's PID namespace, of the first process of the PID namespace that all ranks of this machine
    /// share.
    Of(u32),
}

impl Fellows {
    /// Finds the other agents of the run on this machine; `None`: an error makes that impossible.
    pub fn meet(secret: &Secret, reactor: &Reactor) -> Option<Fellows> {
        let name = name(secret);
        match local::listen_abstract(&name) {
            Ok(listener) => {
                reactor.add(&listener, Token::Fellows.pack(), Interest::READABLE).ok()?;
                Some(Fellows::First(listener))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => ask(&name).map(Fellows::Of),
            Err(_) => None,
        }
    }

    /// Answers agents that have asked for the shared PID namespace. `process`: returns the pid of its first process,
    /// which the first call starts; `None`: it could not be started.
    pub fn answer(&self, mut process: impl FnMut() -> Option<u32>) {
        let Fellows::First(listener) = self else { return };
        for _ in 0..ANSWERS_PER_TURN {
            let Ok(asking) = local::accept(listener) else { return };
            if is_fellow(&asking)
                && let Some(process) = process()
            {
                // A few bytes always fit into a new connection's buffer.
                let _ = socket::send(&asking, &process.to_ne_bytes(), &[]);
            }
        }
    }
}

fn ask(name: &[u8]) -> Option<u32> {
    let first = local::connect_abstract(name).ok().filter(|first| is_fellow(first))?;
    let mut process = [0; 4];
    let is_answered = socket::wait(&first, true, false, Some(ANSWER_MAX)).ok()?
        && rustix::io::read(&first, &mut process).is_ok_and(|read| read == process.len());
    is_answered.then(|| u32::from_ne_bytes(process))
}

/// Whether the other end of a socket belongs to a process of this user in this agent's PID namespace.
fn is_fellow(socket: impl AsFd) -> bool {
    let Ok(PeerProcess { pid, user }) = local::peer(socket) else { return false };
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/pid"));
    let is_here = || namespace("self").is_ok_and(|own| namespace(&pid.to_string()).is_ok_and(|theirs| theirs == own));
    user == rustix::process::geteuid().as_raw() && pid != 0 && is_here()
}

fn name(secret: &Secret) -> Vec<u8> {
    let digest = Blake2s256::new().chain_update(secret.0).chain_update(b"machine").finalize();
    let digits = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("wireup-machine-{digits}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::keeper_pool::tests::idle;

    #[test]
    fn the_first_keeper_of_a_family_is_ended_behind_the_others() {
        let reactor = Reactor::new().unwrap();
        let mut keepers = Keepers::default();
        let [first, other] = [Keeper::fork().unwrap(), Keeper::fork().unwrap()];
        let pids = [other.pid(), first.pid()];
        keepers.families.add_first_job(JobId(1), first.pid());
        keepers.pool = idle(1, &reactor);
        let without_job = keepers.pids().next().unwrap();
        let order: Vec<Keeper> = keepers.into_keepers([first, other].into_iter(), &reactor).collect();
        assert_eq!(order.iter().map(Keeper::pid).collect::<Vec<_>>(), [without_job, pids[0], pids[1]]);
        order.into_iter().for_each(|keeper| keeper.close().unwrap());
    }

    #[test]
    fn later_agents_of_a_run_get_the_process_of_the_first_one() {
        let mut reactor = Reactor::new().unwrap();
        let secret = Secret(wireup_os::random::bytes().unwrap());
        let first = Fellows::meet(&secret, &reactor).unwrap();
        let of_another_run = Secret(wireup_os::random::bytes().unwrap());
        assert!(matches!(Fellows::meet(&of_another_run, &reactor), Some(Fellows::First(_))));
        let asking = std::thread::spawn(move || Fellows::meet(&secret, &Reactor::new().unwrap()));
        reactor.wait(Some(Duration::from_secs(60))).unwrap();
        first.answer(|| Some(77));
        assert!(matches!(asking.join().unwrap(), Some(Fellows::Of(77))));
    }
}
