//! The processes that `p2p` and `coll` measure.
//!
//! On the path of a message between two nodes there are processes that have the links of an agent, without the agent.
//! Process 0 sends messages and times their return, the last process sends the messages back, and the processes between
//! forward them. With two processes the link is a direct one; with more, each link is a hop of the tree. All processes
//! see one folder: the folder has the secret of the links, and each process writes its addresses there for the previous
//! process, once the link to the next process is up. For comparison two processes can have a bare TCP connection
//! instead.
//!
//! A rank of a job does allgathers, and checks the result of each.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use wireup_capi::job::{Job, JobSlot};
use wireup_node::agent::link_config::LinkConfig;
use wireup_node::agent::link_end::LinkEnd;
use wireup_node::agent::transports::Offer;
use wireup_os::random;
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_wire::frame::{Frame, FrameReader, PeerFrame};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{self, AgentTransport, Secret};
use wireup_wire::route::{self, Endpoint, Incarnations, Routed};

/// The first argument of a process on the path of a message; the arguments FOLDER INDEX LAST HOW IS_LOCAL ENCRYPT STEPS
/// follow it. HOW is `tcp` or `ucx`, or for a bare connection the address of process 1.
pub const WORD: &str = "link-process";
/// The first argument of a rank that does allgathers; the argument STEPS follows it.
pub const RANK: &str = "allgather-rank";

/// Longest wait for all links to come up, and for a message to arrive (chosen: an agent's start timeout). This bounds
/// the time for which a process outlives a benchmark that was killed.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Interval at which the folder is checked for files; nothing is measured by it (chosen).
const GLANCE: Duration = Duration::from_millis(5);
/// Longest wait for an event in one call of `turn` (chosen).
const TURN: Duration = Duration::from_secs(1);
/// Time without any bytes received after which a link is lost (ns; an agent's default).
const SILENCE_NS: u64 = 30_000_000_000;

static JOB: JobSlot<()> = JobSlot::new();

/// Message sizes in bytes, each with its number of iterations.
type Steps = Vec<(u32, u32)>;

