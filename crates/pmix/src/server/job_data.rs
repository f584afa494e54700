//! Makes the job data that is registered with the library. The job data is derived on each node from the job's blocks,
//! and never sent.
//!
//! This takes O(ranks of the job) time and, during registration, memory: an info is 552 bytes. Clients expect these
//! integer widths and silently ignore a value of another width.

use super::state::{Job, Server, ranks_directory};
use crate::infos::{Infos, proc_name};
use crate::sys::constants::key;
use crate::sys::types::{PmixCpuset, Status};
use bytes::Bytes;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Write as _;
use std::ptr::null_mut;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{LocalRank, NodeId, Rank};
use wireup_wire::inter_job::Parent;
use wireup_wire::pmix::{App, Begin};
use wireup_wire::rank_address;

/// Variables from which Open MPI reads the layout of a job with several programs.
const OMPI_APP_SIZES: &CStr = c"OMPI_APP_SIZES";
const OMPI_FIRST_RANKS: &CStr = c"OMPI_FIRST_RANKS";

/// The key, private to wireup, of the `ADDRESS:PORT` of the socket that was bound for a rank before it started.
const LISTEN_ADDRESS: &CStr = c"wireup.listen_address";

/// Facts about this job or about another job of the session.
pub struct Facts<'a> {
    pub nspace: &'a str,
    pub size: u32,
    pub mapping: &'a Mapping,
    pub nodes: &'a [String],
    /// This node's number in the job; `None`: the job has no ranks on this node.
    pub node: Option<NodeId>,
    pub apps: &'a [App],
    pub universe: Option<u32>,
    pub parent: Option<&'a Parent>,
}

/// All data about this job, which is registered in one call.
pub fn job_infos(Job { begin, size, mapping }: &Job, locality: &Locality, rows: &[Bytes]) -> Infos {
    let facts = Facts {
        nspace: &begin.nspace,
        size: *size,
        mapping,
        nodes: &begin.nodes,
        node: Some(begin.node),
        apps: &begin.apps,
        universe: begin.universe,
        parent: begin.parent.as_ref(),
    };
    let nodes = Nodes::new(&facts);
    let ranks = ranks_directory(&begin.dir);
    let mut infos = Infos::new();
    add_job(&mut infos, &facts, &nodes);
    infos
        .text(key::TMPDIR, &ranks)
        .text(key::NSDIR, &ranks)
        .flag(key::TDIR_RMCLEAN, true)
        .flag(key::NODE_OVERSUBSCRIBED, begin.oversubscribed);
    add_ranks(&mut infos, &facts, &nodes, Some(&Own { begin, rows, locality }));
    infos
}

/// The data about another job.
pub fn other_infos(facts: &Facts<'_>) -> Infos {
    let nodes = Nodes::new(facts);
    let mut infos = Infos::new();
    add_job(&mut infos, facts, &nodes);
    add_ranks(&mut infos, facts, &nodes, None);
    infos
}

fn add_job(infos: &mut Infos, job: &Facts<'_>, nodes: &Nodes) {
    infos
        .text(key::JOBID, job.nspace)
        .u32(key::JOB_SIZE, job.size)
        .u32(key::UNIV_SIZE, job.universe.unwrap_or(job.size))
        .u32(key::MAX_PROCS, job.size)
        .u32(key::JOB_NUM_APPS, job.apps.len() as u32)
        .u32(key::NUM_NODES, nodes.used.len() as u32)
        .text(key::NODE_MAP, &nodes.names(job))
        .text(key::PROC_MAP, &nodes.ranks(job));
    if let Some(mapping) = job.mapping.process_mapping() {
        infos.text(key::ANL_MAP, &String::from_utf8_lossy(&mapping));
    }
    add_parent(infos, job.parent);
    if let Some(node) = job.node {
        add_node(infos, job, nodes, node);
    }
    add_programs(infos, job.apps);
}

fn add_parent(infos: &mut Infos, parent: Option<&Parent>) {
    if let Some(Parent { nspace, rank }) = parent {
        infos.flag(key::SPAWNED, true).proc(key::PARENT_ID, proc_name(nspace, rank.0));
    }
}

