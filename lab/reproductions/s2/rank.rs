//! A rank of a job: goes through the phases of its column, and prints a line with its rank, the durations of `PHASES`
//! (ns; 0 for a phase that the column lacks), and the clock when it was connected (ns).
use std::ffi::OsString;
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use wireup_bootstrap::{Context, Done, Engine, Group, Operation, Phases, Start, Transport, Wanted};
use wireup_capi::job::{Job, JobSlot};
use wireup_capi::net::now_ns;
use wireup_os::process::raise_open_files;
use wireup_wire::pmi::Request;

use crate::s4::sockets::{self, Half, VALUE_LEN};

/// The first argument of a process that is a rank.
pub const WORD: &str = "steps-rank";
/// The phases of a rank's start, in order, with the names of S2's profile. `launch`: starting the launcher and the
/// rank, until the rank has joined its job. `ring-exchange`: getting the job's secret and the addresses of the rank's
/// two neighbours in the ring of all ranks from the PMI server. `create-ring`: building the binomial graph from the
/// ring. `create-world`: from the server's order to the order of ranks. `create-node`, `create-leader`: the groups of a
/// node's ranks, and of the first rank of each node. `populate`: which rank is on which node. `address-exchange`,
/// `connect`: the addresses of all other ranks, and connections to them or, in the column `on-demand`, to those that
/// the rank sends messages to. `teardown`, after the total: the end of the groups and of the ranks' network.
pub const PHASES: [&str; 11] = [
    "launch", "endpoint-open", "ring-exchange", "create-ring", "create-world", "create-node", "create-leader",
    "populate", "address-exchange", "connect", "teardown",
];
/// Number of values in one pair: a pair has twelve digits for each value, and at most 1,024 characters.
const CHUNK: usize = 80;
/// The tag of the messages for which connections are made on demand.
const TAG: u32 = 7;
/// Longest wait for a message (ms).
const WAIT_MS_MAX: i32 = 300_000;

static JOB: JobSlot<()> = JobSlot::new();

/// Distances from a rank to the two ranks that it sends messages to on demand: about half the job, so that these ranks
/// are not its neighbours in the graph.
fn partners(size: u32) -> [u32; 2] {
    [size / 2 + 1, size / 2 + 3]
}

/// The address of a rank. Each rank has its own, because one address has not enough ports for all pairs of ranks.
fn own_address(rank: u32) -> Ipv4Addr {
    let [_, _, high, low] = (rank + 1).to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

pub fn shown(problem: impl Debug) -> String {
    format!("{problem:?}")
}

/// The number of this rank's node, as wireup gives it: what MVAPICH2 exchanges to find the ranks on the same node.
fn node_number() -> Result<Vec<u8>, String> {
    Ok(std::env::var("WIREUP_NODE").map_err(shown)?.into_bytes())
}

/// The time since the last reading (ns), and the new reading.
fn lap(clock: &mut u64) -> u64 {
    let now = now_ns();
    now - std::mem::replace(clock, now)
}

/// Runs a rank. `args`: the arguments after `WORD`: the rank's column, and the clock at the start of the job.
pub fn run(args: &[OsString]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let own = "wireup-reproduce steps starts these processes itself";
    let &[column, begin] = &words[..] else { return Err(own.into()) };
    let begin: u64 = begin.parse().map_err(|_| own)?;
    raise_open_files().map_err(shown)?;
    let job = Job::join(&JOB).map_err(shown)?;
    let joined = now_ns();
    let rank = job.rank;
    let Ended { job, phases, end } = match column {
        "baseline" | "staged" => by_pairs(job, joined)?,
        "groups" => by_groups(job, Start::Allgather, false)?,
        _ => by_groups(job, Start::Ring, column == "on-demand")?,
    };
    JOB.leave(job.with).map_err(shown)?;
    let phases = phases.map(|ns| ns.to_string()).join(" ");
    println!("{rank} {} {phases} {end}", joined - begin);
    Ok(())
}

/// What a rank has measured when it is ready to leave its job.
struct Ended {
    job: Job,
    /// Durations of `PHASES` but the first (ns).
    phases: [u64; PHASES.len() - 1],
    /// The clock when the rank was connected.
    end: u64,
}

/// The sockets for all other ranks, and the values for these ranks, with an empty value for the rank itself.
fn sockets_for_all(rank: u32, size: u32, own: Ipv4Addr) -> Result<(Vec<Half>, Vec<Vec<u8>>), String> {
    let others = (0..size).filter(|peer| *peer != rank);
    let (halves, made) = sockets::make_all(own, others.map(|peer| rank < peer)).map_err(shown)?;
    let mut rows: Vec<Vec<u8>> = made.into_iter().map(|value| sockets::encode([value])).collect();
    rows.insert(rank as usize, vec![0; VALUE_LEN]);
    Ok((halves, rows))
}

/// Connects to all other ranks; `rows`: the values that other ranks have for this rank, and one for itself.
fn connect_all(rank: u32, halves: Vec<Half>, mut rows: Vec<Vec<u8>>) -> Result<Vec<OwnedFd>, String> {
    rows.remove(rank as usize);
    let peers: Vec<SocketAddrV4> = sockets::decode(&rows.concat()).ok_or("not values of sockets")?;
    if peers.len() != halves.len() {
        return Err(format!("{} values, not {}", peers.len(), halves.len()));
    }
    // `connect_all` watches a socket that never closes: the launcher ends the ranks itself.
    let (watched, _other) = UnixStream::pair().map_err(shown)?;
    sockets::connect_all(halves, &peers, &watched).map_err(shown)
}

fn key(rank: u32, chunk: usize) -> Vec<u8> {
    format!("steps-{rank}-{chunk}").into_bytes()
}

/// The value for `peer` in a chunk, which holds the values of another rank.
fn of_chunk(chunk: &[u8], peer: usize) -> Option<Vec<u8>> {
    let at = peer % CHUNK * VALUE_LEN * 2;
    hex::decode(chunk.get(at..at + VALUE_LEN * 2)?).ok()
}

/// How a rank gets a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Get {
    /// By a message to the server: the loop of S2, whose PMI2 has no other way.
    ByMessage,
    /// From shared memory, as wireup's own library does.
    FromMemory,
}

