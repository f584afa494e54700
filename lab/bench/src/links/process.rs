//! One process on the path of a message between two nodes: the links of an agent, without the agent.
//!
//! Process 0 sends messages and times their return, the last one sends them back, and those between pass them on. With
//! two processes the link is a direct one; with more, each is a hop of the tree. All see one folder: it has the secret
//! of the links, and each process leaves its addresses there for the one before it, once its own link to the next one
//! is up.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use wireup_node::agent::link_config::LinkConfig;
use wireup_node::agent::link_end::LinkEnd;
use wireup_node::agent::transports::Offer;
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_wire::frame::{Class, Frame, FrameReader, Kind};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{self, AgentTransport, Secret};
use wireup_wire::route::{self, Endpoint, Incarnations, Routed};

/// The first argument of such a process.
pub const WORD: &str = "link-process";

/// Time for all links to come up, and for a message to arrive (chosen: as long as an agent has to start). So no process
/// outlives the benchmark for long, whatever ended it.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Time between two looks at the folder; nothing is measured by it (chosen).
const GLANCE: Duration = Duration::from_millis(5);
/// Wait of one turn (chosen; an event ends it).
const TURN: Duration = Duration::from_secs(1);
/// A link that is silent for this long is lost (ns; an agent's default).
const SILENCE_NS: u64 = 30_000_000_000;

/// The arguments of one process.
pub struct Role<'a> {
    pub folder: &'a Path,
    pub index: u32,
    pub last: u32,
    pub is_ucx: bool,
    /// All processes are on this machine.
    pub is_local: bool,
    pub encrypt: bool,
    /// `BYTESxTIMES,..`
    pub steps: &'a str,
}

impl Role<'_> {
    pub fn words(&self) -> String {
        let Role { folder, index, last, is_ucx, is_local, encrypt, .. } = self;
        format!("{WORD} {} {index} {last} {is_ucx} {is_local} {encrypt} {}", folder.display(), self.steps)
    }
}

/// Makes the folder's secret and removes the addresses of an earlier run.
pub fn prepare(folder: &Path, last: u32) -> std::io::Result<()> {
    let mut secret = [0; 32];
    rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty())?;
    fs::write(folder.join("secret"), secret)?;
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

/// Runs a process; `args` are those after the word. Returns the exit code.
pub fn main(args: &[OsString]) -> u8 {
    match run(args) {
        Ok(()) => 0,
        Err(problem) => {
            eprintln!("wireup bench p2p: {problem}");
            1
        }
    }
}

fn run(args: &[OsString]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [folder, index, last, is_ucx, is_local, encrypt, steps] = words[..] else {
        return Err("wireup bench p2p starts these processes itself".into());
    };
    let folder = Path::new(folder);
    let [index, last] = [index, last].map(|text| text.parse::<u32>().map_err(|error| error.to_string()));
    let (index, last) = (index?, last?);
    let [is_ucx, is_local, encrypt] = [is_ucx, is_local, encrypt].map(|text| text == "true");
    let step = |text: &str| {
        let (bytes, times) = text.split_once('x')?;
        Some((bytes.parse().ok()?, times.parse().ok()?))
    };
    let steps: Vec<(u32, u32)> = steps.split(',').map(step).collect::<Option<_>>().ok_or("steps are BYTESxTIMES,..")?;

    let mut process = Process::new(folder, index, is_local, encrypt)?;
    let point = match is_ucx {
        true => Some(process.end.links.open_agreed(AgentTransport::Ucx, &process.end.reactor)?),
        false => None,
    };
    let addresses = process.end.links.listen(&process.end.reactor).map_err(|error| error.to_string())?;
    if index < last {
        process.link_to_next(folder)?;
    }
    if index == 0 {
        return process.ping(last, &steps);
    }
    let endpoint = Endpoint { addresses, point, failed: None };
    leave(&address_file(folder, index), &peer::encode(&endpoint)).map_err(|error| error.to_string())?;
    process.answer(last)
}

/// Writes a file that others see only once it is whole.
fn leave(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, bytes)?;
    fs::rename(draft, path)
}

