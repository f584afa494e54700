//! The collectives of a job as its agent carries them out: frames in and out, answers to the ranks, what cannot complete.

use super::processes::Life;
use super::{Context, Job};
use crate::exchange::{Do, Entering, Entry, Finished, Outcome};
use crate::io::Output;
use crate::memory::Shared;
use crate::pmi_link::{Ticket, Told};
use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::collective::{RoundTag, Tag};
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, Epoch, LocalRank};
use wireup_wire::peer::{Cause, Control, Departed};

impl Job {
    pub(super) fn on_enter(&mut self, local: LocalRank, entry: Entry, ticket: Ticket, cx: &mut Context<'_>) {
        let (kvs, rank) = (&mut self.kvs, self.processes[local.index()].rank);
        let mut next = Vec::new();
        let entering = Entering { local, rank, entry, ticket };
        self.exchanges.enter(cx.now, entering, || kvs.take_pending(), &mut next);
        self.carry_out(next, cx);
    }

    /// A frame along the tree: a child's, or (`None`) the parent's.
    pub(super) fn on_exchange(&mut self, from: Option<AgentId>, frame: Frame, cx: &mut Context<'_>) {
        let (epoch, mut next) = (Epoch(frame.arg), Vec::new());
        let Some(tag) = Tag::from_stream(frame.stream) else {
            return self.fail_exchange(format!("an exchange frame of unknown kind {:#x}", frame.stream), cx);
        };
        let bytes = frame.payload.len();
        match from {
            Some(agent) => {
                let Some(child) = self.child_index(agent) else {
                    return;
                };
                self.traffic.up.count_in(bytes);
                self.exchanges.on_up(cx.now, child, epoch, tag, frame.payload, &mut next);
            }
            None => {
                self.traffic.down.count_in(bytes);
                self.exchanges.on_down(cx.now, epoch, tag, frame.payload, &mut next);
            }
        }
        self.carry_out(next, cx);
    }

    /// A frame of another node's agent, straight.
    pub fn on_direct(&mut self, from: AgentId, frame: Frame, cx: &mut Context<'_>) {
        let (Some(tag), Some(node)) = (RoundTag::from_stream(frame.stream), self.node_of(from)) else {
            return self.fail_exchange(format!("an exchange frame of unknown kind {:#x}", frame.stream), cx);
        };
        self.traffic.direct.count_in(frame.payload.len());
        let mut next = Vec::new();
        self.exchanges.on_direct(cx.now, node, Epoch(frame.arg), tag, frame.payload, &mut next);
        self.carry_out(next, cx);
    }

    /// A link beside the tree that the job wants could not be made, or broke.
    pub fn fail_direct(&mut self, agent: AgentId, problem: &str, cx: &mut Context<'_>) {
        let name = self.spec.nodes.iter().find(|node| node.agent == agent).map(|node| node.name.clone());
        let host = name.unwrap_or_else(|| format!("agent {agent}"));
        self.fail_here(Cause::NoDirectLink { agent, host, problem: problem.to_owned() }, cx);
    }

    fn carry_out(&mut self, next: Vec<Do>, cx: &mut Context<'_>) {
        for one in next {
            match one {
                Do::Up { epoch, tag, payload } => {
                    self.traffic.up.count_out(payload.len());
                    let frame = self.exchange_frame(Kind::ExchangeUp, tag.to_stream(), epoch, payload);
                    cx.links.send_up(frame, cx.out);
                }
                Do::Down { epoch, child, tag, payload } => self.send_down(epoch, child, tag, &payload, cx),
                Do::Direct { epoch, node, tag, payload } => {
                    self.traffic.direct.count_out(payload.len());
                    let frame = self.exchange_frame(Kind::Direct, tag.to_stream(), epoch, payload);
                    let agent = self.spec.nodes[node.index()].agent;
                    cx.links.send_peer(agent, frame, cx.out);
                }
                Do::Finish(finished) => self.on_finished(*finished, cx),
                Do::Fail { problem } => self.fail_exchange(problem, cx),
            }
        }
        self.check_broken(cx);
    }

    fn send_down(&mut self, epoch: Epoch, child: Option<usize>, tag: Tag, payload: &Bytes, cx: &mut Context<'_>) {
        let frame = self.exchange_frame(Kind::ExchangeDown, tag.to_stream(), epoch, payload.clone());
        let children = match child {
            Some(index) => index..index + 1,
            None => 0..self.children.len(),
        };
        for child in &self.children[children] {
            self.traffic.down.count_out(payload.len());
            cx.links.send_child(child.agent, frame.clone(), cx.out);
        }
    }

    fn exchange_frame(&self, kind: Kind, stream: u16, epoch: Epoch, payload: Bytes) -> Frame {
        Frame { kind, class: Class::Exchange, stream, job: self.id().0, arg: epoch.0, payload }
    }

    fn fail_exchange(&mut self, problem: String, cx: &mut Context<'_>) {
        self.fail_here(Cause::Pmi { problem }, cx);
    }

