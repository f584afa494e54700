//! A job's PMIx service in its agent: one server process on this node talks to the ranks; this part handles everything
//! that concerns other nodes.
//!
//! ```text
//!   ranks ◄─► server process ── Ask ──► fences      whole job: an exchange; some ranks, groups: a barrier with data
//!                 ▲                     modex       the agent of the rank's node, directly
//!                 │ Answer              queries     up to the root, down again, combined at each hop
//!                 └───────────────────  (job/names) to the root: names, processes, other jobs (across); and back
//! ```
//!
//! `Pmix` owns the parts, which do not know each other: they send frames through `Cx`, and what they need of each other
//! is a `Step`, what the service needs of the job's other parts an [`Asked`]. The methods of `Pmix` are
//! here for inputs from the job, in `server_process` for starting and ending the server process, in `from_server` for
//! its messages, in `tree` for messages of other agents. Parts: `server` is the state machine of the process, `asks`
//! the outstanding requests; `fences`, `modex`, `queries`, `events`, `libraries`; `requests` (checks) has no state.
//!
//! Every outstanding request is answered, or the job ends; an unknown number, a second answer or a rank of another node
//! violates the protocol, and ends only this job.

mod across;
mod asks;
mod events;
mod fences;
mod from_server;
mod libraries;
mod modex;
mod pulse;
mod queries;
mod requests;
mod server;
mod server_process;
mod step;
#[cfg(test)]
mod tests;
mod tree;

use crate::collective::groups::Stall;
use crate::collective::{CollectiveConfig, Exchanges};
use crate::io::{Output, Stream};
use crate::job::collectives::Arrived;
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::job::groups::Arrived as Barrier;
use crate::time::Instant;
use asks::{Asks, Waits};
use bytes::Bytes;
use events::Events;
use fences::Fences;
use libraries::Libraries;
use modex::Modex;
pub use modex::{Remains, frame as modex_frame, gone as modex_gone, report_of_gone};
use pulse::Pulse;
use queries::Queries;
use server::Server;
use step::{Step, Steps};
use wireup_wire::collective::Collective;
use wireup_wire::ids::{AgentId, Epoch, LocalRank, Rank};
use wireup_wire::inter_job::Report;
use wireup_wire::limits::MODEX_COLLECT_BYTES_MAX;
use wireup_wire::modex::{Between, Up};
use wireup_wire::names;
use wireup_wire::peer::{Cause, Departed, ExchangeTraffic, Opened};
use wireup_wire::pmix::{Answer, Status, ToServer, pieces};

/// A node's part of a collecting fence is compressed from this size on (bytes): the libraries' packing repeats the
/// job's name and the keys for each rank. Measured: the parts of 16 ranks with 32 bytes each, 900 bytes, shrink to less
/// than half.
const COMPRESS_MIN: u32 = 256;

/// How servers' fences differ from the ranks' own collectives: how much data one may distribute if the root chooses,
/// and what is compressed.
fn site_of_servers(site: &CollectiveConfig, modex: wireup_wire::job::Modex) -> CollectiveConfig {
    let collect_max = match modex {
        wireup_wire::job::Modex::Auto => Some(MODEX_COLLECT_BYTES_MAX),
        wireup_wire::job::Modex::Full | wireup_wire::job::Modex::Direct => None,
    };
    let compress_min = if site.compress_min == 0 { COMPRESS_MIN } else { site.compress_min };
    CollectiveConfig { collect_max, compress_min, ..site.clone() }
}

/// What the PMIx service of a job needs of the job's other parts.
#[derive(Debug)]
pub enum Asked {
    /// A local rank has connected.
    Connected(LocalRank),
    Finalized(LocalRank),
    /// A request about names or other jobs, for the root. `id`: the number of the server's request.
    Name {
        from: Rank,
        id: u64,
        ask: names::Ask,
    },
    /// The server process has ended, and no ended rank will still finalize with it.
    Gone,
    OfJob(AskedOfJob),
}

/// What the job itself must do for the PMIx service.
#[derive(Debug)]
pub enum AskedOfJob {
    /// Pass on output that a rank writes through its library.
    Log { local: LocalRank, stream: Stream, bytes: Bytes },
    /// The ranks can start, with these variables for each local rank; empty: they run without the server.
    StartRanks(Vec<Vec<Vec<u8>>>),
    /// The ranks that wait for the server will not be started.
    DropRanks,
}

