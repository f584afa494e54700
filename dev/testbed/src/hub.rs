//! The testbed's process: creates the hub and the nodes, then carries out requests from standard input.
//!
//! The process has its own name spaces for network, mounts and host name, but not for processes. Requests and answers
//! are lines; the end of standard input ends the testbed. However the process ends, its nodes end with it.
//!
//! Cost: nodes create their name spaces at the same time; the hub sends one request for each cable.
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};

use crate::spec::{HUB, Spec, addresses, hosts_file, mac, name};
use crate::{mounts, network, node, processes, slurm, ssh, sys};

#[derive(Debug, thiserror::Error)]
enum Failure {
    /// This machine does not allow a testbed; the text is the reason.
    #[error("{0}")]
    Unavailable(String),
    #[error("{what}: {error}")]
    Failed { what: String, error: io::Error },
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::Failed { what: what.into(), error }
}

struct Hub {
    nodes: Vec<Node>,
}

struct Node {
    pid: Pid,
    link: BufReader<UnixStream>,
    /// Pids of the node's daemons, as numbered within the node.
    daemons: String,
    off: bool,
}

/// Builds the testbed, carries out requests until standard input ends, then removes everything; returns the exit code.
pub fn main(spec: &Spec) -> i32 {
    // In a session of its own: interrupts from a terminal are meant for the user's programs, not for the testbed.
    let _ = rustix::process::setsid();
    // Programs on a host react to interrupts, as after a login.
    sys::heed_interrupts();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut hub = match Hub::build(spec) {
        Ok(hub) => hub,
        Err(failure) => {
            let word = if matches!(failure, Failure::Unavailable(_)) { "unavailable" } else { "failed" };
            say(&format!("{word} {failure}"));
            return 1;
        }
    };
    for (i, node) in hub.nodes.iter().enumerate() {
        say(&format!("node {i} {} {}", node.pid.as_raw_pid(), node.daemons));
    }
    say("ready");
    for line in io::stdin().lines().map_while(Result::ok) {
        match hub.handle(&line) {
            Ok(()) => say("ok"),
            Err(error) => say(&format!("error {error}")),
        }
    }
    hub.take_down();
    0
}

/// Writes one line to the process that has started this one. Errors are ignored: if nobody reads the line, standard
/// input will end as well.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{}", line.replace('\n', "; "));
}

impl Hub {
    fn build(spec: &Spec) -> Result<Hub, Failure> {
        check(spec).map_err(Failure::Unavailable)?;
        let own = UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
        sys::unshare(own).map_err(|error| Failure::Unavailable(format!("no name spaces here: {error}")))?;
        mounts::enter_hub(&hosts_file(spec.nodes), &spec.program).map_err(failed("private mounts of the hub"))?;
        rustix::system::sethostname(HUB.as_bytes()).map_err(|error| failed("host name of the hub")(error.into()))?;
        open_network(spec).map_err(failed("network of the hub"))?;
        ssh::prepare().map_err(failed("keys and configuration of ssh"))?;
        if spec.slurm {
            slurm::prepare(spec).map_err(failed("key and configuration of Slurm"))?;
            slurm::start_on_hub().map_err(failed(HUB))?;
        }
        let mut hub = Hub { nodes: Vec::new() };
        match hub.add_nodes(spec).and_then(|()| hub.await_slurm(spec)) {
            Ok(()) => Ok(hub),
            Err(failure) => {
                hub.take_down();
                Err(failure)
            }
        }
    }

    fn add_nodes(&mut self, spec: &Spec) -> Result<(), Failure> {
        for i in 0..spec.nodes {
            let node = Node::fork(spec, i).map_err(failed(name(i)))?;
            self.nodes.push(node);
        }
        for (i, node) in (0..).zip(&mut self.nodes) {
            node.expect("made")?;
            lay_cable(i, node.pid).map_err(failed(format!("cable of {}", name(i))))?;
            node.link.get_mut().write_all(b"go\n").map_err(failed(name(i)))?;
        }
        for node in &mut self.nodes {
            node.daemons = node.expect("ready")?;
        }
        Ok(())
    }

    fn await_slurm(&self, spec: &Spec) -> Result<(), Failure> {
        if !spec.slurm {
            return Ok(());
        }
        let root = |node: &Node| format!("/proc/{}/root", node.pid.as_raw_pid()).into();
        slurm::await_nodes(&self.nodes.iter().map(root).collect::<Vec<_>>()).map_err(failed("Slurm"))
    }

