//! Ends a job after its first failure: kills the ranks with SIGTERM, and after a grace period with SIGKILL.
//!
//! ```text
//!            kill (grace)            grace over           given up
//!   No ───────────────► Gentle ─────────────────► Forced ──────────► GivenUp
//!    └── kill (at once) ───────────────────────────▲  ▲  output waits  │
//!                                                     └──── for a reader
//! ```
//!
//! Every agent reports the first failure of its subtree to its parent and takes no other action. The root takes the
//! first failure that reaches it as the job's, tells the launcher, and kills the job down the tree. Later failures are
//! consequences and are not reported. The exception is a crash: a rank may exit because a peer has crashed, and its
//! failure may arrive first.
//!
//! What ranks have written about their own failures is gathered until the job has ended, since the rank that failed
//! first is not always the first to exit; of these errors the earliest reaches the launcher.
//!
//! A rank that exits with a code other than 0 after finalize is a failure that ends nothing: no other rank can wait for
//! it. It is reported in the same way, and is the job's failure unless another one ends the job.

use super::cx::Cx;
use super::facts::Facts;
use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, Departed, Failure, MissingAgent, Problem, RankError, SpawnError};
use wireup_wire::signal::{SIGCONT, SIGKILL, SIGTERM};
use wireup_wire::talk::JobUp;

/// How long to wait after SIGKILL (ns) before giving up child agents that never linked or do not answer, and ranks that
/// the kernel cannot kill. Chosen: SIGKILL takes milliseconds, on a busy machine a second; a user who pressed Ctrl-C
/// twice waits for a prompt.
const UNENDED_NS_MAX: u64 = 3_000_000_000;

/// A rank that exits without finalize is no failure if the whole job ends within this time (ns); otherwise other ranks
/// may wait for it forever, in a barrier inside their library that agents do not see. If its exit makes a fence
/// impossible, the failure is reported at once.
const DESERTED_NS_MAX: u64 = 500_000_000;

/// How long to delay the report that the keeper, the process that starts this node's ranks, has ended (ns): whatever
/// killed it, for example the batch system, may kill the agent next, and then other agents can report more. Chosen: the
/// same as for the final messages of an agent.
const KEEPER_NS_MAX: u64 = 200_000_000;

/// Once an agent is missing, how long the root waits after the start timeout for reports of further missing agents
/// (ns). Chosen: agents send these when their own start timeout expires, and they take a few hops.
const MISSING_NS_MAX: u64 = 2_000_000_000;

#[derive(Default)]
pub struct Ends {
    kill: Kill,
    /// At the root: the first rank that left without finalize, and the time at which that becomes a failure.
    deserter: Option<(Instant, Departed)>,
    /// At the root, the failure that ends the job; elsewhere, the failure that was reported to the parent.
    pub failure: Option<Failure>,
    /// The first failure that does not end the job.
    late: Option<Failure>,
    /// At the root: agents that are missing. All are reported together, at the latest at `name_missing_at`.
    missing: BTreeMap<AgentId, Problem>,
    name_missing_at: Option<Instant>,
    /// After the keeper of the local ranks has ended: when to report it, and the keeper's error (`None`: it was
    /// killed).
    keeper_lost: Option<(Instant, Option<SpawnError>)>,
    /// The earliest error that a rank of the subtree has written.
    pub first_error: Option<RankError>,
    /// Whether an agent of the job was lost: other agents may then still store something of the job after its end.
    pub is_torn: bool,
    /// Whether nobody waits for the job's output any more, because the launcher has left or the job ends for a cause on
    /// none of its nodes. Output that waits for a reader is then dropped when the time for the kill has passed.
    pub is_unwanted: bool,
}

/// How far the kill of the job has progressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kill {
    #[default]
    No,
    /// The ranks were sent SIGTERM; they get SIGKILL at `force_at`.
    Gentle { force_at: Instant },
    /// The ranks were sent SIGKILL; their end is awaited until `give_up_at`.
    Forced { give_up_at: Instant },
    /// The time for the kill has passed: nothing is awaited any more.
    GivenUp,
}

impl Ends {
    /// Whether the ranks were told to end.
    pub fn is_ending(&self) -> bool {
        self.kill != Kill::No
    }

