//! Messages of a job's PMIx service along the job's tree: requests go up to the root from any node, answers and orders
//! go down.
//!
//! Answers are routed along the tree to their node; messages for all nodes are forwarded to all children. Agents other
//! than the root forward everything unchanged, except for the lists of processes, which they combine (`queries`).

use super::Pmix;
use super::events::News;
use super::step::{self, EVERYBODY, Step, Steps};
use crate::io::{Output, SignalTarget};
use crate::job::effect::{Effect, Effects};
use crate::job::facts::{Facts, View};
use bytes::Bytes;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, LocalRank, NodeId, Rank};
use wireup_wire::modex::{Down, Up};
use wireup_wire::peer::{self, Cause, Control, Failure};
use wireup_wire::pmix::{Action, Answer, Ask, Set, Status};
use wireup_wire::signal::{SIGKILL, SIGTERM};

/// The largest signal number of the kernel.
const SIGNAL_MAX: i32 = 64;

impl Pmix {
    /// A frame along the tree, from a child or (`None`) from the parent.
    pub fn on_frame(&mut self, view: &View<'_>, from: Option<AgentId>, frame: &Frame, out: &mut Effects) {
        match from {
            Some(child) => self.on_child_frame(view, child, frame, out),
            None => self.on_parent_frame(view, frame, out),
        }
    }

    fn on_child_frame(&mut self, view: &View<'_>, child: AgentId, frame: &Frame, out: &mut Effects) {
        match peer::decode::<Up>(&frame.payload) {
            Ok(Up::Procs { query, procs }) => {
                self.step(view, out, |pmix, steps| pmix.queries.on_processes(view.facts, child, query, procs, steps));
            }
            Ok(message) if view.facts.root => self.at_root(view, message, out),
            Ok(message) => {
                if let Up::Impatient { epoch } = message {
                    self.fences.whole.on_impatient(epoch);
                }
                out.push(Effect::Up(view.facts.frame(Kind::PmixUp, 0, 0, frame.payload.clone())));
            }
            Err(error) => fail_frame(&error.to_string(), out),
        }
    }

    fn on_parent_frame(&mut self, view: &View<'_>, frame: &Frame, out: &mut Effects) {
        match peer::decode::<Down>(&frame.payload) {
            // A query is forwarded by `on_query`, to the children that have not finished.
            Ok(Down::Procs { query }) => {
                self.step(view, out, |pmix, steps| pmix.queries.on_query(view, query, steps));
            }
            Ok(message) => {
                let to_me = frame.arg == view.facts.me.0;
                if !to_me {
                    step::down(view, frame.arg, &frame.payload).for_each(|effect| out.push(effect));
                }
                if to_me || frame.arg == EVERYBODY {
                    self.on_root_says(view, message, out);
                }
            }
            Err(error) => fail_frame(&error.to_string(), out),
        }
    }

    /// Sends a message from this node to the root, which is a node like any other.
    pub(super) fn say(&mut self, view: &View<'_>, message: Up, out: &mut Effects) {
        if view.facts.root {
            self.at_root(view, message, out);
        } else {
            out.push(Effect::Up(step::up(view.facts, &message)));
        }
    }

    /// Handles a message to the root at the root itself.
    fn at_root(&mut self, view: &View<'_>, message: Up, out: &mut Effects) {
        match message {
            Up::Ask { node, id, ask } => self.serve(view, node, id, ask, out),
            Up::Watch => {
                if self.events.watch() {
                    self.say_to_all(view, Down::Watched, out);
                }
            }
            Up::Event { code, from, affected, to, infos } => {
                self.say_to_all(view, Down::Event { code, from, affected, to, infos }, out);
            }
            Up::Impatient { epoch } => self.fences.whole.on_impatient(epoch),
            Up::GiveUp { epoch } => {
                self.step(view, out, |pmix, steps| pmix.fences.whole.on_give_up(epoch, steps));
            }
            // The children's answers were handled before, as frames.
            Up::Procs { .. } => {}
        }
    }

    /// Sends a message from the root to all nodes, including itself.
    pub(super) fn say_to_all(&mut self, view: &View<'_>, message: Down, out: &mut Effects) {
        let payload = peer::encode(&message).into();
        step::down(view, EVERYBODY, &payload).for_each(|effect| out.push(effect));
        self.on_root_says(view, message, out);
    }

