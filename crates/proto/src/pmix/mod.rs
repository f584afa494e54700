//! A job's PMIx service in its agent: one server process on this node talks to the ranks; this part handles everything
//! that concerns other nodes.
//!
//! ```text
//!   ranks ◄─► server process ── Ask ──► fences      whole job: an exchange; some ranks, groups: a barrier with data
//!                 ▲                     modex       the agent of the rank's node, directly
//!                 │ Answer              queries     up to the root, down again, combined at each hop
//!                 └───────────────────  (job) to the root: names, processes, other jobs; and back
//! ```
//!
//! `Pmix` owns the parts. They send frames through `Cx` and answer the server process at once. If that process
//! starts or ends, `server` notes a `ServerNews`, and `Pmix` tells the other parts. If the service needs another part
//! of the job, `server` notes an [`Asked`]. The methods of `Pmix` are here for inputs from the job and messages of
//! other agents, in `from_server` for messages of the server process, which are checked there. Parts: `server` is the
//! server process, with its requests and whether it still answers (`phase`: its states); `fences`, `modex` and
//! `queries` serve its requests, as drawn above.
//!
//! Along the job's tree requests go up to the root from any node, answers and orders go down: answers to their node,
//! messages for all nodes to all children. Agents other than the root forward everything unchanged, except for the
//! lists of processes, which they combine (`queries`).
//!
//! Every outstanding request is answered, or the job ends; an unknown number, a second answer or a rank of another node
//! violates the protocol, and ends only this job.

mod fences;
mod from_server;
mod modex;
mod phase;
mod queries;
mod server;
#[cfg(test)]
mod tests;
mod tree;

use crate::collective::CollectiveConfig;
use crate::io::{Output, SignalTarget};
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::job::names;
use crate::job::ranks::{Process, ProcessState};
use crate::time::Instant;
use bytes::Bytes;
use fences::Fences;
use modex::Modex;
pub use modex::{Remains, frame as modex_frame, gone as modex_gone, report_of_gone};
use queries::{Answered, Queries};
pub use server::{Asked, AskedOfJob, ServerProcess};
use server::{ServerNews, Waits};
use tree::{EVERYBODY, down, up};
use wireup_coll::allgather::Rules;
use wireup_wire::frame::{Frame, UpFrame};
use wireup_wire::ids::{AgentId, LocalRank, NodeId, Rank};
use wireup_wire::inter_job::{InterJobReport, Order};
use wireup_wire::job::PmiFlavour;
use wireup_wire::limits::MODEX_COLLECT_BYTES_MAX;
use wireup_wire::modex::{Between, Down, Up};
use wireup_wire::peer::{self, Cause, Departed, Failure, Opened};
use wireup_wire::pmix::{Action, Answer, Ask, Event, Set, Status, ToServer};
use wireup_wire::signal::{SIGKILL, SIGTERM};
use wireup_wire::talk::JobDown;

/// A node's part of a collecting fence is compressed from this size on (bytes): the libraries' packing repeats the
/// job's name and the keys for each rank. Measured: the parts of 16 ranks with 32 bytes each, 900 bytes, shrink to less
/// than half.
const COMPRESS_MIN: u32 = 256;

/// The largest signal number of the kernel.
const SIGNAL_MAX: i32 = 64;

/// The configuration for fences of PMIx servers: the configuration of the ranks' collectives, except for two limits:
/// how much data a fence distributes, and from what size on a node's part is compressed.
fn site_of_servers(site: &CollectiveConfig, modex: wireup_wire::job::Modex) -> CollectiveConfig {
    let collect_max = match modex {
        wireup_wire::job::Modex::Auto => Some(MODEX_COLLECT_BYTES_MAX),
        wireup_wire::job::Modex::Full | wireup_wire::job::Modex::Direct => None,
    };
    let compress_min = if site.compress_min == 0 { COMPRESS_MIN } else { site.compress_min };
    CollectiveConfig { rules: Rules { collect_max, ..site.rules }, compress_min, ..site.clone() }
}

