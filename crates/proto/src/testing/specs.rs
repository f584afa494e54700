//! Sessions and jobs as tests need them, and what several tests count the same way.

use crate::job::JobTree;
use crate::job::facts::Facts;
use crate::launcher::SpawnNode;
use crate::time::Instant;
use std::sync::Arc;
use wireup_coll::mapping::{Mapping, by_slot};
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, Epoch, JobId, NodeId, Rank};
use wireup_wire::job::{AppSpec, Block, JobOptions, JobSpec, NodeSpec, PmiFlavour, StdinTarget, StdioOptions};
use wireup_wire::peer::{AgentSpec, Departed, LinkOptions, RemoteShell, SessionSpec};

pub const T: Instant = Instant(5_000_000_000);
pub const SECOND: u64 = 1_000_000_000;

/// A session of one run: a tree with fan-out 2, started by `ssh`.
pub fn session(agents: u32) -> SessionSpec {
    SessionSpec {
        name: "s".into(),
        fanout: 2,
        agents: (0..agents).map(|agent| AgentSpec { host: format!("n{agent}") }).collect(),
        remote_shell: RemoteShell::Ssh(vec!["ssh".into()]),
        shells_max: 64,
        program: "wireup".into(),
        start_timeout_ns: 60 * SECOND,
        links: LinkOptions { node_timeout_ns: 30 * SECOND, ..LinkOptions::default() },
        ..SessionSpec::default()
    }
}

pub fn standing(session: SessionSpec) -> SessionSpec {
    SessionSpec { standing: Some(Default::default()), ..session }
}

pub fn local(session: SessionSpec) -> SessionSpec {
    SessionSpec { remote_shell: RemoteShell::Local, ..session }
}

pub fn by_step(session: SessionSpec) -> SessionSpec {
    SessionSpec { remote_shell: RemoteShell::Srun(vec!["srun".into()]), ..session }
}

/// A job with one rank on each of seven agents.
pub fn job(id: u32) -> JobSpec {
    job_on(id, 0..7, 1)
}

/// A job of one rank, on the root's node, which reads standard input.
pub fn small_job(id: u32) -> JobSpec {
    let mut spec = job_on(id, [0], 1);
    spec.options.stdio.stdin = StdinTarget::All;
    spec
}

/// A job with `ppn` ranks on each of these agents.
pub fn job_on(id: u32, agents: impl IntoIterator<Item = u32>, ppn: u32) -> JobSpec {
    let node = |agent| NodeSpec { agent: AgentId(agent), name: format!("n{agent}"), shared: false };
    let nodes: Vec<NodeSpec> = agents.into_iter().map(node).collect();
    let count = nodes.len() as u32;
    JobSpec {
        job: JobId(id),
        nspace: format!("s-{id}"),
        nodes,
        blocks: vec![Block { first_node: 0, nodes: count, ppn }],
        apps: vec![AppSpec { ranks: count * ppn, argv: vec![b"a".to_vec()], cwd: b"/".to_vec(), env: Vec::new() }],
        env: Vec::new(),
        endpoints: Vec::new(),
        spawned: None,
        options: JobOptions {
            stdio: StdioOptions { line_buffered: true, ..StdioOptions::default() },
            kill_grace_ns: SECOND,
            ..JobOptions::default()
        },
    }
}

/// The nodes of a job, as places for ranks of further jobs; their numbers of slots are unknown.
pub fn places_of(spec: &JobSpec) -> Vec<SpawnNode> {
    let place = |node: &NodeSpec| SpawnNode { node: node.clone(), slots: None, other_names: Vec::new() };
    spec.nodes.iter().map(place).collect()
}

/// A rank that has left after finalizing, before it entered any collective.
pub fn departed(rank: u32) -> Departed {
    Departed {
        rank: Rank(rank),
        pid: 7,
        node: NodeId(0),
        epoch: Epoch(0),
        modex_epoch: Epoch(0),
        finalized: true,
        initialised: true,
        deserted: false,
        exit: Some(0),
    }
}

impl Facts {
    /// A job on this many nodes of one tree with fan-out 2, as known to agent `me`.
    pub fn for_test(nodes: u32, ppn: u32, me: u32) -> Facts {
        Facts::for_test_of(nodes, ppn, me, PmiFlavour::default())
    }

    /// A job on this many nodes of one tree with fan-out 2, as known to agent `me`; `pmi`: the interface for its ranks.
    pub fn for_test_of(nodes: u32, ppn: u32, me: u32, pmi: PmiFlavour) -> Facts {
        let mut spec = job_on(1, 0..nodes, ppn);
        spec.options.pmi.flavour = pmi;
        let mapping = Mapping::new(&spec.blocks, spec.job_size(), nodes).expect("all ranks are placed");
        Facts::new(spec.into(), &mapping, AgentId(me), JobTree::whole(AgentId(me), Tree::new(nodes, 2)))
    }
}

/// A job with `slots[i]` ranks on agent `i`, in a tree of this fan-out, as known to each agent.
pub fn facts_of(slots: &[u32], fanout: u32) -> Vec<Facts> {
    let (count, size) = (slots.len() as u32, slots.iter().sum());
    let mut spec = job_on(1, 0..count, 1);
    spec.blocks = by_slot(slots, size);
    spec.apps[0].ranks = size;
    let (spec, tree) = (Arc::new(spec), Tree::new(count, fanout));
    let mapping = Mapping::new(&spec.blocks, size, count).expect("all ranks are placed");
    let facts = |me| Facts::new(spec.clone(), &mapping, me, JobTree::whole(me, tree));
    (0..count).map(AgentId).map(facts).collect()
}
