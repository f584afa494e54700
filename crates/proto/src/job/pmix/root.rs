//! The root's part: requests come up to it from any node, answers and orders go down.
//!
//! Answers are routed along the tree to their node; what is for all is passed on to all children. An agent that is no root
//! passes everything on as it is, but for the processes of its subtree, which it joins (`queries`).

use super::super::{Context, Job};
use super::EVERYBODY;
use super::published::{Lookup, Told};
use crate::io::{Output, SignalTarget};
use bytes::Bytes;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, LocalRank, NodeId, Rank};
use wireup_wire::modex::{Down, Up};
use wireup_wire::peer::{self, Cause, Control, Failure};
use wireup_wire::pmix::{Action, Answer, Ask, Keep, Set, Status};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The largest number that the kernel knows.
const SIGNAL_MAX: i32 = 64;

impl Job {
    /// A request of this node's server process that the root serves.
    pub(super) fn ask_root(&mut self, id: u64, ask: Ask, cx: &mut Context<'_>) {
        if let (Ask::Publish { from, keep: Keep::Rank, .. }, Some(pmix)) = (&ask, &mut self.pmix) {
            pmix.publishers.insert(*from);
        }
        let node = self.facts.node.unwrap_or_default();
        self.pmix_up(&Up::Ask { node, id, ask }, cx);
    }

    /// A rank here is gone: what was to go with it goes.
    pub(super) fn forget_published(&mut self, rank: Rank, cx: &mut Context<'_>) {
        if self.pmix.as_mut().is_some_and(|pmix| pmix.publishers.remove(&rank)) {
            self.pmix_up(&Up::Left { rank }, cx);
        }
    }

    /// A frame of the PMIx along the tree: a child's, or (`None`) the parent's.
    pub(in crate::job) fn on_pmix_frame(&mut self, from: Option<AgentId>, frame: Frame, cx: &mut Context<'_>) {
        if self.pmix.is_none() {
            return;
        }
        match (from, frame.kind) {
            (Some(child), Kind::PmixUp) => match peer::decode::<Up>(&frame.payload) {
                Ok(Up::Procs { query, procs }) => self.on_processes(child, query, procs, cx),
                Ok(message) if self.facts.root => self.at_root(message, cx),
                Ok(message) => {
                    if let (Up::Impatient { epoch }, Some(pmix)) = (message, &mut self.pmix) {
                        pmix.fences.impatient.insert(epoch);
                    }
                    let frame = self.pmix_frame(Kind::PmixUp, 0, frame.payload);
                    cx.send_up(frame);
                }
                Err(error) => self.fail_frame(&error.to_string(), cx),
            },
            (None, Kind::PmixDown) => {
                // Where a query begins, children are asked when it is known which are left.
                match peer::decode::<Down>(&frame.payload) {
                    Ok(Down::Procs { query }) => self.on_query(query, cx),
                    Ok(message) => {
                        let to_me = frame.arg == self.facts.me.0;
                        if !to_me {
                            self.pmix_down(frame.arg, frame.payload, cx);
                        }
                        if to_me || frame.arg == EVERYBODY {
                            self.on_root_says(message, cx);
                        }
                    }
                    Err(error) => self.fail_frame(&error.to_string(), cx),
                }
            }
            // In the wrong direction: no agent of ours.
            _ => {}
        }
    }

    fn fail_frame(&mut self, problem: &str, cx: &mut Context<'_>) {
        self.fail_here(Cause::PmixServer { problem: format!("an agent's message about it: {problem}") }, cx);
    }

    /// Something that was told to the root, which this is.
    pub(super) fn at_root(&mut self, message: Up, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        match message {
            Up::Ask { node, id, ask } => self.serve(node, id, ask, cx),
            Up::Left { rank } => pmix.published.on_left(rank),
            Up::Watch => {
                if !std::mem::replace(&mut pmix.watched, true) {
                    self.pmix_all(&Down::Watched, cx);
                }
            }
            Up::Event { code, from, affected, to, infos } => {
                self.pmix_all(&Down::Event { code, from, affected, to, infos }, cx);
            }
            Up::Impatient { epoch } => {
                pmix.fences.impatient.insert(epoch);
            }
            Up::GiveUp { epoch } => self.on_give_up(epoch, cx),
            Up::Procs { .. } => {}
        }
    }

