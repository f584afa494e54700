//! A job's PMIx service in its agent: one server process on this node talks to the ranks; this part handles everything
//! that concerns other nodes.
//!
//! ```text
//!   ranks ◄─► server process ── Ask ──► fences      whole job: an exchange; some ranks, groups: a barrier with data
//!                 ▲                     modex       the agent of the rank's node, directly
//!                 │ Answer              queries     up to the root, down again, combined at each hop
//!                 └───────────────────  (job/names) to the root: names, processes, other jobs; and back
//! ```
//!
//! `Pmix` owns the parts, which do not know each other: they send frames through `Cx`, what they need of each other is
//! a `Step`, and what the service needs of the job's other parts an [`Asked`]. The methods of `Pmix` are here for
//! inputs from the job, in `from_server` for messages of the server process, in `tree` for messages of other agents.
//! Parts: `server` is the server process (`phase`: its states; `asks`: its requests; `pulse`: whether it still
//! answers); `fences`, `modex`, `queries`, `events`, `libraries`; `from_server` also checks them.
//!
//! Every outstanding request is answered, or the job ends; an unknown number, a second answer or a rank of another node
//! violates the protocol, and ends only this job.

mod asks;
mod events;
mod fences;
mod from_server;
mod libraries;
mod modex;
mod phase;
mod pulse;
mod queries;
mod server;
mod step;
#[cfg(test)]
mod tests;
mod tree;

