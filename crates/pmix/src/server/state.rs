//! State shared by upcalls and answers: one server per process, because the library's upcalls pass no pointer of ours.

use super::tickets::Tickets;
use crate::infos::{Infos, proc_name};
use crate::library::Library;
use crate::outbox::{DATA_LEN_MAX, Outbox};
use crate::read::text_in;
use crate::sys::constants::{rank, status};
use crate::sys::types::{InfoCallback, LookupCallback, ModexCallback, OpCallback, PmixProc, SpawnCallback, Status};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CString, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::Rank;
use wireup_wire::limits::PMIX_TIMER_LEAD_NS;
use wireup_wire::names;
use wireup_wire::pmix::{Ask, Begin, FromServer, Set};

/// The only server of this process. `SERVER` is set before a client is registered, so before the library can call us.
pub static SERVER: OnceLock<Server> = OnceLock::new();

pub struct Server {
    pub library: Library,
    pub outbox: Outbox,
    pub job: Job,
    /// Whether the agent has been told that ranks of this node may be waiting for events.
    pub watches: AtomicBool,
    /// Other jobs that were registered with the library.
    pub others: Others,
    asked: Mutex<PendingRequests>,
    requests: Mutex<Tickets>,
}

/// The names of other jobs that were registered with the library.
#[derive(Default)]
pub struct Others(Mutex<HashSet<String>>);

impl Others {
    pub fn has(&self, nspace: &str) -> bool {
        self.lock().contains(nspace)
    }

    pub fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The job of this server.
pub struct Job {
    pub begin: Begin,
    pub size: u32,
    pub mapping: Mapping,
}

impl Job {
    /// # Errors
    /// The description contradicts itself.
    pub fn new(begin: Begin) -> Result<Job, String> {
        let size = begin.apps.iter().map(|app| app.ranks).sum();
        let mapping = Mapping::new(&begin.blocks, size, begin.nodes.len() as u32).map_err(|error| error.to_string())?;
        match begin.nodes.get(begin.node.index()) {
            Some(_) => Ok(Job { begin, size, mapping }),
            None => Err(format!("node {} of {}", begin.node, begin.nodes.len())),
        }
    }

    /// The ranks on this node.
    pub fn locals(&self) -> impl Iterator<Item = Rank> + '_ {
        self.mapping.ranks_of(self.begin.node)
    }
}

/// The directory in which ranks create their own directories. This directory is separate from the files that server and
/// ranks share: version 4 of the library removes the whole directory when the first rank of the node finalizes, while
/// other ranks still use their own directories in it.
pub fn ranks_directory(directory: &str) -> String {
    format!("{directory}/ranks")
}

/// Maximum number of requests that wait for the agent at once. Chosen: some hundred for each rank of a full node.
const REQUESTS_MAX: usize = 1 << 16;

/// Requests that the agent has not answered yet.
#[derive(Default)]
struct PendingRequests {
    next: u64,
    waiting: HashMap<u64, Waiting>,
    /// The library's tokens of requests for data of other ranks, see [`Server::begins_modex`].
    modex: HashSet<usize>,
}

/// A caller that waits for the agent's answer to a request.
pub enum Waiting {
    Op(Callback<OpCallback>),
    /// `PMIx_Connect` or `PMIx_Disconnect`. `until`: the result of [`Server::awaited_until`].
    Meet {
        callback: Callback<OpCallback>,
        until: Option<Instant>,
    },
    Modex(Callback<ModexCallback>),
    /// Data of another job, with the name of the job if the library does not know it.
    Fetch {
        callback: Callback<ModexCallback>,
        unknown: Option<String>,
    },
    Lookup(Callback<LookupCallback>),
    /// An operation whose callback could return infos, but returns none.
    Control(Callback<InfoCallback>),
    Spawn {
        callback: Callback<SpawnCallback>,
        /// The rank that requests the spawn, if a failure would let other ranks wait forever.
        others_hang: Option<Rank>,
    },
    Group {
        callback: Callback<InfoCallback>,
        members: Members,
        wants_context: bool,
        until: Option<Instant>,
    },
    Query(Query),
}

/// A query in progress.
pub struct Query {
    pub callback: Callback<InfoCallback>,
    /// Keys not answered yet; the last one is next.
    pub open: Vec<CString>,
    pub found: Infos,
    /// Whether some key was unknown.
    pub missed: bool,
}

/// The members of a collective.
#[derive(Clone)]
pub enum Members {
    /// Ranks of this job only.
    Own(Set),
    /// Ranks of several jobs, in ascending order of the jobs' names.
    OfJobs(Vec<(String, Set)>),
}

