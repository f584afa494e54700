//! Serves the libraries of this node's ranks: their PMI and PMIx requests, PyTorch's store, their departures from
//! collectives, and the search for ranks that others wait for.
//!
//! [`RankService`] owns the parts that do so. What the job must do for them is an [`AskedOfJob`].

use super::cx::Cx;
use super::facts::Facts;
use super::names;
use super::ranks::ProcessState;
use super::stalls::{self, Stalls};
use crate::collective::groups::Arrived as GroupArrived;
use crate::collective::{Broken, CollectiveConfig, Collectives, ReplyTo};
use crate::io::Output;
use crate::pmi_server::{self, PmiServer, endpoints};
use crate::pmix::{self, AskedOfJob, Pmix};
use crate::store::Store;
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::collective::Collective;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{Client, Epoch, LocalRank};
use wireup_wire::names::Asker;
use wireup_wire::peer::{Cause, Departed};
use wireup_wire::talk::{JobDown, JobUp};

pub struct RankService {
    pub pmi: PmiServer,
    pub pmix: Option<Box<Pmix>>,
    pub store: Option<Box<Store>>,
    stalls: Stalls,
    /// What the job must do when the service returns.
    pub asked: Vec<AskedOfJob>,
}

impl RankService {
    pub fn new(facts: &Facts) -> RankService {
        let config = CollectiveConfig::new(facts);
        RankService {
            pmix: Pmix::new(facts, &config),
            pmi: PmiServer::new(facts, config),
            store: Store::of_job(facts),
            stalls: Stalls::default(),
            asked: Vec::new(),
        }
    }

    /// Does what a request of a PMI client needs of other parts of the job.
    pub fn on_pmi_asked(&mut self, cx: &mut Cx<'_>, local: LocalRank, asked: pmi_server::Asked) {
        match asked {
            pmi_server::Asked::Initialised => cx.common.ranks.on_connected(cx.agent.now, local, false),
            pmi_server::Asked::MeetsNode => {
                cx.common.ranks.on_meets_node(cx.agent.now, local);
                self.miss_absent(cx);
            }
            pmi_server::Asked::Endpoints(rows) => self.tell_pmix_endpoints(cx, rows),
            pmi_server::Asked::Finalized => self.on_finalized(cx, local, false),
            pmi_server::Asked::Abort { code, message } => cx.fail_rank(local, Cause::Aborted { code, message }),
            pmi_server::Asked::Unreadable { problem } => cx.fail_rank(local, Cause::Pmi { problem }),
            pmi_server::Asked::Enter { .. } | pmi_server::Asked::EnterGroup { .. } | pmi_server::Asked::Name { .. } => {
                unreachable!("the PMI server acts on these itself")
            }
        }
    }

