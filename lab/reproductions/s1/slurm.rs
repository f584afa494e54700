//! The fence of Slurm 2.6 and the allgather that S1 put into it, as S1 describes them: the baseline of its tables I and
//! II, in real processes.
//!
//! A tree of processes: *srun* at its root, and for each node a *slurmd*, which starts the node's ranks and speaks
//! PMI-2 with them. A fence moves the bytes below for each put: up, each process adding what its ranks and its children
//! have given; and all of them down again. Then every slurmd puts all pairs into a table of its own and answers its
//! ranks.
//!
//! ```text
//!   fence       length (4), key, length (4), value     a hash table of keys      S1 figure 6: 35 bytes for 9 and 18
//!   allgather   rank (4), length (4), value            an array, one row a rank  S1 figure 8: 26 bytes for 18
//! ```
use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use wireup_bench::command::await_any;
use wireup_bench::layout::Layout;
use wireup_os::clock::monotonic_ns;
use wireup_wire::pmi::{self, Dialect, Envelope, Reply, Request, RequestReader};

/// The first argument of srun and of each slurmd.
pub const WORD: &str = "s1-slurm";
/// Most children of a process in the tree (Slurm's default `TreeWidth`).
const WIDTH: u32 = 50;
/// Length of a row of the array (bytes).
const ROW: usize = 64;
/// Longest request of a rank (bytes; chosen).
const REQUEST_LEN_MAX: usize = 4096;
/// Longest time between two requests of a node's ranks: they wait for the benchmark, which ends them.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Numbers that each process writes for each fence: `fence * (nodes + 1) + process`; when its first and its last rank
/// entered, when it had the parts of its children and when the result, when its ranks were answered (ns); the bytes of
/// its ranks' pairs, from its children and from its parent.
pub const NUMBERS: usize = 9;

/// srun (0) or the slurmd of one node (from 1).
struct Process {
    index: u32,
    layout: Layout,
    parent: Option<UnixStream>,
    below: Vec<UnixStream>,
    /// The PMI sockets of the node's ranks, with the readers of their requests.
    ranks: Vec<(UnixStream, RequestReader)>,
    table: Table,
}

/// What gets read: the pairs of a fence, or the array of an allgather with a row of `ROW` bytes for each rank.
enum Table {
    Pairs(HashMap<Vec<u8>, Vec<u8>>),
    Array(Vec<u8>),
}

/// Runs srun (`INDEX` 0), which starts the others: the arguments are `fence|allgather INDEX NODESxPPN STAMPS PROGRAM
/// ARG..`. At the end each process appends its numbers to the file `STAMPS`.
pub fn run(args: &[OsString]) -> Result<(), Box<dyn Error>> {
    let [kind, index, layout, stamps, program, program_args @ ..] = args else {
        return Err("it is called with fence|allgather INDEX NODESxPPN STAMPS PROGRAM ARG..".into());
    };
    let number: u32 = index.to_string_lossy().parse()?;
    let nodes: Layout = layout.to_string_lossy().parse()?;
    let (mut below, mut ranks, mut children) = (Vec::new(), Vec::new(), Vec::new());
    for child in (WIDTH * number + 1..=WIDTH * number + WIDTH).take_while(|child| *child <= nodes.node_count) {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([WORD.into(), kind.clone(), child.to_string().into()]).args(&args[2..]);
        below.push(start(&mut command, &mut children)?);
    }
    for rank in (number.saturating_sub(1) * nodes.ppn..).take(if number == 0 { 0 } else { nodes.ppn as usize }) {
        let mut command = Command::new(program);
        let numbers = [("PMI_FD", 0), ("PMI_RANK", rank), ("PMI_SIZE", nodes.job_size())];
        command.args(program_args).envs(numbers.map(|(name, number)| (name, number.to_string())));
        ranks.push((start(&mut command, &mut children)?, RequestReader::new()));
    }
    let parent = match number {
        0 => None,
        _ => Some(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?)),
    };
    let table = match kind == "allgather" {
        true => Table::Array(vec![0; nodes.job_size() as usize * ROW]),
        false => Table::Pairs(HashMap::new()),
    };
    let lines = Process { index: number, layout: nodes, parent, below, ranks, table }.serve()?;
    OpenOptions::new().append(true).open(stamps)?.write_all(lines.as_bytes())?;
    for mut child in children {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("a process below has ended: {status}").into());
        }
    }
    Ok(())
}