/// A callback function of the library, with its argument.
pub struct Callback<F> {
    pub function: F,
    pub data: *mut c_void,
}

// SAFETY: the pointer is the library's own token; we only pass it back, on the library's thread.
unsafe impl<F> Send for Callback<F> {}

impl<F> Callback<F> {
    /// A callback of the library; `None`: the library wants no callback.
    pub fn new(function: Option<F>, data: *mut c_void) -> Option<Callback<F>> {
        function.map(|function| Callback { function, data })
    }
}

/// Confirms an operation by a callback after the upcall has returned or, if the library passes no callback, by the
/// upcall's result.
pub fn acknowledge(server: &'static Server, callback: Option<OpCallback>, data: *mut c_void, code: Status) -> Status {
    let Some(callback) = Callback::new(callback, data) else {
        return if code == status::SUCCESS { status::OPERATION_SUCCEEDED } else { code };
    };
    server.on_library_thread(move || callback.op(code));
    status::SUCCESS
}

impl Callback<OpCallback> {
    pub fn op(self, code: Status) {
        // SAFETY: the library's own function and data, used once; this is its thread.
        unsafe { (self.function)(code, self.data) };
    }
}

impl Server {
    pub fn new(library: Library, outbox: Outbox, job: Job) -> Server {
        Server {
            library,
            outbox,
            job,
            watches: AtomicBool::new(false),
            others: Others::default(),
            asked: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    /// Sends a request to the agent and records who waits for its answer. Returns the result of the upcall.
    pub fn ask(&self, ask: Ask, waiting: Waiting) -> Status {
        if data_len(&ask) > DATA_LEN_MAX {
            eprintln!("a rank's data exceed {DATA_LEN_MAX} bytes, the most that one exchange carries");
            return status::OUT_OF_RESOURCE;
        }
        let id = {
            let mut asked = self.asked();
            if asked.waiting.len() >= REQUESTS_MAX {
                return status::OUT_OF_RESOURCE;
            }
            asked.next += 1;
            let id = asked.next;
            asked.waiting.insert(id, waiting);
            id
        };
        if self.outbox.send(&FromServer::Ask { id, ask }) {
            return status::SUCCESS;
        }
        self.asked().waiting.remove(&id);
        status::OUT_OF_RESOURCE
    }

    /// Records a request for data of another rank, which the library identifies by this token. Returns whether the
    /// request is new: when another job is registered, the library repeats its pending requests for that job's ranks
    /// with the same tokens; each request must be answered once.
    pub fn begins_modex(&self, token: *mut c_void) -> bool {
        self.asked().modex.insert(token as usize)
    }

    pub fn ends_modex(&self, token: *mut c_void) {
        self.asked().modex.remove(&(token as usize));
    }

    /// Removes and returns who waits for the answer to a request.
    pub fn answered(&self, id: u64) -> Option<Waiting> {
        self.asked().waiting.remove(&id)
    }

    pub fn requests(&self) -> MutexGuard<'_, Tickets> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, PendingRequests> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a piece of work on the library's thread, after the work queued before it.
    pub fn on_library_thread(&self, work: impl FnOnce() + Send + 'static) {
        let work: Box<Work> = Box::new(Box::new(work));
        let data = Box::into_raw(work).cast::<c_void>();
        // SAFETY: an empty list of resources changes nothing; the library calls `run` once with `data`, on its thread.
        let taken = unsafe { (self.library.functions.register_resources)(std::ptr::null_mut(), 0, Some(run), data) };
        if taken != status::SUCCESS {
            // SAFETY: the library has refused, so no one else owns `data`. The library is shutting down, so no one
            // waits for the work.
            drop(unsafe { Box::from_raw(data.cast::<Work>()) });
        }
    }

    /// The rank of a process, if it belongs to this job.
    pub fn rank_of(&self, proc: &PmixProc) -> Option<Rank> {
        (self.is_ours(proc) && proc.rank < self.job.size).then_some(Rank(proc.rank))
    }

    pub fn is_ours(&self, proc: &PmixProc) -> bool {
        text_in(&proc.nspace).to_bytes() == self.job.begin.nspace.as_bytes()
    }

    pub fn name_of(&self, rank: Rank) -> PmixProc {
        proc_name(&self.job.begin.nspace, rank.0)
    }

    /// The members denoted by a list of processes; `None`: none of the processes is of this job, or a process of this
    /// job does not exist.
    pub fn members_of(&self, procs: &[PmixProc]) -> Option<Members> {
        if procs.iter().all(|proc| self.is_ours(proc)) {
            return self.set_of(procs).map(Members::Own);
        }
        let mut jobs: BTreeMap<&str, (bool, Vec<Rank>)> = BTreeMap::new();
        for proc in procs {
            let (all, ranks) = jobs.entry(text_in(&proc.nspace).to_str().ok()?).or_default();
            match proc.rank {
                rank::WILDCARD => *all = true,
                rank => ranks.push(Rank(rank)),
            }
        }
        jobs.get(self.job.begin.nspace.as_str())?;
        let set = |(all, mut ranks): (bool, Vec<Rank>)| match all {
            true => Set::All,
            false => {
                ranks.sort_unstable();
                ranks.dedup();
                Set::Ranks(ranks)
            }
        };
        Some(Members::OfJobs(jobs.into_iter().map(|(nspace, ranks)| (nspace.to_owned(), set(ranks))).collect()))
    }

    /// The set denoted by a list of processes; `None`: one of the processes is not of this job.
    pub fn set_of(&self, procs: &[PmixProc]) -> Option<Set> {
        if let [one] = procs
            && one.rank == rank::WILDCARD
        {
            return self.is_ours(one).then_some(Set::All);
        }
        let mut ranks = procs.iter().map(|proc| self.rank_of(proc)).collect::<Option<Vec<Rank>>>()?;
        ranks.sort_unstable();
        ranks.dedup();
        Some(Set::Ranks(ranks))
    }

    /// The time after which the library itself may have answered a connect or a group with a time limit, and must not
    /// be called back. The returned time is somewhat early, because the library's timer started before the upcall; the
    /// agent's limit ends still earlier. `None`: never, because the library's timer works only if one rank of this node
    /// takes part.
    pub fn awaited_until(&self, members: &Members, timeout_s: Option<u32>) -> Option<Instant> {
        let seconds = timeout_s.filter(|_| self.local_members(members) == 1)?;
        Some(Instant::now() + before_timer(seconds))
    }

    /// Number of members on this node.
    fn local_members(&self, members: &Members) -> usize {
        let own = match members {
            Members::Own(set) => Some(set),
            Members::OfJobs(jobs) => {
                jobs.iter().find(|(nspace, _)| *nspace == self.job.begin.nspace).map(|(_, set)| set)
            }
        };
        self.job.locals().filter(|rank| own.is_some_and(|set| set.contains(*rank))).count()
    }

    pub fn is_local(&self, rank: Rank) -> bool {
        self.job.mapping.place(rank).is_some_and(|(node, _)| node == self.job.begin.node)
    }
}

/// Time from an upcall until a timer of the library may have expired. `seconds` is at least 1.
fn before_timer(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into()).saturating_sub(Duration::from_nanos(PMIX_TIMER_LEAD_NS / 2))
}

/// The length of a request's variable data, apart from numbers and names.
fn data_len(ask: &Ask) -> usize {
    match ask {
        Ask::Fence { data, .. } | Ask::Group { data, .. } => data.len(),
        Ask::Names { ask: names::Ask::Publish { items, .. }, .. } => {
            items.iter().map(|item| item.name.len() + item.value.len()).sum()
        }
        Ask::Names { ask: names::Ask::LookUp { names, .. } | names::Ask::Withdraw { names, .. }, .. } => {
            names.iter().map(Bytes::len).sum()
        }
        Ask::Names { ask: names::Ask::Spawn(request), .. } => request.len(),
        Ask::Join { joint, .. } => joint.data.len(),
        // Agents send requests of this form only to each other.
        Ask::Names { ask: names::Ask::Join(_) | names::Ask::Fetch(_), .. } | Ask::Fetch(_) => 0,
        Ask::Modex(_) | Ask::ProcTable { .. } | Ask::Namespaces | Ask::Control { .. } => 0,
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// # Safety
/// Called once, with the pointer passed by [`Server::on_library_thread`].
unsafe extern "C" fn run(_: Status, data: *mut c_void) {
    // SAFETY: the caller guarantees it.
    let work = unsafe { Box::from_raw(data.cast::<Work>()) };
    work();
}

/// The server of this process, for upcalls; the library cannot make upcalls before `SERVER` is set.
pub fn server() -> &'static Server {
    // `setup::serve` sets `SERVER` before a client is registered.
    SERVER.get().expect("SERVER is set before the library can make upcalls")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_ends_a_wait_first_and_the_library_last() {
        for seconds in [1, 60] {
            let limit = Duration::from_secs(seconds.into());
            let agent = limit - Duration::from_nanos(PMIX_TIMER_LEAD_NS);
            assert!(agent < before_timer(seconds) && before_timer(seconds) < limit);
        }
    }
}