    /// What the root says to this node.
    pub(super) fn on_root_says(&mut self, message: Down, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        match message {
            Down::Answer { id, answer, .. } => self.answer_ask(id, answer, cx),
            Down::Watched => pmix.watched = true,
            Down::Event { code, from, affected, to, infos } => self.on_event(code, from, affected, &to, infos, cx),
            Down::Over { epoch, status } => self.on_fence_over(epoch, status, cx),
            Down::Signal { ranks, signal } => self.signal_some(&ranks, signal, cx),
            Down::Procs { .. } => {}
        }
    }

    pub(super) fn answer_from_root(&mut self, (node, id, answer): Told, cx: &mut Context<'_>) {
        if Some(node) == self.facts.node {
            return self.answer_ask(id, answer, cx);
        }
        let Some(spec) = self.facts.spec.nodes.get(node.index()) else { return };
        let to = spec.agent.0;
        self.pmix_down(to, Bytes::from(peer::encode(&Down::Answer { node, id, answer })), cx);
    }

    fn serve(&mut self, node: NodeId, id: u64, ask: Ask, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let told = match ask {
            Ask::Publish { from, items, range, keep } => {
                let status = pmix.published.publish(from, node, items, range, keep);
                let found = pmix.published.take_found();
                self.answer_from_root((node, id, Answer::Status(status)), cx);
                return found.into_iter().for_each(|told| self.answer_from_root(told, cx));
            }
            Ask::Lookup { keys, range, wait, timeout_s, .. } => {
                let until = super::requests::until(cx.now, timeout_s);
                pmix.published.look_up(Lookup { node, id, keys, range, wait, until })
            }
            Ask::Unpublish { from, keys, range } => {
                Some((node, id, Answer::Status(pmix.published.unpublish(from, node, &keys, range))))
            }
            Ask::ProcTable { .. } => return self.begin_query(node, id, cx),
            Ask::Control { from, set, action } => {
                let status = self.control(node, from, set, action, cx);
                Some((node, id, Answer::Status(status)))
            }
            // These are not for the root.
            Ask::Fence { .. } | Ask::Group { .. } | Ask::Modex { .. } | Ask::Namespaces => None,
        };
        if let Some(told) = told {
            self.answer_from_root(told, cx);
        }
    }

    pub(super) fn check_lookups(&mut self, cx: &mut Context<'_>) {
        let late = self.pmix.as_mut().map(|pmix| pmix.published.take_late(cx.now)).unwrap_or_default();
        late.into_iter().for_each(|told| self.answer_from_root(told, cx));
    }

    /// A rank wants the job, or some of its ranks, to end or to hear a signal.
    fn control(&mut self, node: NodeId, from: Rank, set: Set, action: Action, cx: &mut Context<'_>) -> Status {
        let signal = match action {
            Action::Terminate => SIGTERM,
            Action::Kill => SIGKILL,
            Action::Signal(signal @ 1..=SIGNAL_MAX) => signal,
            Action::Signal(_) => return Status::BadParam,
        };
        match (set, action) {
            (Set::All, Action::Signal(_)) => {
                self.signal_all(signal, cx);
                self.forward_down(&Control::Signal { signal }, cx);
            }
            (Set::All, Action::Terminate | Action::Kill) => {
                let host = self.facts.spec.nodes.get(node.index()).map(|node| node.name.clone()).unwrap_or_default();
                let message = "it asked for the end of the job (PMIx job control)".into();
                let cause = Cause::Aborted { code: 1, message };
                self.fail(Failure { node, host, rank: Some(from), pid: None, cause }, cx);
                if action == Action::Kill {
                    self.kill(0, cx);
                }
            }
            (Set::Ranks(ranks), _) => self.pmix_all(&Down::Signal { ranks, signal }, cx),
        }
        Status::Ok
    }

    fn signal_some(&mut self, ranks: &[Rank], signal: i32, cx: &mut Context<'_>) {
        for (local, process) in self.processes.iter().enumerate() {
            if ranks.binary_search(&process.rank).is_ok() {
                let target = SignalTarget::One(LocalRank(local as u16));
                cx.out.push(Output::Signal { job: self.facts.spec.job, target, signal });
            }
        }
    }
}
