//! The jobs that have ranks on this node, and the resources that they share: keepers, memory, reserved ports, sockets
//! of stores, the lowered CPU weight of jobs that wait for spawned ones, and the search for orphans of killed keepers.
//!
//! A slot is the job's short name in the reactor's tokens: a session may see more jobs than tokens have bits for. A
//! slot is not reused before all others have been used.

use super::keepers::Keepers;
use super::memory::RankMemory;
use super::orphans::Orphans;
use super::parent_weight::ParentWeight;
use super::rank_ports::ReservedPorts;
use super::ranks::JobRanks;
use super::shells::in_words;
use super::stores::Stores;
use super::token::{JobSlot, Token};
use super::turn::Turn;
use crate::binding;
use crate::keeper::{Keeper, forker, leaving};
use crate::remedy::spawn_error;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use wireup_os::clock::monotonic_ns;
use wireup_os::local::{self, Letter};
use wireup_os::process;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket::NoRow;
use wireup_proto::io::{Input, JobEvent, KernelSession, PmixPlan, SpawnPlan};
use wireup_wire::ids::JobId;
use wireup_wire::job::{PortRange, RankPorts};
use wireup_wire::peer::{Lacking, SpawnError, SpawnStep};
use wireup_wire::secondary_client::{Answer, HELLO_LEN_MAX, Hello};

pub struct LocalJobs {
    /// Number of CPUs that ranks on this node may use.
    cpus: usize,
    pub jobs: Jobs,
    pub secondary_clients: SecondaryClientSocket,
    /// Keepers without a job, and where keepers for new jobs come from.
    pub keepers: Keepers,
    /// Memory that ranks map.
    pub memory: RankMemory,
    /// Ports that are reserved for the ranks of later jobs.
    pub rank_ports: ReservedPorts,
    /// Sockets of stores for PyTorch.
    pub stores: Stores,
    pub parent_weight: ParentWeight,
    orphans: Orphans,
}

impl LocalJobs {
    pub fn new(keepers: Keepers) -> LocalJobs {
        LocalJobs {
            cpus: wireup_os::bind::allowed().map_or(1, |cpus| cpus.len()),
            jobs: Jobs::default(),
            secondary_clients: SecondaryClientSocket::default(),
            keepers,
            memory: RankMemory::default(),
            rank_ports: ReservedPorts::default(),
            stores: Stores::default(),
            parent_weight: ParentWeight::default(),
            orphans: Orphans::default(),
        }
    }

    /// Starts the ranks of a job. `own_devices`: whether they use the GPUs that this process was given.
    pub fn spawn(&mut self, plan: &SpawnPlan, own_devices: bool, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let job = plan.job;
        if !plan.shares_machine {
            // The agent gets the same short time slice as its ranks, which would otherwise preempt it just when it
            // answers them.
            process::shorten_slice();
        }
        let ranks = self.jobs.ranks_of(job, plan.kernel_session, &mut self.keepers, reactor);
        let spawned = ranks.and_then(|ranks| {
            let lacking = ranks.lacks_namespace.then_some(JobEvent::RanksLack { what: Lacking::Namespace });
            let picture = plan.report_bindings.then(|| binding::picture_of(plan)).flatten();
            let bound = picture.map(|picture| JobEvent::RanksBound { picture });
            inputs.extend(lacking.into_iter().chain(bound).map(|event| Input::Job { job, event }));
            ranks.spawn(plan, own_devices, self.secondary_clients.name(reactor), reactor)?;
            Ok(ranks.pmix.as_mut().and_then(|pmix| pmix.next.take()))
        });
        match spawned {
            Ok(next) => {
                next.into_iter().for_each(|server| self.keepers.plan_standby(job, server));
                self.lower_parent_weight(plan);
            }
            Err(error) => inputs.extend(plan.ranks.iter().map(|rank| Input::Job {
                job,
                event: JobEvent::RankStarted { local: rank.local, result: Err(error.clone()) },
            })),
        }
    }

    /// Lowers the CPU weight of the ranks that have spawned a job until that job has started, if there are more ranks
    /// on this node than CPUs.
    fn lower_parent_weight(&mut self, plan: &SpawnPlan) {
        let parent = self
            .parent_weight
            .parents
            .get(&plan.job)
            .and_then(|job| self.jobs.by_id.get(job))
            .map(|ranks| &ranks.keeper);
        let parent = parent.filter(|keeper| keeper.kernel_session() == Some(KernelSession::Own));
        let ranks: usize = self.jobs.by_id.values().map(JobRanks::len).sum();
        // Where nodes share a machine, each rank has its own scheduling group, so the job has no group whose weight
        // could be lowered.
        if let Some(keeper) = parent.filter(|keeper| keeper.lost().is_none() && !plan.shares_machine)
            && ranks > self.cpus
        {
            self.parent_weight.lower(plan.job, keeper.pid(), monotonic_ns());
        }
    }