/// Starts a process whose standard input is a socket; returns this end of it.
fn start(command: &mut Command, children: &mut Vec<Child>) -> io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    children.push(command.stdin(OwnedFd::from(far)).spawn()?);
    Ok(near)
}

impl Process {
    /// Serves fences until the ranks end. Returns a line of numbers for each.
    fn serve(mut self) -> io::Result<String> {
        let mut lines = String::new();
        for fence in 0.. {
            let Some((mut block, [first_in_ns, last_in_ns])) = self.await_ranks()? else { break };
            let own = block.len();
            for child in &mut self.below {
                match receive(child)? {
                    Some(part) => block.extend(part),
                    // The ranks have ended, and so has the child.
                    None => return Ok(lines),
                }
            }
            let (up_in, gathered_ns) = (block.len() - own, monotonic_ns());
            let mut down_in = 0;
            if let Some(parent) = &mut self.parent {
                send(parent, &block)?;
                block = receive(parent)?.ok_or_else(|| wrong("the parent has ended in a fence"))?;
                down_in = block.len();
            }
            let received_ns = monotonic_ns();
            self.below.iter_mut().try_for_each(|child| send(child, &block))?;
            if self.index > 0 {
                self.table.store(&block)?;
            }
            let released = Reply::BarrierOut { tag: None };
            self.ranks.iter_mut().try_for_each(|(rank, _)| reply(rank, pmi::Command::Barrier, &released))?;
            let (number, out_ns) = (fence * (self.layout.node_count + 1) + self.index, monotonic_ns());
            let times = format!("{first_in_ns} {last_in_ns} {gathered_ns} {received_ns} {out_ns}");
            lines += &format!("{number} {times} {own} {up_in} {down_in}\n");
        }
        Ok(lines)
    }

    /// Answers the ranks until all are in the next fence. Returns the bytes of their puts, and when the first and the
    /// last rank entered (ns); `None`: all have ended.
    fn await_ranks(&mut self) -> io::Result<Option<(Vec<u8>, [u64; 2])>> {
        let (mut block, mut times, mut ended) = (Vec::new(), [0; 2], 0);
        let mut outside: Vec<usize> = (0..self.ranks.len()).collect();
        while !outside.is_empty() {
            let mut polls: Vec<_> = outside.iter().map(|at| PollFd::new(&self.ranks[*at].0, PollFlags::IN)).collect();
            if !await_any(&mut polls, Instant::now() + WAIT_MAX)? {
                return Err(wrong("no rank asks for anything"));
            }
            let asks: Vec<bool> = polls.iter().map(|poll| !poll.revents().is_empty()).collect();
            let (asking, quiet): (Vec<_>, Vec<_>) = outside.into_iter().zip(asks).partition(|(_, asks)| *asks);
            outside = quiet.into_iter().map(|(at, _)| at).collect();
            for (at, _) in asking {
                let (link, requests) = &mut self.ranks[at];
                let mut bytes = [0; REQUEST_LEN_MAX];
                let length = link.read(&mut bytes)?;
                if length == 0 {
                    ended += 1;
                    continue;
                }
                requests.push(&bytes[..length]).map_err(io::Error::other)?;
                // A rank waits for each answer, so it has sent one request, or a part of one.
                let Some(Envelope { request, .. }) = requests.next().map_err(io::Error::other)? else {
                    outside.push(at);
                    continue;
                };
                let (command, rank) = (request.command(), self.index.saturating_sub(1) * self.layout.ppn + at as u32);
                let answer = match request {
                    Request::Barrier { .. } => {
                        times = [if times[0] == 0 { monotonic_ns() } else { times[0] }, monotonic_ns()];
                        continue;
                    }
                    Request::Put { key, value, .. } => {
                        match self.table {
                            Table::Array(_) => block.extend(rank.to_le_bytes()),
                            Table::Pairs(_) => push(&mut block, key),
                        }
                        push(&mut block, value);
                        Reply::Done
                    }
                    Request::Get { key, .. } => Reply::Value(self.table.value(key)?),
                    Request::Init { .. } => Reply::Init { version: 2, subversion: 0, rc: 0 },
                    Request::FullInit { .. } => {
                        let (size, spawner, extension) = (self.layout.job_size(), None, None);
                        Reply::FullInit { version: 2, subversion: 0, rank, size, appnum: 0, spawner, extension }
                    }
                    Request::Finalize => Reply::Done,
                    other => return Err(wrong(&format!("an unknown request: {other:?}"))),
                };
                reply(link, command, &answer)?;
                if command == pmi::Command::Init {
                    requests.switch_to_pmi2();
                }
                outside.push(at);
            }
        }
        match ended {
            0 => Ok(Some((block, times))),
            _ if ended == self.ranks.len() => Ok(None),
            _ => Err(wrong("a rank has ended while others wait for it in a fence")),
        }
    }
}

