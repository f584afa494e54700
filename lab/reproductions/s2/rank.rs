//! A rank of a job: goes through the phases of its column, and prints a line with its rank, the durations of the phases
//! LAUNCH RING GROUP ADDRESSES CONNECT (ns; 0 for a phase that the column lacks), and the clock at the end (ns).
use std::ffi::OsString;
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use wireup_bootstrap::{Context, Done, Engine, Group, Operation, Start, Transport};
use wireup_capi::job::{Job, JobSlot};
use wireup_capi::net::now_ns;
use wireup_os::process::raise_open_files;

use crate::s4::sockets::{self, Half, VALUE_LEN};

/// The first argument of a process that is a rank.
pub const WORD: &str = "steps-rank";
/// Number of values in one pair: a pair has twelve digits for each value, and at most 1,024 characters.
const CHUNK: usize = 80;
/// The tag of the messages for which connections are made on demand.
const TAG: u32 = 7;
/// Longest wait for a message (ms).
const WAIT_MS_MAX: i32 = 300_000;

static JOB: JobSlot<()> = JobSlot::new();

/// Distances from a rank to the ranks that it sends messages to on demand: about half the job, so that these ranks are
/// not its neighbours in the graph.
fn partners(size: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |number| size / 2 + 1 + 2 * number)
}

/// The address of a rank. Each rank has its own, because one address has not enough ports for all pairs of ranks.
fn own_address(rank: u32) -> Ipv4Addr {
    let [_, _, high, low] = (rank + 1).to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

pub fn shown(problem: impl Debug) -> String {
    format!("{problem:?}")
}

/// Runs a rank. `args`: the arguments after `WORD`: the rank's column, the clock at the start of the job, and the
/// number of other ranks to which it sends a message.
pub fn run(args: &[OsString]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let own = "wireup-reproduce steps starts these processes itself";
    let &[column, begin, count] = &words[..] else { return Err(own.into()) };
    let (begin, count): (u64, u32) = (begin.parse().map_err(|_| own)?, count.parse().map_err(|_| own)?);
    raise_open_files().map_err(shown)?;
    let mut job = Job::join(&JOB).map_err(shown)?;
    let joined = now_ns();
    let rank = job.rank;
    let (Timed { phases, end, connected }, job) = match column {
        "baseline" | "staged" => {
            let timed = by_pairs(&mut job, joined, own_address(rank))?;
            // A fence, so that no rank exits before all ranks are connected.
            let fence = job.start_fence();
            job.finish(fence).map_err(shown)?;
            (timed, job)
        }
        "groups" => by_groups(job, Start::Allgather, None)?,
        "on-demand" => by_groups(job, Start::Ring, Some(count))?,
        _ => by_groups(job, Start::Ring, None)?,
    };
    sockets::close_all(connected);
    JOB.leave(job.with).map_err(shown)?;
    let phases = phases.map(|ns| ns.to_string()).join(" ");
    println!("{rank} {} {phases} {end}", joined - begin);
    Ok(())
}

pub struct Timed {
    /// Durations of the phases ring, group, address exchange and connect (ns).
    pub phases: [u64; 4],
    end: u64,
    pub connected: Vec<OwnedFd>,
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

/// Exchanges the values by put, fence, and a get for each other rank, and connects to all. `begin`: the clock at the
/// beginning of the exchange; `own`: this rank's address.
pub fn by_pairs(job: &mut Job, begin: u64, own: Ipv4Addr) -> Result<Timed, String> {
    let (rank, size) = (job.rank, job.size);
    let (halves, rows) = sockets_for_all(rank, size, own)?;
    for (number, chunk) in rows.chunks(CHUNK).enumerate() {
        job.put(&key(rank, number), hex::encode(chunk.concat()).as_bytes()).map_err(shown)?;
    }
    let fence = job.start_fence();
    job.finish(fence).map_err(shown)?;
    let mut theirs = Vec::new();
    for peer in 0..size {
        let mut row = (peer == rank).then(|| vec![0; VALUE_LEN]);
        if row.is_none() {
            let wanted = key(peer, rank as usize / CHUNK);
            let mut take = |value: &[u8]| row = of_chunk(value, rank as usize);
            job.get(b"", peer as i32, &wanted, &mut take).map_err(shown)?;
        }
        theirs.push(row.ok_or_else(|| format!("rank {peer} has put no value for rank {rank}"))?);
    }
    let known = now_ns();
    let connected = connect_all(rank, halves, theirs)?;
    let end = now_ns();
    Ok(Timed { phases: [0, 0, known - begin, end - known], end, connected })
}

/// Makes the ranks' own network; then an alltoall and a connection to each other rank, or messages to some of them.
fn by_groups(job: Job, start: Start, on_demand: Option<u32>) -> Result<(Timed, Job), String> {
    let (rank, size) = (job.rank, job.size);
    let mut context = Context::new(job, Some(Engine::Peers), start, Transport::Tcp).map_err(shown)?;
    let (made, world) = (context.worker.lazy_network.phases, context.world());
    let begin = now_ns();
    let (known, end, connected) = match on_demand {
        None => {
            let (halves, rows) = sockets_for_all(rank, size, own_address(rank))?;
            let request = context.start(world, Operation::Alltoall(rows)).map_err(shown)?;
            let Done::Rows(theirs) = context.wait(&request, WAIT_MS_MAX).map_err(shown)? else {
                return Err("an alltoall without rows".into());
            };
            let known = now_ns();
            let connected = connect_all(rank, halves, theirs)?;
            (known, now_ns(), connected)
        }
        Some(count) => {
            talk(&mut context, world, count)?;
            (begin, now_ns(), Vec::new())
        }
    };
    let request = context.start(world, Operation::Barrier).map_err(shown)?;
    context.wait(&request, WAIT_MS_MAX).map_err(shown)?;
    let phases = [made.ring_ns, made.group_ns, known - begin, end - known];
    Ok((Timed { phases, end, connected }, context.worker.leave()))
}

/// Sends a message to each partner, and receives one from each.
fn talk(context: &mut Context, world: Group, count: u32) -> Result<(), String> {
    let Group { rank, size, .. } = world;
    for distance in partners(size, count) {
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
            assert!(partners(size, 2).all(|distance| distance % size != 0), "{size}");
        }
    }
}
