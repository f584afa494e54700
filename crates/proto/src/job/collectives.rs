//! The collectives of a job as its agent carries them out: frames in and out, answers to the ranks, what cannot complete.

use super::array::Laid;
use super::processes::Life;
use super::{Context, Job};
use crate::arena;
use crate::exchange::{Do, Entering, Entry, Finished, Outcome};
use crate::io::Output;
use crate::pmi_link::{Ticket, Told};
use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::collective::{Algorithm, Collective, RoundTag, Tag};
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, Epoch, LocalRank};
use wireup_wire::job::{EarlyWireup, ExchangeScheme};
use wireup_wire::peer::{Cause, Control, Departed};
use wireup_wire::rope::Rope;

impl Job {
    pub(super) fn on_enter(&mut self, local: LocalRank, entry: Entry, ticket: Ticket, cx: &mut Context<'_>) {
        let (kvs, rank) = (&mut self.kvs, self.processes[local.index()].rank);
        let mut next = Vec::new();
        let entering = Entering { local, rank, entry, ticket };
        self.exchanges.enter(cx.now, entering, || kvs.take_pending(), &mut next);
        self.carry_out(next, cx);
    }

    /// Begins the links that the first exchange will want, while ranks are still starting (S3: early wireup).
    pub(super) fn wire_up(&self, cx: &mut Context<'_>) {
        let options = &self.spec.options;
        let algorithm = match (options.early_wireup, options.exchange) {
            (EarlyWireup::Auto | EarlyWireup::Yes, ExchangeScheme::Direct(algorithm)) => algorithm,
            (EarlyWireup::Yes, ExchangeScheme::Auto) => Algorithm::BRUCK,
            (EarlyWireup::No | EarlyWireup::Auto, _) | (EarlyWireup::Yes, ExchangeScheme::Tree) => return,
        };
        let agents = self.exchanges.receivers(algorithm).into_iter().map(|node| self.spec.nodes[node.index()].agent);
        cx.links.prepare_peers(agents.collect::<Vec<_>>(), self.id(), cx.out);
    }

    /// A frame along the tree: a child's, or (`None`) the parent's.
    pub(super) fn on_exchange(&mut self, from: Option<AgentId>, frame: Frame, cx: &mut Context<'_>) {
        let (epoch, mut next) = (Epoch(frame.arg), Vec::new());
        let tag = match Tag::from_stream(frame.stream) {
            Ok(tag) => tag,
            Err(unknown) => {
                let node = from.and_then(|child| self.node_of(child));
                let sender = node.map_or("the agent above".to_owned(), |node| format!("node {node}"));
                return self.fail_exchange(format!("{sender}: {unknown}"), cx);
            }
        };
        if self.is_given_up(epoch, tag.collective) {
            return;
        }
        let bytes = frame.payload.len();
        let exchanges = match (tag.collective, &mut self.pmix) {
            (Collective::Modex, Some(pmix)) => &mut pmix.fences.exchanges,
            (Collective::Modex, None) => return,
            _ => &mut self.exchanges,
        };
        match from {
            Some(agent) => {
                let Some(child) = self.children.iter().position(|child| child.agent == agent) else {
                    return;
                };
                self.traffic.up.count_in(bytes);
                exchanges.on_up(cx.now, child, epoch, tag, frame.payload, &mut next);
            }
            None => {
                self.traffic.down.count_in(bytes);
                exchanges.on_down(cx.now, epoch, tag, frame.payload, &mut next);
            }
        }
        self.carry_out(next, cx);
    }