    /// Handles a message from the root to this node.
    fn on_root_says(&mut self, view: &View<'_>, message: Down, out: &mut Effects) {
        match message {
            Down::Answer { id, answer, .. } => self.answer(view, id, answer, out),
            Down::Watched => drop(self.events.watch()),
            Down::Event { code, from, affected, to, infos } => {
                if let Some(message) = (News { code, from, affected, to, infos }).for_server(view.facts) {
                    self.tell(view, &message, out);
                }
            }
            Down::Over { epoch, status } => {
                self.step(view, out, |pmix, steps| pmix.fences.whole.on_over(view, epoch, status, steps));
            }
            Down::Signal { ranks, signal } => signal_some(view, &ranks, signal, out),
            // A query was handled before, as a frame: the root does not query itself.
            Down::Procs { .. } => {}
        }
    }

    /// Answers a node's request, at the root.
    pub(super) fn answer_node(&mut self, view: &View<'_>, node: NodeId, id: u64, answer: Answer, out: &mut Effects) {
        if Some(node) == view.facts.node {
            return self.answer(view, id, answer, out);
        }
        let Some(spec) = view.facts.spec.nodes.get(node.index()) else { return };
        let payload = Bytes::from(peer::encode(&Down::Answer { node, id, answer }));
        step::down(view, spec.agent.0, &payload).for_each(|effect| out.push(effect));
    }

    /// Serves a request at the root.
    fn serve(&mut self, view: &View<'_>, node: NodeId, id: u64, ask: Ask, out: &mut Effects) {
        self.step(view, out, |pmix, steps| match ask {
            Ask::ProcTable { .. } => pmix.queries.begin(view, node, id, steps),
            Ask::Control { from, set, action } => {
                let status = control(view.facts, node, from, set, action, steps);
                steps.push(Step::AnswerNode(node, id, Answer::Status(status)));
            }
            // These requests do not go to the root.
            Ask::Fence { .. }
            | Ask::Group { .. }
            | Ask::Modex(_)
            | Ask::Names { .. }
            | Ask::Join { .. }
            | Ask::Fetch(_)
            | Ask::Namespaces => {}
        });
    }
}

fn fail_frame(problem: &str, out: &mut Effects) {
    out.fail_here(Cause::PmixServer { problem: format!("an agent's message about it: {problem}").into() });
}

/// Job control at the root: a rank requests that the job, or some of its ranks, end or get a signal. `node`, `from`:
/// the node and the rank that request it.
fn control(facts: &Facts, node: NodeId, from: Rank, set: Set, action: Action, steps: &mut Steps) -> Status {
    let signal = match action {
        Action::Terminate => SIGTERM,
        Action::Kill => SIGKILL,
        Action::Signal(signal @ 1..=SIGNAL_MAX) => signal,
        Action::Signal(_) => return Status::BadParam,
    };
    match (set, action) {
        (Set::All, Action::Signal(_)) => {
            steps.job(Effect::Signal(signal));
            steps.job(Effect::ControlDown(Control::Signal { signal }));
        }
        (Set::All, Action::Terminate) => steps.job(Effect::Fail(asked_for_the_end(facts, node, from))),
        (Set::All, Action::Kill) => {
            steps.job(Effect::Fail(asked_for_the_end(facts, node, from)));
            steps.job(Effect::Kill { grace_ns: 0 });
        }
        (Set::Ranks(ranks), Action::Terminate | Action::Kill | Action::Signal(_)) => {
            steps.push(Step::All(Down::Signal { ranks, signal }));
        }
    }
    Status::Ok
}

fn asked_for_the_end(facts: &Facts, node: NodeId, from: Rank) -> Failure {
    let message = "it requested the end of the job by PMIx job control".into();
    let cause = Cause::Aborted { code: 1, message };
    Failure { node, host: facts.name_of(node), rank: Some(from), pid: None, cause }
}

/// The root requests a signal for these ranks.
fn signal_some(view: &View<'_>, ranks: &[Rank], signal: i32, out: &mut Effects) {
    for (local, process) in view.ranks.iter().enumerate() {
        if ranks.binary_search(&process.rank).is_ok() {
            let target = SignalTarget::One(LocalRank(local as u16));
            out.output(Output::Signal { job: view.facts.id(), target, signal });
        }
    }
}