struct Process {
    index: u32,
    end: LinkEnd,
    links: BTreeMap<AgentId, LinkId>,
    readers: BTreeMap<LinkId, FrameReader>,
    /// Frames received and not yet taken.
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
        let end = LinkEnd::new(AgentId(index), secret, config).map_err(|error| error.to_string())?;
        Ok(Process { index, end, links: BTreeMap::new(), readers: BTreeMap::new(), received: Vec::new() })
    }

    /// Waits for the next process's addresses, and then for a link to it.
    fn link_to_next(&mut self, folder: &Path) -> Result<(), String> {
        let (until, next) = (Instant::now() + WAIT_MAX, AgentId(self.index + 1));
        let path = address_file(folder, next.0);
        let bytes = loop {
            match fs::read(&path) {
                Ok(bytes) => break bytes,
                Err(_) if Instant::now() < until => std::thread::sleep(GLANCE),
                Err(error) => return Err(format!("no addresses of process {}: {}: {error}", next.0, path.display())),
            }
        };
        let Endpoint { addresses, point, .. } = peer::decode(&bytes).map_err(|error| error.to_string())?;
        let LinkEnd { links, reactor, inputs, .. } = &mut self.end;
        links.dial_direct(next, Offer { addresses, point, called_us: false }, reactor, inputs);
        self.await_link(next)
    }

    fn await_link(&mut self, with: AgentId) -> Result<(), String> {
        let until = Instant::now() + WAIT_MAX;
        while !self.links.contains_key(&with) {
            self.turn()?;
            if Instant::now() > until {
                return Err(format!("no link with process {} within {} s", with.0, WAIT_MAX.as_secs()));
            }
        }
        Ok(())
    }

    /// Waits for frames.
    ///
    /// # Errors
    /// A link is lost, or no frame arrives.
    fn frames(&mut self) -> Result<Vec<(LinkId, Frame)>, String> {
        let until = Instant::now() + WAIT_MAX;
        while self.received.is_empty() {
            self.turn()?;
            if Instant::now() > until {
                return Err(format!("no message within {} s", WAIT_MAX.as_secs()));
            }
        }
        Ok(std::mem::take(&mut self.received))
    }

    /// # Errors
    /// A link could not be made, or is lost.
    fn turn(&mut self) -> Result<(), String> {
        self.end.turn(TURN).map_err(|error| error.to_string())?;
        for input in self.end.inputs.drain(..) {
            match input {
                Input::LinkUp { link, peer: Peer::Direct(agent), .. } => {
                    self.links.insert(agent, link);
                }
                Input::LinkBytes { link, mut bytes } => {
                    let reader = self.readers.entry(link).or_default();
                    while let Some(frame) = reader.next(&mut bytes).map_err(|error| error.to_string())? {
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
        for &(bytes, times) in steps {
            let message = Frame {
                kind: Kind::Direct,
                class: Class::Exchange,
                stream: 0,
                job: 1,
                arg: 0,
                payload: vec![0; bytes as usize].into(),
            };
            let mut taken_ns = Vec::new();
            // A tenth of the iterations comes before those that count.
            let before = (times / 10).max(1);
            for iteration in 0..before + times {
                let begin = Instant::now();
                // On the tree's links, messages between agents that are no neighbours have a header for each hop.
                let frame = if last > 1 { routed(message.clone(), 0, last).wrap(1) } else { message.clone() };
                self.end.links.send(link, frame);
                self.frames()?;
                if iteration >= before {
                    taken_ns.push(begin.elapsed().as_nanos() as u64);
                }
            }
            taken_ns.sort_unstable();
            let total_ns: u64 = taken_ns.iter().sum();
            println!("measured {bytes} {times} {total_ns} {} {}", taken_ns[taken_ns.len() / 2], taken_ns[0]);
        }
        self.end.links.close(link);
        self.end.turn(Duration::ZERO).map_err(|error| error.to_string())
    }

    /// Sends messages back, or passes them on, until the first process leaves.
    fn answer(mut self, last: u32) -> Result<(), String> {
        self.await_link(AgentId(self.index - 1))?;
        let me = AgentId(self.index);
        // The end of the link is the end of the benchmark: the first process reports any problem.
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
    use crate::programs::Scratch;

    /// Runs all processes of a path, each in a thread.
    fn path(last: u32, encrypt: bool) {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let folder = scratch.file("");
        prepare(&folder, last).unwrap();
        let one = |index: u32| {
            let role =
                Role { folder: &folder, index, last, is_ucx: false, is_local: true, encrypt, steps: "8x20,100000x3" };
            let words: Vec<OsString> = role.words().split(' ').skip(1).map(OsString::from).collect();
            std::thread::spawn(move || run(&words))
        };
        let threads: Vec<_> = (0..=last).map(one).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
    }

    #[test]
    fn messages_return_over_a_direct_link_and_over_hops() {
        path(1, false);
        path(1, true);
        path(4, false);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for words in
            ["", "/nowhere 0 1 false true false 8x1", "/tmp 0 1 false true false 8", "/tmp a 1 false true false 8x1"]
        {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            assert!(run(&words).is_err(), "{words:?}");
        }
    }
}