pub struct Pmix {
    pub server: ServerProcess,
    pub fences: Fences,
    pub modex: Modex,
    /// The first library that was reported as opened by this node or a node below it.
    pub library: Option<Opened>,
    queries: Queries,
    /// Whether some PMIx client of the job has registered for events.
    watched: bool,
    /// Whether ranks of other jobs may wait for ranks of this job.
    tells_departed: bool,
}

impl Pmix {
    /// The PMIx service if the job offers PMIx, else `None`.
    pub fn new(facts: &Facts, site: &CollectiveConfig) -> Option<Box<Pmix>> {
        let options = &facts.spec.options;
        options.pmi.flavour.has_pmix().then(|| {
            Box::new(Pmix {
                server: ServerProcess::default(),
                fences: Fences::new(facts, site_of_servers(site, options.pmi.modex)),
                modex: Modex::default(),
                queries: Queries::default(),
                watched: false,
                library: None,
                tells_departed: false,
            })
        })
    }

    /// A local rank has ended: reports it to the server process, and to ranks that wait for such events.
    pub fn on_rank_gone(&mut self, cx: &mut Cx<'_>, local: LocalRank) {
        let rank = cx.rank(local);
        self.modex.offers.on_departed(rank, cx.now());
        self.server.tell(cx, &ToServer::Gone { rank });
        if let Some(message) = end_of(&cx.common.ranks[local.index()]).filter(|_| self.watched) {
            self.say(cx, message);
        }
    }

    /// Called when a local rank will enter no more fences.
    pub fn on_member_departed(&mut self, cx: &mut Cx<'_>, local: LocalRank, departed: Departed) {
        self.fences.all.barriers.on_departed(local, departed);
        self.fences.excuse_departed(cx, &mut self.server);
        if self.tells_departed {
            names::report(cx, InterJobReport::Departed { ranks: vec![cx.rank(local)] });
        }
    }

    /// No rank is left in a child's subtree, and no more messages will come from it.
    pub fn on_child_done(&mut self, cx: &mut Cx<'_>, child: usize) {
        self.fences.all.barriers.on_child_done(child);
        self.fences.excuse_departed(cx, &mut self.server);
        let answered = self.queries.on_child_done(cx, child);
        self.answer_nodes(cx, answered);
    }

    /// The last local rank has ended: the server process ends once other nodes no longer need it.
    pub fn on_ranks_gone(&mut self, cx: &mut Cx<'_>) {
        if self.server.on_ranks_gone(cx) && !cx.is_ending {
            self.modex.keep_all(cx, &self.server);
        }
        self.end_if_emptied(cx);
    }

    /// Ends the server process once its ranks' data has been fetched.
    fn end_if_emptied(&mut self, cx: &mut Cx<'_>) {
        if self.server.is_emptying() && self.modex.offers.has_kept_all() {
            self.server.end(cx);
        }
    }

    /// Handles a report of a PMIx library that this node or a subtree has opened.
    pub fn on_opened(&mut self, cx: &mut Cx<'_>, opened: Opened) {
        if let Err(problem) = compare_libraries(&mut self.library, cx.facts, opened) {
            cx.fail_here(Cause::PmixServer { problem: problem.into() });
        }
    }

    /// Handles a message that another node's agent has sent outside the job's tree.
    pub fn on_between(&mut self, cx: &mut Cx<'_>, from: AgentId, message: Between) {
        let message = match message {
            Between::Order(order) => return self.on_order(cx, order),
            Between::Report(report) => {
                // A correct agent sends this message only to the root.
                if cx.facts.root {
                    names::serve(cx, wireup_wire::names::Up::Report { agent: from, report });
                }
                return;
            }
            message => message,
        };
        let Some(node) = cx.facts.node_of(from) else { return };
        self.modex.on_between(cx, node, message, &mut self.server);
        self.modex.flush(cx);
    }

