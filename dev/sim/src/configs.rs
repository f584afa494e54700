//! The configurations of the state machines: session, agents, launchers.

use crate::agents::RANK_PORTS;
use crate::spec::WorldSpec;
use std::sync::Arc;
use wireup_proto::Instant;
use wireup_proto::{AgentConfig, Born, Growth, LauncherConfig};
use wireup_wire::ids::AgentId;
use wireup_wire::job::{JobSpec, StdinTarget};
use wireup_wire::peer::{
    AgentSpec, BOOTSTRAP_HEADER_LEN, Bootstrap, BootstrapLengths, LinkOptions, RemoteShell, SessionSpec,
};
use wireup_wire::session::Standing;

/// The architecture of all hosts other than those with `Program::OtherArch`.
pub const ARCH: &str = "x86_64";

/// Bootstrap messages of sessions up to this size are encoded and decoded; for larger sessions encoding would cost more
/// than the run itself.
const ENCODED_AGENTS_MAX: usize = 64;

/// The configuration of the root agent, which runs in the launcher's process.
pub fn root(spec: &WorldSpec, now: Instant) -> AgentConfig {
    AgentConfig { arch: Some(ARCH), ..AgentConfig::new(AgentId(0), session(spec), born(now)) }
}

/// The configuration of an agent that was started by a step: all tasks receive the same message, and each uses its own
/// part.
pub fn task(bootstrap: Bootstrap, me: AgentId, now: Instant) -> (AgentConfig, Vec<Arc<JobSpec>>) {
    child(Bootstrap { agent: me, ..bootstrap }, now)
}

/// The configuration of an agent that its parent started with this message, and the jobs in that message.
pub fn child(bootstrap: Bootstrap, now: Instant) -> (AgentConfig, Vec<Arc<JobSpec>>) {
    let is_small = bootstrap.session.agents.len() <= ENCODED_AGENTS_MAX;
    let bootstrap = if is_small { over_the_wire(&bootstrap) } else { bootstrap };
    let Bootstrap { agent, session, parent, snapshot, .. } = bootstrap;
    let config = AgentConfig { parent, snapshot, arch: Some(ARCH), ..AgentConfig::new(agent, session, born(now)) };
    (config, bootstrap.jobs)
}

/// The configuration of the launcher of a job.
pub fn launcher(job: JobSpec, timeout_ns: Option<u64>, one_shot: bool) -> LauncherConfig {
    let relay_stdin = job.options.stdio.stdin != StdinTarget::None;
    LauncherConfig {
        job,
        timeout_ns,
        explains_timeout: true,
        one_shot,
        relay_stdin,
        places: Vec::new(),
        growth: Growth::Fixed("which is simulated"),
    }
}

/// The name of a node for users.
pub fn node_name(node: u32) -> String {
    format!("node{node}")
}

fn born(now: Instant) -> Born {
    Born { process_ns: now.0, bootstrap_ns: now.0 }
}

fn over_the_wire(bootstrap: &Bootstrap) -> Bootstrap {
    let bytes = bootstrap.encode();
    let (header, body) = bytes.split_first_chunk::<BOOTSTRAP_HEADER_LEN>().expect("a bootstrap has a header");
    let lengths = BootstrapLengths { credential: 0, body: body.len() };
    assert_eq!(Bootstrap::decode_header(header), Ok(lengths), "the header contains the body's length");
    Bootstrap::decode_body(body).expect("an encoded bootstrap message can be decoded")
}

fn session(spec: &WorldSpec) -> SessionSpec {
    let agents = (0..spec.agents).map(|agent| AgentSpec { host: node_name(agent) }).collect();
    SessionSpec {
        name: "sim".into(),
        fanout: spec.fanout,
        agents,
        remote_shell: spec.remote.as_ref().map_or(RemoteShell::Local, |remote| remote.shell.clone()),
        shells_max: spec.remote.as_ref().map_or(64, |remote| remote.shells_max),
        program: "wireup".into(),
        links: LinkOptions {
            node_timeout_ns: spec.node_timeout_ns,
            transport: spec.transport,
            ..LinkOptions::default()
        },
        // The program `wireup` also starts agents together where hosts may be missing.
        start_together: !spec.is_standing && spec.remote.as_ref().is_some_and(|remote| !remote.by_step()),
        verbose: spec.jobs.iter().any(|job| job.options.profile),
        start_timeout_ns: spec.start_timeout_ns,
        standing: spec.is_standing.then(|| Standing { rank_ports: Some(RANK_PORTS), ..Standing::default() }),
        ..SessionSpec::default()
    }
}
