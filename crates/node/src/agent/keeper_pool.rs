//! Keeps the keepers whose job has ended for the next jobs, whose ranks then need not wait for a fork.
//!
//! Without the pool a job of one `true` in a session takes 3.7 times as long (3.3 to 4.1; 21 instead of 4.7 ms), with
//! 16 jobs in flight 3.5 times (2.9 to 4.0), next to two busy loops 1.6 times (1.4 to 2.2): `wireup run --session NAME
//! -n 1 true` on 2 CPUs, medians of 200, 40 and 80 interleaved pairs, with 95 % intervals; compilers ran at a lower
//! priority.
//!
//! ```text
//!   forked ──► with a job ──► renewing ──► idle ──► with a job …
//!                              ▲ │ fails    │ ▲ too many: ended
//!                              │ ▼ ended    ▼ │
//!                              └── idle, with a PMIx server, which has ended, or is not wanted any more
//! ```
//!
//! One idle keeper may have started a PMIx server process ahead, for the next job that ranks spawn (`pmix`).
//!
//! A keeper that has served a job or started a PMIx server has called `setsid`, or leads a process group in the agent's
//! session (see `keeper`). This cannot be undone, so the keeper then serves only jobs that need the same kind of
//! session.
//!
//! When the ranks of its job are gone, a keeper gets `Request::Renew`: it kills leftovers of the job and becomes idle.
//! Idle keepers are watched, so that a killed one is not used.
//!
//! `Request::Renew` takes 2 ms if the keeper has an interpreter with imported modules, and a script that runs one job
//! after the other may start the next job sooner. The agent waits for such a keeper, because another keeper would need
//! seconds to import the modules again.

use super::pmix::StandbyServer;
use super::token::Token;
use crate::keeper::{Alive, Keeper, KeeperEvent, Request};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_os::socket;
use wireup_proto::io::KernelSession;

/// Most idle keepers. Chosen: as many concurrent jobs as a user starts by a script.
const IDLE_MAX: usize = 32;
/// Longest time after `Request::Renew` for which jobs wait for a keeper with imported modules (ns). Chosen: the keeper
/// needs milliseconds, and longer where ranks compete for the CPUs. If the keeper finds processes that cannot be
/// killed, the agent is blocked for this time, once for each such request.
const IMPORTER_NS_MAX: u64 = 200_000_000;

/// A keeper without a job.
pub struct Idle {
    pub keeper: Keeper,
    /// A PMIx server process that the keeper has started before its job is known.
    pub server: Option<StandbyServer>,
}

impl From<Keeper> for Idle {
    fn from(keeper: Keeper) -> Idle {
        Idle { keeper, server: None }
    }
}

impl Idle {
    /// Reads what the keeper reports; `false`: the keeper cannot be used with the server that it has started.
    fn receive(&mut self) -> io::Result<bool> {
        if !self.keeper.has_settled() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut events = Vec::new();
        if self.keeper.receive(&mut events)? == Alive::Gone {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // A keeper without a server has nothing to report.
        Ok(events.into_iter().all(|event| self.server.as_mut().is_some_and(|server| server.on_event(event))))
    }

    /// Waits until the keeper's PID namespace is set up. If that fails, returns another keeper, without a server (see
    /// [`Keeper::replaced`]).
    pub fn settled(self, again: impl FnOnce() -> io::Result<Keeper>) -> io::Result<Idle> {
        let Idle { mut keeper, server } = self;
        if keeper.has_settled() {
            return Ok(Idle { keeper, server });
        }
        // The server has ended with the keeper that was to start it.
        Ok(keeper.replaced(again)?.into())
    }

    /// The keeper, for the caller to end. Its server is killed first: otherwise the keeper would give the server some
    /// time to end by itself.
    fn into_keeper(self) -> Keeper {
        let Idle { mut keeper, server } = self;
        if let Some(mut server) = server {
            keeper.request(&server.dismiss());
            let _ = keeper.flush();
        }
        keeper
    }
}

#[derive(Default)]
pub struct KeeperPool {
    /// Idle keepers, by pid.
    idle: BTreeMap<u32, Idle>,
    /// Keepers that have not answered `Request::Renew` yet, by pid.
    renewing: BTreeMap<u32, Renewing>,
}

struct Renewing {
    keeper: Keeper,
    since_ns: u64,
}

impl KeeperPool {
    /// An idle keeper without a server for a job in this kernel session, if there is one. Waits for a keeper with
    /// imported modules, if one that suits has not answered `Request::Renew` yet.
    pub fn take_keeper(&mut self, session: KernelSession, reactor: &Reactor) -> Option<Idle> {
        self.await_importer(session, reactor);
        self.take_suiting(session, |_| true, reactor)
    }

