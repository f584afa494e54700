//! Job control at the root: a rank requests that the job, or some of its ranks, end or get a signal.

use super::step::{Step, Steps};
use crate::io::{Output, SignalTarget};
use crate::job::effect::{Effect, Effects};
use crate::job::facts::{Facts, View};
use wireup_wire::ids::{LocalRank, NodeId, Rank};
use wireup_wire::modex::Down;
use wireup_wire::peer::{Cause, Control, Failure};
use wireup_wire::pmix::{Action, Set, Status};
use wireup_wire::signal::{SIGKILL, SIGTERM};

/// The largest signal number of the kernel.
const SIGNAL_MAX: i32 = 64;

/// `node`, `from`: the requester.
pub fn control(facts: &Facts, node: NodeId, from: Rank, set: Set, action: Action, steps: &mut Steps) -> Status {
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
pub fn signal_some(view: &View<'_>, ranks: &[Rank], signal: i32, out: &mut Effects) {
    for (local, process) in view.ranks.iter().enumerate() {
        if ranks.binary_search(&process.rank).is_ok() {
            let target = SignalTarget::One(LocalRank(local as u16));
            out.output(Output::Signal { job: view.facts.id(), target, signal });
        }
    }
}
