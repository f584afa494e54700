//! Questions about the job: its name, its processes.
//!
//! ```text
//!   asks ── Up::Ask ──► root ── Down::Procs ──► all, down the tree
//!                        ◄─────── Up::Procs ──   joined at each hop
//! ```
//!
//! Below a child that is done all ranks have left, with exit code 0 as long as the job lives: the root fills them in.

use super::super::processes::Life;
use super::super::{Context, Job};
use std::collections::BTreeMap;
use wireup_wire::frame::Kind;
use wireup_wire::ids::{AgentId, NodeId, Rank};
use wireup_wire::modex::{Down, Up};
use wireup_wire::peer;
use wireup_wire::pmix::{Answer, Proc, ProcState};

/// The questions under way at one agent.
#[derive(Default)]
pub struct Queries {
    open: BTreeMap<u32, Query>,
    next: u32,
    /// At the root: who asked.
    askers: BTreeMap<u32, (NodeId, u64)>,
}

struct Query {
    procs: Vec<Proc>,
    /// By child: its answer is missing.
    waits: Vec<bool>,
}

impl Job {
    pub(super) fn tell_namespaces(&mut self, id: u64, cx: &mut Context<'_>) {
        let names = vec![(self.facts.spec.nspace.clone(), self.facts.job_size)];
        self.answer_ask(id, Answer::Namespaces { names }, cx);
    }

    pub(super) fn tell_processes_here(&mut self, id: u64, cx: &mut Context<'_>) {
        let procs = self.processes_here();
        self.answer_ask(id, Answer::ProcTable { procs }, cx);
    }

    fn processes_here(&self) -> Vec<Proc> {
        let node = self.facts.node.unwrap_or_default();
        let state = |process: &super::super::processes::Process| match process.life {
            Life::Planned => ProcState::Planned,
            Life::Running if process.spoke_pmi => ProcState::Connected,
            Life::Running => ProcState::Running,
            Life::Gone { exit } => ProcState::Gone(exit),
        };
        let all = self.processes.iter();
        all.map(|process| Proc { rank: process.rank, node, pid: process.pid, state: state(process) }).collect()
    }

    /// At the root: somebody wants to know of all processes.
    pub(super) fn begin_query(&mut self, node: NodeId, id: u64, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let query = pmix.queries.next;
        pmix.queries.next = query.wrapping_add(1);
        pmix.queries.askers.insert(query, (node, id));
        self.on_query(query, cx);
    }

    /// The subtree is asked for its processes.
    pub(super) fn on_query(&mut self, query: u32, cx: &mut Context<'_>) {
        let payload = peer::encode(&Down::Procs { query }).into();
        self.pmix_down(super::EVERYBODY, payload, cx);
        let procs = self.processes_here();
        let waits = self.children.iter().map(|child| child.done.is_none()).collect();
        if let Some(pmix) = &mut self.pmix {
            pmix.queries.open.insert(query, Query { procs, waits });
        }
        self.finish_queries(cx);
    }

    /// A child's subtree answers.
    pub(super) fn on_processes(&mut self, child: AgentId, query: u32, procs: Vec<Proc>, cx: &mut Context<'_>) {
        let (Some(child), Some(pmix)) = (self.child_index(child), &mut self.pmix) else { return };
        if let Some(query) = pmix.queries.open.get_mut(&query)
            && std::mem::replace(&mut query.waits[child], false)
        {
            query.procs.extend(procs);
        }
        self.finish_queries(cx);
    }

    /// A child has nothing more to say.
    pub(in crate::job) fn on_query_child_done(&mut self, child: usize, cx: &mut Context<'_>) {
        if let Some(pmix) = &mut self.pmix {
            pmix.queries.open.values_mut().for_each(|query| query.waits[child] = false);
            self.finish_queries(cx);
        }
    }

    fn finish_queries(&mut self, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let over: Vec<(u32, Query)> =
            pmix.queries.open.extract_if(.., |_, query| !query.waits.contains(&true)).collect();
        for (query, Query { procs, .. }) in over {
            if !self.facts.root {
                let message = Up::Procs { query, procs };
                cx.send_up(self.pmix_frame(Kind::PmixUp, 0, peer::encode(&message).into()));
                continue;
            }
            let asker = self.pmix.as_mut().and_then(|pmix| pmix.queries.askers.remove(&query));
            if let Some((node, id)) = asker {
                let procs = self.all_processes(procs);
                self.answer_from_root((node, id, Answer::ProcTable { procs }), cx);
            }
        }
    }

    /// In the order of ranks; who did not answer has left.
    fn all_processes(&self, known: Vec<Proc>) -> Vec<Proc> {
        let gone = |rank| {
            let node = self.facts.mapping.place(rank).map_or(NodeId(0), |(node, _)| node);
            Proc { rank, node, pid: 0, state: ProcState::Gone(Some(0)) }
        };
        let mut all: Vec<Proc> = (0..self.facts.job_size).map(|rank| gone(Rank(rank))).collect();
        for proc in known {
            if let Some(place) = all.get_mut(proc.rank.index()) {
                *place = proc;
            }
        }
        all
    }
}
