//! How a job begins at one agent: with what is known of its node and of those below.

use super::bench::Bench;
use super::children::Children;
use super::ends::Ends;
use super::members::participants;
use super::pmix::{Pmix, site_of_servers};
use super::processes::Process;
use super::stalls::Asking;
use super::{Born, Context, Facts, Job, JobTree};
use crate::arena::Arenas;
use crate::exchange::{Exchanges, Site};
use crate::groups::Groups;
use crate::input::{InputSpread, Sink};
use crate::io::Stream;
use crate::kvs::Kvs;
use crate::node_attrs::NodeAttrs;
use crate::output::{OutputStream, Style};
use crate::plan::{app_of, spawn_plan};
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Hop;
use wireup_wire::ids::{AgentId, LocalRank, NodeId, Rank};
use wireup_wire::job::{JobSpec, StdinTarget};
use wireup_wire::peer::{ExchangeTraffic, TracePart};

impl Job {
    /// A job that has not begun here. `hold`: its ranks wait for the link to the parent.
    pub fn new(
        spec: Arc<JobSpec>,
        mapping: &Mapping,
        me: AgentId,
        tree: JobTree,
        born: Born,
        hold: bool,
        now: Instant,
    ) -> Job {
        let node = spec.nodes.iter().position(|node| node.agent == me).map(|index| NodeId(index as u32));
        let ranks: Vec<Rank> = node.map(|node| mapping.ranks_of(node).collect()).unwrap_or_default();
        let below = participants(&spec, mapping, &tree);
        let options = &spec.options;
        let style =
            Style { label: options.label, split: options.split_output, whole_lines_only: options.line_buffered };
        let stream = |stream| OutputStream::new(stream, style, ranks.len());
        let trace = options.profile.then(|| {
            Box::new(TracePart {
                agent: me,
                node: node.unwrap_or_default(),
                host: node.map(|node| spec.nodes[node.index()].name.clone()).unwrap_or_default(),
                process_ns: born.process_ns,
                bootstrap_ns: born.bootstrap_ns,
                job_ns: now.0,
                ..TracePart::default()
            })
        });
        let site = site(&spec, mapping, node, me == AgentId(0), below.len());
        let servers = site_of_servers(&site, spec.options.modex);
        Job {
            held: None,
            for_held: Vec::new(),
            waits_for_link: hold,
            up: tree.up(),
            is_torn: false,
            is_unwanted: false,
            processes: ranks.iter().map(|rank| Process::new(*rank, app_of(&spec, *rank))).collect(),
            busy: ranks.len(),
            alive: ranks.len(),
            unstarted: ranks.len(),
            started_said: false,
            closed_sockets: VecDeque::new(),
            process_mapping: mapping.process_mapping(),
            input: InputSpread::new(sinks(&spec, mapping, node, &below, &tree)),
            bench: Bench::new(&spec, node, &site),
            pmix: Pmix::new(&spec, servers, below.len()),
            exchanges: Exchanges::new(site),
            groups: Groups::new(below.len()),
            traffic: ExchangeTraffic::default(),
            kvs: Kvs::default(),
            arenas: Arenas::default(),
            attrs: NodeAttrs::default(),
            output: [stream(Stream::Out), stream(Stream::Err)],
            ends: Ends::default(),
            asking: Asking::default(),
            children: Children::new(&below),
            trace,
            facts: Facts {
                mapping: Arc::new(mapping.clone()),
                job_size: spec.job_size(),
                me,
                node,
                root: me == AgentId(0),
                tree,
                below,
                spec,
            },
        }
    }

    /// Begins it: ranks here are spawned at once, if nothing holds them up; the caller has told the children.
    pub fn begin(&mut self, cx: &mut Context<'_>) {
        if let Some(node) = self.facts.node.filter(|_| !self.processes.is_empty()) {
            self.held = Some(Box::new(spawn_plan(&self.facts.spec, &self.facts.mapping, node)));
            self.start_server(cx);
            self.spawn_held(cx);
        }
        self.wire_up(cx);
        self.begin_bench(cx);
    }
}

/// What the job's collectives must know of this node.
fn site(spec: &JobSpec, mapping: &Mapping, node: Option<NodeId>, root: bool, children: usize) -> Site {
    let all = (0..spec.nodes.len() as u32).map(NodeId);
    let peers: Vec<NodeId> = all.filter(|node| mapping.local_size(*node) > 0).collect();
    let local_size = node.map_or(0, |node| mapping.local_size(node));
    let place = node.and_then(|node| peers.binary_search(&node).ok()).map(|place| place as u32);
    let compress_min = spec.options.exchange_compress;
    Site { root, local_size, children, scheme: spec.options.exchange, compress_min, peers, place, collect_max: None }
}

/// Who takes standard input at this agent.
fn sinks(spec: &JobSpec, mapping: &Mapping, node: Option<NodeId>, below: &[AgentId], tree: &JobTree) -> Vec<Sink> {
    match spec.options.stdin {
        StdinTarget::None => Vec::new(),
        StdinTarget::One(_) if spec.options.stdin_inherit => Vec::new(),
        StdinTarget::All => {
            let locals = node.map_or(0, |node| mapping.local_size(node));
            let locals = (0..locals).map(|local| Sink::Local(LocalRank(local as u16)));
            locals.chain((0..below.len()).map(Sink::Child)).collect()
        }
        StdinTarget::One(rank) => {
            let Some((target, local)) = mapping.place(rank) else {
                return Vec::new();
            };
            match tree.next_hop(spec.nodes[target.index()].agent) {
                Hop::Here => vec![Sink::Local(local)],
                Hop::Child(agent) => {
                    below.iter().position(|child| *child == agent).map(Sink::Child).into_iter().collect()
                }
                Hop::Parent => Vec::new(),
            }
        }
    }
}
