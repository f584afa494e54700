//! Lowers the scheduling weight of a job whose ranks have spawned another one, where CPUs are short, until the new
//! ranks have started.
//!
//! Ranks poll while they wait for the new ones. Each job is a scheduling group of its own (`keeper`), so half of the
//! CPUs would go to ranks that have nothing to do before the new ones have loaded their libraries. So the group of the
//! parent job gets a third of the usual weight from the start of the new job until a rank of that job on this node
//! connects with it.
//!
//! If the weight is not lowered, `MPI_Comm_spawn` of four children by four ranks of MPICH 5 takes 1.19 times as long
//! (1.08 to 1.56, 431 instead of 333 ms, 1.20 times the processor time), next to two busy loops 1.08 times (1.02 to
//! 1.15): `wireup bench spawn --part call --mpi mpich --pause 0` on 2 CPUs, medians of 30 and 20 interleaved pairs of
//! jobs, with 95 % intervals; compilers ran at a lower priority.
//!
//! Jobs with a PMIx server share their agent's group (`keeper`), and keep their weight.
//!
//! The niceness of each process could not be used: users may raise it, but not lower it again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use wireup_os::process::set_group_nice;
use wireup_wire::ids::JobId;

/// Niceness that gives a third of the usual weight. Chosen: with less weight, ranks of MPICH need longer to accept the
/// connection.
const NICE: i32 = 5;
/// Longest time for which the weight stays lowered (ns), for spawned programs that never connect to their parent.
/// Chosen: longer than programs need to load their libraries.
const LOWERED_NS_MAX: u64 = 2_000_000_000;
/// Pause before a change of weight that the kernel has refused temporarily is tried again (ns).
const RETRY_NS: u64 = 100_000_000;

pub struct ParentWeight {
    /// The parent job of each spawned job.
    pub parents: BTreeMap<JobId, JobId>,
    /// The spawned jobs that are being started, each with the latest time at which its parent job gets the usual weight
    /// again (ns).
    until_ns: BTreeMap<JobId, u64>,
    /// The keepers whose group has less weight, each with the spawned jobs that its ranks wait for. Without jobs: the
    /// usual weight is to be restored.
    lowered: BTreeMap<u32, BTreeSet<JobId>>,
    retry_ns: Option<u64>,
    set_nice: fn(u32, i32) -> io::Result<()>,
}

impl Default for ParentWeight {
    fn default() -> Self {
        ParentWeight {
            parents: BTreeMap::new(),
            until_ns: BTreeMap::new(),
            lowered: BTreeMap::new(),
            retry_ns: None,
            set_nice: set_group_nice,
        }
    }
}

impl ParentWeight {
    /// Lowers the weight of this keeper's ranks, which have spawned `job`, until that job has started.
    pub fn lower(&mut self, job: JobId, keeper: u32, now_ns: u64) {
        // If the kernel refuses to lower the weight, the only effect is that the new job starts more slowly.
        if self.lowered.contains_key(&keeper) || (self.set_nice)(keeper, NICE).is_ok() {
            self.lowered.entry(keeper).or_default().insert(job);
            self.until_ns.insert(job, now_ns + LOWERED_NS_MAX);
        }
    }

    /// The ranks of the parent job no longer wait for the spawned job: it has connected to them, or has ended.
    pub fn on_started(&mut self, job: JobId, now_ns: u64) {
        self.parents.remove(&job);
        if self.until_ns.remove(&job).is_some() {
            for jobs in self.lowered.values_mut() {
                jobs.remove(&job);
            }
            self.restore(now_ns);
        }
    }

    /// Call it when the job of a keeper has ended: the keeper's group gets the usual weight again.
    pub fn on_parent_over(&mut self, keeper: u32, now_ns: u64) {
        if let Some(jobs) = self.lowered.get_mut(&keeper) {
            jobs.clear();
            self.restore(now_ns);
        }
    }

    /// A keeper has ended; its pid may soon be that of another process.
    pub fn on_keeper_lost(&mut self, keeper: u32) {
        self.lowered.remove(&keeper);
    }

    fn restore(&mut self, now_ns: u64) {
        let is_refused = |keeper| {
            let never = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
            (self.set_nice)(keeper, 0).is_err_and(|error| !never.contains(&error.kind()))
        };
        self.lowered.retain(|keeper, jobs| !jobs.is_empty() || is_refused(*keeper));
        let again = self.lowered.values().any(BTreeSet::is_empty);
        self.retry_ns = again.then_some(now_ns + RETRY_NS);
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.until_ns.values().copied().chain(self.retry_ns).min()
    }