use crate::collective::CollectiveConfig;
use crate::job::collectives::Arrived;
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::job::groups::Arrived as Barrier;
use crate::time::Instant;
use asks::Waits;
use events::Events;
use fences::Fences;
use libraries::Libraries;
use modex::Modex;
pub use modex::{Remains, frame as modex_frame, gone as modex_gone, report_of_gone};
use queries::Queries;
pub use server::ServerProcess;
use step::Step;
pub use step::{Asked, AskedOfJob, Steps};
use wireup_wire::ids::{AgentId, LocalRank, Rank};
use wireup_wire::inter_job::{InterJobReport, Order};
use wireup_wire::limits::MODEX_COLLECT_BYTES_MAX;
use wireup_wire::modex::{Between, Up};
use wireup_wire::names;
use wireup_wire::peer::{Cause, Departed, Opened, PmixProblem};
use wireup_wire::pmix::{Answer, Status, ToServer};

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
    /// What the job must do when the service returns.
    pub asked: Vec<Asked>,
    pub server: ServerProcess,
    pub fences: Fences,
    pub modex: Modex,
    pub libraries: Libraries,
    queries: Queries,
    events: Events,
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
                server: ServerProcess::default(),
                fences: Fences::new(site_of_servers(site, options.pmi.modex), facts.below.len()),
                modex: Modex::default(),
                queries: Queries::default(),
                events: Events::default(),
                libraries: Libraries::default(),
                tells_departed: false,
            })
        })
    }

    /// A local rank has ended: reports it to the server process, and to ranks that wait for such events.
    pub fn on_rank_gone(&mut self, cx: &mut Cx<'_>, local: LocalRank) {
        let rank = cx.rank(local);
        self.modex.on_departed(rank, cx.now());
        self.server.tell(cx, &ToServer::Gone { rank });
        if let Some(message) = self.events.on_gone(&cx.common.ranks[local.index()]) {
            self.say(cx, message);
        }
    }

    /// A local rank will enter no more fences.
    pub fn on_member_departed(&mut self, cx: &mut Cx<'_>, local: LocalRank, departed: Departed) {
        self.step(cx, |pmix, cx, steps| pmix.fences.subsets.on_departed(cx, local, departed, steps));
        if self.tells_departed {
            cx.tell_root(InterJobReport::Departed { ranks: vec![cx.rank(local)] });
        }
    }

    /// No rank is left in a child's subtree, and no more messages will come from it.
    pub fn on_child_done(&mut self, cx: &mut Cx<'_>, child: usize) {
        self.step(cx, |pmix, cx, steps| {
            pmix.fences.subsets.on_child_done(cx, child, steps);
            pmix.queries.on_child_done(cx, child, steps);
        });
    }

    /// The last local rank has ended: the server process ends once other nodes no longer need it.
    pub fn on_ranks_gone(&mut self, cx: &mut Cx<'_>) {
        self.step(cx, |pmix, cx, steps| {
            if pmix.server.on_ranks_gone(cx, steps) && !cx.is_ending {
                pmix.modex.keep_all(cx, steps);
            }
        });
        self.end_if_emptied(cx);
    }

    /// Ends the server process once its ranks' data has been fetched.
    fn end_if_emptied(&mut self, cx: &mut Cx<'_>) {
        if self.server.is_emptying() && self.modex.has_kept_all() {
            self.server.end(cx);
        }
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
            Between::Order(order) => return self.on_order(cx, order),
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
        self.modex.flush(cx);
    }

    /// An order of the root about other jobs (`session/across`).
    pub fn on_order(&mut self, cx: &mut Cx<'_>, order: Order) {
        match order {
            Order::Give { ticket, wanted } => {
                self.step(cx, |pmix, cx, steps| pmix.modex.give(cx, ticket, wanted, steps));
                self.modex.flush(cx);
            }
            Order::TellDeparted => {
                self.tells_departed = true;
                let groups = &self.fences.subsets.barriers.groups;
                let locals = (0..cx.common.ranks.len() as u16).map(LocalRank);
                let gone = locals.filter(|local| groups.has_departed(*local));
                let ranks: Vec<Rank> = gone.map(|local| cx.common.ranks[local.index()].rank).collect();
                if !ranks.is_empty() {
                    cx.tell_root(InterJobReport::Departed { ranks });
                }
            }
            Order::Forget { nspace } => self.server.tell(cx, &ToServer::Forget { nspace }),
        }
    }

    /// Handles everything that is due.
    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.step(cx, |pmix, cx, steps| pmix.server.on_tick(cx, steps));
        self.check_asks(cx);
        self.step(cx, |pmix, cx, steps| pmix.fences.subsets.on_tick(cx, steps));
        self.modex.on_tick(cx.now());
        self.end_if_emptied(cx);
        self.modex.flush(cx);
    }

    /// Answers the requests whose timeout has expired. Other ranks may wait for the same fence, so the root is told.
    fn check_asks(&mut self, cx: &mut Cx<'_>) {
        while let Some((id, waits)) = self.server.overdue(cx.now()) {
            self.server.answer(cx, id, Answer::Status(Status::Timeout));
            match waits {
                Waits::Fence(epoch) => self.say(cx, Up::GiveUp { epoch }),
                Waits::Modex => self.modex.forget(id),
                Waits::Across => cx.tell_root(InterJobReport::GaveUp { id }),
                Waits::Subset | Waits::Root => {}
            }
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let fences = self.fences.subsets.barriers.groups.deadline();
        self.server.deadline().into_iter().chain(fences).chain(self.modex.deadline()).min()
    }

    /// Lets a part act, and does what it needs of the others.
    pub fn step(&mut self, cx: &mut Cx<'_>, act: impl FnOnce(&mut Pmix, &mut Cx<'_>, &mut Steps)) {
        let mut steps = Steps::default();
        act(self, cx, &mut steps);
        self.carry_out(cx, steps);
    }

    fn carry_out(&mut self, cx: &mut Cx<'_>, steps: Steps) {
        for step in steps {
            match step {
                Step::Answer { id, answer } => self.server.answer(cx, id, answer),
                Step::Tell(message) => self.server.tell(cx, &message),
                Step::Up(message) => self.say(cx, message),
                Step::All(message) => self.say_to_all(cx, message),
                Step::AnswerNode(node, id, answer) => self.answer_node(cx, node, id, answer),
                Step::FailServer(problem) => self.fail_server(cx, problem),
                Step::Opened(opened) => self.on_opened(cx, opened),
                Step::Served => {
                    let mut steps = Steps::default();
                    self.modex.on_served(&mut steps);
                    self.carry_out(cx, steps);
                }
                Step::Unserved => self.modex.on_unserved(cx.now()),
                Step::AskJob(asked) => self.asked.push(asked),
            }
        }
    }

    /// The server process has failed.
    fn fail_server(&mut self, cx: &mut Cx<'_>, problem: impl Into<PmixProblem>) {
        self.step(cx, |pmix, cx, steps| pmix.server.fail(cx, problem, steps));
    }
}