/// Adds the data of this node, as flat keys.
fn add_node(infos: &mut Infos, job: &Facts<'_>, nodes: &Nodes, node: NodeId) {
    let locals: Vec<Rank> = job.mapping.ranks_of(node).collect();
    let first = locals.first().map_or(0, |rank| rank.0);
    infos
        .u32(key::LOCAL_SIZE, locals.len() as u32)
        .u32(key::NODE_SIZE, locals.len() as u32)
        .text(key::LOCAL_PEERS, &joined(locals.into_iter()))
        .rank(key::LOCALLDR, first)
        .text(key::HOSTNAME, &job.nodes[node.index()])
        .u32(key::NODEID, nodes.number(node));
}

fn add_programs(infos: &mut Infos, apps: &[App]) {
    let mut first = 0;
    let (mut sizes, mut firsts) = (String::new(), String::new());
    for (number, app) in apps.iter().enumerate() {
        let mut program = Infos::new();
        program
            .u32(key::APPNUM, number as u32)
            .u32(key::APP_SIZE, app.ranks)
            .rank(key::APPLDR, first)
            .text(key::APP_ARGV, &app.argv.join(" "))
            .text(key::WDIR, &app.cwd);
        infos.list(key::APP_INFO_ARRAY, program);
        let separator = if number == 0 { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(sizes, "{separator}{}", app.ranks);
        let _ = write!(firsts, "{separator}{first}");
        first += app.ranks;
    }
    if apps.len() > 1 {
        infos.text(OMPI_APP_SIZES, &sizes).text(OMPI_FIRST_RANKS, &firsts);
    }
}

/// Data that exists only for this job.
struct Own<'a> {
    begin: &'a Begin,
    rows: &'a [Bytes],
    locality: &'a Locality,
}

/// Adds the data of every rank of the job; for ranks of this job on this node also their binding.
fn add_ranks(infos: &mut Infos, job: &Facts<'_>, nodes: &Nodes, own: Option<&Own<'_>>) {
    let (mut program, mut first) = (0, 0);
    for rank in (0..job.size).map(Rank) {
        while job.apps.get(program).is_some_and(|app| rank.0 >= first + app.ranks) {
            first += job.apps[program].ranks;
            program += 1;
        }
        let Some((node, local_rank)) = job.mapping.place(rank) else { continue };
        let mut data = Infos::new();
        data.rank(key::RANK, rank.0)
            .u32(key::APPNUM, program as u32)
            .rank(key::GLOBAL_RANK, rank.0)
            .rank(key::APP_RANK, rank.0 - first)
            .u16(key::LOCAL_RANK, local_rank.0)
            .u16(key::NODE_RANK, local_rank.0)
            .u32(key::NODEID, nodes.number(node));
        if let Some(own) = own {
            own.add(&mut data, node, local_rank, Some(node) == job.node);
        }
        infos.list(key::PROC_DATA, data);
    }
}

impl Own<'_> {
    fn add(&self, data: &mut Infos, node: NodeId, local_rank: LocalRank, is_here: bool) {
        if is_here {
            data.u32(key::REINCARNATION, 0);
            // Some versions of the library look for the parent in the data of the rank, other versions in the data of
            // the job.
            add_parent(data, self.begin.parent.as_ref());
            let cpus = self.begin.cpus.get(local_rank.index()).and_then(Option::as_deref);
            if let Some(cpus) = cpus {
                data.text(key::CPUSET, cpus);
            }
            if let Some(place) = self.locality.of(cpus) {
                data.text(key::LOCALITY_STRING, place);
            }
        }
        let own_host = self.rows.get(self.begin.node.index()).and_then(|row| rank_address::host(row));
        if let (Some(row), Some(own_host)) = (self.rows.get(node.index()), own_host) {
            add_address(data, row, local_rank, own_host);
        }
    }
}

/// Adds the addresses of the socket that was bound for a rank before it started: each address as a `struct sockaddr`
/// for C programs, and the best address as text.
fn add_address(data: &mut Infos, row: &[u8], local_rank: LocalRank, own_host: u64) {
    let address = rank_address::shift_port(row, local_rank.0.into());
    let candidates = address.map(|address| rank_address::candidates(&address, own_host)).unwrap_or_default();
    if let Some(best) = candidates.first() {
        let raw: Vec<Vec<u8>> = candidates.iter().map(rank_address::sockaddr).collect();
        data.byte_strings(key::FABRIC_ENDPT, &raw).text(LISTEN_ADDRESS, &best.to_string());
    }
}