    /// An order of the root about other jobs (`session/across`).
    pub fn on_order(&mut self, cx: &mut Cx<'_>, order: Order) {
        match order {
            Order::Give { ticket, wanted } => {
                self.modex.give(cx, ticket, wanted, &mut self.server);
                self.modex.flush(cx);
            }
            Order::TellDeparted => {
                self.tells_departed = true;
                let groups = &self.fences.all.barriers;
                let locals = (0..cx.common.ranks.len() as u16).map(LocalRank);
                let gone = locals.filter(|local| groups.has_departed(*local));
                let ranks: Vec<Rank> = gone.map(|local| cx.common.ranks[local.index()].rank).collect();
                if !ranks.is_empty() {
                    names::report(cx, InterJobReport::Departed { ranks });
                }
            }
            Order::Forget { nspace } => self.server.tell(cx, &ToServer::Forget { nspace }),
        }
    }

    /// Handles everything that is due.
    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.server.on_tick(cx);
        self.follow_server(cx);
        self.check_asks(cx);
        self.fences.all.barriers.on_tick(cx);
        self.modex.offers.take_late(cx.now());
        self.end_if_emptied(cx);
        self.modex.flush(cx);
    }

    /// Answers the requests whose timeout has expired. Informs the root, since other ranks may wait for the same fence.
    fn check_asks(&mut self, cx: &mut Cx<'_>) {
        while let Some((id, waits)) = self.server.asks.overdue(cx.now()) {
            self.server.refuse(cx, id, Status::Timeout);
            match waits {
                Waits::Fence(epoch) => self.say(cx, Up::GiveUp { epoch }),
                Waits::Modex => self.modex.wants.forget(id),
                Waits::Across => names::report(cx, InterJobReport::GaveUp { id }),
                Waits::Subset | Waits::Root => {}
            }
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let fences = self.fences.all.barriers.deadline();
        self.server.deadline().into_iter().chain(fences).chain(self.modex.offers.deadline()).min()
    }

    /// Does what follows from the start or the end of the server process.
    pub fn follow_server(&mut self, cx: &mut Cx<'_>) {
        for news in std::mem::take(&mut self.server.news) {
            match news {
                ServerNews::Opened(opened) => self.on_opened(cx, opened),
                ServerNews::Served => self.modex.on_served(cx, &self.server),
                ServerNews::Unserved => self.modex.offers.on_unserved(cx.now()),
            }
        }
    }
}

/// Messages of other agents, along the job's tree.
impl Pmix {
    /// Handles a frame from a child in the job's tree.
    pub fn on_child_frame(&mut self, cx: &mut Cx<'_>, child: AgentId, frame: &Frame) {
        match peer::decode::<Up>(&frame.payload) {
            Ok(Up::Procs { query, procs }) => {
                let answered = self.queries.on_processes(cx, child, query, procs);
                self.answer_nodes(cx, answered);
            }
            Ok(message) if cx.facts.root => self.at_root(cx, message),
            Ok(message) => {
                if let Up::Impatient { epoch } = message {
                    self.fences.on_impatient(epoch);
                }
                cx.agent.links.send_job_up(cx.common.up, cx.facts.frame(UpFrame::PmixUp, 0, 0, frame.payload.clone()));
            }
            Err(error) => fail_frame(cx, &error.to_string()),
        }
    }

    /// Handles a frame from the parent in the job's tree.
    pub fn on_parent_frame(&mut self, cx: &mut Cx<'_>, frame: &Frame) {
        match peer::decode::<Down>(&frame.payload) {
            // A query is forwarded by `on_query`, to the children that have not finished.
            Ok(Down::Procs { query }) => {
                let answered = self.queries.on_query(cx, query);
                self.answer_nodes(cx, answered);
            }
            Ok(message) => {
                let to_me = frame.arg == cx.facts.me.0;
                if !to_me {
                    down(cx, frame.arg, &frame.payload);
                }
                if to_me || frame.arg == EVERYBODY {
                    self.on_root_says(cx, message);
                }
            }
            Err(error) => fail_frame(cx, &error.to_string()),
        }
    }

    /// Sends a message from this node to the root; the root handles its own messages directly.
    fn say(&mut self, cx: &mut Cx<'_>, message: Up) {
        if cx.facts.root {
            self.at_root(cx, message);
        } else {
            cx.agent.links.send_job_up(cx.common.up, up(cx.facts, &message));
        }
    }

