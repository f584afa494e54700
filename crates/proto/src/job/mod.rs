//! One job as one agent sees it: its own ranks, the children that run more of it, and the way up.
//!
//! This file holds the state, starts the job and tells when it is over here. `processes` follows the ranks' lives,
//! `pmi` serves their requests and fences, `stdio` moves their bytes, `ends` decides about failures, kills and the
//! question who has not arrived.

mod array;
mod bench;
mod collectives;
mod context;
mod ends;
mod groups;
mod losses;
mod pmi;
mod pmix;
mod processes;
mod stdio;
mod tree;

use crate::arena::Arenas;
use crate::exchange::{Exchanges, Site};
use crate::groups::Groups;
use crate::input::{InputSpread, Sink};
use crate::io::{Output, SpawnPlan, Stream};
use crate::kvs::Kvs;
use crate::node_attrs::NodeAttrs;
use crate::output::{OutputStream, Style};
use crate::plan::{app_of, spawn_plan};
use crate::time::Instant;
use bench::Bench;
pub use context::{Context, Up};
use ends::Ends;
use groups::Whereabouts;
pub use losses::agents_of;
use pmix::{Pmix, site_of_servers};
pub use pmix::{Remains, modex_frame, modex_gone};
use processes::Process;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
pub use tree::JobTree;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Hop;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, JobId, LocalRank, NodeId, Rank};
use wireup_wire::job::{JobSpec, StdinTarget};
use wireup_wire::peer::{self, Control, Done, Ended, ExchangeTraffic, TracePart};

pub struct Job {
    spec: Arc<JobSpec>,
    /// This agent's node in the job, if it has ranks of it.
    node: Option<NodeId>,
    /// Ranks that wait: for the link to the parent, for their PMIx server.
    held: Option<Box<SpawnPlan>>,
    /// What is for those ranks: it waits as they do.
    for_held: Vec<Output>,
    waits_for_link: bool,
    /// The agent is the root: failures are decided here.
    root: bool,
    up: Up,
    /// An agent of it was lost.
    is_torn: bool,
    /// Somebody else than its launcher ended it: its output waits for no reader longer than its ranks for their end.
    is_unwanted: bool,
    job_size: u32,
    children: Vec<Child>,
    processes: Vec<Process>,
    /// Processes not gone yet, or with output not read yet.
    busy: usize,
    /// Processes not gone yet.
    alive: usize,
    /// Processes that have not started yet.
    unstarted: usize,
    started_said: bool,
    /// PMI sockets that closed without finalize, oldest first.
    closed_sockets: VecDeque<(Instant, LocalRank)>,
    mapping: Arc<Mapping>,
    process_mapping: Option<Vec<u8>>,
    whereabouts: Whereabouts,
    exchanges: Exchanges,
    groups: Groups,
    pmix: Option<Box<Pmix>>,
    traffic: ExchangeTraffic,
    kvs: Kvs,
    arenas: Arenas,
    attrs: NodeAttrs,
    output: [OutputStream; 2],
    input: InputSpread,
    ends: Ends,
    trace: Option<Box<TracePart>>,
    /// What is measured before the ranks start.
    bench: Option<Bench>,
}

/// A child agent's share of the job.
struct Child {
    agent: AgentId,
    started: Option<u32>,
    done: Option<Done>,
}

/// Stamps of the agent's own start, for the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Born {
    pub process_ns: u64,
    pub bootstrap_ns: u64,
}