    /// Waits until a keeper with imported modules is idle, if one that suits has not answered `Request::Renew` yet.
    /// Meanwhile the agent handles nothing else: to delay only this job, it would have to queue the job's signals and
    /// sockets.
    fn await_importer(&mut self, session: KernelSession, reactor: &Reactor) {
        let has_modules =
            |idle: &Idle| idle.keeper.keeps_importer() && idle.server.is_none() && suits(&idle.keeper, session);
        while !self.idle.values().any(has_modules)
            && let Some((pid, left)) = self.next_importer(session)
            && let Ok(is_ready) = socket::wait(self.renewing[&pid].keeper.fd(), true, false, Some(left))
        {
            if is_ready {
                self.on_event(pid, reactor);
            }
        }
    }

    /// The pid of a keeper that handles `Request::Renew` and probably has imported modules, and the remaining time to
    /// wait for it.
    fn next_importer(&self, session: KernelSession) -> Option<(u32, Duration)> {
        let now_ns = monotonic_ns();
        let left_ns = |renewing: &Renewing| (renewing.since_ns + IMPORTER_NS_MAX).saturating_sub(now_ns);
        let with_modules = self.renewing.iter().filter(|(_, renewing)| renewing.keeper.may_keep_importer());
        let suiting = with_modules.filter(|(_, one)| suits(&one.keeper, session) && left_ns(one) > 0);
        let (pid, renewing) = suiting.max_by_key(|(_, one)| one.since_ns)?;
        Some((*pid, Duration::from_nanos(left_ns(renewing))))
    }

    /// An idle keeper like that of [`KeeperPool::take_keeper`], but without imported modules.
    pub fn take_without_modules(&mut self, session: KernelSession, reactor: &Reactor) -> Option<Idle> {
        self.take_suiting(session, |idle| !idle.keeper.keeps_importer(), reactor)
    }

    fn take_suiting(
        &mut self,
        session: KernelSession,
        is_wanted: impl Fn(&Idle) -> bool,
        reactor: &Reactor,
    ) -> Option<Idle> {
        let is_wanted = |idle: &Idle| idle.server.is_none() && suits(&idle.keeper, session) && is_wanted(idle);
        let suiting = self.idle.iter().filter(|(_, idle)| is_wanted(idle));
        // A keeper that has begun no kernel session could serve any job, so it is taken last. One with imported modules
        // is taken first: if one job of a wireup session imports them, the next job probably does too.
        let preference = |idle: &Idle| (idle.keeper.kernel_session().is_none(), !idle.keeper.keeps_importer());
        let pid = *suiting.min_by_key(|(_, idle)| preference(idle))?.0;
        self.take_one(pid, reactor)
    }

    /// An idle keeper for a job that ranks have spawned, in this kernel session, if there is one: preferably the one
    /// with a PMIx server. The ranks of such a job are not forked from an interpreter with imported modules.
    pub fn take_with_standby(&mut self, session: KernelSession, reactor: &Reactor) -> Option<Idle> {
        let with_standby = self.with_standby().filter(|pid| suits(&self.idle[pid].keeper, session));
        with_standby
            .and_then(|pid| self.take_one(pid, reactor))
            .or_else(|| self.take_suiting(session, |_| true, reactor))
    }

    /// The pid of the idle keeper that has started a PMIx server before its job is known, if there is one.
    fn with_standby(&self) -> Option<u32> {
        self.idle.iter().find(|(_, idle)| idle.server.is_some()).map(|(pid, _)| *pid)
    }

    fn take_one(&mut self, pid: u32, reactor: &Reactor) -> Option<Idle> {
        let Idle { keeper, server } = self.idle.remove(&pid)?;
        Some(Idle { keeper: keeper.unwatched(reactor), server })
    }