    /// A collective is over: what it brought is put in place, and the ranks here are told.
    fn on_finished(&mut self, finished: Finished, cx: &mut Context<'_>) {
        let Finished { waiting, outcome, trace, .. } = finished;
        match outcome {
            Outcome::Pairs(blocks) => match self.publish(blocks, cx) {
                Ok(()) => self.answer_fence(waiting, cx),
                Err(problem) => self.fail_exchange(problem, cx),
            },
            Outcome::Values { max_len, shared, blocks } => match self.array(max_len, shared, &blocks, cx) {
                Ok(array) => self.answer_allgather(waiting, &array, cx),
                Err(problem) => self.fail_exchange(problem, cx),
            },
            Outcome::Places(places) => {
                for (local, ticket) in waiting {
                    let mut reply = Vec::new();
                    let told = Told::Place(&places[local.index()]);
                    self.processes[local.index()].link.answer(&ticket, &told, &mut reply);
                    if !reply.is_empty() {
                        let (job, bytes) = (self.spec.job, reply.into());
                        cx.out.push(Output::Reply { job, local, bytes, shares: Vec::new() });
                    }
                }
            }
        }
        if let Some(part) = &mut self.trace {
            part.fences.push(trace);
        }
    }

    /// What all nodes' pairs are after a fence.
    fn publish(&mut self, parts: Vec<Bytes>, cx: &mut Context<'_>) -> Result<(), String> {
        let mut pairs = Vec::new();
        let mut heard = vec![false; self.spec.nodes.len()];
        for block in parts.into_iter().flat_map(block::blocks) {
            let block = block.map_err(|error| error.to_string())?;
            let known = heard.get_mut(block.node.index()).is_some_and(|heard| !std::mem::replace(heard, true));
            if !known {
                return Err(format!("a fence brought the pairs of node {} twice, or there is none such", block.node));
            }
            pairs.push(block.into_plain().map_err(|error| error.to_string())?);
        }
        self.kvs.commit(pairs, cx.memory).map_err(|error| error.to_string())
    }

    fn answer_fence(&mut self, waiting: Vec<(LocalRank, Ticket)>, cx: &mut Context<'_>) {
        let told = Told::Fence { version: self.kvs.version() };
        let (mut reply, mut shared) = (Vec::new(), Bytes::new());
        let mut waiters = Vec::new();
        for (local, ticket) in waiting {
            reply.clear();
            let link = &mut self.processes[local.index()].link;
            link.answer(&ticket, &told, &mut reply);
            if link.may_resume() {
                waiters.push(local);
            }
            if shared != reply {
                // Most ranks get the very same words.
                shared = Bytes::copy_from_slice(&reply);
            }
            if !shared.is_empty() {
                cx.out.push(Output::Reply { job: self.spec.job, local, bytes: shared.clone(), shares: Vec::new() });
            }
        }
        for local in waiters {
            self.on_client_bytes(local, &[], cx);
        }
    }

    /// The array of an allgather, for all ranks of this node.
    fn array(&self, max_len: u32, shared: bool, blocks: &[Bytes], cx: &mut Context<'_>) -> Result<Shared, String> {
        super::array::build(&self.mapping, max_len, shared, blocks, cx.memory)
    }

    fn answer_allgather(&mut self, waiting: Vec<(LocalRank, Ticket)>, array: &Shared, cx: &mut Context<'_>) {
        for (local, ticket) in waiting {
            let mut reply = Vec::new();
            self.processes[local.index()].link.answer(&ticket, &Told::Array, &mut reply);
            if !reply.is_empty() {
                let shares = vec![array.clone()];
                cx.out.push(Output::Reply { job: self.spec.job, local, bytes: reply.into(), shares });
            }
        }
    }

    /// A rank here will enter no more collectives.
    pub(super) fn depart(&mut self, local: LocalRank, cx: &mut Context<'_>) {
        let process = &self.processes[local.index()];
        let exit = match process.life {
            Life::Gone { exit } => exit,
            Life::Planned | Life::Running => None,
        };
        let departed = Departed {
            rank: process.rank,
            pid: process.pid,
            node: self.node.unwrap_or_default(),
            epoch: self.exchanges.next_of(local),
            finalized: process.finalized,
            deserted: process.spoke_pmi && !process.finalized && exit.is_some(),
            exit,
        };
        self.groups.on_departed(local, departed);
        self.check_group_broken(cx);
        self.on_departed(departed, cx);
    }

    pub(super) fn on_departed(&mut self, departed: Departed, cx: &mut Context<'_>) {
        let news = self.exchanges.on_departed(departed);
        if news && self.root {
            self.ends.on_departed(cx.now, departed);
        } else if news {
            cx.links.control_up(self.id(), &Control::Departed(departed), cx.out);
        }
        self.check_broken(cx);
    }

    fn check_broken(&mut self, cx: &mut Context<'_>) {
        if let Some((departed, epoch, collective)) = self.exchanges.broken() {
            let cause = Cause::LeftFence {
                epoch,
                collective,
                exit: departed.exit,
                finalized: departed.finalized,
                waiting: self.exchanges.arrived(),
            };
            self.fail_departed(&departed, cause, cx);
        }
    }
}
