//! A job's PMIx service in its agent: one server process on this node talks to the ranks; this part handles everything
//! that concerns other nodes. Events go in, effects come out.
//!
//! ```text
//!   ranks ◄─► server process ── Ask ──► fences      whole job: an exchange; some ranks, groups: a barrier with data
//!                 ▲                     modex       the agent of the rank's node, directly
//!                 │ Answer              queries     up to the root, down again, combined at each hop
//!                 └───────────────────  (job/names) to the root: names, processes, other jobs (across); and back
//! ```
//!
//! `Pmix` is the router; its parts do not know each other: what they request of others is a `Step`. Its methods are
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
use crate::io::Output;
use crate::job::Act;
use crate::job::collectives::Arrived;
use crate::job::effect::{Effect, Effects};
use crate::job::facts::{Facts, View};
use crate::job::groups::Arrived as Barrier;
use crate::time::Instant;
use asks::{Asks, Waits};
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
use wireup_wire::ids::{AgentId, Epoch, LocalRank};
use wireup_wire::inter_job::Report;
use wireup_wire::limits::MODEX_COLLECT_BYTES_MAX;
use wireup_wire::modex::{Between, Up};
use wireup_wire::names;
use wireup_wire::peer::{Cause, Departed, Opened};
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

pub struct Pmix {
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
        options.pmi.has_pmix().then(|| {
            Box::new(Pmix {
                server: Server::default(),
                pulse: Pulse::default(),
                asks: Asks::default(),
                fences: Fences::new(site_of_servers(site, options.modex), facts.below.len()),
                modex: Modex::default(),
                queries: Queries::default(),
                events: Events::default(),
                libraries: Libraries::default(),
                tells_departed: false,
            })
        })
    }

    /// A local rank has ended: reports it to the server process, and to ranks that wait for such events.
    pub fn on_rank_gone(&mut self, view: &View<'_>, local: LocalRank, out: &mut Effects) {
        let process = &view.ranks[local.index()];
        self.modex.on_departed(process.rank, view.now);
        self.tell(view, &ToServer::Gone { rank: process.rank }, out);
        if let Some(message) = self.events.on_gone(process) {
            self.say(view, message, out);
        }
    }

    /// A local rank will enter no more fences.
    pub fn on_member_departed(&mut self, view: &View<'_>, local: LocalRank, departed: Departed, out: &mut Effects) {
        self.step(view, out, |pmix, steps| pmix.fences.subsets.on_departed(view.facts, local, departed, steps));
        self.tell_departed(view.ranks[local.index()].rank, out);
    }

    /// A rank of the subtree enters no more of the servers' fences, from `epoch` on. Returns whether that is new.
    pub fn on_departed(&mut self, departed: Departed) -> bool {
        self.fences.whole.on_departed(departed)
    }

    /// No rank is left in a child's subtree, and no more messages will come from it.
    pub fn on_child_done(&mut self, view: &View<'_>, child: usize, out: &mut Effects) {
        self.step(view, out, |pmix, steps| {
            pmix.fences.subsets.on_child_done(view.facts, child, steps);
            pmix.queries.on_child_done(view.facts, child, steps);
        });
    }

    /// A subtree has opened this library.
    pub fn on_opened(&mut self, view: &View<'_>, opened: Opened, out: &mut Effects) {
        if let Err(problem) = self.libraries.on_opened(view.facts, opened) {
            out.fail_here(Cause::PmixServer { problem: problem.into() });
        }
    }

    /// A frame of a fence of the whole job that was not given up.
    pub fn on_exchange(&mut self, view: &View<'_>, arrived: Arrived, out: &mut Effects) {
        self.step(view, out, |pmix, steps| pmix.fences.whole.on_frame(view, arrived, steps));
    }

    /// A frame of a barrier of servers.
    pub fn on_group_frame(&mut self, view: &View<'_>, arrived: Barrier, out: &mut Effects) {
        self.step(view, out, |pmix, steps| pmix.fences.subsets.on_frame(view, arrived, steps));
    }

    /// A direct message from another node's agent.
    pub fn on_between(&mut self, view: &View<'_>, from: AgentId, message: Between, out: &mut Effects) {
        let message = match message {
            Between::Order(order) => return self.on_order(view, names::Answer::Order(order), out),
            Between::Report(report) => {
                // Only the root gets this message from a correct agent.
                if view.facts.root {
                    out.push(Effect::Act(Act::Names(names::Up::Report { agent: from, report })));
                }
                return;
            }
            message => message,
        };
        let Some(node) = view.facts.node_of(from) else { return };
        self.step(view, out, |pmix, steps| pmix.modex.on_between(view, node, message, steps));
        self.flush(view, out);
    }

    /// Sends the requests to other nodes, and the answers to theirs, that were collected since the last time.
    fn flush(&mut self, view: &View<'_>, out: &mut Effects) {
        self.modex.flush(view.facts, out);
    }

    /// Handles everything that is due.
    pub fn on_tick(&mut self, view: &View<'_>, out: &mut Effects) {
        self.check_server(view, out);
        self.check_pulse(view, out);
        self.check_asks(view, out);
        self.step(view, out, |pmix, steps| pmix.fences.subsets.on_tick(view, steps));
        self.modex.on_tick(view.now);
        self.end_if_emptied(view, out);
        self.flush(view, out);
    }

    /// Answers the requests whose timeout has expired. Other ranks may wait for the same fence, so the root is told.
    fn check_asks(&mut self, view: &View<'_>, out: &mut Effects) {
        while let Some((id, waits)) = self.asks.overdue(view.now) {
            self.answer(view, id, Answer::Status(Status::Timeout), out);
            match waits {
                Waits::Fence(epoch) => self.say(view, Up::GiveUp { epoch }, out),
                Waits::Modex => self.modex.forget(id),
                Waits::Across => out.push(Effect::TellRoot(Report::GaveUp { id })),
                Waits::Subset | Waits::Root => {}
            }
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let machine = self.server.deadline().into_iter().chain(self.pulse.deadline()).chain(self.asks.deadline());
        let fences = self.fences.subsets.groups().deadline();
        machine.chain(fences).chain(self.modex.deadline()).min()
    }

    /// Lets a part act, and carries out its steps.
    fn step(&mut self, view: &View<'_>, out: &mut Effects, act: impl FnOnce(&mut Pmix, &mut Steps)) {
        let mut steps = Steps::default();
        act(self, &mut steps);
        for step in steps {
            match step {
                Step::Answer { id, answer } => self.answer(view, id, answer, out),
                Step::Tell(message) => self.tell(view, &message, out),
                Step::Up(message) => self.say(view, message, out),
                Step::All(message) => self.say_to_all(view, message, out),
                Step::AnswerNode(node, id, answer) => self.answer_node(view, node, id, answer, out),
                Step::FailServer(problem) => self.fail_server(view, problem, out),
                Step::Job(effect) => out.push(effect),
            }
        }
    }

    /// Sends a message to the server process, unless it has ended or not started.
    fn tell(&mut self, view: &View<'_>, message: &ToServer, out: &mut Effects) {
        if self.server.listens() {
            self.send(view, message, out);
        }
    }

    fn send(&self, view: &View<'_>, message: &ToServer, out: &mut Effects) {
        let job = view.facts.id();
        pieces(message).into_iter().for_each(|bytes| out.output(Output::PmixSend { job, bytes }));
    }

    /// The answer to a request about names.
    pub fn on_named(&mut self, view: &View<'_>, id: u64, answer: names::Answer, out: &mut Effects) {
        self.answer(view, id, Answer::Names(answer), out);
    }

    /// Answers a request, unless it was already answered: its timeout may have expired.
    fn answer(&mut self, view: &View<'_>, id: u64, answer: Answer, out: &mut Effects) {
        if self.asks.finish(id).is_some() {
            self.tell(view, &ToServer::Answer { id, answer }, out);
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

    /// Whether a frame belongs to a fence that was given up, and is too late.
    pub fn is_given_up(&self, epoch: Epoch) -> bool {
        self.fences.whole.is_given_up(epoch)
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