    /// Starts the planned PMIx server in an idle keeper, or in a keeper that is forked now. If an idle keeper has such
    /// a server already, `server` is dropped.
    pub fn start_standby(
        &mut self,
        server: &mut Option<StandbyServer>,
        fork: impl FnOnce() -> io::Result<Keeper>,
        reactor: &Reactor,
    ) {
        if self.with_standby().is_some() {
            *server = None;
        }
        let Some(session) = server.as_ref().map(StandbyServer::kernel_session) else { return };
        let idle = self.take_without_modules(session, reactor).or_else(|| fork().ok().map(Idle::from));
        let Some(mut idle) = idle else { return };
        let Some(mut server) = server.take() else { return };
        let has_started = server.start(&mut idle.keeper);
        idle.server = Some(server);
        match has_started && watch(&mut idle.keeper, reactor).is_ok() {
            true => {
                idle.keeper.send(reactor);
                self.idle.insert(idle.keeper.pid(), idle);
            }
            false => self.stop_standby(idle, reactor),
        }
    }

    /// Ends the PMIx servers that were started ahead and have no job yet.
    pub fn stop_standbys(&mut self, reactor: &Reactor) {
        while let Some(idle) = self.with_standby().and_then(|pid| self.take_one(pid, reactor)) {
            self.stop_standby(idle, reactor);
        }
    }

    /// Makes the keeper kill its PMIx server and remove the server's directory; then the keeper is idle, without a
    /// server.
    fn stop_standby(&mut self, idle: Idle, reactor: &Reactor) {
        let Idle { mut keeper, mut server } = idle;
        if !keeper.has_settled() {
            return keeper.unwatched(reactor).leave();
        }
        server.iter_mut().for_each(|server| keeper.request(&server.dismiss()));
        self.renew(keeper, reactor);
    }

    /// Sends `Request::Renew` to a keeper whose job has ended; when the keeper has answered, it is idle.
    pub fn renew(&mut self, mut keeper: Keeper, reactor: &Reactor) {
        let Ok(()) = watch(&mut keeper, reactor) else { return keeper.unwatched(reactor).leave() };
        keeper.request(&Request::Renew);
        keeper.send(reactor);
        self.renewing.insert(keeper.pid(), Renewing { keeper, since_ns: monotonic_ns() });
    }

    /// A keeper has sent something, or has ended. `false`: the keeper is not in this pool.
    pub fn on_event(&mut self, pid: u32, reactor: &Reactor) -> bool {
        if let Some(mut idle) = self.idle.remove(&pid) {
            match idle.receive() {
                Ok(true) => {
                    idle.keeper.send(reactor);
                    self.idle.insert(pid, idle);
                }
                received => self.give_up(idle, received.is_ok(), reactor),
            }
            return true;
        }
        let Some(Renewing { keeper, .. }) = self.renewing.get_mut(&pid) else { return false };
        let mut events = Vec::new();
        let alive = keeper.take_events(&mut events, reactor);
        let renewed = events.iter().any(|event| matches!(event, KeeperEvent::Renewed { .. }));
        if alive && !renewed {
            keeper.send(reactor);
        } else if let Some(Renewing { mut keeper, .. }) = self.renewing.remove(&pid) {
            // One interpreter with imported modules is enough for each node.
            if keeper.keeps_importer() && self.idle.values().any(|idle| idle.keeper.keeps_importer()) {
                keeper.request(&Request::DropImporter);
                keeper.send(reactor);
            }
            if alive {
                self.idle.insert(pid, keeper.into());
                self.trim(IDLE_MAX, reactor);
            } else {
                keeper.leave();
            }
        }
        true
    }

    fn give_up(&mut self, idle: Idle, is_alive: bool, reactor: &Reactor) {
        if is_alive && idle.server.is_some() {
            return self.stop_standby(idle, reactor);
        }
        idle.keeper.unwatched(reactor).leave();
    }

    /// Ends all idle keepers but `count`, keepers without a server first. Of the keepers of each kernel session some
    /// are kept, as far as possible.
    pub fn trim(&mut self, count: usize, reactor: &Reactor) {
        while self.idle.len() > count
            && let Some(idle) = self.surplus().and_then(|pid| self.take_one(pid, reactor))
        {
            idle.into_keeper().leave();
        }
    }