    fn at_root(&mut self, cx: &mut Cx<'_>, message: Up) {
        match message {
            Up::Ask { node, id, ask } => self.serve(cx, node, id, ask),
            Up::Watch if self.watched => {}
            Up::Watch => self.say_to_all(cx, Down::Watched),
            Up::Event { code, from, affected, to, infos } => {
                self.say_to_all(cx, Down::Event { code, from, affected, to, infos });
            }
            Up::Impatient { epoch } => self.fences.on_impatient(epoch),
            // A rank's timeout has expired.
            Up::GiveUp { epoch } if self.fences.all.exchanges.is_open(epoch) => {
                self.say_to_all(cx, Down::Over { epoch, status: Status::Timeout });
            }
            Up::GiveUp { .. } => {}
            // The lists of processes of the children were handled before, as frames.
            Up::Procs { .. } => {}
        }
    }

    /// Sends a message from the root to all nodes, including itself.
    fn say_to_all(&mut self, cx: &mut Cx<'_>, message: Down) {
        let payload = peer::encode(&message).into();
        down(cx, EVERYBODY, &payload);
        self.on_root_says(cx, message);
    }

    fn on_root_says(&mut self, cx: &mut Cx<'_>, message: Down) {
        match message {
            Down::Answer { id, answer, .. } => self.server.answer(cx, id, answer),
            Down::Watched => self.watched = true,
            Down::Event { code, from, affected, to, infos } => {
                if let Some(to) = recipients(cx.facts, to) {
                    self.server.tell(cx, &ToServer::Event { code, from, affected, to, infos });
                }
            }
            Down::Over { epoch, status } => self.fences.on_over(cx, epoch, status, &mut self.server),
            Down::Signal { ranks, signal } => signal_some(cx, &ranks, signal),
            // A query was handled before, as a frame: the root does not query itself.
            Down::Procs { .. } => {}
        }
    }

    fn answer_nodes(&mut self, cx: &mut Cx<'_>, answered: Vec<Answered>) {
        answered.into_iter().for_each(|(node, id, answer)| self.answer_node(cx, node, id, answer));
    }

    /// Answers a node's request, at the root.
    fn answer_node(&mut self, cx: &mut Cx<'_>, node: NodeId, id: u64, answer: Answer) {
        if Some(node) == cx.facts.node {
            return self.server.answer(cx, id, answer);
        }
        let Some(spec) = cx.facts.spec.nodes.get(node.index()) else { return };
        let payload = Bytes::from(peer::encode(&Down::Answer { node, id, answer }));
        down(cx, spec.agent.0, &payload);
    }

    /// Serves a request at the root.
    fn serve(&mut self, cx: &mut Cx<'_>, node: NodeId, id: u64, ask: Ask) {
        match ask {
            Ask::ProcTable { .. } => {
                let answered = self.queries.start_query(cx, node, id);
                self.answer_nodes(cx, answered);
            }
            Ask::Control { from, set, action } => {
                let status = self.control(cx, (node, from), set, action);
                self.answer_node(cx, node, id, Answer::Status(status));
            }
            _ => fail_frame(cx, "a request that is not for the root"),
        }
    }

    /// Job control at the root: a rank requests that the job, or some of its ranks, end or get a signal. `node`,
    /// `from`: the node and the rank that request it.
    fn control(&mut self, cx: &mut Cx<'_>, (node, from): (NodeId, Rank), set: Set, action: Action) -> Status {
        let signal = match action {
            Action::Terminate => SIGTERM,
            Action::Kill => SIGKILL,
            Action::Signal(signal @ 1..=SIGNAL_MAX) => signal,
            Action::Signal(_) => return Status::BadParam,
        };
        match (set, action) {
            (Set::All, Action::Signal(_)) => {
                cx.signal(signal);
                cx.control_down(JobDown::Signal { signal });
            }
            (Set::All, Action::Terminate) => cx.fail(asked_for_the_end(cx.facts, node, from)),
            (Set::All, Action::Kill) => {
                cx.fail(asked_for_the_end(cx.facts, node, from));
                cx.kill(0);
            }
            (Set::Ranks(ranks), Action::Terminate | Action::Kill | Action::Signal(_)) => {
                self.say_to_all(cx, Down::Signal { ranks, signal });
            }
        }
        Status::Ok
    }
}