impl Job {
    /// Takes the job on: ranks here are spawned at once; the caller has told the children.
    pub fn launch(
        spec: Arc<JobSpec>,
        mapping: &Mapping,
        me: AgentId,
        tree: JobTree,
        born: Born,
        hold: bool,
        cx: &mut Context<'_>,
    ) -> Job {
        let node = spec.nodes.iter().position(|node| node.agent == me).map(|index| NodeId(index as u32));
        let local_size = node.map_or(0, |node| mapping.local_size(node));
        let ranks: Vec<Rank> = node.map(|node| mapping.ranks_of(node).collect()).unwrap_or_default();
        let children: Vec<Child> = participants(&spec, mapping, &tree)
            .into_iter()
            .map(|agent| Child { agent, started: None, done: None })
            .collect();
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
                job_ns: cx.now.0,
                ..TracePart::default()
            })
        });
        let site = site(&spec, mapping, node, me == AgentId(0), children.len());
        let servers = site_of_servers(&site, spec.options.modex);
        let mut job = Job {
            node,
            held: None,
            for_held: Vec::new(),
            waits_for_link: hold,
            root: me == AgentId(0),
            up: tree.up(),
            is_torn: false,
            is_unwanted: false,
            processes: ranks.iter().map(|rank| Process::new(*rank, app_of(&spec, *rank))).collect(),
            job_size: spec.job_size(),
            busy: ranks.len(),
            alive: ranks.len(),
            unstarted: ranks.len(),
            started_said: false,
            closed_sockets: VecDeque::new(),
            process_mapping: mapping.process_mapping(),
            mapping: Arc::new(mapping.clone()),
            input: InputSpread::new(sinks(&spec, mapping, node, &children, &tree)),
            whereabouts: Whereabouts { me, node, tree },
            bench: Bench::new(&spec, node, &site),
            pmix: Pmix::new(&spec, servers, children.len()),
            exchanges: Exchanges::new(site),
            groups: Groups::new(children.len()),
            traffic: ExchangeTraffic::default(),
            kvs: Kvs::default(),
            arenas: Arenas::default(),
            attrs: NodeAttrs::default(),
            output: [stream(Stream::Out), stream(Stream::Err)],
            ends: Ends::default(),
            children,
            trace,
            spec,
        };
        if let Some(node) = job.node.filter(|_| local_size > 0) {
            job.held = Some(Box::new(spawn_plan(&job.spec, mapping, node)));
            job.start_server(cx);
            job.spawn_held(cx);
        }
        job
    }

    /// The children that run more of it.
    pub fn child_agents(&self) -> impl Iterator<Item = AgentId> {
        self.children.iter().map(|child| child.agent)
    }

    pub fn id(&self) -> JobId {
        self.spec.job
    }

    /// Where its frames go from here.
    pub fn up(&self) -> Up {
        self.up
    }

    /// What another agent is to this one in the job's tree: its parent (`Some(None)`), a child, or nothing.
    pub fn side(&self, agent: AgentId) -> Option<Option<AgentId>> {
        if self.up == Up::Agent(agent) { Some(None) } else { self.has_child(agent).then_some(Some(agent)) }
    }

    pub fn on_tick(&mut self, cx: &mut Context<'_>) {
        let processes = &self.processes;
        for stream in &mut self.output {
            stream.on_tick(cx.now, |local| processes[local.index()].rank);
        }
        self.check_closed_sockets(cx);
        self.check_ends(cx);
        self.check_stall(cx);
        self.check_groups(cx);
        self.check_pmix(cx);
    }

    pub fn deadline(&self) -> Option<Instant> {
        let stall = self.stall_deadline().into_iter().chain(self.groups.deadline());
        let lines = self.output.iter().filter_map(OutputStream::deadline);
        lines
            .chain(stall)
            .chain(self.pmix_deadline())
            .chain(self.ends.deadline())
            .chain(self.closed_socket_deadline())
            .min()
    }

    /// A control message about this job, from above.
    pub fn on_control_down(&mut self, message: &Control, cx: &mut Context<'_>) {
        match message {
            Control::Signal { signal } => {
                self.signal_all(*signal, cx);
                self.forward_down(message, cx);
            }
            Control::Kill { grace_ns } => self.kill(*grace_ns, cx),
            Control::Resize { rows, columns } => {
                self.on_resize(*rows, *columns, cx);
                self.forward_down(message, cx);
            }
            Control::StallAsk { collective } => self.on_stall_ask(*collective, cx),
            Control::Over { .. } => self.abandon(cx),
            Control::Launch(_)
            | Control::Started { .. }
            | Control::Failed(_)
            | Control::Departed(_)
            | Control::Done(_)
            | Control::Stall(_)
            | Control::Shutdown
            | Control::StartFor { .. }
            | Control::NotStarted(_)
            | Control::TimeLeft { .. }
            | Control::Probe { .. }
            | Control::Probed { .. }
            | Control::UcxLooked { .. }
            | Control::UseUcx { .. }
            | Control::Missing(_)
            | Control::Note(_)
            | Control::ClockAsk { .. }
            | Control::ClockTell { .. }
            | Control::Ended(_)
            | Control::Welcome(_)
            | Control::Refused { .. }
            | Control::Granted
            | Control::AskJobs
            | Control::JobList(_)
            | Control::AskNodes
            | Control::Nodes(_)
            | Control::Revive
            | Control::KillJob { .. }
            | Control::Start { .. }
            | Control::Here(_)
            | Control::Lost { .. }
            | Control::Return { .. }
            | Control::Moved { .. } => {}
        }
    }

    /// A control message about this job, from a child.
    pub fn on_control_up(&mut self, agent: AgentId, message: Control, cx: &mut Context<'_>) {
        let Some(child) = self.children.iter_mut().find(|child| child.agent == agent) else {
            return;
        };
        match message {
            Control::Started { ranks, pmix } => {
                child.started = Some(ranks);
                if let Some(opened) = pmix {
                    self.on_opened(opened, cx);
                }
            }
            Control::Done(done) => {
                child.done = Some(done);
                self.on_child_done(agent, cx);
            }
            Control::Failed(failure) => self.fail(failure, cx),
            Control::Departed(departed) => self.on_departed(departed, cx),
            Control::StallAsk { collective } => self.ask_stall(collective, cx),
            Control::Stall(_) => cx.control_up(self.id(), &message),
            Control::Missing(missing) => self.on_missing(missing, cx),
            Control::Launch(_)
            | Control::Signal { .. }
            | Control::Resize { .. }
            | Control::Kill { .. }
            | Control::Shutdown
            | Control::StartFor { .. }
            | Control::NotStarted(_)
            | Control::TimeLeft { .. }
            | Control::Probe { .. }
            | Control::Probed { .. }
            | Control::UcxLooked { .. }
            | Control::UseUcx { .. }
            | Control::Note(_)
            | Control::ClockAsk { .. }
            | Control::ClockTell { .. }
            | Control::Ended(_)
            | Control::Welcome(_)
            | Control::Refused { .. }
            | Control::Granted
            | Control::AskJobs
            | Control::JobList(_)
            | Control::AskNodes
            | Control::Nodes(_)
            | Control::Revive
            | Control::KillJob { .. }
            | Control::Start { .. }
            | Control::Over { .. }
            | Control::Here(_)
            | Control::Lost { .. }
            | Control::Return { .. }
            | Control::Moved { .. } => {}
        }
    }

    /// A child agent is lost with all its ranks.
    pub fn on_child_lost(&mut self, agent: AgentId) {
        if let Some(child) = self.children.iter_mut().find(|child| child.agent == agent) {
            child.started.get_or_insert(0);
            child.done.get_or_insert_default();
        }
    }

    /// A child agent was never there. `settled`: nothing more will be learnt about those behind it.
    pub fn on_child_missing(&mut self, agent: AgentId, settled: bool) {
        if let Some(child) = self.children.iter_mut().find(|child| child.agent == agent) {
            // Until then the job is not over: who is missing is yet to be named.
            if settled {
                child.done.get_or_insert_default();
                child.started.get_or_insert(0);
            }
        }
    }

    /// Says what has become true; `true` when the job is over here and can be forgotten.
    pub fn settle(&mut self, cx: &mut Context<'_>) -> bool {
        self.flush_output(cx);
        self.say_started(cx);
        // Of those behind a child that is missed more may be learnt, and nobody was told of any yet.
        let told = self.started_said || self.is_ending();
        let children_done = self.children.iter().all(|child| child.done.is_some());
        if !told
            || self.busy > 0
            || self.has_server()
            || !children_done
            || !self.output.iter().all(OutputStream::is_empty)
        {
            return false;
        }
        if !self.is_ending() && self.open_collectives() > 0 {
            // Ranks here need not wait for their collectives; other nodes need what this one passes on.
            return false;
        }
        if self.trace.is_some() && !self.root && !cx.clock.is_known() && !self.is_forced() {
            // Its stamps would stand on a clock that nobody can tell from the others'.
            return false;
        }
        self.say_done(cx);
        true
    }

    fn say_started(&mut self, cx: &mut Context<'_>) {
        if self.started_said || self.unstarted > 0 || self.children.iter().any(|child| child.started.is_none()) {
            return;
        }
        self.started_said = true;
        if self.name_missing(cx) {
            return;
        }
        if let Some(trace) = &mut self.trace {
            trace.children_ns = cx.now.0;
        }
        let below: u32 = self.children.iter().filter_map(|child| child.started).sum();
        let ranks = below + self.processes.len() as u32;
        cx.control_up(self.id(), &Control::Started { ranks, pmix: self.opened() });
    }

    fn say_done(&mut self, cx: &mut Context<'_>) {
        let mut done = Done {
            ranks: self.processes.len() as u32,
            pmi_clients: self.processes.iter().filter(|process| process.spoke_pmi).count() as u32,
        };
        for below in self.children.iter().filter_map(|child| child.done) {
            done.ranks += below.ranks;
            done.pmi_clients += below.pmi_clients;
        }
        if let Some(mut trace) = self.trace.take() {
            if !self.root {
                (trace.clock_offset_ns, trace.clock_error_ns) = cx.clock.estimate();
            }
            trace.traffic = self.traffic;
            trace.ranks = self.processes.iter().map(|process| process.trace.clone()).collect();
            self.send_trace(peer::encode(&*trace).into(), cx);
        }
        let message = if self.root {
            Control::Ended(Ended { failure: self.ends.failure.take(), done })
        } else {
            Control::Done(done)
        };
        cx.control_up(self.id(), &message);
        cx.out.push(Output::JobGone { job: self.id() });
    }

    /// Passes a trace on, a child's or this agent's own.
    pub fn send_trace(&self, payload: bytes::Bytes, cx: &mut Context<'_>) {
        let frame = Frame { kind: Kind::Trace, class: Class::Staging, stream: 0, job: self.id().0, arg: 0, payload };
        cx.send_up(frame);
    }

    fn forward_down(&self, message: &Control, cx: &mut Context<'_>) {
        for child in &self.children {
            cx.control_child(child.agent, self.id(), message);
        }
    }

    pub fn is_profiled(&self) -> bool {
        self.trace.is_some()
    }

    fn host(&self) -> String {
        self.node.map(|node| self.spec.nodes[node.index()].name.clone()).unwrap_or_default()
    }

    fn process(&mut self, local: LocalRank) -> Option<&mut Process> {
        self.processes.get_mut(local.index())
    }

    fn node_of(&self, agent: AgentId) -> Option<NodeId> {
        self.spec.nodes.iter().position(|node| node.agent == agent).map(|index| NodeId(index as u32))
    }

    fn child_index(&self, agent: AgentId) -> Option<usize> {
        self.children.iter().position(|child| child.agent == agent)
    }

    /// A frame of the exchange or stdio class, from the link of `from` (`None`: from above).
    pub fn on_frame(&mut self, from: Option<AgentId>, frame: Frame, cx: &mut Context<'_>) {
        match (from, frame.kind) {
            (Some(_), Kind::ExchangeUp) | (None, Kind::ExchangeDown) => self.on_exchange(from, frame, cx),
            (Some(_), Kind::GroupUp) | (None, Kind::GroupDown) => self.on_group(from, frame, cx),
            (Some(agent), Kind::Output) => self.on_child_output(agent, frame),
            (None, Kind::OutputCredit) => self.on_output_credit(&frame),
            (None, Kind::Input) => self.on_input(frame, cx),
            (Some(agent), Kind::InputCredit) => self.on_input_credit(agent, frame.arg, cx),
            (Some(_), Kind::PmixUp) | (None, Kind::PmixDown) => self.on_pmix_frame(from, frame, cx),
            (Some(_), Kind::Trace) => self.send_trace(frame.payload, cx),
            // Frames in the wrong direction come from no agent of ours: they change nothing.
            (
                _,
                Kind::Control
                | Kind::ExchangeUp
                | Kind::ExchangeDown
                | Kind::Output
                | Kind::OutputCredit
                | Kind::Input
                | Kind::InputCredit
                | Kind::Trace
                | Kind::Direct
                | Kind::Routed
                | Kind::Pair
                | Kind::Bench
                | Kind::GroupUp
                | Kind::GroupDown
                | Kind::Modex
                | Kind::PmixUp
                | Kind::PmixDown,
            ) => {}
        }
    }

    /// Something for the ranks here: they may not be there yet.
    fn tell_ranks(&mut self, output: Output, cx: &mut Context<'_>) {
        if self.held.is_some() {
            self.for_held.push(output);
        } else {
            cx.out.push(output);
        }
    }

    /// The link to the parent is up.
    pub fn on_linked(&mut self, cx: &mut Context<'_>) {
        self.waits_for_link = false;
        self.spawn_held(cx);
        if let Some(trace) = &mut self.trace {
            trace.linked_ns = cx.now.0;
        }
    }

    /// Bytes held for output here, for the simulator's checkers.
    pub fn held_output_bytes(&self) -> usize {
        self.output.iter().map(OutputStream::held_bytes).sum()
    }

    /// Collectives that are not over here, for the simulator's checkers.
    pub fn open_exchanges(&self) -> usize {
        self.open_collectives() + self.groups.open()
    }

    fn open_collectives(&self) -> usize {
        self.exchanges.open() + self.pmix.as_ref().map_or(0, |pmix| pmix.open())
    }

    /// Requests of PMIx servers that are not answered, for the simulator's checkers.
    pub fn outstanding_asks(&self) -> usize {
        self.pmix.as_ref().map_or(0, |pmix| pmix.outstanding())
    }

    /// Which link a job's frames go to is the agents' tree alone; a link that is not in it sends nothing.
    pub fn has_child(&self, agent: AgentId) -> bool {
        self.child_index(agent).is_some()
    }
}