    /// A frame of another node's agent, straight.
    pub fn on_direct(&mut self, from: AgentId, frame: Frame, cx: &mut Context<'_>) {
        let Some(node) = self.node_of(from) else { return };
        let (epoch, tag) = match RoundTag::from_stream(frame.stream) {
            Ok(tag) => (Epoch(frame.arg), tag),
            Err(unknown) => return self.fail_exchange(format!("node {node}: {unknown}"), cx),
        };
        if self.is_given_up(epoch, tag.collective) {
            return;
        }
        let exchanges = match (tag.collective, &mut self.pmix) {
            (Collective::Modex, Some(pmix)) => &mut pmix.fences.exchanges,
            (Collective::Modex, None) => return,
            _ => &mut self.exchanges,
        };
        self.traffic.direct.count_in(frame.payload.len());
        let mut next = Vec::new();
        exchanges.on_direct(cx.now, node, epoch, tag, frame.payload, &mut next);
        self.carry_out(next, cx);
    }

    /// A link beside the tree that the job wants could not be made, or broke.
    pub fn fail_direct(&mut self, agent: AgentId, problem: &str, cx: &mut Context<'_>) {
        let name = self.spec.nodes.iter().find(|node| node.agent == agent).map(|node| node.name.clone());
        let host = name.unwrap_or_else(|| format!("agent {agent}"));
        self.fail_here(Cause::NoDirectLink { agent, host, problem: problem.to_owned() }, cx);
    }

    /// Frames that came before the job were too many.
    pub fn fail_early(&mut self, problem: String, cx: &mut Context<'_>) {
        self.fail_exchange(problem, cx);
    }

    pub(super) fn carry_out(&mut self, next: Vec<Do>, cx: &mut Context<'_>) {
        for one in next {
            match one {
                Do::Up { epoch, tag, payload } => {
                    self.traffic.up.count_out(payload.len());
                    let frame = self.exchange_frame(Kind::ExchangeUp, tag.to_stream(), epoch, payload);
                    cx.send_up(frame);
                }
                Do::Down { epoch, child, tag, payload } => self.send_down(epoch, child, tag, payload, cx),
                Do::Direct { epoch, node, tag, payload } => {
                    self.traffic.direct.count_out(payload.len());
                    let frame = self.exchange_frame(Kind::Direct, tag.to_stream(), epoch, payload);
                    let agent = self.spec.nodes[node.index()].agent;
                    cx.links.send_peer(agent, frame, cx.out);
                }
                Do::Finish(finished) if finished.trace.collective == Collective::Modex => {
                    self.on_modex_finished(*finished, cx);
                }
                Do::Finish(finished) => self.on_finished(*finished, cx),
                Do::Fail { problem } => self.fail_exchange(problem, cx),
            }
        }
        self.check_broken(cx);
    }

    fn send_down(&mut self, epoch: Epoch, child: Option<usize>, tag: Tag, payload: Rope, cx: &mut Context<'_>) {
        let frame = self.exchange_frame(Kind::ExchangeDown, tag.to_stream(), epoch, payload);
        let children = match child {
            Some(index) => index..index + 1,
            None => 0..self.children.len(),
        };
        for child in &self.children[children] {
            self.traffic.down.count_out(frame.payload.len());
            cx.send_child(child.agent, frame.clone());
        }
    }

    /// A frame holds its payload in one piece: what lies in several is joined here, once for all who get it.
    fn exchange_frame(&self, kind: Kind, stream: u16, epoch: Epoch, payload: Rope) -> Frame {
        let payload = payload.into_bytes();
        Frame { kind, class: Class::Exchange, stream, job: self.id().0, arg: epoch.0, payload }
    }

    fn fail_exchange(&mut self, problem: String, cx: &mut Context<'_>) {
        self.fail_here(Cause::Pmi { problem }, cx);
    }

