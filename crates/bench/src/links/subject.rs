//! What is timed: wireup's agents with each transport and algorithm, and other programs that do the same work.
use std::ffi::OsString;

use super::flags::{Benchmark, Flags};
use crate::programs::Program;
use crate::turns::Place;

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
    /// UCX's own benchmark. It polls without a pause, or sleeps until something arrives; then its endpoints handle errors, as those of
    /// agents do.
    UcxPerftest { sleeps: bool },
    /// A command that prints its measurements.
    Peer { name: String, command: String },
}

/// All that a benchmark times, without those that the user excludes.
pub fn all(flags: &Flags) -> Vec<Subject> {
    let mut all = Vec::new();
    match flags.benchmark {
        Benchmark::P2p => {
            all.push(Subject::Bare);
            all.extend(["tcp", "tree", "ucx"].map(|transport| Subject::Pair { transport }));
            all.extend([true, false].map(|sleeps| Subject::UcxPerftest { sleeps }));
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

    /// The command, and whether it prints its measurements on standard error (else on standard output).
    pub fn command(&self, place: &Place<Flags>) -> (Vec<OsString>, bool) {
        let flags = place.flags;
        let steps = steps(&flags.steps);
        match self {
            Subject::Pair { transport } => {
                let (first, second) = flags.pair;
                let task = format!("{first},{second}:{steps}");
                (run(place, &task, &[format!("--agent-transport={transport}")]), true)
            }
            Subject::All { exchange, transport } => {
                let mut extra = vec![format!("--exchange={exchange}")];
                extra.extend(transport.map(|transport| format!("--agent-transport={transport}")));
                (run(place, &format!("all:{steps}"), &extra), true)
            }
            Subject::Bare => {
                let program = place.setup.scratch.program(Program::TcpPingpong).display().to_string();
                let local = if flags.across.hosts.is_empty() { "127.0.0.1" } else { "" };
                let [first, second] = ends(place);
                let served = place.setup.scratch.file("served").display().to_string();
                let script = format!(
                    "rm -f {served}; {second} {program} serve {local} >{served} & \
                     until test -s {served}; do sleep 0.01; done; {first} {program} $(cat {served}) {steps}; wait"
                );
                (shell(&script), false)
            }
            Subject::UcxPerftest { sleeps } => {
                let mode = if *sleeps { " -e -E sleep" } else { "" };
                let [first, second] = ends(place);
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
                (shell(&script), false)
            }
            Subject::Peer { command, .. } => {
                let program = place.setup.scratch.program(Program::PmixExchange).display().to_string();
                let count = if flags.across.hosts.is_empty() { flags.nodes as usize } else { flags.across.hosts.len() };
                let ranks = format!("{program} {count} allgather {steps}");
                (shell(&command.replace("{steps}", &steps).replace("{pmix}", &ranks)), false)
            }
        }
    }
}

fn steps(steps: &[(u32, u32)]) -> String {
    steps.iter().map(|(bytes, times)| format!("{bytes}x{times}")).collect::<Vec<_>>().join(",")
}

fn shell(script: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", script].map(OsString::from).into()
}

/// The prefixes of commands for each of the two nodes.
fn ends(place: &Place<Flags>) -> [String; 2] {
    let flags = place.flags;
    let end = |node: u32| match flags.across.hosts.get(node as usize) {
        Some(host) => format!("{} {host}", flags.across.remote_shell),
        // In a session of its own, like agents and like processes of other hosts; otherwise the scheduler puts both ends into one group.
        None => "setsid -w".into(),
    };
    [end(flags.pair.0), end(flags.pair.1)]
}

fn run(place: &Place<Flags>, task: &str, extra: &[String]) -> Vec<OsString> {
    let flags = place.flags;
    let mut argv = vec![place.wireup.as_os_str().to_owned(), "run".into()];
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
    argv.push(format!("--agent-bench={task}").into());
    argv.extend(extra.iter().chain(&flags.common_flags.wireup_args).map(OsString::from));
    argv.push(place.setup.scratch.program(Program::True).into());
    argv
}
