//! One job as one agent sees it: its own ranks, the children that run more of it, and the way up.
//!
//! This file holds the state. `launch` begins the job, `frames` hands out what neighbours say, `settle` tells upward when all ranks run
//! and when the job is over here. `processes` follows the ranks' lives, `pmi` serves their requests and fences, `stdio` moves
//! their bytes, `ends` decides about failures and kills, `stalls` tells who has not arrived.

mod array;
mod bench;
mod children;
mod collectives;
mod context;
mod effect;
mod ends;
mod facts;
mod frames;
mod groups;
mod held;
mod interface;
mod launch;
mod losses;
mod members;
mod pmi;
mod pmix;
mod processes;
mod settle;
mod stalls;
mod stdio;
mod tree;

use crate::arena::Arenas;
use crate::exchange::Exchanges;
use crate::groups::Groups;
use crate::input::InputSpread;
use crate::io::{Output, SpawnPlan};
use crate::kvs::Kvs;
use crate::node_attrs::NodeAttrs;
use crate::output::OutputStream;
use crate::time::Instant;
use bench::Bench;
use children::Children;
pub use context::{Context, Up};
pub use effect::{Effect, Effects};
use ends::Ends;
pub use facts::{Facts, View};
pub use interface::{Act, Acts, JobInput, Turn};
pub use members::{agents_of, participants};
use pmix::Pmix;
pub use pmix::{Remains, modex_frame, modex_gone};
use processes::Process;
use serde::{Deserialize, Serialize};
use stalls::Asking;
use std::collections::VecDeque;
pub use tree::JobTree;
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::peer::{ExchangeTraffic, TracePart};

pub struct Job {
    facts: Facts,
    /// Ranks that wait: for the link to the parent, for their PMIx server.
    held: Option<Box<SpawnPlan>>,
    /// What is for those ranks: it waits as they do.
    for_held: Vec<Output>,
    waits_for_link: bool,
    up: Up,
    /// An agent of it was lost.
    is_torn: bool,
    /// Somebody else than its launcher ended it: its output waits for no reader longer than its ranks for their end.
    is_unwanted: bool,
    children: Children,
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
    process_mapping: Option<Vec<u8>>,
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
    asking: Asking,
    trace: Option<Box<TracePart>>,
    /// What is measured before the ranks start.
    bench: Option<Bench>,
}

/// Stamps of the agent's own start, for the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Born {
    pub process_ns: u64,
    pub bootstrap_ns: u64,
}

impl Job {
    pub fn id(&self) -> JobId {
        self.facts.spec.job
    }

    /// Where its frames go from here.
    pub fn up(&self) -> Up {
        self.up
    }

    /// Tells the job one thing that happened. True when it is over here and can be forgotten.
    pub fn handle(&mut self, turn: &mut Turn<'_>, input: JobInput, acts: &mut Acts) -> bool {
        let cx = &mut Context::new(turn, self.up, acts);
        match input {
            JobInput::Begin { lost } => {
                self.begin(cx);
                for missing in lost {
                    self.on_child_missing(missing.agent, true);
                    self.on_missing(vec![missing], cx);
                }
            }
            JobInput::Linked => self.on_linked(cx),
            JobInput::ClockTold => {}
            JobInput::Tick => self.on_tick(cx),
            JobInput::Started { local, pid, spawn_ns, exec_ns } => self.on_started(local, pid, spawn_ns, exec_ns, cx),
            JobInput::StartFailed { local, error } => self.on_start_failed(local, error, cx),
            JobInput::Exited { local, status } => self.on_exited(local, status, cx),
            JobInput::KeeperLost => self.on_keeper_lost(cx),
            JobInput::ClientBytes { local, bytes } => self.on_client_bytes(local, &bytes, cx),
            JobInput::ClientGone { local } => self.on_socket_closed(local, cx.now),
            JobInput::StdioBytes { local, stream, bytes } => self.on_stdio_bytes(local, stream, &bytes, cx),
            JobInput::StdioClosed { local, stream } => self.on_stream_closed(local, stream),
            JobInput::StdinTaken { local, bytes } => self.on_stdin_taken(local, bytes, cx),
            JobInput::PmixBytes(bytes) => self.on_pmix_bytes(&bytes, cx),
            JobInput::PmixGone { status, stderr } => self.on_pmix_gone(status, &stderr, cx),
            JobInput::PmixFailed(error) => self.on_pmix_failed(&error, cx),
            JobInput::Frame { from, frame } => self.on_frame(from, frame, cx),
            JobInput::ControlDown(message) => self.on_control_down(&message, cx),
            JobInput::ControlUp { from, message } => self.on_control_up(from, message, cx),
            JobInput::Direct { from, frame } => self.on_direct(from, frame, cx),
            JobInput::Between { from, message } => self.on_between(from, message, cx),
            JobInput::Bench { from, frame } => self.on_bench(from, frame, cx),
            JobInput::FailHere(cause) => self.fail_here(cause, cx),
            JobInput::FailBy(cause) => self.fail_by(cause, cx),
            JobInput::LauncherGone => self.on_launcher_gone(cx),
            JobInput::EarlyOverflow(problem) => self.fail_early(problem, cx),
            JobInput::NoDirectLink { agent, problem } => self.fail_direct(agent, &problem, cx),
            JobInput::Missing(missing) => self.on_missing(missing, cx),
            JobInput::ChildMissing { agent, settled, missing } => {
                self.on_child_missing(agent, settled);
                if !missing.is_empty() {
                    self.on_missing(missing, cx);
                }
            }
            JobInput::ChildLost { agent, cause } => {
                self.fail_agent(agent, cause, cx);
                self.on_child_lost(agent);
            }
            JobInput::AgentFailed { agent, cause } => self.fail_agent(agent, cause, cx),
            JobInput::AgentLost(agent) => self.on_agent_lost(agent, cx),
            JobInput::Abandon => self.abandon(cx),
        }
        self.settle(cx)
    }