pub struct Pmix {
    /// What the job must do when the service returns.
    asked: Vec<Asked>,
    server: Server,
    pulse: Pulse,
    asks: Asks,
    fences: Fences,
    modex: Modex,
    queries: Queries,
    events: Events,
    libraries: Libraries,
    /// Whether ranks of other jobs may wait for ranks of this job.
    tells_departed: bool,
}

impl Pmix {
    /// The PMIx service if the job offers PMIx, else `None`.
    pub fn new(facts: &Facts, site: &CollectiveConfig) -> Option<Box<Pmix>> {
        let options = &facts.spec.options;
        options.pmi.flavour.has_pmix().then(|| {
            Box::new(Pmix {
                asked: Vec::new(),
                server: Server::default(),
                pulse: Pulse::default(),
                asks: Asks::default(),
                fences: Fences::new(site_of_servers(site, options.pmi.modex), facts.below.len()),
                modex: Modex::default(),
                queries: Queries::default(),
                events: Events::default(),
                libraries: Libraries::default(),
                tells_departed: false,
            })
        })
    }

    /// Removes and returns what the job must do.
    pub fn take_asked(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    /// Frames and bytes of the fences of the whole job.
    pub fn traffic(&self) -> ExchangeTraffic {
        self.fences.whole.traffic()
    }

    /// A local rank has ended: reports it to the server process, and to ranks that wait for such events.
    pub fn on_rank_gone(&mut self, cx: &mut Cx<'_>, local: LocalRank) {
        let rank = cx.rank(local);
        self.modex.on_departed(rank, cx.now());
        self.tell(cx, &ToServer::Gone { rank });
        if let Some(message) = self.events.on_gone(&cx.common.ranks[local.index()]) {
            self.say(cx, message);
        }
    }

    /// A local rank will enter no more fences.
    pub fn on_member_departed(&mut self, cx: &mut Cx<'_>, local: LocalRank, departed: Departed) {
        self.step(cx, |pmix, cx, steps| pmix.fences.subsets.on_departed(cx, local, departed, steps));
        self.tell_departed(cx, cx.rank(local));
    }

    /// A rank of the subtree enters no more of the servers' fences, from `epoch` on. Returns whether that is new.
    pub fn on_departed(&mut self, departed: Departed) -> bool {
        self.fences.whole.on_departed(departed)
    }

    /// No rank is left in a child's subtree, and no more messages will come from it.
    pub fn on_child_done(&mut self, cx: &mut Cx<'_>, child: usize) {
        self.step(cx, |pmix, cx, steps| {
            pmix.fences.subsets.on_child_done(cx, child, steps);
            pmix.queries.on_child_done(cx, child, steps);
        });
    }

    /// A subtree has opened this library.
    pub fn on_opened(&mut self, cx: &mut Cx<'_>, opened: Opened) {
        if let Err(problem) = self.libraries.on_opened(cx.facts, opened) {
            cx.fail_here(Cause::PmixServer { problem: problem.into() });
        }
    }

    /// A frame of a fence of the whole job; it is too late if the fence was given up.
    pub fn on_exchange(&mut self, cx: &mut Cx<'_>, arrived: Arrived) {
        if !self.fences.whole.is_given_up(arrived.epoch()) {
            self.step(cx, |pmix, cx, steps| pmix.fences.whole.on_frame(cx, arrived, steps));
        }
    }

    /// A frame of a barrier of servers.
    pub fn on_group_frame(&mut self, cx: &mut Cx<'_>, arrived: Barrier) {
        self.step(cx, |pmix, cx, steps| pmix.fences.subsets.on_frame(cx, arrived, steps));
    }

    /// A direct message from another node's agent.
    pub fn on_between(&mut self, cx: &mut Cx<'_>, from: AgentId, message: Between) {
        let message = match message {
            Between::Order(order) => return self.on_order(cx, names::Answer::Order(order)),
            Between::Report(report) => {
                // Only the root gets this message from a correct agent.
                if cx.facts.root {
                    cx.ask_agent(names::Up::Report { agent: from, report });
                }
                return;
            }
            message => message,
        };
        let Some(node) = cx.facts.node_of(from) else { return };
        self.step(cx, |pmix, cx, steps| pmix.modex.on_between(cx, node, message, steps));
        self.flush(cx);
    }

    /// Sends the requests to other nodes, and the answers to theirs, that were collected since the last time.
    fn flush(&mut self, cx: &mut Cx<'_>) {
        self.modex.flush(cx);
    }

    /// Handles everything that is due.
    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.check_server(cx);
        self.check_pulse(cx);
        self.check_asks(cx);
        self.step(cx, |pmix, cx, steps| pmix.fences.subsets.on_tick(cx, steps));
        self.modex.on_tick(cx.now());
        self.end_if_emptied(cx);
        self.flush(cx);
    }