/// The children whose subtrees have ranks of the job: a node without ranks would have to answer for its fences.
pub fn participants(spec: &JobSpec, mapping: &Mapping, tree: &JobTree) -> Vec<AgentId> {
    let nodes = spec.nodes.iter().enumerate();
    let mut children: Vec<AgentId> = nodes
        .filter(|(index, _)| mapping.local_size(NodeId(*index as u32)) > 0)
        .filter_map(|(_, node)| match tree.next_hop(node.agent) {
            Hop::Child(child) => Some(child),
            Hop::Here | Hop::Parent => None,
        })
        .collect();
    children.sort_unstable();
    children.dedup();
    children
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
fn sinks(spec: &JobSpec, mapping: &Mapping, node: Option<NodeId>, children: &[Child], tree: &JobTree) -> Vec<Sink> {
    match spec.options.stdin {
        StdinTarget::None => Vec::new(),
        StdinTarget::One(_) if spec.options.stdin_inherit => Vec::new(),
        StdinTarget::All => {
            let locals = node.map_or(0, |node| mapping.local_size(node));
            let locals = (0..locals).map(|local| Sink::Local(LocalRank(local as u16)));
            locals.chain((0..children.len()).map(Sink::Child)).collect()
        }
        StdinTarget::One(rank) => {
            let Some((target, local)) = mapping.place(rank) else {
                return Vec::new();
            };
            match tree.next_hop(spec.nodes[target.index()].agent) {
                Hop::Here => vec![Sink::Local(local)],
                Hop::Child(agent) => {
                    children.iter().position(|child| child.agent == agent).map(Sink::Child).into_iter().collect()
                }
                Hop::Parent => Vec::new(),
            }
        }
    }
}