    /// Whether the ranks were sent SIGKILL.
    pub fn is_forced(&self) -> bool {
        matches!(self.kill, Kill::Forced { .. } | Kill::GivenUp)
    }

    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take().or_else(|| self.late.take())
    }

    /// Handles a failure. Only the first one that ends the job counts. Returns whether this agent, as the root, must
    /// end the job.
    pub fn on_failure(&mut self, cx: &mut Cx<'_>, mut failure: Failure) -> bool {
        if self.failure.is_some() || self.is_ending() {
            self.on_later_failure(cx, failure);
            return false;
        }
        if !failure.cause.ends_job() {
            if self.late.is_none() {
                cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::Failed(failure.clone())));
                self.late = Some(failure);
            }
            return false;
        }
        if let Some(reason) = self.take_missing(cx.facts) {
            // If agents are missing, they are reported as the reason, whatever else has failed.
            failure = reason;
        }
        cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::Failed(failure.clone())));
        self.failure = Some(failure);
        cx.facts.root
    }

    /// Passes on a crash that is reported later than a failure to which it may have led. A crash on this node after the
    /// kill has begun is a consequence of the kill.
    fn on_later_failure(&mut self, cx: &mut Cx<'_>, failure: Failure) {
        let follows_kill = self.is_ending() && failure.node == cx.facts.own_node();
        let led_to_first = match &self.failure {
            Some(first) => first.cause.may_follow_crash(),
            None => !cx.facts.root,
        };
        if failure.cause.is_crash() && led_to_first && !follows_kill {
            cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::Failed(failure.clone())));
            self.failure = Some(failure);
        }
    }

    /// Records an error that a rank of the subtree has written.
    pub fn on_rank_error(&mut self, error: RankError) {
        if self.first_error.as_ref().is_none_or(|first| error.at_ns < first.at_ns) {
            self.first_error = Some(error);
        }
    }

    /// A child agent could not be started, or the link to it broke.
    pub fn on_agent_failed(&mut self, cx: &mut Cx<'_>, agent: AgentId, cause: Cause) {
        self.is_torn = true;
        let node = cx.facts.node_of(agent);
        let host = node.map_or_else(|| format!("agent {agent}"), |node| cx.facts.name_of(node));
        let node = node.unwrap_or_default();
        cx.fail(Failure { node, host, rank: None, pid: None, cause });
    }

    /// Records missing agents. The root waits until all are known, so that one message lists all of them.
    pub fn on_missing(&mut self, (now, start_by): (Instant, Instant), missing: Vec<MissingAgent>) {
        for MissingAgent { agent, problem } in missing {
            self.missing.entry(agent).or_insert(problem);
        }
        self.name_missing_at.get_or_insert(now.max(start_by) + MISSING_NS_MAX);
    }

    /// Ends the job if agents are missing; returns whether they are.
    pub fn name_missing(&mut self, cx: &mut Cx<'_>) -> bool {
        let failure = self.take_missing(cx.facts);
        let are_missing = failure.is_some();
        failure.into_iter().for_each(|failure| cx.fail(failure));
        are_missing
    }

    fn take_missing(&mut self, facts: &Facts) -> Option<Failure> {
        self.name_missing_at = None;
        let missing = std::mem::take(&mut self.missing).into_iter();
        let missing: Vec<_> = missing.map(|(agent, problem)| MissingAgent { agent, problem }).collect();
        let node = facts.node_of(missing.first()?.agent).unwrap_or_default();
        let (host, cause) = (facts.name_of(node), Cause::AgentsMissing { missing });
        Some(Failure { node, host, rank: None, pid: None, cause })
    }

    /// Records that the keeper of the local ranks has ended; `take_lost_keeper` returns it when it must be reported.
    pub fn on_keeper_lost(&mut self, now: Instant, problem: Option<SpawnError>) {
        self.keeper_lost = Some((now + KEEPER_NS_MAX, problem));
    }

    /// Removes and returns the loss of the keeper, if it must be reported by now.
    pub fn take_lost_keeper(&mut self, now: Instant) -> Option<(Instant, Option<SpawnError>)> {
        self.keeper_lost.take_if(|(report_at, _)| *report_at <= now || self.kill != Kill::No)
    }

    /// At the root: a rank enters no more collectives.
    pub fn on_departed(&mut self, now: Instant, departed: Departed) {
        if departed.deserted && self.deserter.is_none() {
            self.deserter = Some((now + DESERTED_NS_MAX, departed));
        }
    }

    /// Ends all ranks of the subtree: by SIGTERM, and by SIGKILL after `grace_ns`; at once by SIGKILL if that is 0.
    /// Returns the signals for the local ranks; `None`: SIGKILL was sent before.
    pub fn kill(&mut self, now: Instant, grace_ns: u64) -> Option<&'static [i32]> {
        if self.is_forced() {
            return None;
        }
        if grace_ns == 0 {
            self.force(now);
            return Some(&[SIGKILL]);
        }
        if self.kill != Kill::No {
            return Some(&[]);
        }
        self.kill = Kill::Gentle { force_at: now + grace_ns };
        // A stopped rank handles SIGTERM only when it continues.
        Some(&[SIGTERM, SIGCONT])
    }

    /// Records that the ranks are killed by force; or gives a job that was given up more time, if some of its output
    /// still waits for a reader. The time limit counts from now, even if this agent handles the event late.
    pub fn force(&mut self, now: Instant) {
        self.kill = Kill::Forced { give_up_at: now + UNENDED_NS_MAX };
    }

    /// The signal for a rank that starts while the job is being ended.
    pub fn signal_for_newcomers(&self) -> Option<i32> {
        match self.kill {
            Kill::No => None,
            Kill::Gentle { .. } => Some(SIGTERM),
            Kill::Forced { .. } | Kill::GivenUp => Some(SIGKILL),
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let kill = match self.kill {
            Kill::No => self.deserter.map(|(at, _)| at).into_iter().chain(self.name_missing_at).min(),
            Kill::GivenUp => None,
            Kill::Gentle { force_at } => Some(force_at),
            Kill::Forced { give_up_at } => Some(give_up_at),
        };
        kill.into_iter().chain(self.keeper_lost.as_ref().map(|(report_at, _)| *report_at)).min()
    }

    /// Does what is due: reports missing agents and ranks that have left, asks for SIGKILL. Returns whether the time
    /// for the kill has passed, so that nothing more is awaited.
    pub fn on_tick(&mut self, cx: &mut Cx<'_>) -> bool {
        match self.kill {
            Kill::No => {
                if self.name_missing_at.is_some_and(|at| cx.now() >= at) {
                    self.name_missing(cx);
                }
                if let Some((_, departed)) = self.deserter.take_if(|(at, _)| cx.now() >= *at) {
                    cx.fail_departed(departed, Cause::NotFinalized { initialised: departed.initialised });
                }
            }
            Kill::Gentle { force_at } if cx.now() >= force_at => {
                self.force(cx.now());
                cx.signal(SIGKILL);
            }
            Kill::Forced { give_up_at } if cx.now() >= give_up_at => {
                self.kill = Kill::GivenUp;
                return true;
            }
            Kill::Gentle { .. } | Kill::Forced { .. } | Kill::GivenUp => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::cx::Sent;
    use wireup_wire::ids::NodeId;

    #[test]
    fn a_crash_that_led_to_the_first_failure_is_passed_on_later() {
        let crash = Cause::Signalled { signal: 11, core_dumped: false };
        let by = |node, cause: &Cause| Failure { node: NodeId(node), ..Failure::from(cause.clone()) };
        for (first, later, node, is_killed, passed) in [
            (Cause::Exited(1), &crash, 1, true, 2),
            (Cause::Exited(1), &crash, 0, false, 2),
            (Cause::Exited(1), &crash, 0, true, 1),
            (crash.clone(), &crash, 1, false, 1),
            (Cause::Interrupted { signal: 2 }, &crash, 1, true, 1),
            (Cause::Exited(1), &Cause::Exited(2), 1, true, 1),
        ] {
            let (mut ends, facts) = (Ends::default(), Facts::for_test(2, 1, 0));
            let (_, sent, _) = Cx::bench(&facts, Instant(0), |cx| {
                ends.on_failure(cx, by(0, &first));
                if is_killed {
                    ends.kill(cx.now(), 1_000);
                }
                ends.on_failure(cx, by(node, later));
            });
            let passed_on = sent.iter().filter(|sent| matches!(sent, Sent::ToLauncher(_))).count();
            assert_eq!(passed_on, passed, "{first:?}, then {later:?} on node {node}");
            assert_eq!(
                ends.failure,
                Some(by(if passed == 2 { node } else { 0 }, if passed == 2 { later } else { &first }))
            );
        }
    }

    #[test]
    fn an_agent_that_was_stopped_still_waits_for_the_ranks_that_it_kills() {
        let (mut ends, facts) = (Ends::default(), Facts::for_test(1, 1, 0));
        assert_eq!(ends.kill(Instant(0), 1_000), Some(&[SIGTERM, SIGCONT][..]));
        let mut gives_up = |now| Cx::bench(&facts, now, |cx| ends.on_tick(cx)).0;
        // The agent was stopped for longer than the time limit of the kill.
        let late = Instant(10 * UNENDED_NS_MAX);
        assert_eq!([gives_up(late), gives_up(late), gives_up(late + UNENDED_NS_MAX)], [false, false, true]);
    }
}