    /// A collective is over: what it brought is put in place, and the ranks here are told.
    fn on_finished(&mut self, finished: Finished, cx: &mut Context<'_>) {
        let Finished { waiting, outcome, trace, .. } = finished;
        if self.on_bench_gathered(cx) {
            return;
        }
        match outcome {
            Outcome::Pairs(blocks) => match self.publish(blocks, cx) {
                Ok(()) => self.answer_fence(waiting, cx),
                Err(problem) => self.fail_exchange(problem, cx),
            },
            Outcome::Values { max_len, shared, blocks } => {
                let readers: Vec<LocalRank> = waiting.iter().map(|(local, _)| *local).collect();
                let arenas = (&mut self.arenas, &readers[..]);
                match super::array::build(&self.mapping, (max_len, shared), &blocks, arenas, cx.memory) {
                    Ok(laid) => self.answer_allgather(waiting, &laid, cx),
                    Err(problem) => self.fail_exchange(problem, cx),
                }
            }
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

    fn answer_allgather(&mut self, waiting: Vec<(LocalRank, Ticket)>, laid: &Laid, cx: &mut Context<'_>) {
        for (local, ticket) in waiting {
            let link = &mut self.processes[local.index()].link;
            let (told, share) = match laid {
                Laid::Apart(array) => (Told::Array { place: None, new: false }, Some(array)),
                Laid::Place(place) => {
                    let new = link.see_arena(arena::number_of(*place));
                    (Told::Array { place: Some(*place), new }, self.arenas.shared().filter(|_| new))
                }
            };
            let mut reply = Vec::new();
            link.answer(&ticket, &told, &mut reply);
            if !reply.is_empty() {
                let shares = share.cloned().into_iter().collect();
                cx.out.push(Output::Reply { job: self.spec.job, local, bytes: reply.into(), shares });
            }
        }
    }

    /// A rank here will enter no more collectives.
    pub(super) fn depart(&mut self, local: LocalRank, cx: &mut Context<'_>) {
        let departed = self.departed(local);
        self.arenas.on_gone(local);
        self.groups.on_departed(local, departed);
        self.check_group_broken(cx);
        self.on_member_departed(local, departed, cx);
        self.on_departed(departed, cx);
    }

    /// What is to be told of a rank here that enters no more.
    pub(super) fn departed(&self, local: LocalRank) -> Departed {
        let process = &self.processes[local.index()];
        let exit = match process.life {
            Life::Gone { exit } => exit,
            Life::Planned | Life::Running => None,
        };
        let awaited = process.spoke_pmi || self.is_awaited_in_library(local);
        Departed {
            rank: process.rank,
            pid: process.pid,
            node: self.node.unwrap_or_default(),
            epoch: self.exchanges.next_of(local),
            modex_epoch: self.pmix.as_ref().map_or(Epoch(0), |pmix| pmix.fences.exchanges.next_of(local)),
            finalized: process.finalized,
            deserted: awaited && !process.finalized && exit.is_some(),
            exit,
        }
    }

    pub(super) fn on_departed(&mut self, departed: Departed, cx: &mut Context<'_>) {
        let of_servers = Departed { epoch: departed.modex_epoch, ..departed };
        let news = self.exchanges.on_departed(departed)
            | self.pmix.as_mut().is_some_and(|pmix| pmix.fences.exchanges.on_departed(of_servers));
        if news && self.root {
            self.ends.on_departed(cx.now, departed);
        } else if news {
            cx.control_up(self.id(), &Control::Departed(departed));
        }
        self.check_broken(cx);
    }

    fn check_broken(&mut self, cx: &mut Context<'_>) {
        let of_servers = self.pmix.as_ref().map(|pmix| &pmix.fences.exchanges);
        let all = [Some(&self.exchanges), of_servers].into_iter().flatten();
        let broken = all.filter_map(|exchanges| exchanges.broken().map(|broken| (broken, exchanges.arrived()))).next();
        // Where somebody's patience ends the fence is over for all then, and nobody hangs.
        let is_impatient = |epoch| self.pmix.as_ref().is_some_and(|pmix| pmix.fences.impatient.contains(&epoch));
        let broken =
            broken.filter(|((_, epoch, collective), _)| *collective != Collective::Modex || !is_impatient(*epoch));
        if let Some(((departed, epoch, collective), waiting)) = broken {
            let (exit, finalized) = (departed.exit, departed.finalized);
            let cause = Cause::LeftFence { epoch, collective, exit, finalized, waiting };
            self.fail_departed(&departed, cause, cx);
        }
    }
}