    pub fn on_tick(&mut self, now_ns: u64) {
        let over: Vec<JobId> =
            self.until_ns.iter().filter(|(_, until)| **until <= now_ns).map(|(job, _)| *job).collect();
        over.into_iter().for_each(|job| self.on_started(job, now_ns));
        if self.retry_ns.is_some_and(|at| at <= now_ns) {
            self.restore(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::{Batch, Keeper, Process, Program, Request};
    use std::cell::RefCell;
    use wireup_proto::io::KernelSession;

    thread_local! {
        static SET: RefCell<Vec<(u32, i32)>> = const { RefCell::new(Vec::new()) };
        static REFUSES: RefCell<bool> = const { RefCell::new(false) };
    }

    fn noted() -> ParentWeight {
        let set_nice = |keeper, nice| match REFUSES.with_borrow(|refuses| *refuses) {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => {
                SET.with_borrow_mut(|set| set.push((keeper, nice)));
                Ok(())
            }
        };
        ParentWeight { set_nice, ..ParentWeight::default() }
    }

    fn taken() -> Vec<(u32, i32)> {
        SET.with_borrow_mut(std::mem::take)
    }

    #[test]
    fn a_group_has_its_weight_again_when_the_last_job_that_it_waits_for_has_started() {
        let mut weight = noted();
        weight.lower(JobId(2), 10, 0);
        weight.lower(JobId(3), 10, 5);
        weight.lower(JobId(4), 11, 6);
        assert_eq!(taken(), [(10, NICE), (11, NICE)]);
        weight.on_started(JobId(2), 10);
        assert_eq!(taken(), []);
        weight.on_started(JobId(4), 10);
        assert_eq!(taken(), [(11, 0)]);
        weight.on_started(JobId(4), 10);
        assert_eq!(weight.deadline_ns(), Some(5 + LOWERED_NS_MAX));
        weight.on_tick(5 + LOWERED_NS_MAX);
        assert_eq!((taken(), weight.deadline_ns()), (vec![(10, 0)], None));
        weight.lower(JobId(5), 10, 20);
        weight.on_parent_over(10, 21);
        assert_eq!(taken(), [(10, NICE), (10, 0)]);
        weight.on_started(JobId(5), 22);
        assert_eq!((taken(), weight.deadline_ns()), (vec![], None));
        weight.lower(JobId(6), 12, 30);
        weight.on_keeper_lost(12);
        weight.on_started(JobId(6), 31);
        assert_eq!(taken(), [(12, NICE)], "the process is gone");
    }

    #[test]
    fn what_the_kernel_refuses_for_now_is_tried_again() {
        let mut weight = noted();
        weight.lower(JobId(2), 10, 0);
        REFUSES.set(true);
        weight.on_started(JobId(2), 1);
        assert_eq!(weight.deadline_ns(), Some(1 + RETRY_NS));
        weight.on_tick(1 + RETRY_NS);
        REFUSES.set(false);
        weight.on_tick(1 + 2 * RETRY_NS);
        assert_eq!((taken(), weight.deadline_ns()), (vec![(10, NICE), (10, 0)], None));
        REFUSES.set(true);
        weight.lower(JobId(3), 11, 0);
        assert_eq!(weight.deadline_ns(), None, "a group that could not be lowered");
    }

    #[test]
    fn a_keepers_group_gets_another_weight_and_its_own_again() {
        let mut keeper = Keeper::fork().unwrap();
        let file = format!("/proc/{}/autogroup", keeper.pid());
        // When the keeper answers, it leads a kernel session, and so a scheduling group, of its own.
        let program = Program { argv: vec![b"/bin/true".to_vec()], cwd: Vec::new(), env: Vec::new() };
        let (programs, processes) = (vec![program], vec![Process::new(0)]);
        let batch = Batch { programs, processes, umask: 0o022, ..Batch::default() };
        keeper.begin_kernel_session(KernelSession::Own);
        keeper.request(&Request::Spawn(batch));
        keeper.flush().unwrap();
        assert!(wireup_os::socket::wait(keeper.fd(), true, false, None).unwrap());
        let Ok(usual) = std::fs::read_to_string(&file) else { return keeper.close().unwrap() };
        assert!(usual.trim().ends_with(" nice 0"), "{usual}");
        let nice = || std::fs::read_to_string(&file).unwrap().trim().rsplit(' ').next().map(str::to_owned);
        let mut weight = ParentWeight::default();
        // The kernel refuses to change a group's weight shortly after that of any group was changed.
        for _ in 0..100 {
            weight.lower(JobId(1), keeper.pid(), 0);
            if !weight.lowered.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(nice(), Some(NICE.to_string()));
        weight.on_started(JobId(1), 0);
        while let Some(now_ns) = weight.deadline_ns() {
            std::thread::sleep(std::time::Duration::from_nanos(RETRY_NS));
            weight.on_tick(now_ns);
        }
        assert_eq!(nice(), Some("0".to_owned()));
        keeper.close().unwrap();
    }
}