/// The nodes that have ranks: the library's maps contain only these.
struct Nodes {
    used: Vec<NodeId>,
}

impl Nodes {
    fn new(job: &Facts<'_>) -> Nodes {
        let all = (0..job.nodes.len() as u32).map(NodeId);
        Nodes { used: all.filter(|&node| job.mapping.local_size(node) > 0).collect() }
    }

    /// A node's number in the library's maps.
    fn number(&self, node: NodeId) -> u32 {
        self.used.partition_point(|&used| used < node) as u32
    }

    /// The node names as a plain list: every version accepts it, and since it is not sent, it need not be compressed.
    fn names(&self, job: &Facts<'_>) -> String {
        let names: Vec<&str> = self.used.iter().map(|node| job.nodes[node.index()].as_str()).collect();
        names.join(",")
    }

    fn ranks(&self, job: &Facts<'_>) -> String {
        let lists: Vec<String> = self.used.iter().map(|&node| joined(job.mapping.ranks_of(node))).collect();
        lists.join(";")
    }
}

fn joined(ranks: impl Iterator<Item = Rank>) -> String {
    let mut text = String::new();
    for rank in ranks {
        let separator = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{rank}");
    }
    text
}

/// The parts of the machine that ranks are bound to, as the library's locality strings.
pub struct Locality {
    bound: HashMap<String, String>,
    /// The locality of ranks that are not bound.
    unbound: Option<String>,
}

impl Locality {
    /// Gets the locality from the library, once for each different CPU list.
    pub fn find(server: &Server, cpus: &[Option<String>]) -> Locality {
        let mut bound = HashMap::new();
        for list in cpus.iter().flatten() {
            if !bound.contains_key(list)
                && let Some(place) = locality_of(server, list)
            {
                bound.insert(list.clone(), place);
            }
        }
        let any_unbound = cpus.iter().any(Option::is_none);
        let allowed = any_unbound.then(wireup_os::bind::allowed).and_then(Result::ok);
        let unbound = allowed.and_then(|cpus| {
            let list: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
            locality_of(server, &list.join(",")).map(|place| confining(&place))
        });
        Locality { bound, unbound }
    }

    fn of(&self, cpus: Option<&str>) -> Option<&str> {
        match cpus {
            Some(list) => self.bound.get(list).map(String::as_str),
            None => self.unbound.as_deref(),
        }
    }
}

/// Returns the parts of the machine that contain a whole CPU set, from the parts that it touches (`SK0:L30:CR0-3`, in
/// some versions after `hwloc:`): two ranks that may run on any core share the only socket, but not each core.
fn confining(place: &str) -> String {
    let single: Vec<&str> = place.split(':').filter(|part| !part.contains(['-', ','])).collect();
    single.join(":")
}

fn locality_of(server: &Server, cpus: &str) -> Option<String> {
    let functions = &server.library.functions;
    let text = CString::new(format!("hwloc:{cpus}")).ok()?;
    let mut set = PmixCpuset { source: null_mut(), bitmap: null_mut() };
    let mut place: *mut c_char = null_mut();
    // SAFETY: text and set are as the header requires. The library owns the set's memory, a few hundred bytes that 4.2
    // has no function to free; the locality string is allocated with `malloc` and belongs to us.
    unsafe {
        if succeeded((functions.parse_cpuset)(text.as_ptr(), &mut set))
            && succeeded((functions.generate_locality)(&set, &mut place))
            && !place.is_null()
        {
            let words = CStr::from_ptr(place).to_string_lossy().into_owned();
            libc::free(place.cast());
            return Some(words);
        }
    }
    None
}

fn succeeded(status: Status) -> bool {
    status == crate::sys::constants::status::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unbound_rank_is_confined_to_the_object_with_all_cpus() {
        assert_eq!(confining("hwloc:NM0:SK0:L30:L20-1:CR0-1:HT0,2"), "hwloc:NM0:SK0:L30");
        assert_eq!(confining("SK0-1:L30:CR0-3"), "L30");
    }

    #[test]
    fn rank_lists_are_joined_with_commas() {
        assert_eq!(joined([Rank(0), Rank(2), Rank(13)].into_iter()), "0,2,13");
    }
}