/// Puts the pairs, enters a fence, and gets the value of the key `wanted` of each rank.
fn exchange(
    job: &mut Job,
    pairs: &[(Vec<u8>, Vec<u8>)],
    wanted: impl Fn(u32) -> Vec<u8>,
    how: Get,
) -> Result<Vec<Vec<u8>>, String> {
    for (key, value) in pairs {
        job.put(key, value).map_err(shown)?;
    }
    let fence = job.start_fence();
    job.finish(fence).map_err(shown)?;
    let size = job.size;
    let get = |peer: u32| {
        let (key, mut value) = (wanted(peer), None);
        if how == Get::FromMemory {
            job.get(b"", peer as i32, &key, &mut |found: &[u8]| value = Some(found.to_vec())).map_err(shown)?;
        } else {
            let request = Request::Get { kvsname: None, key: &key, source: Some(peer as i32) };
            value = job.look_up(&request).map_err(shown)?;
        }
        value.ok_or_else(|| format!("rank {peer} has put no value"))
    };
    (0..size).map(get).collect()
}

/// A rank that is connected to all others.
pub struct Connected {
    pub sockets: Vec<OwnedFd>,
    /// Durations of the exchange of addresses and of connecting (ns).
    pub exchange_ns: u64,
    pub connect_ns: u64,
}

/// Exchanges addresses by put, fence, and a get for each rank, and connects to all. `own`: this rank's address;
/// `clock`: when the exchange has begun, and then when the rank was connected.
pub fn connect_by_pairs(job: &mut Job, own: Ipv4Addr, how: Get, clock: &mut u64) -> Result<Connected, String> {
    let (rank, size) = (job.rank, job.size);
    let (halves, rows) = sockets_for_all(rank, size, own)?;
    let value = |chunk: &[Vec<u8>]| hex::encode(chunk.concat()).into_bytes();
    let chunks = rows.chunks(CHUNK).enumerate();
    let pairs: Vec<_> = chunks.map(|(number, chunk)| (key(rank, number), value(chunk))).collect();
    let chunks = exchange(job, &pairs, |peer| key(peer, rank as usize / CHUNK), how)?;
    let theirs = chunks.iter().map(|chunk| of_chunk(chunk, rank as usize));
    let theirs = theirs.collect::<Option<_>>().ok_or("a chunk without a value for this rank")?;
    let exchange_ns = lap(clock);
    let sockets = connect_all(rank, halves, theirs)?;
    Ok(Connected { sockets, exchange_ns, connect_ns: lap(clock) })
}

/// Exchanges the numbers of the nodes, then the addresses, and connects to all.
fn by_pairs(mut job: Job, mut clock: u64) -> Result<Ended, String> {
    let node_key = |rank: u32| format!("steps-node-{rank}").into_bytes();
    let own = (node_key(job.rank), node_number()?);
    exchange(&mut job, &[own], node_key, Get::ByMessage)?;
    let populate_ns = lap(&mut clock);
    let own = own_address(job.rank);
    let Connected { sockets, exchange_ns, connect_ns } = connect_by_pairs(&mut job, own, Get::ByMessage, &mut clock)?;
    // A fence, so that no rank exits before all ranks are connected.
    let fence = job.start_fence();
    job.finish(fence).map_err(shown)?;
    sockets::close_all(sockets);
    Ok(Ended { job, phases: [0, 0, 0, 0, 0, 0, populate_ns, exchange_ns, connect_ns, 0], end: clock })
}