    pub fn start_pmix(&mut self, plan: &PmixPlan, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let ranks = self.jobs.ranks_of(plan.job, plan.kernel_session, &mut self.keepers, reactor);
        if let Err(error) = ranks.and_then(|ranks| ranks.start_pmix(plan, reactor)) {
            inputs.push(Input::Job { job: plan.job, event: JobEvent::PmixGone { end: Err(in_words(error)) } });
        }
    }

    /// Gets listening or bound sockets for a job's ranks; returns the port of the first rank. `base`: the lowest of the
    /// reserved ports to use; `None`: binds sockets to free ports.
    ///
    /// # Errors
    /// No keeper for the job can be obtained, or the range has too few consecutive free ports.
    pub fn sockets_for_ranks(
        &mut self,
        job: JobId,
        session: KernelSession,
        count: u32,
        ports: RankPorts,
        base: Option<u16>,
        reactor: &Reactor,
    ) -> Result<u16, SpawnError> {
        let PortRange { low, high } = ports.range;
        let kind = if ports.listen { "listening" } else { "bound" };
        let failed = |what: String| move |error: io::Error| spawn_error(SpawnStep::Sockets, what, &error);
        let ranks = self.jobs.ranks_of(job, session, &mut self.keepers, reactor)?;
        match base {
            None => ranks.sockets.bind(job, count, ports).map_err(|NoRow { port, error }| {
                let at = port.map(|port| format!(" (port {port} is not free)")).unwrap_or_default();
                failed(format!("{count} {kind} sockets on consecutive ports of {low}-{high}{at}"))(error)
            }),
            Some(base) => {
                let sockets = self.rank_ports.take_sockets(base, count);
                sockets
                    .and_then(|sockets| ranks.sockets.use_reserved(base, sockets))
                    .map_err(failed(format!("{count} listening sockets on the session's ports from {base} on")))?;
                Ok(base)
            }
        }
    }

    /// Reserves consecutive ports for the rendezvous of a job's ranks (`MASTER_PORT`); returns the lowest.
    ///
    /// # Errors
    /// No keeper for the job can be obtained, or the range has too few consecutive free ports.
    pub fn reserve_rendezvous(
        &mut self,
        job: JobId,
        session: KernelSession,
        count: u16,
        range: PortRange,
        reactor: &Reactor,
    ) -> Result<u16, SpawnError> {
        let what = format!("{count} consecutive ports of {}-{} for MASTER_PORT", range.low, range.high);
        let ranks = self.jobs.ranks_of(job, session, &mut self.keepers, reactor)?;
        let reserved = ranks.sockets.reserve_rendezvous(job, count, range);
        reserved.map_err(|NoRow { error, .. }| spawn_error(SpawnStep::Sockets, what, &error))
    }

    /// Listens for connections of a job's local ranks to the job's store (PyTorch); returns the port.
    ///
    /// # Errors
    /// No keeper for the job can be obtained, or the store's socket cannot listen.
    pub fn listen_for_store(
        &mut self,
        job: JobId,
        session: KernelSession,
        reactor: &Reactor,
    ) -> Result<u16, SpawnError> {
        let slot = self.jobs.ranks_of(job, session, &mut self.keepers, reactor)?.slot;
        self.stores.listen(job, slot, reactor)
    }

    /// The keeper of the job with this slot has sent something, or has ended.
    pub fn on_keeper(&mut self, slot: JobSlot, turn: &mut Turn<'_>) {
        if let Some(ranks) = self.jobs.at(slot) {
            ranks.on_keeper(turn);
            if ranks.keeper.lost().is_some() {
                self.parent_weight.on_keeper_lost(ranks.keeper.pid());
            }
        }
    }

    /// Frees what a job that has ended used here. `of_shells`: the keeper of the remote shells.
    pub fn on_job_gone(&mut self, job: JobId, of_shells: Option<&Keeper>, reactor: &Reactor) {
        let now_ns = monotonic_ns();
        self.memory.forget(job);
        self.parent_weight.on_started(job, now_ns);
        if self.jobs.by_id.get(&job).is_some_and(|ranks| ranks.keeper.lost().is_some()) {
            self.collect_orphans(now_ns, of_shells);
        }
        if let Some(mut ranks) = self.jobs.remove(&job) {
            self.stores.forget(ranks.slot, reactor);
            if let Some((first, sockets)) = ranks.sockets.reserved.take() {
                self.rank_ports.close(job, first, sockets);
            }
            self.parent_weight.on_parent_over(ranks.keeper.pid(), now_ns);
            self.keepers.give_back(job, ranks.keeper, reactor);
        } else {
            self.keepers.leave(job, reactor);
        }
        self.keepers.on_job_over();
    }