/// Creates the secret in the folder and removes the addresses of an earlier run.
pub fn prepare(folder: &Path, last: u32) -> std::io::Result<()> {
    fs::write(folder.join("secret"), random::bytes::<32>()?)?;
    for index in 1..=last {
        match fs::remove_file(address_file(folder, index)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn address_file(folder: &Path, index: u32) -> PathBuf {
    folder.join(format!("link-{index}"))
}

fn text(problem: impl ToString) -> String {
    problem.to_string()
}

/// Parses `BYTESxTIMES,..`
fn read_steps(text: &str) -> Result<Steps, String> {
    let step = |text: &str| {
        let (bytes, times) = text.split_once('x')?;
        Some((bytes.parse().ok()?, times.parse().ok()?))
    };
    text.split(',').map(step).collect::<Option<_>>().ok_or_else(|| "steps are BYTESxTIMES,..".into())
}

fn words(args: &[OsString]) -> Vec<&str> {
    args.iter().filter_map(|arg| arg.to_str()).collect()
}

/// Number of iterations that are not measured, before `times` that are.
fn warm_up(times: u32) -> u32 {
    (times / 10).max(1)
}

/// Calls `once` for each iteration, with the size in bytes and the iteration's number, and prints the times that it
/// returns in nanoseconds: `measured BYTES TIMES TOTAL MEDIAN LEAST`.
fn measure(
    steps: &[(u32, u32)],
    is_told: bool,
    mut once: impl FnMut(u32, u32) -> Result<Duration, String>,
) -> Result<(), String> {
    for &(bytes, times) in steps {
        let all = (0..warm_up(times) + times).map(|iteration| once(bytes, iteration));
        let mut taken_ns: Vec<u64> = all.map(|time| Ok(time?.as_nanos() as u64)).collect::<Result<_, String>>()?;
        taken_ns.drain(..warm_up(times) as usize);
        taken_ns.sort_unstable();
        if is_told {
            let total_ns: u64 = taken_ns.iter().sum();
            println!("measured {bytes} {times} {total_ns} {} {}", taken_ns[taken_ns.len() / 2], taken_ns[0]);
        }
    }
    Ok(())
}

/// Runs a rank that does allgathers; `args`: the arguments after `RANK`.
pub fn gather(args: &[OsString]) -> Result<(), String> {
    let shown = |code| format!("{code:?}");
    let steps = read_steps(words(args).first().unwrap_or(&""))?;
    let mut job = Job::join(&JOB).map_err(shown)?;
    let (rank, size) = (job.rank, job.size);
    // The first byte of a value depends on rank and round; the other bytes are the same for all.
    let mark = |rank: u32, round: u32| b'a' + ((rank * 7 + round) % 26) as u8;
    measure(&steps, rank == 0, |bytes, round| {
        let (mut value, mut rows) = (vec![b'v'; bytes as usize], vec![0; (size * bytes) as usize]);
        value[0] = mark(rank, round);
        let begin = Instant::now();
        let request = job.start_allgather(&value, bytes as usize, true);
        let gathered = job.collect(request).map_err(shown)?;
        let taken = begin.elapsed();
        job.fill(&gathered, bytes as usize, &mut rows).map_err(shown)?;
        match (0..size).find(|other| rows[(other * bytes) as usize] != mark(*other, round)) {
            Some(other) => Err(format!("a wrong value of rank {other}")),
            None => Ok(taken),
        }
    })?;
    JOB.leave(job.with).map_err(shown)
}

/// Runs a process on the path of messages; `args`: the arguments after `WORD`.
pub fn run(args: &[OsString]) -> Result<(), String> {
    let [folder, index, last, how, is_local, encrypt, steps] = words(args)[..] else {
        return Err("wireup bench p2p starts these processes itself".into());
    };
    let folder = Path::new(folder);
    let [index, last] = [index, last].map(|text| text.parse::<u32>().map_err(|error| error.to_string()));
    let (index, last, steps) = (index?, last?, read_steps(steps)?);
    if let Ok(address) = how.parse() {
        return bare(folder, index, address, &steps);
    }
    let mut process = Process::new(folder, index, is_local == "true", encrypt == "true")?;
    let point = match how {
        "ucx" => Some(process.end.links.transports.open_agreed(AgentTransport::Ucx, &process.end.reactor)?),
        _ => None,
    };
    let addresses = process.end.links.transports.listen(&process.end.reactor).map_err(text)?;
    if index < last {
        process.link_to_next(folder)?;
    }
    if index == 0 {
        return process.ping(last, &steps);
    }
    let endpoint = Endpoint { addresses, point, failed: None };
    leave(&address_file(folder, index), &peer::encode(&endpoint)).map_err(text)?;
    process.answer(last)
}

/// Writes a file that other processes see only when it is complete.
fn leave(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, bytes)?;
    fs::rename(draft, path)
}

/// Waits for the file that process `index` writes; returns its contents.
fn await_file(folder: &Path, index: u32) -> Result<Vec<u8>, String> {
    let (until, path) = (Instant::now() + WAIT_MAX, address_file(folder, index));
    loop {
        match fs::read(&path) {
            Ok(bytes) => return Ok(bytes),
            Err(_) if Instant::now() < until => std::thread::sleep(GLANCE),
            Err(error) => return Err(format!("no addresses of process {index}: {}: {error}", path.display())),
        }
    }
}

/// Times messages over one TCP connection in its simplest form: blocking sockets, TCP_NODELAY, nothing else.
fn bare(folder: &Path, index: u32, address: Ipv4Addr, steps: &[(u32, u32)]) -> Result<(), String> {
    let mut buffer = vec![0; steps.iter().map(|step| step.0 as usize).max().unwrap_or(0)];
    if index == 1 {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(text)?;
        let port = listener.local_addr().map_err(text)?.port();
        leave(&address_file(folder, 1), port.to_string().as_bytes()).map_err(text)?;
        let (mut socket, _) = listener.accept().map_err(text)?;
        socket.set_nodelay(true).map_err(text)?;
        for &(bytes, times) in steps {
            for _ in 0..warm_up(times) + times {
                let message = &mut buffer[..bytes as usize];
                socket.read_exact(message).and_then(|()| socket.write_all(message)).map_err(text)?;
            }
        }
        return Ok(());
    }
    let port = String::from_utf8(await_file(folder, 1)?).ok().and_then(|port| port.parse::<u16>().ok());
    let mut socket = TcpStream::connect((address, port.ok_or("no port")?)).map_err(text)?;
    socket.set_nodelay(true).map_err(text)?;
    measure(steps, true, |bytes, _| {
        let (begin, message) = (Instant::now(), &mut buffer[..bytes as usize]);
        socket.write_all(message).and_then(|()| socket.read_exact(message)).map_err(text)?;
        Ok(begin.elapsed())
    })
}

struct Process {
    index: u32,
    end: LinkEnd,
    links: BTreeMap<AgentId, LinkId>,
    readers: BTreeMap<LinkId, FrameReader>,
    /// Frames that have been received and not been returned by `frames` yet.
    received: Vec<(LinkId, Frame)>,
}

impl Process {
    fn new(folder: &Path, index: u32, local: bool, encrypt: bool) -> Result<Process, String> {
        let secret = fs::read(folder.join("secret")).map_err(|error| format!("{}: {error}", folder.display()))?;
        let secret = Secret(secret.try_into().map_err(|_| "the secret has 32 bytes")?);
        let config = LinkConfig {
            local,
            parent: AgentId(0),
            incarnation: 0,
            start_timeout_ns: WAIT_MAX.as_nanos() as u64,
            node_timeout_ns: SILENCE_NS,
            encrypt,
            interface: None,
            ssh: None,
            by_ssh: false,
        };
        let end = LinkEnd::new(AgentId(index), secret, config).map_err(text)?;
        Ok(Process { index, end, links: BTreeMap::new(), readers: BTreeMap::new(), received: Vec::new() })
    }

    /// Waits for the next process's addresses, and then until the link to that process is up.
    fn link_to_next(&mut self, folder: &Path) -> Result<(), String> {
        let next = AgentId(self.index + 1);
        let bytes = await_file(folder, next.0)?;
        let Endpoint { addresses, point, .. } = peer::decode(&bytes).map_err(text)?;
        let LinkEnd { links, reactor, inputs, .. } = &mut self.end;
        links.dial_direct(next, Offer { addresses, point, called_us: false }, reactor, inputs);
        self.await_link(next)
    }

    fn await_link(&mut self, with: AgentId) -> Result<(), String> {
        self.turn_until(&format!("link with process {}", with.0), |own| own.links.contains_key(&with))
    }

    /// Waits for frames, and returns them.
    fn frames(&mut self) -> Result<Vec<(LinkId, Frame)>, String> {
        self.turn_until("message", |own| !own.received.is_empty())?;
        Ok(std::mem::take(&mut self.received))
    }

    fn turn_until(&mut self, what: &str, is_there: impl Fn(&Process) -> bool) -> Result<(), String> {
        let until = Instant::now() + WAIT_MAX;
        while !is_there(self) {
            self.turn()?;
            if Instant::now() > until {
                return Err(format!("no {what} within {} s", WAIT_MAX.as_secs()));
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), String> {
        self.end.turn(TURN).map_err(text)?;
        for input in self.end.inputs.drain(..) {
            match input {
                Input::LinkUp { link, peer: Peer::Direct(agent), .. } => {
                    self.links.insert(agent, link);
                }
                Input::LinkBytes { link, mut bytes } => {
                    let reader = self.readers.entry(link).or_default();
                    while let Some(frame) = reader.next(&mut bytes).map_err(text)? {
                        self.received.push((link, frame));
                    }
                }
                Input::LinkDown { problem, .. } => return Err(problem.words),
                Input::DialFailed { problem, .. } => return Err(problem),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends messages to the last process and prints how long they took to return.
    fn ping(mut self, last: u32, steps: &[(u32, u32)]) -> Result<(), String> {
        let link = self.links[&AgentId(1)];
        measure(steps, true, |bytes, _| {
            let payload = vec![0; bytes as usize].into();
            let message = Frame::new(PeerFrame::Direct, 0, 1, 0, payload);
            let begin = Instant::now();
            // On the tree's links, a message between agents that are not neighbours has a header for each hop.
            self.end.links.send(link, if last > 1 { routed(message, 0, last).wrap(1) } else { message });
            self.frames()?;
            Ok(begin.elapsed())
        })?;
        self.end.links.close(link);
        self.end.turn(Duration::ZERO).map_err(text)
    }

    /// Sends messages back (the last process) or forwards them, until the first process exits.
    fn answer(mut self, last: u32) -> Result<(), String> {
        self.await_link(AgentId(self.index - 1))?;
        let me = AgentId(self.index);
        // An error means that the link has closed, which ends this process: the first process reports any problem.
        while let Ok(frames) = self.frames() {
            for (link, frame) in frames {
                if last == 1 {
                    self.end.links.send(link, frame);
                    continue;
                }
                let (to, _) = route::ends(&frame).ok_or("a message without a route")?;
                if to == me {
                    let (_, message) =
                        Routed::unwrap(frame).ok().and_then(|routed| routed.frame).ok_or("no message")?;
                    self.end.links.send(link, routed(message, self.index, 0).wrap(1));
                } else {
                    let next = if to > me { self.index + 1 } else { self.index - 1 };
                    self.end.links.send(self.links[&AgentId(next)], frame);
                }
            }
        }
        Ok(())
    }
}

fn routed(message: Frame, from: u32, to: u32) -> Routed {
    let incarnations = Incarnations::default();
    Routed { to: AgentId(to), from: AgentId(from), incarnations, endpoint: None, frame: Some((0, message)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_are_refused() {
        for words in ["", "/nowhere 0 1 tcp true false 8x1", "/tmp 0 1 tcp true false 8", "/tmp a 1 tcp true false 8x1"]
        {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            assert!(run(&words).is_err() && gather(&words).is_err(), "{words:?}");
        }
    }
}