/// Makes the ranks' own network, and groups of the node's ranks and of the first ranks of all nodes; exchanges the
/// numbers of the nodes; then an alltoall and a connection to each other rank, or messages to some of them.
fn by_groups(job: Job, start: Start, on_demand: bool) -> Result<Ended, String> {
    let (rank, size) = (job.rank, job.size);
    // Connections on demand are those of S2's connection manager: datagrams request and accept them.
    let transport = if on_demand { Transport::Udp } else { Transport::Tcp };
    let mut context = Context::new(job, Some(Engine::Peers), start, transport).map_err(shown)?;
    let (made, world) = (context.worker.lazy_network.phases, context.world());
    let mut clock = now_ns();
    let node = context.node().map_err(shown)?;
    let node_ns = lap(&mut clock);
    let wanted = Wanted { colour: (node.rank == 0).then(Vec::new), key: rank.into() };
    let request = context.split(world, wanted).map_err(shown)?;
    let leaders = context.wait(&request, WAIT_MS_MAX).map_err(shown)?;
    let leader_ns = lap(&mut clock);
    let gather = Operation::Allgather { bytes: node_number()?, len_max: size.to_string().len(), in_memory: false };
    match done(&mut context, world, gather)? {
        Done::Rows(rows) if rows.len() == size as usize => {}
        other => return Err(format!("{other:?} instead of the numbers of all nodes")),
    }
    let populate_ns = lap(&mut clock);
    let (mut addresses_ns, mut connected) = (0, Vec::new());
    if on_demand {
        talk(&mut context, world)?;
    } else {
        let (halves, rows) = sockets_for_all(rank, size, own_address(rank))?;
        let Done::Rows(theirs) = done(&mut context, world, Operation::Alltoall(rows))? else {
            return Err("an alltoall without rows".into());
        };
        addresses_ns = lap(&mut clock);
        connected = connect_all(rank, halves, theirs)?;
    }
    let (connect_ns, end) = (lap(&mut clock), clock);
    done(&mut context, world, Operation::Barrier)?;
    lap(&mut clock);
    [context.group(&leaders), Some(node)].into_iter().flatten().for_each(|group| context.free(group));
    let job = context.worker.leave();
    let teardown_ns = lap(&mut clock);
    sockets::close_all(connected);
    let Phases { endpoint_ns, exchange_ns, graph_ns, world_ns } = made;
    let phases = [
        endpoint_ns, exchange_ns, graph_ns, world_ns, node_ns, leader_ns, populate_ns, addresses_ns, connect_ns,
        teardown_ns,
    ];
    Ok(Ended { job, phases, end })
}

fn done(context: &mut Context, world: Group, operation: Operation) -> Result<Done, String> {
    let request = context.start(world, operation).map_err(shown)?;
    context.wait(&request, WAIT_MS_MAX).map_err(shown)
}

/// Sends a message to each partner, and receives one from each.
fn talk(context: &mut Context, world: Group) -> Result<(), String> {
    let Group { rank, size, .. } = world;
    for distance in partners(size) {
        let (to, from) = ((rank + distance) % size, (rank + size - distance % size) % size);
        let sent = context.send(world, to, TAG, &rank.to_le_bytes()).map_err(shown)?;
        let received = context.receive(world, from, TAG).map_err(shown)?;
        match context.wait(&received, WAIT_MS_MAX).map_err(shown)? {
            Done::Bytes(bytes) if bytes == from.to_le_bytes() => {}
            other => return Err(format!("{other:?} from rank {from}")),
        }
        context.wait(&sent, WAIT_MS_MAX).map_err(shown)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_their_chunk() {
        let row: Vec<Vec<u8>> = (0..200u8).map(|peer| vec![peer; VALUE_LEN]).collect();
        for peer in [0, 79, 80, 199] {
            let chunk = hex::encode(row.chunks(CHUNK).nth(peer / CHUNK).unwrap().concat());
            assert!(chunk.len() <= 1024);
            assert_eq!(of_chunk(chunk.as_bytes(), peer), Some(row[peer].clone()));
        }
        assert_eq!(of_chunk(b"00", 1), None);
    }

    #[test]
    fn addresses_differ_and_partners_are_not_the_rank_itself() {
        assert_eq!((own_address(0), own_address(1023)), (Ipv4Addr::new(127, 1, 0, 1), Ipv4Addr::new(127, 1, 4, 0)));
        for size in [4, 8, 64, 1024] {
            assert!(partners(size).iter().all(|distance| distance % size != 0), "{size}");
        }
    }
}