    /// Answers the requests whose timeout has expired. Other ranks may wait for the same fence, so the root is told.
    fn check_asks(&mut self, cx: &mut Cx<'_>) {
        while let Some((id, waits)) = self.asks.overdue(cx.now()) {
            self.answer(cx, id, Answer::Status(Status::Timeout));
            match waits {
                Waits::Fence(epoch) => self.say(cx, Up::GiveUp { epoch }),
                Waits::Modex => self.modex.forget(id),
                Waits::Across => cx.tell_root(Report::GaveUp { id }),
                Waits::Subset | Waits::Root => {}
            }
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let machine = self.server.deadline().into_iter().chain(self.pulse.deadline()).chain(self.asks.deadline());
        let fences = self.fences.subsets.groups().deadline();
        machine.chain(fences).chain(self.modex.deadline()).min()
    }

    /// Lets a part act, and does what it needs of the others.
    fn step(&mut self, cx: &mut Cx<'_>, act: impl FnOnce(&mut Pmix, &mut Cx<'_>, &mut Steps)) {
        let mut steps = Steps::default();
        act(self, cx, &mut steps);
        for step in steps {
            match step {
                Step::Answer { id, answer } => self.answer(cx, id, answer),
                Step::Tell(message) => self.tell(cx, &message),
                Step::Up(message) => self.say(cx, message),
                Step::All(message) => self.say_to_all(cx, message),
                Step::AnswerNode(node, id, answer) => self.answer_node(cx, node, id, answer),
                Step::FailServer(problem) => self.fail_server(cx, problem),
            }
        }
    }

    /// Sends a message to the server process, unless it has ended or not started.
    fn tell(&mut self, cx: &mut Cx<'_>, message: &ToServer) {
        if self.server.listens() {
            send(cx, message);
        }
    }

    /// The answer to a request about names.
    pub fn on_named(&mut self, cx: &mut Cx<'_>, id: u64, answer: names::Answer) {
        self.answer(cx, id, Answer::Names(answer));
    }

    /// Answers a request, unless it was already answered: its timeout may have expired.
    fn answer(&mut self, cx: &mut Cx<'_>, id: u64, answer: Answer) {
        if self.asks.finish(id).is_some() {
            self.tell(cx, &ToServer::Answer { id, answer });
        }
    }

    /// A library opened in the subtree, to be reported to the parent.
    pub fn opened(&self) -> Option<Opened> {
        self.libraries.opened().cloned()
    }

    /// Number of collectives that are not complete here.
    pub fn open(&self) -> usize {
        self.exchanges().open()
    }

    /// Fences of the whole job, for a stall report.
    pub fn exchanges(&self) -> &Exchanges {
        self.fences.whole.exchanges()
    }

    /// A fence of the whole job that cannot complete, and how many local ranks wait in it.
    pub fn broken(&self) -> Option<((Departed, Epoch, Collective), u32)> {
        Some((self.fences.whole.broken()?, self.exchanges().arrived()))
    }

    /// The missing ranks were requested.
    pub fn on_asked(&mut self) {
        self.fences.whole.on_asked();
        self.fences.subsets.on_asked();
    }

    /// When a wait of `after_ns` expires.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let groups = self.fences.subsets.groups().stall_deadline(after_ns);
        self.exchanges().stall_deadline(after_ns).into_iter().chain(groups).min()
    }

    /// Barriers of some ranks, for a stall report.
    pub fn group_stalls(&self) -> impl Iterator<Item = Stall> {
        self.fences.subsets.groups().stalls()
    }

    /// The data that the local ranks have left behind.
    pub fn take_remains(&mut self) -> Remains {
        self.modex.take_remains()
    }

    /// Number of unanswered requests, for the simulator's checkers.
    pub fn outstanding(&self) -> usize {
        self.asks.len()
    }
}

fn send(cx: &mut Cx<'_>, message: &ToServer) {
    let job = cx.facts.id();
    pieces(message).into_iter().for_each(|bytes| cx.output(Output::PmixSend { job, bytes }));
}