    fn handle(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split('\t');
        let mut word = || words.next().ok_or("incomplete request");
        let (verb, number) = (word()?, word()?);
        let i: u16 = number.parse().map_err(|_| format!("{number}: no node"))?;
        let node = self.nodes.get_mut(usize::from(i)).ok_or_else(|| format!("{}: no such node", name(i)))?;
        if node.off {
            return Err(format!("{} is off", name(i)));
        }
        let port = port(i);
        let done = match verb {
            "cut" => network::set_forwarding(&port, false),
            "heal" => network::set_forwarding(&port, true),
            "power-off" => network::set_forwarding(&port, false).and_then(|()| node.power_off()),
            "cover" => {
                let (path, with) = (word()?, word()?);
                node.mount(|| mounts::cover(Path::new(path), Path::new(with)))
            }
            "small-disk" => {
                let (path, bytes) = (word()?, word()?);
                let bytes = bytes.parse().map_err(|_| format!("{bytes}: not a number of bytes"))?;
                node.mount(|| mounts::small_disk(Path::new(path), bytes))
            }
            other => return Err(format!("{other}: no such request")),
        };
        done.map_err(|error| format!("{verb} {}: {error}", name(i)))
    }

    /// Kills all nodes and all other processes in the hub's network.
    fn take_down(&mut self) {
        for node in self.nodes.iter().filter(|node| !node.off) {
            let _ = rustix::process::kill_process(node.pid, Signal::KILL);
        }
        self.nodes.iter_mut().for_each(|node| drop(node.power_off()));
        processes::kill_others_in_network();
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::empty()) {}
    }
}

fn check(spec: &Spec) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("a testbed needs root: it makes name spaces for networks, mounts and processes".into());
    }
    let spaces = ["net", "mnt", "uts", "ipc", "pid"].into_iter().chain(spec.clock_offsets.then_some("time"));
    for space in spaces {
        if !Path::new("/proc/self/ns").join(space).exists() {
            return Err(format!("this kernel has no {space} name spaces"));
        }
    }
    let missing = ssh::missing().or_else(network::missing).or_else(|| slurm::missing().filter(|_| spec.slurm));
    missing.map_or(Ok(()), Err)
}

/// Creates the hub's bridge, which forwards without a delay and floods frames for unknown addresses.
fn open_network(spec: &Spec) -> io::Result<()> {
    node::quieten()?;
    let bridge = format!("link add br0 address {} type bridge mcast_snooping 0\n", network::text(mac(None)));
    let up = "link set lo up\nlink set br0 up\n";
    let lines = bridge + up + &network::addresses("br0", &addresses(None)) + &node::neighbours(spec, None, "br0");
    network::ip(&(lines + node::trap(spec)))
}

/// The name of the hub's end of node `i`'s cable.
fn port(i: u16) -> String {
    format!("v{i}")
}

fn lay_cable(i: u16, pid: Pid) -> io::Result<()> {
    let [a, b, c, _, e, f] = mac(Some(i));
    let (here, there) = (network::text([a, b, c, 1, e, f]), network::text(mac(Some(i))));
    let (port, pid) = (port(i), pid.as_raw_pid());
    network::ip(&format!(
        "link add {port} address {here} type veth peer name eth0 address {there} netns {pid}\n\
         link set {port} master br0 up\n"
    ))
}

impl Node {
    fn fork(spec: &Spec, i: u16) -> io::Result<Node> {
        if spec.clock_offsets {
            sys::unshare(UnshareFlags::NEWTIME)?;
            let seconds = spec.clock_offset(i).as_secs();
            fs::write("/proc/self/timens_offsets", format!("monotonic {seconds} 0\nboottime {seconds} 0\n"))?;
        }
        let (here, there) = UnixStream::pair()?;
        match sys::fork_init()? {
            Some(pid) => Ok(Node { pid, link: BufReader::new(here), daemons: String::new(), off: false }),
            None => {
                drop(here);
                node::main(spec, i, there)
            }
        }
    }

    fn expect(&mut self, word: &str) -> Result<String, Failure> {
        let mut line = String::new();
        self.link.read_line(&mut line).map_err(failed("a node"))?;
        match line.trim_end().strip_prefix(word) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => Err(Failure::Failed { what: "a node".into(), error: io::Error::other(line.trim().to_owned()) }),
        }
    }

    /// Kills all processes of the node and waits until they have exited.
    fn power_off(&mut self) -> io::Result<()> {
        if !self.off {
            self.off = true;
            rustix::process::kill_process(self.pid, Signal::KILL)?;
            rustix::process::waitpid(Some(self.pid), WaitOptions::empty())?;
        }
        Ok(())
    }

    /// Lets a short-lived child mount something in this node's mount name space.
    fn mount(&self, action: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let (mut here, there) = UnixStream::pair()?;
        let Some(pid) = sys::fork()? else {
            let pidfd = rustix::process::pidfd_open(self.pid, PidfdFlags::empty());
            let entered = pidfd.and_then(|pidfd| {
                rustix::thread::move_into_thread_name_spaces(pidfd.as_fd(), ThreadNameSpaceType::MOUNT)
            });
            let done = entered.map_err(Into::into).and_then(|()| action());
            let _ = (&there).write_all(done.err().map(|error| error.to_string()).unwrap_or_default().as_bytes());
            sys::leave(0)
        };
        drop(there);
        let mut error = String::new();
        here.read_to_string(&mut error)?;
        rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
        if error.is_empty() { Ok(()) } else { Err(io::Error::other(error)) }
    }
}