    /// What a part may look at.
    fn view<'a>(&'a self, cx: &Context<'_>) -> View<'a> {
        View {
            now: cx.now,
            facts: &self.facts,
            ranks: &self.processes,
            children: &self.children,
            is_ending: self.is_ending(),
        }
    }

    /// Does what parts want done, each thing with all that follows from it before the next.
    fn carry(&mut self, mut effects: Effects, cx: &mut Context<'_>) {
        while let Some(effect) = effects.pop() {
            self.apply(effect, cx);
        }
    }

    fn apply(&mut self, effect: Effect, cx: &mut Context<'_>) {
        match effect {
            Effect::Act(act) => cx.out.act(act),
            Effect::Up(frame) => cx.send_up(frame),
            Effect::ControlUp(message) => cx.control_up(self.id(), &message),
            Effect::ControlDown(message) => self.forward_down(&message, cx),
            Effect::ForRanks(output) => self.tell_ranks(output, cx),
            Effect::Fail(failure) => self.fail(failure, cx),
            Effect::FailHere(cause) => self.fail_here(cause, cx),
            Effect::FailRank { local, cause } => {
                let process = &self.processes[local.index()];
                let (rank, pid) = (process.rank, process.pid);
                self.fail_rank(rank, Some(pid), cause, cx);
            }
            Effect::FailDeparted { departed, cause } => self.fail_departed(&departed, cause, cx),
            Effect::Kill { grace_ns } => self.kill(grace_ns, cx),
            Effect::Signal(signal) => self.signal_all(signal, cx),
            Effect::Connected { local, by_pmix } => {
                let process = &mut self.processes[local.index()];
                process.spoke_pmi = true;
                process.spoke_pmix |= by_pmix;
                process.trace.init_ns = cx.now.0;
                if by_pmix {
                    self.miss_absent(cx);
                }
            }
            Effect::Finalized(local) => {
                let process = &mut self.processes[local.index()];
                process.finalized = true;
                process.closed = false;
                process.trace.finalize_ns = cx.now.0;
                self.depart(local, cx);
            }
            Effect::Depart(local) => self.depart(local, cx),
            Effect::Departed(departed) => self.on_departed(departed, cx),
            Effect::Enter { local, entry, ticket } => self.on_enter(local, entry, ticket, cx),
            Effect::EnterGroup { local, group } => self.on_enter_group(local, group, cx),
            Effect::Exchange(next) => self.carry_out_one(next, cx),
            Effect::CheckBroken => self.check_broken(cx),
            Effect::Stdio { local, stream, bytes } => self.on_stdio_bytes(local, stream, &bytes, cx),
            Effect::ServerReady(env) => {
                if let Some(plan) = &mut self.held {
                    plan.ranks.iter_mut().zip(env).for_each(|(rank, env)| rank.env.extend(env));
                }
                self.spawn_held(cx);
            }
            Effect::GiveHeldUp => self.give_held_up(),
            Effect::ServerGone => {
                self.depart_without_goodbye(cx);
                self.sweep_if_done(cx);
            }
            Effect::Traced(trace) => {
                if let Some(part) = &mut self.trace {
                    part.fences.push(trace);
                }
            }
        }
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
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

    pub fn is_profiled(&self) -> bool {
        self.trace.is_some()
    }

    fn process(&mut self, local: LocalRank) -> Option<&mut Process> {
        self.processes.get_mut(local.index())
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
}