fn fail_frame(cx: &mut Cx<'_>, problem: &str) {
    cx.fail_here(Cause::PmixServer { problem: format!("an agent's message about it: {problem}").into() });
}

fn asked_for_the_end(facts: &Facts, node: NodeId, from: Rank) -> Failure {
    let message = "it requested the end of the job by PMIx job control".into();
    let cause = Cause::Aborted { code: 1, message };
    Failure { node, host: facts.name_of(node), rank: Some(from), pid: None, cause }
}

/// Sends a signal to those of these ranks that are local; the root has requested it.
fn signal_some(cx: &mut Cx<'_>, ranks: &[Rank], signal: i32) {
    for local in (0..cx.common.ranks.len() as u16).map(LocalRank) {
        if ranks.binary_search(&cx.rank(local)).is_ok() {
            let target = SignalTarget::One(local);
            cx.output(Output::Signal { job: cx.facts.id(), target, signal });
        }
    }
}

/// Compares a library that this node or a subtree has opened with `library`, the first one that was reported.
///
/// # Errors
/// Why `other` is incompatible with `library`.
fn compare_libraries(library: &mut Option<Opened>, facts: &Facts, other: Opened) -> Result<(), String> {
    let Some(known) = &*library else {
        *library = Some(other);
        return Ok(());
    };
    if series(&known.version) == series(&other.version) {
        return Ok(());
    }
    if facts.spec.options.pmi.flavour == PmiFlavour::Both && (known.version.is_empty() || other.version.is_empty()) {
        // A rank that needs PMIx on a node without it will report an error; all other ranks run without PMIx.
        if known.version.is_empty() {
            *library = Some(other);
        }
        return Ok(());
    }
    Err(format!(
        "the nodes have different PMIx libraries, which are incompatible: {} and {}; choose one with \
         --pmix-library",
        library_words(facts, known),
        library_words(facts, &other)
    ))
}

fn library_words(facts: &Facts, opened: &Opened) -> String {
    let name = facts.name_of(opened.node);
    match opened.version.as_str() {
        "" => format!("none on node {name}"),
        version => format!("{version} on node {name}"),
    }
}

/// The parts of a version that must be equal: `4.2` of `4.2.9`.
fn series(version: &str) -> Vec<&str> {
    version.split('.').take(2).collect()
}

/// The message for the root about a local rank that has ended; `None`: its end is no event.
///
/// Ranks that die or exit without finalizing are reported to all nodes, once a PMIx client has registered for events
/// (`Up::Watch`). Normal exits are not: otherwise the end of a job would cost a message from each rank to each node.
fn end_of(process: &Process) -> Option<Up> {
    // An exit after finalize is not reported, because every rank exits eventually; nor is the exit of a rank that has
    // not connected.
    let is_normal = match process.state {
        ProcessState::Gone { exit: Some(0) } => process.finalized || !process.spoke_pmi,
        ProcessState::Gone { exit: Some(_) } => process.finalized,
        ProcessState::Gone { exit: None } | ProcessState::Planned | ProcessState::Running => false,
    };
    let (code, affected) = (Event::ProcAborted, Some(process.rank));
    (!is_normal).then_some(Up::Event { code, from: None, affected, to: Set::All, infos: Bytes::new() })
}

/// The receivers of an event on this node: all ranks (`Some(None)`), some, or (`None`) no ranks.
fn recipients(facts: &Facts, to: Set) -> Option<Option<Vec<Rank>>> {
    match to {
        Set::All => Some(None),
        Set::Ranks(ranks) => {
            let here: Vec<Rank> = ranks.into_iter().filter(|rank| facts.local_of(*rank).is_some()).collect();
            Some(here).filter(|here| !here.is_empty()).map(Some)
        }
    }
}