    /// Lets the PMIx part act, if the job offers PMIx, and does what the part asks for.
    pub fn pmix<T>(&mut self, cx: &mut Cx<'_>, act: impl FnOnce(&mut Pmix, &mut Cx<'_>) -> T) -> Option<T> {
        let pmix = self.pmix.as_mut()?;
        let result = act(pmix, cx);
        pmix.follow_server(cx);
        for asked in std::mem::take(&mut pmix.server.asked) {
            match asked {
                pmix::Asked::Connected(local) => {
                    cx.common.ranks.on_connected(cx.agent.now, local, true);
                    self.miss_absent(cx);
                }
                pmix::Asked::Finalized(local) => self.on_finalized(cx, local, true),
                pmix::Asked::Name { from, id, ask } => names::ask(cx, from, Asker::Server(id), ask),
                pmix::Asked::Gone => {
                    for local in cx.common.ranks.on_server_gone() {
                        self.depart(cx, local);
                    }
                    self.sweep_if_gone(cx);
                }
                pmix::Asked::OfJob(asked) => self.asked.push(asked),
            }
        }
        Some(result)
    }

    fn on_finalized(&mut self, cx: &mut Cx<'_>, local: LocalRank, by_pmix: bool) {
        cx.common.ranks.on_finalized(cx.agent.now, local, by_pmix);
        self.depart(cx, local);
    }

    /// The listening sockets of the local ranks exist. Sends their address to all nodes, unless the job's description
    /// has the addresses of all nodes.
    pub fn on_ranks_listen(&mut self, cx: &mut Cx<'_>, address: &Bytes) {
        let mut known = Some(cx.facts.spec.endpoints.clone()).filter(|rows| !rows.is_empty());
        match &known {
            Some(rows) => self.pmi.on_endpoints(cx, rows.clone()),
            None => {
                for local in (0..cx.common.ranks.len() as u16).map(LocalRank) {
                    let rows = self.pmi.enter(cx, local, endpoints::entry(local, address), ReplyTo::Endpoints);
                    known = known.or(rows);
                }
            }
        }
        known.into_iter().for_each(|rows| self.tell_pmix_endpoints(cx, rows));
    }

    /// The addresses of all ranks are known: one row for each node.
    fn tell_pmix_endpoints(&mut self, cx: &mut Cx<'_>, rows: Vec<Bytes>) {
        self.pmix(cx, |pmix, cx| pmix.server.on_endpoints(cx, rows));
    }

    pub fn on_client_gone(&mut self, cx: &mut Cx<'_>, client: Client) {
        let was_member = self.pmi.on_closed(client);
        if client.is_secondary() {
            self.leave_groups(cx, client.local);
        } else if was_member {
            cx.common.ranks.on_socket_closed(cx.agent.now, client.local);
        }
    }

    /// A local rank has ended.
    pub fn on_rank_gone(&mut self, cx: &mut Cx<'_>, local: LocalRank) {
        self.end_server_if_alone(cx);
        self.pmi.tables.attrs.on_gone(local);
        names::on_gone(cx, cx.rank(local));
        self.pmix(cx, |pmix, cx| pmix.on_rank_gone(cx, local));
    }

    /// Ends the PMIx server if the last local rank has ended.
    pub fn end_server_if_alone(&mut self, cx: &mut Cx<'_>) {
        if !cx.common.ranks.are_alive() {
            self.store.iter_mut().for_each(|store| store.on_ranks_gone(cx.now()));
            self.pmix(cx, Pmix::on_ranks_gone);
            self.sweep_if_gone(cx);
        }
    }

    /// Kills the processes that the ranks left behind, once the ranks and their PMIx server have ended, even while
    /// output of the ranks is unread.
    fn sweep_if_gone(&self, cx: &mut Cx<'_>) {
        if !self.has_server() && !cx.common.ranks.are_alive() {
            cx.output(Output::Sweep { job: cx.facts.id() });
        }
    }

    /// Whether the PMIx server process must still be waited for.
    pub fn has_server(&self) -> bool {
        self.pmix.as_ref().is_some_and(|pmix| pmix.server.phase.is_there())
    }

    /// Handles a frame of a collective of some ranks, from a child or (`None`) from the parent.
    pub fn on_group(&mut self, cx: &mut Cx<'_>, child: Option<usize>, frame: Frame) {
        match GroupArrived::read(cx.facts, child, frame) {
            Ok(arrived) if arrived.is_of_servers() => {
                self.pmix(cx, |pmix, cx| pmix.fences.on_group(cx, arrived, &mut pmix.server));
            }
            Ok(arrived) => self.pmi.on_group(cx, arrived),
            Err(problem) => cx.fail_here(Cause::Pmi { problem }),
        }
    }

    /// A rank waits inside its library for the other ranks of its node: ranks that ended without calling init count as
    /// departed.
    fn miss_absent(&mut self, cx: &mut Cx<'_>) {
        let ranks = &cx.common.ranks;
        if !ranks.are_fewer() {
            return;
        }
        let mut all = (0..ranks.len() as u16).map(LocalRank);
        if let Some(absent) = all.find(|local| ranks.is_awaited_in_library(*local)) {
            self.on_departed(cx, self.departed(cx, absent));
        }
    }

    /// The report that a local rank enters no more collectives.
    fn departed(&self, cx: &Cx<'_>, local: LocalRank) -> Departed {
        let process = &cx.common.ranks[local.index()];
        let exit = match process.state {
            ProcessState::Gone { exit } => exit,
            ProcessState::Planned | ProcessState::Running => None,
        };
        let awaited = process.spoke_pmi || cx.common.ranks.is_awaited_in_library(local);
        Departed {
            rank: process.rank,
            pid: process.pid,
            node: cx.facts.own_node(),
            epoch: self.pmi.collectives.exchanges.next_of(local),
            modex_epoch: self.pmix.as_ref().map_or(Epoch(0), |pmix| pmix.fences.all.exchanges.next_of(local)),
            finalized: process.finalized,
            initialised: process.spoke_pmi,
            deserted: awaited && !process.finalized && exit.is_some(),
            exit,
        }
    }

    /// Records and reports that a local rank enters no more collectives.
    pub fn depart(&mut self, cx: &mut Cx<'_>, local: LocalRank) {
        let departed = self.departed(cx, local);
        self.pmi.on_departed(local);
        self.leave_groups(cx, local);
        self.pmix(cx, |pmix, cx| pmix.on_member_departed(cx, local, departed));
        self.on_departed(cx, departed);
    }

    /// A local rank enters no more collectives of groups, unless another library in its process may still enter some.
    fn leave_groups(&mut self, cx: &mut Cx<'_>, local: LocalRank) {
        if self.pmi.clients.has_left(local) {
            let departed = self.departed(cx, local);
            self.pmi.on_left(cx, departed.rank);
            self.pmi.collectives.barriers.on_departed(local, departed);
        }
    }

    /// Called when a rank of the subtree enters no more collectives.
    pub fn on_departed(&mut self, cx: &mut Cx<'_>, departed: Departed) {
        let of_servers = Departed { epoch: departed.modex_epoch, ..departed };
        let is_news = self.pmi.collectives.exchanges.on_departed(departed)
            | self.pmix.as_mut().is_some_and(|pmix| pmix.fences.all.exchanges.on_departed(of_servers));
        if is_news {
            cx.report_departed(departed);
        }
    }

    /// Ends the job if ranks wait in a collective for a rank that will never enter it.
    pub fn check_broken(&mut self, cx: &mut Cx<'_>) {
        self.pmi.collectives.barriers.check_broken(cx);
        let of_servers = || self.pmix.as_ref()?.fences.broken();
        let broken = self.pmi.collectives.exchanges.broken().or_else(of_servers);
        if let Some(Broken { departed, epoch, collective, waiting }) = broken {
            let (exit, finalized) = (departed.exit, departed.finalized);
            let cause = match departed.initialised {
                true => Cause::LeftFence { epoch, collective, exit, finalized, waiting },
                false => Cause::NotFinalized { initialised: false },
            };
            cx.fail_departed(departed, cause);
        }
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.check_stall(cx);
        self.pmi.collectives.barriers.on_tick(cx);
        self.store.iter_mut().for_each(|store| store.on_tick(cx));
        self.pmix(cx, Pmix::on_tick);
    }

    /// If a wait has become too long, the root asks all agents for the missing ranks.
    fn check_stall(&mut self, cx: &mut Cx<'_>) {
        let after_ns = cx.facts.spec.options.stall_report_ns;
        let in_init = cx.common.ranks.check_init(cx.agent.now, after_ns);
        let due = self.all_collectives().filter_map(|all| all.stall_deadline(after_ns));
        let due = due.chain(cx.common.ranks.stall_deadline(after_ns)).min();
        if in_init || due.is_some_and(|due| cx.now() >= due) {
            self.mark_asked();
            self.ask_stall(cx, None);
        }
        self.survey_if_due(cx);
    }

    /// The collectives of the ranks, then those of their PMIx server.
    fn all_collectives(&self) -> impl Iterator<Item = &Collectives> {
        std::iter::once(&self.pmi.collectives).chain(self.pmix.as_ref().map(|pmix| &pmix.fences.all))
    }

    fn mark_asked(&mut self) {
        self.pmi.collectives.on_asked();
        self.pmix.iter_mut().for_each(|pmix| pmix.fences.all.on_asked());
    }

    fn first_collective(&self) -> Option<Collective> {
        self.all_collectives().find_map(|all| all.exchanges.first())
    }

    /// Requests a search for missing ranks, in `collective` if that is known.
    pub fn ask_stall(&mut self, cx: &mut Cx<'_>, collective: Option<Collective>) {
        let first = self.first_collective();
        self.stalls.ask(cx, collective, first);
        self.survey_if_due(cx);
    }

    fn survey_if_due(&mut self, cx: &mut Cx<'_>) {
        if let Some(collective) = self.stalls.take_due(cx.now()) {
            self.survey(cx, collective);
        }
    }

    /// Asks the children for missing ranks, and reports those of this node.
    pub fn survey(&mut self, cx: &mut Cx<'_>, collective: Option<Collective>) {
        let collective = collective.or(self.first_collective());
        self.mark_asked();
        cx.control_down(JobDown::StallAsk { collective });
        // A node's PMIx server does not say which of its ranks have entered: either all have, or none.
        let exchanges = match &self.pmix {
            Some(pmix) if collective == Some(Collective::Modex) => &pmix.fences.all.exchanges,
            _ => &self.pmi.collectives.exchanges,
        };
        let groups = self.all_collectives().flat_map(|all| all.barriers.stalls());
        let report = stalls::report(cx.facts, &cx.common.ranks, collective, exchanges, groups);
        report.into_iter().for_each(|report| cx.report(JobUp::Stall(report)));
    }

    /// Time at which `on_tick` must be called. `after_ns`: how long ranks wait before the missing ranks are searched
    /// for.
    pub fn deadline(&self, after_ns: u64) -> Option<Instant> {
        let of_pmix = self.pmix.as_ref().and_then(|pmix| pmix.deadline());
        let of_store = self.store.as_ref().and_then(|store| store.deadline());
        let own = [self.stalls.deadline(), self.pmi.collectives.barriers.deadline(), of_pmix, of_store];
        let parts = own.into_iter().flatten();
        parts.chain(self.all_collectives().filter_map(|all| all.stall_deadline(after_ns))).min()
    }

    /// Number of collectives of the whole job that are in progress here.
    pub fn open_collectives(&self) -> usize {
        self.all_collectives().map(|all| all.exchanges.open()).sum()
    }
}