    /// The idle keeper to end first: one without a server, of the kernel session that has most idle keepers, and
    /// preferably without imported modules.
    fn surplus(&self) -> Option<u32> {
        let alike = |one: &Idle| {
            let session = one.keeper.kernel_session();
            self.idle.values().filter(|idle| idle.keeper.kernel_session() == session).count()
        };
        let preference = |one: &Idle| (one.server.is_none(), alike(one), !one.keeper.keeps_importer());
        Some(*self.idle.iter().max_by_key(|(_, idle)| preference(idle))?.0)
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.idle.keys().chain(self.renewing.keys()).copied()
    }

    /// All keepers of the pool, for the caller to end.
    pub fn into_keepers(self, reactor: &Reactor) -> impl Iterator<Item = Keeper> {
        let idle = self.idle.into_values().map(Idle::into_keeper);
        idle.chain(self.renewing.into_values().map(|renewing| renewing.keeper)).map(|keeper| keeper.unwatched(reactor))
    }
}

/// Whether the keeper can serve a job in this kernel session.
fn suits(keeper: &Keeper, session: KernelSession) -> bool {
    keeper.kernel_session().is_none_or(|begun| begun == session)
}

fn watch(keeper: &mut Keeper, reactor: &Reactor) -> io::Result<()> {
    keeper.watch(Token::IdleKeeper(keeper.pid()).pack(), reactor)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::agent::pmix::tests::plan;
    use crate::keeper::leaving;
    use crate::keeper::tests::{import, importing};
    use KernelSession::{Agents, Own};
    use rustix::process::{Pid, Signal, kill_process};
    use std::path::PathBuf;
    use std::time::Instant;

    /// A pool with this many idle keepers.
    pub fn idle(count: usize, reactor: &Reactor) -> KeeperPool {
        let mut pool = KeeperPool::default();
        for _ in 0..count {
            let mut keeper = Keeper::fork().unwrap();
            watch(&mut keeper, reactor).unwrap();
            pool.idle.insert(keeper.pid(), keeper.into());
        }
        pool
    }

    /// A pool of two keepers, one with a PMIx server, and the server's directory. The server's program is here the
    /// test's own, which is no server and exits by itself.
    fn pool_with_standby(name: &str, reactor: &Reactor) -> (KeeperPool, PathBuf) {
        let mut pool = idle(2, reactor);
        let server = StandbyServer::like(&plan(&format!("wireup-{}-{name}", std::process::id()))).unwrap();
        let directory = server.directory();
        pool.start_standby(&mut Some(server), Keeper::fork, reactor);
        assert!(directory.exists() && pool.idle.values().filter(|idle| idle.server.is_some()).count() == 1);
        (pool, directory)
    }

    fn settle(pool: &mut KeeperPool, idle: usize, reactor: &mut Reactor) {
        while pool.idle.len() != idle || pool.idle.values().any(|idle| idle.server.is_some()) {
            turn(pool, reactor);
        }
    }

    fn turn(pool: &mut KeeperPool, reactor: &mut Reactor) {
        for event in reactor.wait(None).unwrap().to_vec() {
            if let Some(Token::IdleKeeper(pid)) = Token::unpack(event.token) {
                pool.on_event(pid, reactor);
            }
        }
    }

    /// Takes a keeper from the pool for a job in this kernel session, or forks one.
    fn keeper(pool: &mut KeeperPool, session: KernelSession, reactor: &Reactor) -> Keeper {
        let mut keeper = pool.take_keeper(session, reactor).map_or_else(|| Keeper::fork().unwrap(), |idle| idle.keeper);
        keeper.begin_kernel_session(session);
        keeper
    }

    /// Gives the keeper of a job that has ended back to the pool, and waits until the keeper is idle.
    fn renew(pool: &mut KeeperPool, keeper: Keeper, reactor: &mut Reactor) {
        pool.renew(keeper, reactor);
        while !pool.renewing.is_empty() {
            turn(pool, reactor);
        }
    }

    /// Runs jobs at the same time, one for each kernel session in `jobs`. Returns the pids of their keepers, which are
    /// idle again.
    fn serve(pool: &mut KeeperPool, jobs: &[KernelSession], reactor: &mut Reactor) -> Vec<u32> {
        let keepers: Vec<Keeper> = jobs.iter().map(|session| keeper(pool, *session, reactor)).collect();
        let pids = keepers.iter().map(Keeper::pid).collect();
        for keeper in keepers {
            pool.renew(keeper, reactor);
        }
        while !pool.renewing.is_empty() {
            turn(pool, reactor);
            assert!(pool.idle.len() <= IDLE_MAX);
        }
        pids
    }

    fn count(pool: &KeeperPool, session: Option<KernelSession>) -> usize {
        pool.idle.values().filter(|idle| idle.keeper.kernel_session() == session).count()
    }

    fn end(pool: KeeperPool, reactor: &Reactor) {
        pool.into_keepers(reactor).for_each(|keeper| drop(keeper.close()));
    }

    #[test]
    fn a_keeper_whose_server_has_ended_cleans_up_and_is_idle_again() {
        let mut reactor = Reactor::new().unwrap();
        let (mut pool, directory) = pool_with_standby("ended", &reactor);
        settle(&mut pool, 2, &mut reactor);
        assert!(!directory.exists());
        end(pool, &reactor);
    }

    #[test]
    fn nothing_is_left_of_a_server_whose_keeper_is_killed() {
        let mut reactor = Reactor::new().unwrap();
        let (mut pool, directory) = pool_with_standby("killed", &reactor);
        let (&pid, _) = pool.idle.iter().find(|(_, idle)| idle.server.is_some()).unwrap();
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        settle(&mut pool, 1, &mut reactor);
        while leaving::pids().contains(&pid) {
            leaving::look();
        }
        assert!(!directory.exists());
        end(pool, &reactor);
    }

    #[test]
    fn only_jobs_that_may_use_it_get_the_keeper_with_a_server() {
        let reactor = Reactor::new().unwrap();
        let (mut pool, directory) = pool_with_standby("apart", &reactor);
        let plain = pool.take_keeper(Agents, &reactor).expect("there are two keepers");
        assert!(plain.server.is_none() && pool.take_keeper(Agents, &reactor).is_none());
        assert!(pool.take_with_standby(Own, &reactor).is_none());
        let with = pool.take_with_standby(Agents, &reactor).expect("the other one");
        assert!(with.server.is_some() && pool.take_with_standby(Agents, &reactor).is_none());
        [plain, with].into_iter().for_each(|idle| drop(idle.into_keeper().close()));
        assert!(!directory.exists());
    }

    #[test]
    fn a_keeper_serves_only_jobs_in_the_kernel_session_that_it_has_begun() {
        let mut reactor = Reactor::new().unwrap();
        let mut pool = idle(2, &reactor);
        let own = serve(&mut pool, &[Own], &mut reactor);
        assert_eq!(serve(&mut pool, &[Own], &mut reactor), own, "the other one has begun none yet");
        let agents = serve(&mut pool, &[Agents], &mut reactor);
        assert_ne!(agents, own);
        for _ in 0..2 {
            assert_eq!(serve(&mut pool, &[Agents], &mut reactor), agents);
            assert_eq!(serve(&mut pool, &[Own], &mut reactor), own);
        }
        let both = serve(&mut pool, &[Own, Own], &mut reactor);
        assert!(both[0] == own[0] && both[1] != agents[0], "one is forked");
        assert_eq!([None, Some(Own), Some(Agents)].map(|session| count(&pool, session)), [0, 2, 1]);
        end(pool, &reactor);
    }

    #[test]
    fn bursts_of_both_kinds_leave_few_keepers_of_each() {
        let mut reactor = Reactor::new().unwrap();
        let mut pool = KeeperPool::default();
        let pids = serve(&mut pool, &[Own; IDLE_MAX + 3], &mut reactor);
        assert_eq!((pids.len(), count(&pool, Some(Own))), (IDLE_MAX + 3, IDLE_MAX));
        serve(&mut pool, &[Agents; IDLE_MAX + 3], &mut reactor);
        assert_eq!([Own, Agents].map(|session| count(&pool, Some(session))), [IDLE_MAX / 2; 2]);
        pool.trim(2, &reactor);
        assert_eq!([Own, Agents].map(|session| count(&pool, Some(session))), [1; 2]);
        end(pool, &reactor);
    }

    #[test]
    fn one_keeper_without_a_job_keeps_imported_modules_and_gets_the_next_job() {
        let mut reactor = Reactor::new().unwrap();
        let mut pool = KeeperPool::default();
        let folder = tempfile::tempdir().unwrap();
        let mut keepers = [(); 4].map(|()| keeper(&mut pool, Agents, &reactor));
        for i in [1, 2] {
            import(&mut keepers[i], folder.path());
        }
        let pids = keepers.each_ref().map(Keeper::pid);
        for keeper in keepers {
            renew(&mut pool, keeper, &mut reactor);
        }
        assert_eq!(pids.map(|pid| pool.idle[&pid].keeper.keeps_importer()), [false, true, false, false]);
        pool.trim(1, &reactor);
        assert_eq!(serve(&mut pool, &[Agents], &mut reactor), [pids[1]]);
        let server = StandbyServer::like(&plan(&format!("wireup-{}-importer", std::process::id()))).unwrap();
        pool.start_standby(&mut Some(server), Keeper::fork, &reactor);
        assert_ne!(pool.with_standby(), Some(pids[1]));
        end(pool, &reactor);
    }

    #[test]
    fn a_job_waits_for_a_keeper_with_imported_modules_whose_job_has_just_ended() {
        let mut reactor = Reactor::new().unwrap();
        let mut pool = idle(1, &reactor);
        let folder = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::fork().unwrap();
        keeper.begin_kernel_session(Agents);
        let pid = keeper.pid();
        watch(&mut keeper, &reactor).unwrap();
        keeper.request(&importing(folder.path()));
        keeper.send(&reactor);
        let mut events = Vec::new();
        while !events.iter().any(|event| matches!(event, KeeperEvent::Started { .. })) {
            reactor.wait(None).unwrap();
            assert!(keeper.take_events(&mut events, &reactor));
        }
        pool.renew(keeper, &reactor);
        for _ in 0..3 {
            let idle = pool.take_keeper(Agents, &reactor).expect("there are two keepers");
            assert!(idle.keeper.pid() == pid && idle.keeper.keeps_importer());
            pool.renew(idle.keeper, &reactor);
        }
        end(pool, &reactor);
    }

    #[test]
    fn jobs_wait_only_once_for_a_keeper_that_does_not_get_ready() {
        let mut reactor = Reactor::new().unwrap();
        let mut pool = KeeperPool::default();
        let folder = tempfile::tempdir().unwrap();
        let mut stopped = keeper(&mut pool, Agents, &reactor);
        import(&mut stopped, folder.path());
        renew(&mut pool, stopped, &mut reactor);
        let stopped = keeper(&mut pool, Agents, &reactor);
        let process = Pid::from_raw(stopped.pid() as i32).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        let since = Instant::now();
        pool.renew(stopped, &reactor);
        assert!(pool.take_keeper(Own, &reactor).is_none() && pool.take_with_standby(Agents, &reactor).is_none());
        assert!(pool.take_keeper(Agents, &reactor).is_none());
        assert!(since.elapsed() >= Duration::from_nanos(IMPORTER_NS_MAX), "{:?}", since.elapsed());
        assert!(pool.next_importer(Agents).is_none() && pool.take_keeper(Agents, &reactor).is_none());
        kill_process(process, Signal::CONT).unwrap();
        end(pool, &reactor);
    }

    #[test]
    fn a_server_is_started_by_a_keeper_of_the_same_kind() {
        let mut reactor = Reactor::new().unwrap();
        let mut pool = KeeperPool::default();
        let own = serve(&mut pool, &[Own; 2], &mut reactor);
        let server = StandbyServer::like(&plan(&format!("wireup-{}-kind", std::process::id()))).unwrap();
        pool.start_standby(&mut Some(server), Keeper::fork, &reactor);
        let with_standby = pool.with_standby().expect("one is forked");
        assert!(!own.contains(&with_standby) && pool.idle[&with_standby].keeper.kernel_session() == Some(Agents));
        end(pool, &reactor);
    }
}
