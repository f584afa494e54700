//! Messages of a job's PMIx service along the job's tree: requests go up to the root from any node, answers and orders
//! go down.
//!
//! Answers are routed along the tree to their node; messages for all nodes are forwarded to all children. Agents other
//! than the root forward everything unchanged, except for the lists of processes, which they combine (`queries`).

use super::Pmix;
use super::events::News;
use super::step::{self, EVERYBODY};
use crate::io::{Output, SignalTarget};
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use bytes::Bytes;
use wireup_wire::frame::{Frame, UpFrame};
use wireup_wire::ids::{AgentId, LocalRank, NodeId, Rank};
use wireup_wire::modex::{Down, Up};
use wireup_wire::peer::{self, Cause, Failure};
use wireup_wire::pmix::{Action, Answer, Ask, Set, Status};
use wireup_wire::signal::{SIGKILL, SIGTERM};
use wireup_wire::talk::JobDown;

/// The largest signal number of the kernel.
const SIGNAL_MAX: i32 = 64;

impl Pmix {
    /// A frame from a child in the job's tree.
    pub fn on_child_frame(&mut self, cx: &mut Cx<'_>, child: AgentId, frame: &Frame) {
        match peer::decode::<Up>(&frame.payload) {
            Ok(Up::Procs { query, procs }) => {
                self.step(cx, |pmix, cx, steps| pmix.queries.on_processes(cx, child, query, procs, steps));
            }
            Ok(message) if cx.facts.root => self.at_root(cx, message),
            Ok(message) => {
                if let Up::Impatient { epoch } = message {
                    self.fences.whole.on_impatient(epoch);
                }
                cx.up(cx.facts.frame(UpFrame::PmixUp, 0, 0, frame.payload.clone()));
            }
            Err(error) => fail_frame(cx, &error.to_string()),
        }
    }

    /// A frame from the parent in the job's tree.
    pub fn on_parent_frame(&mut self, cx: &mut Cx<'_>, frame: &Frame) {
        match peer::decode::<Down>(&frame.payload) {
            // A query is forwarded by `on_query`, to the children that have not finished.
            Ok(Down::Procs { query }) => {
                self.step(cx, |pmix, cx, steps| pmix.queries.on_query(cx, query, steps));
            }
            Ok(message) => {
                let to_me = frame.arg == cx.facts.me.0;
                if !to_me {
                    step::down(cx, frame.arg, &frame.payload);
                }
                if to_me || frame.arg == EVERYBODY {
                    self.on_root_says(cx, message);
                }
            }
            Err(error) => fail_frame(cx, &error.to_string()),
        }
    }

    /// Sends a message from this node to the root, which is a node like any other.
    pub(super) fn say(&mut self, cx: &mut Cx<'_>, message: Up) {
        if cx.facts.root {
            self.at_root(cx, message);
        } else {
            cx.up(step::up(cx.facts, &message));
        }
    }

    /// Handles a message to the root at the root itself.
    fn at_root(&mut self, cx: &mut Cx<'_>, message: Up) {
        match message {
            Up::Ask { node, id, ask } => self.serve(cx, node, id, ask),
            Up::Watch => {
                if self.events.watch() {
                    self.say_to_all(cx, Down::Watched);
                }
            }
            Up::Event { code, from, affected, to, infos } => {
                self.say_to_all(cx, Down::Event { code, from, affected, to, infos });
            }
            Up::Impatient { epoch } => self.fences.whole.on_impatient(epoch),
            Up::GiveUp { epoch } => {
                self.step(cx, |pmix, _, steps| pmix.fences.whole.on_give_up(epoch, steps));
            }
            // The children's answers were handled before, as frames.
            Up::Procs { .. } => {}
        }
    }

    /// Sends a message from the root to all nodes, including itself.
    pub(super) fn say_to_all(&mut self, cx: &mut Cx<'_>, message: Down) {
        let payload = peer::encode(&message).into();
        step::down(cx, EVERYBODY, &payload);
        self.on_root_says(cx, message);
    }

    /// Handles a message from the root to this node.
    fn on_root_says(&mut self, cx: &mut Cx<'_>, message: Down) {
        match message {
            Down::Answer { id, answer, .. } => self.server.answer(cx, id, answer),
            Down::Watched => drop(self.events.watch()),
            Down::Event { code, from, affected, to, infos } => {
                if let Some(message) = (News { code, from, affected, to, infos }).for_server(cx.facts) {
                    self.server.tell(cx, &message);
                }
            }
            Down::Over { epoch, status } => {
                self.step(cx, |pmix, cx, steps| pmix.fences.whole.on_over(cx, epoch, status, steps));
            }
            Down::Signal { ranks, signal } => signal_some(cx, &ranks, signal),
            // A query was handled before, as a frame: the root does not query itself.
            Down::Procs { .. } => {}
        }
    }

    /// Answers a node's request, at the root.
    pub(super) fn answer_node(&mut self, cx: &mut Cx<'_>, node: NodeId, id: u64, answer: Answer) {
        if Some(node) == cx.facts.node {
            return self.server.answer(cx, id, answer);
        }
        let Some(spec) = cx.facts.spec.nodes.get(node.index()) else { return };
        let payload = Bytes::from(peer::encode(&Down::Answer { node, id, answer }));
        step::down(cx, spec.agent.0, &payload);
    }

    /// Serves a request at the root.
    fn serve(&mut self, cx: &mut Cx<'_>, node: NodeId, id: u64, ask: Ask) {
        match ask {
            Ask::ProcTable { .. } => {
                self.step(cx, |pmix, cx, steps| pmix.queries.start_query(cx, node, id, steps));
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

/// The root requests a signal for these ranks.
fn signal_some(cx: &mut Cx<'_>, ranks: &[Rank], signal: i32) {
    for local in (0..cx.common.ranks.len() as u16).map(LocalRank) {
        if ranks.binary_search(&cx.rank(local)).is_ok() {
            let target = SignalTarget::One(local);
            cx.output(Output::Signal { job: cx.facts.id(), target, signal });
        }
    }
}