    /// Call it when a job whose keeper was killed has ended: its orphans are now descendants of this process, which is
    /// a subreaper, and are searched for.
    fn collect_orphans(&mut self, now_ns: u64, of_shells: Option<&Keeper>) {
        let keepers = self.jobs.by_id.values().map(|ranks| &ranks.keeper).chain(of_shells);
        if let Some(since) = keepers.filter_map(Keeper::lost).min() {
            self.orphans.on_keepers_lost(since, now_ns);
            self.look_for_orphans(now_ns, of_shells);
        }
    }

    fn look_for_orphans(&mut self, now_ns: u64, of_shells: Option<&Keeper>) {
        if self.orphans.deadline_ns().is_some() {
            // A dying keeper's socket closes before its children are reparented to this process: until then they are
            // the keeper's descendants.
            let keepers = self.jobs.by_id.values().map(|ranks| &ranks.keeper).chain(of_shells);
            let living = keepers.filter(|keeper| keeper.lost().is_none()).map(Keeper::pid);
            let living: Vec<u32> =
                living.chain(self.keepers.pids()).chain(forker::pid()).chain(leaving::pids()).collect();
            self.orphans.look(now_ns, &living);
        }
    }

    /// When `on_tick` is due.
    pub fn deadline_ns(&self) -> Option<u64> {
        let own = [
            self.keepers.deadline_ns(),
            self.orphans.deadline_ns(),
            self.parent_weight.deadline_ns(),
            leaving::deadline_ns(),
            self.stores.deadline_ns(),
        ];
        self.jobs.by_id.values().filter_map(JobRanks::deadline_ns).chain(own.into_iter().flatten()).min()
    }

    /// Handles deadlines that have passed.
    pub fn on_tick(&mut self, of_shells: Option<&Keeper>, turn: &mut Turn<'_>) {
        self.jobs.by_id.values_mut().for_each(|ranks| ranks.on_tick(turn));
        self.keepers.on_tick(turn.now_ns, turn.reactor);
        self.parent_weight.on_tick(turn.now_ns);
        leaving::look();
        self.stores.on_tick(turn);
        self.look_for_orphans(turn.now_ns, of_shells);
    }

    /// Writes the queued requests to the keepers.
    pub fn flush_keepers(&mut self, reactor: &Reactor) {
        self.jobs.by_id.values_mut().for_each(|ranks| ranks.keeper.send(reactor));
    }

    /// Ends all keepers and the processes that they have started, and waits until all of them are gone.
    pub fn end(mut self, of_shells: Option<Keeper>, reactor: &Reactor) {
        let first = self.keepers.first.take();
        let LocalJobs { jobs, keepers, orphans, .. } = self;
        let jobs = jobs.by_id.into_values().map(|ranks| ranks.keeper.unwatched(reactor));
        let keepers: Vec<Keeper> = keepers.into_keepers(jobs, reactor).chain(of_shells).collect();
        forker::end();
        keepers.into_iter().for_each(Keeper::leave);
        leaving::end();
        orphans.end();
        // When the first process of the shared PID namespace ends, the kernel kills what killed keepers left in the
        // namespace.
        let _ = first.map(Keeper::close);
    }
}

#[derive(Default)]
pub struct Jobs {
    pub by_id: BTreeMap<JobId, JobRanks>,
    slots: BTreeMap<JobSlot, JobId>,
    next: JobSlot,
}

impl Jobs {
    /// Calls `act` with the ranks of a job, if the job has any on this node.
    pub fn with(&mut self, job: JobId, act: impl FnOnce(&mut JobRanks)) {
        self.by_id.get_mut(&job).map(act);
    }

    /// The ranks of the job that has this slot; `None`: the job has ended on this node.
    pub fn at(&mut self, slot: JobSlot) -> Option<&mut JobRanks> {
        self.by_id.get_mut(self.slots.get(&slot)?)
    }

    /// Calls `act` with the ranks of the job that has this slot, if the job is still on this node.
    pub fn with_at(&mut self, slot: JobSlot, act: impl FnOnce(&mut JobRanks)) {
        self.at(slot).map(act);
    }

