//! Answers queries about the job: its name, its processes.
//!
//! ```text
//!   query ── Up::Ask ──► root ── Down::Procs ──► all, down the tree
//!                        ◄─────── Up::Procs ──   combined at each hop
//! ```
//!
//! All ranks below a finished child have ended, with exit code 0 as long as the job is running: the root adds them.

use super::tree::{EVERYBODY, down, up};
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::job::ranks::{Process, ProcessState};
use std::collections::BTreeMap;
use wireup_wire::ids::{AgentId, NodeId, Rank};
use wireup_wire::modex::{Down, Up};
use wireup_wire::peer;
use wireup_wire::pmix::{Answer, Proc, ProcState};

#[derive(Default)]
pub struct Queries {
    open: BTreeMap<u32, Query>,
    next: u32,
    /// At the root: the node that has asked each query, and the number of its request.
    askers: BTreeMap<u32, (NodeId, u64)>,
}

/// The answer to a node's request, at the root.
pub type Answered = (NodeId, u64, Answer);

struct Query {
    procs: Vec<Proc>,
    /// Whether the answer is missing, for each child.
    waits: Vec<bool>,
}

impl Queries {
    /// At the root: starts a query for all processes.
    pub fn start_query(&mut self, cx: &mut Cx<'_>, node: NodeId, id: u64) -> Vec<Answered> {
        let query = self.next;
        self.next = query.wrapping_add(1);
        self.askers.insert(query, (node, id));
        self.on_query(cx, query)
    }

    /// Handles a query for the processes of this subtree.
    pub fn on_query(&mut self, cx: &mut Cx<'_>, query: u32) -> Vec<Answered> {
        let payload = peer::encode(&Down::Procs { query }).into();
        down(cx, EVERYBODY, &payload);
        let procs = processes_here(cx);
        let waits = cx.common.children.iter().map(|child| child.done.is_none()).collect();
        self.open.insert(query, Query { procs, waits });
        self.finish(cx)
    }

    /// Handles the answer of a child's subtree.
    pub fn on_processes(&mut self, cx: &mut Cx<'_>, child: AgentId, query: u32, procs: Vec<Proc>) -> Vec<Answered> {
        let Some(child) = cx.facts.child_index(child) else { return Vec::new() };
        if let Some(query) = self.open.get_mut(&query)
            && std::mem::replace(&mut query.waits[child], false)
        {
            query.procs.extend(procs);
        }
        self.finish(cx)
    }

    /// Stops waiting for the answers of a child that will send nothing more.
    pub fn on_child_done(&mut self, cx: &mut Cx<'_>, child: usize) -> Vec<Answered> {
        self.open.values_mut().for_each(|query| query.waits[child] = false);
        self.finish(cx)
    }

    fn finish(&mut self, cx: &mut Cx<'_>) -> Vec<Answered> {
        let (facts, mut answered) = (cx.facts, Vec::new());
        let is_over = |(_, query): &(&u32, &Query)| !query.waits.contains(&true);
        while let Some(query) = self.open.iter().find(is_over).map(|(query, _)| *query) {
            let Query { procs, .. } = self.open.remove(&query).expect("it was found");
            if !facts.root {
                cx.agent.links.send_job_up(cx.common.up, up(facts, &Up::Procs { query, procs }));
            } else if let Some((node, id)) = self.askers.remove(&query) {
                let procs = all_processes(facts, procs);
                answered.push((node, id, Answer::ProcTable { procs }));
            }
        }
        answered
    }
}

pub fn processes_here(cx: &Cx<'_>) -> Vec<Proc> {
    let node = cx.facts.own_node();
    let state = |process: &Process| match process.state {
        ProcessState::Planned => ProcState::Planned,
        ProcessState::Running if process.spoke_pmi => ProcState::Connected,
        ProcessState::Running => ProcState::Running,
        ProcessState::Gone { exit } => ProcState::Gone(exit),
    };
    let all = cx.common.ranks.iter();
    all.map(|process| Proc { rank: process.rank, node, pid: process.pid, state: state(process) }).collect()
}

/// All processes in rank order; ranks without an answer have ended.
fn all_processes(facts: &Facts, known: Vec<Proc>) -> Vec<Proc> {
    let gone = |rank| {
        let node = facts.mapping.place(rank).map_or(NodeId(0), |(node, _)| node);
        Proc { rank, node, pid: 0, state: ProcState::Gone(Some(0)) }
    };
    let mut all: Vec<Proc> = (0..facts.job_size).map(|rank| gone(Rank(rank))).collect();
    for proc in known {
        if let Some(place) = all.get_mut(proc.rank.index()) {
            *place = proc;
        }
    }
    all
}
