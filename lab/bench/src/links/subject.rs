//! What is timed: wireup's agents with each transport and algorithm, and other programs that do the same work.
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::flags::{Benchmark, Flags};
use super::process::{self, Role};
use crate::error::{self, BenchError};
use crate::programs::{Program, Scratch};
use crate::startup;
use crate::turns::Place;
use wireup_coll::tree::Tree;
use wireup_wire::ids::AgentId;

/// Sizes for `ucx_perftest`, which measures only one size per call.
const UCX_SIZES: [u32; 4] = [8, 1 << 10, 1 << 16, 1 << 22];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Two agents.
    Pair { transport: &'static str },
    /// All agents. Without a transport, only the links of the tree are used.
    All { exchange: &'static str, transport: Option<&'static str> },
    /// A bare C program over TCP.
    Bare,
    /// UCX's own benchmark. It polls without a pause, or sleeps until something arrives; then its endpoints handle
    /// errors, as those of agents do.
    UcxPerftest { sleeps: bool },
    /// A command that prints its measurements.
    Peer { name: String, command: String },
}

/// Programs and libraries that are not embedded, where all nodes see them.
pub struct Programs {
    /// This program.
    own: PathBuf,
    /// Our libpmi2.
    library: PathBuf,
}

impl Programs {
    pub fn copy(flags: &Flags, wireup: &Path, scratch: &Scratch) -> Result<Programs, BenchError> {
        let own = std::env::current_exe().and_then(|own| scratch.copy_of(&own)).map_err(error::io("this program"))?;
        let library = match flags.benchmark {
            Benchmark::P2p => PathBuf::new(),
            Benchmark::Coll => {
                let library = startup::library(flags.library.as_deref(), wireup)?;
                scratch.copy_of(&library).map_err(error::io(format!("--library {}", library.display())))?
            }
        };
        Ok(Programs { own, library })
    }
}

/// All that a benchmark times, without those that the user excludes.
pub fn all(flags: &Flags) -> Vec<Subject> {
    let mut all = Vec::new();
    match flags.benchmark {
        Benchmark::P2p => {
            all.push(Subject::Bare);
            all.extend(["tcp", "tree", "ucx"].map(|transport| Subject::Pair { transport }));
            all.push(Subject::UcxPerftest { sleeps: true });
            // Two processes that poll on one cpu wait for the end of each other's time slice.
            if flags.cpus.is_none_or(|(first, second)| first != second) {
                all.push(Subject::UcxPerftest { sleeps: false });
            }
        }
        Benchmark::Coll => {
            all.push(Subject::All { exchange: "tree", transport: None });
            for exchange in ["ring", "log"] {
                all.extend(
                    ["tcp", "tree", "ucx"].map(|transport| Subject::All { exchange, transport: Some(transport) }),
                );
            }
            let peers = flags.peers.iter().cloned();
            all.extend(peers.map(|(name, command)| Subject::Peer { name, command }));
        }
    }
    all.retain(|subject| {
        let name = subject.name();
        flags.only.is_empty() || flags.only.iter().any(|only| name.starts_with(only.as_str()))
    });
    all
}

impl Subject {
    pub fn name(&self) -> String {
        match self {
            Subject::Pair { transport } => (*transport).to_owned(),
            Subject::All { exchange, transport: None } => (*exchange).to_owned(),
            Subject::All { exchange, transport: Some(transport) } => format!("{exchange}/{transport}"),
            Subject::Bare => "bare C".into(),
            Subject::UcxPerftest { sleeps: true } => "perftest, sleeps".into(),
            Subject::UcxPerftest { sleeps: false } => "perftest, turns".into(),
            Subject::Peer { name, .. } => name.clone(),
        }
    }

    /// Whether times are those of a round trip.
    pub fn is_round_trip(&self) -> bool {
        matches!(self, Subject::Pair { .. } | Subject::Bare)
    }

