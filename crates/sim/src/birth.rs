//! Creates the state machines under test: the only place that uses their constructors.

use crate::spec::WorldSpec;
use wireup_proto::Instant;
use wireup_proto::{AgentConfig, Born, Launcher, LauncherConfig};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::{AppSpec, JobOptions, JobSpec, NodeSpec, StdinTarget};
use wireup_wire::peer::{AgentSpec, BOOTSTRAP_HEADER_LEN, Bootstrap, RemoteShell, SessionSpec};

/// The job of every single run.
pub const JOB: JobId = JobId(1);

/// The architecture of all hosts except those with `Program::OtherArch`.
pub const ARCH: &str = "x86_64";

/// Bootstrap messages of sessions up to this size are encoded and decoded; for larger ones that would cost more than the run itself.
const ENCODED_AGENTS_MAX: usize = 64;

/// The configuration of the root agent, which runs in the launcher's process.
pub fn root(spec: &WorldSpec, now: Instant) -> AgentConfig {
    AgentConfig { arch: Some(ARCH), ..AgentConfig::new(AgentId(0), session(spec), born(now)) }
}

/// The configuration of an agent that was started by a step: all tasks receive the same message, and each uses its own part.
pub fn task(bootstrap: Bootstrap, me: AgentId, now: Instant) -> (AgentConfig, Vec<JobSpec>) {
    child(Bootstrap { agent: me, ..bootstrap }, now)
}

/// The configuration of an agent that its parent started with this message, and the jobs that it begins with.
pub fn child(bootstrap: Bootstrap, now: Instant) -> (AgentConfig, Vec<JobSpec>) {
    let is_small = bootstrap.session.agents.len() <= ENCODED_AGENTS_MAX;
    let bootstrap = if is_small { over_the_wire(&bootstrap) } else { bootstrap };
    let Bootstrap { agent, session, parent, snapshot, .. } = bootstrap;
    let config = AgentConfig { parent, snapshot, arch: Some(ARCH), ..AgentConfig::new(agent, session, born(now)) };
    (config, bootstrap.jobs)
}

pub fn launcher(spec: &WorldSpec, now: Instant) -> Launcher {
    let config = LauncherConfig {
        job: job(spec),
        timeout_ns: spec.timeout_ns,
        one_shot: true,
        relay_stdin: spec.stdin != StdinTarget::None,
    };
    Launcher::new(config, now)
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
    assert_eq!(Bootstrap::decode_header(header), Ok(body.len()), "the header contains the body's length");
    Bootstrap::decode_body(body).expect("an encoded bootstrap message can be decoded")
}

fn session(spec: &WorldSpec) -> SessionSpec {
    let agents = (0..spec.agent_count()).map(|agent| AgentSpec { host: node_name(agent) }).collect();
    SessionSpec {
        name: "sim".into(),
        fanout: spec.fanout,
        agents,
        remote_shell: spec.remote.as_ref().map_or(RemoteShell::Local, |remote| remote.shell.clone()),
        shells_max: spec.remote.as_ref().map_or(64, |remote| remote.shells_max),
        program: "wireup".into(),
        node_timeout_ns: spec.node_timeout_ns,
        verbose: spec.profile,
        start_timeout_ns: spec.start_timeout_ns,
        transport: spec.transport,
        ..SessionSpec::default()
    }
}

fn job(spec: &WorldSpec) -> JobSpec {
    let node = |node| NodeSpec { agent: AgentId(spec.agent_of(node)), name: node_name(node), shared: true };
    let app = |(index, (ranks, _)): (usize, &(u32, _))| AppSpec {
        ranks: *ranks,
        argv: vec![format!("./app{index}").into_bytes()],
        cwd: b"/".to_vec(),
        env: Vec::new(),
    };
    JobSpec {
        job: JOB,
        nspace: "sim-1".into(),
        nodes: (0..spec.nodes).map(node).collect(),
        blocks: spec.blocks.clone(),
        apps: spec.apps.iter().enumerate().map(app).collect(),
        env: vec![b"LANG=C".to_vec()],
        options: JobOptions {
            pmi: spec.pmi,
            stdin: spec.stdin,
            label: spec.label,
            line_buffered: spec.line_buffered,
            split_output: spec.split_output,
            profile: spec.profile,
            kill_grace_ns: spec.kill_grace_ns,
            stall_report_ns: spec.stall_report_ns,
            exchange: spec.exchange,
            early_wireup: spec.early_wireup,
            exchange_compress: spec.exchange_compress,
            pmi_fence: spec.pmi_fence,
            pmi_version: spec.pmi_version,
            modex: spec.modex,
            ..JobOptions::default()
        },
    }
}