impl Table {
    /// Stores the values of all ranks.
    fn store(&mut self, mut block: &[u8]) -> io::Result<()> {
        while !block.is_empty() {
            match self {
                Table::Pairs(pairs) => drop(pairs.insert(pop(&mut block)?.to_vec(), pop(&mut block)?.to_vec())),
                Table::Array(array) => {
                    let rank = u32::from_le_bytes(*cut::<4>(&mut block)?) as usize;
                    let value = pop(&mut block)?;
                    let row = array.get_mut(rank * ROW..(rank + 1) * ROW).ok_or_else(|| wrong("an unknown rank"))?;
                    row.fill(0);
                    row.get_mut(..value.len()).ok_or_else(|| wrong("too long a value"))?.copy_from_slice(value);
                }
            }
        }
        Ok(())
    }

    /// The value of a key, or for an allgather of the rank that the key names.
    fn value(&self, key: &[u8]) -> io::Result<&[u8]> {
        let found = match self {
            Table::Pairs(pairs) => pairs.get(key).map(Vec::as_slice),
            Table::Array(array) => {
                let rank = str::from_utf8(key).ok().and_then(|rank| rank.parse::<usize>().ok());
                let row = rank.and_then(|rank| array.get(rank * ROW..(rank + 1) * ROW));
                row.and_then(|row| row.split(|byte| *byte == 0).next())
            }
        };
        found.ok_or_else(|| wrong(&format!("a get of {}, which nobody has put", key.escape_ascii())))
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

fn push(block: &mut Vec<u8>, text: &[u8]) {
    block.extend((text.len() as u32).to_le_bytes());
    block.extend(text);
}

fn pop<'a>(block: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let len = u32::from_le_bytes(*cut(block)?) as usize;
    block.split_off(..len).ok_or_else(|| wrong("a pair is cut off"))
}

fn cut<'a, const N: usize>(block: &mut &'a [u8]) -> io::Result<&'a [u8; N]> {
    let (first, rest) = block.split_first_chunk().ok_or_else(|| wrong("a pair is cut off"))?;
    *block = rest;
    Ok(first)
}

fn send(link: &mut UnixStream, block: &[u8]) -> io::Result<()> {
    link.write_all(&(block.len() as u32).to_le_bytes())?;
    link.write_all(block)
}

/// The next block on a link; `None`: the other end has closed it.
fn receive(link: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 4];
    if link.read(&mut len[..1])? == 0 {
        return Ok(None);
    }
    link.read_exact(&mut len[1..])?;
    let mut block = vec![0; u32::from_le_bytes(len) as usize];
    link.read_exact(&mut block)?;
    Ok(Some(block))
}

fn reply(rank: &mut UnixStream, to: pmi::Command, reply: &Reply) -> io::Result<()> {
    let mut bytes = Vec::new();
    pmi::encode_reply(Dialect::Pmi2, to, None, reply, &mut bytes);
    rank.write_all(&bytes)
}