    /// The command; it prints its measurements.
    ///
    /// # Errors
    /// The folder of the test programs cannot be written.
    pub fn command(&self, place: &Place<Flags>, programs: &Programs) -> io::Result<Vec<OsString>> {
        let flags = place.flags;
        let steps = steps(&flags.steps);
        Ok(match self {
            Subject::Pair { transport } => {
                let nodes = path(flags, transport);
                let folder = place.setup.scratch.file("");
                let last = nodes.len() as u32 - 1;
                process::prepare(&folder, last)?;
                let process = |index: u32| {
                    let role = Role {
                        folder: &folder,
                        index,
                        last,
                        is_ucx: *transport == "ucx",
                        is_local: flags.across.hosts.is_empty(),
                        encrypt: flags.common_flags.wireup_args.iter().all(|arg| arg != "--plain-links"),
                        steps: &steps,
                    };
                    format!("{} {} {}", end(flags, nodes[index as usize], index), programs.own.display(), role.words())
                };
                let others: Vec<String> = (1..=last).map(|index| format!("{} &", process(index))).collect();
                shell(&format!("{} {}; code=$?; wait; exit $code", others.join(" "), process(0)))
            }
            Subject::All { exchange, transport } => {
                let mut extra = vec![format!("--exchange={exchange}")];
                extra.extend(transport.map(|transport| format!("--agent-transport={transport}")));
                let program = place.setup.scratch.program(Program::Pmi2Allgather);
                let program = [program.into(), programs.library.clone().into(), steps.into()];
                run(place, &extra, program)
            }
            Subject::Bare => {
                let program = place.setup.scratch.program(Program::TcpPingpong).display().to_string();
                let local = if flags.across.hosts.is_empty() { "127.0.0.1" } else { "" };
                let [first, second] = ends(flags);
                let served = place.setup.scratch.file("served").display().to_string();
                let script = format!(
                    "rm -f {served}; {second} {program} serve {local} >{served} & \
                     until test -s {served}; do sleep 0.01; done; {first} {program} $(cat {served}) {steps}; wait"
                );
                shell(&script)
            }
            Subject::UcxPerftest { sleeps } => {
                let mode = if *sleeps { " -e -E sleep" } else { "" };
                let [first, second] = ends(flags);
                let host = flags.across.hosts.get(flags.pair.1 as usize).map_or("127.0.0.1", String::as_str);
                let mut script = String::from("port=$((20000 + $$ % 20000));");
                for (bytes, times) in flags.steps.iter().filter(|(bytes, _)| UCX_SIZES.contains(bytes)) {
                    let times = times * 10;
                    let test = format!("ucx_perftest -p $port -t tag_lat -s {bytes} -n {times} -w {times}{mode}");
                    script += &format!(
                        " {second} {test} >/dev/null 2>&1 & sleep 0.3; {first} {test} {host} | \
                         awk '/^Final/ {{ printf \"measured {bytes} {times} %d %d %d\\n\", $5*1000*{times}, $3*1000, $3*1000 }}'; wait; \
                         port=$((port + 1));"
                    );
                }
                shell(&script)
            }
            Subject::Peer { command, .. } => {
                let program = place.setup.scratch.program(Program::PmixExchange).display().to_string();
                let count = if flags.across.hosts.is_empty() { flags.nodes as usize } else { flags.across.hosts.len() };
                let ranks = format!("{program} {count} allgather {steps}");
                shell(&command.replace("{steps}", &steps).replace("{pmix}", &ranks))
            }
        })
    }
}

fn steps(steps: &[(u32, u32)]) -> String {
    steps.iter().map(|(bytes, times)| format!("{bytes}x{times}")).collect::<Vec<_>>().join(",")
}

fn shell(script: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", script].map(OsString::from).into()
}

/// The prefixes of commands for the two nodes.
fn ends(flags: &Flags) -> [String; 2] {
    [end(flags, flags.pair.0, 0), end(flags, flags.pair.1, 1)]
}

/// The prefix of a command for this node, the one with this index on the path.
fn end(flags: &Flags, node: u32, index: u32) -> String {
    let place = match flags.across.hosts.get(node as usize) {
        Some(host) => format!("{} {host}", flags.across.remote_shell),
        // In a session of its own, like agents and like processes of other hosts; otherwise the scheduler puts all ends
        // into one group.
        None => "setsid -w".into(),
    };
    match flags.cpus {
        Some((first, second)) => format!("{place} taskset -c {}", if index.is_multiple_of(2) { first } else { second }),
        None => place,
    }
}

/// The nodes on a message's path from the first of the pair to the second.
fn path(flags: &Flags, transport: &str) -> Vec<u32> {
    let (first, second) = flags.pair;
    if transport != "tree" {
        return vec![first, second];
    }
    let tree = Tree::new(flags.nodes, flags.fanout);
    let up = |node: u32| std::iter::successors(Some(AgentId(node)), |agent| tree.parent(*agent)).collect::<Vec<_>>();
    let (mut from, mut to) = (up(first), up(second));
    // Both end at the root; their common part, except for the nearest common ancestor, is no part of the path.
    while from.len() > 1 && to.len() > 1 && from[from.len() - 2] == to[to.len() - 2] {
        from.pop();
        to.pop();
    }
    to.pop();
    from.into_iter().chain(to.into_iter().rev()).map(|agent| agent.0).collect()
}

fn run(place: &Place<Flags>, extra: &[String], program: [OsString; 3]) -> Vec<OsString> {
    let flags = place.flags;
    // The program loads its library by dlopen, so wireup cannot see which one it is.
    let mut argv: Vec<OsString> =
        vec![place.wireup.as_os_str().to_owned(), "run".into(), "--pmi".into(), "simple".into()];
    if flags.across.hosts.is_empty() {
        argv.extend(["-n", &flags.nodes.to_string(), "--virtual-nodes", &flags.nodes.to_string()].map(OsString::from));
    } else {
        argv.extend(
            ["--hosts", &flags.across.hosts.join(","), "--remote-shell", &flags.across.remote_shell]
                .map(OsString::from),
        );
        argv.extend(["--ppn", "1"].map(OsString::from));
    }
    argv.push(format!("--fanout={}", flags.fanout).into());
    argv.extend(extra.iter().chain(&flags.common_flags.wireup_args).map(OsString::from));
    argv.extend(program);
    argv
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common_flags;
    use crate::links::flags::{COMMAND, read};

    #[test]
    fn a_path_in_the_tree_leads_over_the_nearest_common_ancestor() {
        let flags = |words: &str| read(Benchmark::P2p, &common_flags::line(&COMMAND, words).unwrap()).unwrap();
        assert_eq!(path(&flags(""), "tree"), [5, 1, 0, 2, 9], "fan-out 4");
        assert_eq!(path(&flags("--nodes 3 --pair 1,2"), "tree"), [1, 0, 2]);
        assert_eq!(path(&flags("--pair 5,6"), "tree"), [5, 1, 6]);
        assert_eq!(path(&flags("--pair 0,5"), "tree"), [0, 1, 5]);
        assert_eq!(path(&flags("--pair 5,0"), "tree"), [5, 1, 0]);
        assert_eq!(path(&flags(""), "tcp"), [5, 9]);
    }
}