    /// The ranks of a job. A job that is not in the table yet is added, with a keeper in this kernel session.
    pub fn ranks_of(
        &mut self,
        job: JobId,
        session: KernelSession,
        keepers: &mut Keepers,
        reactor: &Reactor,
    ) -> Result<&mut JobRanks, SpawnError> {
        if !self.by_id.contains_key(&job) {
            while self.slots.contains_key(&self.next) {
                self.next = self.next.following();
            }
            let ranks = JobRanks::new(job, self.next, session, keepers, reactor)?;
            self.slots.insert(self.next, job);
            self.next = self.next.following();
            self.by_id.insert(job, ranks);
        }
        Ok(self.by_id.get_mut(&job).expect("it was there or has just been inserted"))
    }

    pub fn remove(&mut self, job: &JobId) -> Option<JobRanks> {
        let ranks = self.by_id.remove(job)?;
        self.slots.remove(&ranks.slot);
        Some(ranks)
    }
}

/// The beginning of the socket's name.
const KIND: &[u8] = b"wireup-further-";
/// Maximum number of datagrams handled in one turn of the event loop, so that a busy sender does not delay others.
/// Chosen: as many as the kernel lets wait by default.
const LETTERS_PER_TURN: usize = 10;

/// The socket at which secondary clients (PMI libraries in a rank, other than the one that has the inherited socket)
/// connect: the client sends a datagram, and the answer carries its end of a new pair of sockets.
///
/// The socket's name is in the environment of ranks. Any process of this machine (in the same network namespace) can
/// send to it; only processes of this process's user are answered. So a client can connect as any rank of that user's
/// jobs on this node, which may trace each other's memory anyway.
#[derive(Default)]
pub struct SecondaryClientSocket {
    mailbox: Option<(OwnedFd, String)>,
}

impl SecondaryClientSocket {
    /// The socket's name; the first call makes the socket. `None`: the system has no room for the socket, and no
    /// secondary client can connect.
    pub fn name(&mut self, reactor: &Reactor) -> Option<&str> {
        if self.mailbox.is_none() {
            let (socket, name) = local::mailbox(KIND).ok()?;
            reactor.add(&socket, Token::SecondaryClients.pack(), Interest::READABLE).ok()?;
            self.mailbox = Some((socket, String::from_utf8(name).ok()?));
        }
        self.mailbox.as_ref().map(|(_, name)| name.as_str())
    }

    /// The socket is readable.
    pub fn on_event(&self, jobs: &mut Jobs, turn: &mut Turn<'_>) {
        let Some((socket, _)) = &self.mailbox else { return };
        // One byte more than the longest datagram, so that a longer one is noticed.
        let mut bytes = [0; HELLO_LEN_MAX + 1];
        for _ in 0..LETTERS_PER_TURN {
            let letter = match local::receive_letter(socket, &mut bytes) {
                Ok(letter) => letter,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => continue,
            };
            let hello = Hello::decode(&bytes[..letter.bytes]).filter(|_| is_own(&letter));
            let Some(hello) = hello else { continue };
            let joined = match jobs.by_id.get_mut(&hello.job) {
                Some(ranks) => ranks.clients.on_hello(&hello, turn),
                None => Err(Answer::NoRank),
            };
            // An error is ignored: a client that does not get its end of the pair cannot use it, and both ends are
            // closed.
            let _ = match &joined {
                Ok(far) => local::answer_letter(socket, &letter, &[Answer::Joined.encode()], &[far.as_fd()]),
                Err(answer) => local::answer_letter(socket, &letter, &[answer.encode()], &[]),
            };
        }
    }
}

fn is_own(letter: &Letter) -> bool {
    letter.user == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_slot_in_use_is_not_given_to_another_job() {
        let reactor = Reactor::new().unwrap();
        let (mut jobs, mut keepers) = (Jobs { next: JobSlot::LAST, ..Jobs::default() }, Keepers::default());
        for job in [7, 1 << 25, 3] {
            jobs.ranks_of(JobId(job), KernelSession::Own, &mut keepers, &reactor).unwrap();
        }
        let slots: Vec<JobSlot> = jobs.by_id.values().map(|ranks| ranks.slot).collect();
        assert_eq!(slots, [JobSlot(1), JobSlot::LAST, JobSlot(0)]);
        jobs.next = JobSlot::LAST;
        assert_eq!(jobs.ranks_of(JobId(9), KernelSession::Own, &mut keepers, &reactor).unwrap().slot, JobSlot(2));
        let gone = jobs.remove(&JobId(7)).expect("the job was there");
        assert!(gone.slot == JobSlot::LAST && jobs.at(JobSlot::LAST).is_none() && jobs.at(JobSlot(0)).is_some());
        jobs.by_id.into_values().chain([gone]).for_each(|ranks| {
            let _ = ranks.keeper.unwatched(&reactor).close();
        });
    }
}
