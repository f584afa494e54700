//! What is timed: wireup's links with each transport and algorithm, and other programs that do the same work.
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::process::{self, Role};
use crate::bench::Bench;
use crate::programs::Program;
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

/// What the commands of all subjects have in common.
pub struct Subjects<'a> {
    pub bench: &'a Bench,
    pub wireup: PathBuf,
    /// This program, where all nodes see it.
    pub own: PathBuf,
    /// Our libpmi2, where all nodes see it.
    pub library: PathBuf,
    pub nodes: u32,
    pub fanout: u32,
    /// The two nodes of messages.
    pub pair: (u32, u32),
    pub cpus: Option<(u32, u32)>,
    /// Bytes and iterations.
    pub steps: Vec<(u32, u32)>,
    pub remote_shell: String,
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

    /// Whether times are those of allgathers.
    pub fn is_gathered(&self) -> bool {
        matches!(self, Subject::All { .. } | Subject::Peer { .. })
    }
}

impl Subjects<'_> {
    /// All that a benchmark times, the base of the ratios first.
    pub fn all(&self, is_p2p: bool, peers: Vec<(String, String)>) -> Vec<Subject> {
        let mut all = Vec::new();
        if is_p2p {
            all.push(Subject::Bare);
            all.extend(["tcp", "tree", "ucx"].map(|transport| Subject::Pair { transport }));
            all.push(Subject::UcxPerftest { sleeps: true });
            // Two processes that poll on one cpu wait for the end of each other's time slice.
            if self.cpus.is_none_or(|(first, second)| first != second) {
                all.push(Subject::UcxPerftest { sleeps: false });
            }
            return all;
        }
        all.push(Subject::All { exchange: "tree", transport: None });
        for exchange in ["ring", "log"] {
            let with = |transport| Subject::All { exchange, transport: Some(transport) };
            all.extend(["tcp", "tree", "ucx"].map(with));
        }
        all.extend(peers.into_iter().map(|(name, command)| Subject::Peer { name, command }));
        all
    }

    /// The command; it prints its measurements.
    ///
    /// # Errors
    /// The folder of the test programs cannot be written.
    pub fn command(&self, subject: &Subject) -> io::Result<Vec<OsString>> {
        let steps = self.steps.iter().map(|(bytes, times)| format!("{bytes}x{times}")).collect::<Vec<_>>().join(",");
        let (scratch, hosts) = (&self.bench.scratch, &self.bench.hosts);
        Ok(match subject {
            Subject::Pair { transport } => {
                let nodes = self.path(transport);
                let folder = scratch.file("");
                let last = nodes.len() as u32 - 1;
                process::prepare(&folder, last)?;
                let process = |index: u32| {
                    let role = Role {
                        folder: &folder,
                        index,
                        last,
                        is_ucx: *transport == "ucx",
                        is_local: hosts.is_empty(),
                        encrypt: self.bench.wireup_args.iter().all(|arg| arg != "--plain-links"),
                        steps: &steps,
                    };
                    format!("{} {} {}", self.end(nodes[index as usize], index), self.own.display(), role.words())
                };
                let others: Vec<String> = (1..=last).map(|index| format!("{} &", process(index))).collect();
                shell(&format!("{} {}; code=$?; wait; exit $code", others.join(" "), process(0)))
            }
            Subject::All { exchange, transport } => {
                let mut extra = vec![format!("--exchange={exchange}")];
                extra.extend(transport.map(|transport| format!("--agent-transport={transport}")));
                let program = scratch.program(Program::Pmi2Allgather);
                let program = [program.into(), self.library.clone().into(), steps.into()];
                self.run(&extra, program)
            }
            Subject::Bare => {
                let program = scratch.program(Program::TcpPingpong).display().to_string();
                let local = if hosts.is_empty() { "127.0.0.1" } else { "" };
                let [first, second] = self.ends();
                let served = scratch.file("served").display().to_string();
                let script = format!(
                    "rm -f {served}; {second} {program} serve {local} >{served} & \
                     until test -s {served}; do sleep 0.01; done; {first} {program} $(cat {served}) {steps}; wait"
                );
                shell(&script)
            }
            Subject::UcxPerftest { sleeps } => {
                let mode = if *sleeps { " -e -E sleep" } else { "" };
                let [first, second] = self.ends();
                let host = hosts.get(self.pair.1 as usize).map_or("127.0.0.1", String::as_str);
                let mut script = String::from("port=$((20000 + $$ % 20000));");
                for (bytes, times) in self.steps.iter().filter(|(bytes, _)| UCX_SIZES.contains(bytes)) {
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
                let program = scratch.program(Program::PmixExchange).display().to_string();
                let count = if hosts.is_empty() { self.nodes as usize } else { hosts.len() };
                let ranks = format!("{program} {count} allgather {steps}");
                shell(&command.replace("{steps}", &steps).replace("{pmix}", &ranks))
            }
        })
    }

    /// The prefixes of commands for the two nodes.
    fn ends(&self) -> [String; 2] {
        [self.end(self.pair.0, 0), self.end(self.pair.1, 1)]
    }

    /// The prefix of a command for this node, the one with this index on the path.
    fn end(&self, node: u32, index: u32) -> String {
        let there = match self.bench.hosts.get(node as usize) {
            Some(host) => format!("{} {host}", self.remote_shell),
            // In a session of its own, like agents and like processes of other hosts; otherwise the scheduler puts all
            // ends into one group.
            None => "setsid -w".into(),
        };
        match self.cpus {
            Some((first, second)) => {
                format!("{there} taskset -c {}", if index.is_multiple_of(2) { first } else { second })
            }
            None => there,
        }
    }

    /// The nodes on a message's path from the first of the pair to the second.
    fn path(&self, transport: &str) -> Vec<u32> {
        match transport {
            "tree" => path(self.nodes, self.fanout, self.pair),
            _ => vec![self.pair.0, self.pair.1],
        }
    }

    fn run(&self, extra: &[String], program: [OsString; 3]) -> Vec<OsString> {
        let nodes = self.nodes.to_string();
        // The program loads its library by dlopen, so wireup cannot see which one it is.
        let mut words = ["run", "--pmi", "simple"].map(str::to_owned).to_vec();
        if self.bench.hosts.is_empty() {
            words.extend(["-n", &nodes, "--virtual-nodes", &nodes].map(str::to_owned));
        } else {
            let hosts = self.bench.hosts.join(",");
            words.extend(["--hosts", &hosts, "--remote-shell", &self.remote_shell, "--ppn", "1"].map(str::to_owned));
        }
        words.push(format!("--fanout={}", self.fanout));
        words.extend(extra.iter().chain(&self.bench.wireup_args).cloned());
        let mut argv: Vec<OsString> = vec![self.wireup.clone().into()];
        argv.extend(words.into_iter().map(OsString::from).chain(program));
        argv
    }
}

fn shell(script: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", script].map(OsString::from).into()
}

/// The nodes from the first of the pair through the tree to the second.
fn path(nodes: u32, fanout: u32, (first, second): (u32, u32)) -> Vec<u32> {
    let tree = Tree::new(nodes, fanout);
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

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn a_path_in_the_tree_leads_over_the_nearest_common_ancestor() {
        assert_eq!(path(16, 4, (5, 9)), [5, 1, 0, 2, 9]);
        assert_eq!(path(3, 4, (1, 2)), [1, 0, 2]);
        assert_eq!(path(16, 4, (5, 6)), [5, 1, 6]);
        assert_eq!([path(16, 4, (0, 5)), path(16, 4, (5, 0))], [[0, 1, 5], [5, 1, 0]]);
    }
}
