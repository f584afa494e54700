//! Calls remote shells such as `ssh` for one agent: a limited number at once, and again after a failure if that may
//! help.
//!
//! A `Wish` is a request to start an agent, as this agent's child or on behalf of an agent below, or to probe a host.
//! `verdict` interprets the end of a shell, and the messages of a batch system about a step:
//!
//! ```text
//!   queued ──► running ──► linked                     the shell stays as long as its agent; its end has no meaning
//!                │  ▲
//!                │  └── called again: another way to find the program, or the host was busy (after a pause)
//!                └────► lost, with a reason
//! ```
//!
//! When an agent links, all requests to start it are removed, whatever its shell reports.

mod verdict;

use super::{Cx, SnapshotOf};
use crate::io::{ExitStatus, How, Output, ShellId};
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
pub use verdict::{
    CANNOT_BEGIN, NEEDED, NEEDED_WORDS, SECOND_CACHE_WORDS, final_message, is_in_second_cache, probe_result,
    step_problem,
};
use verdict::{Verdict, joined, verdict};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Bootstrap, Note, Problem, RemoteShell, Secret};
use wireup_wire::session::SessionSnapshot;

/// The first pause before a call is repeated (ns), which is doubled each time; and the longest pause.
const PAUSE_NS: u64 = 200_000_000;
const PAUSE_NS_MAX: u64 = 8_000_000_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    pub agent: AgentId,
    /// Jobs that the agent runs when it starts.
    pub jobs: Vec<JobId>,
    pub purpose: Purpose,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Starts a child of this agent.
    Child,
    /// Starts an agent below `branch` (a child of this agent) on behalf of that agent's parent; `parent`: the addresses
    /// of the parent.
    Stead { branch: AgentId, parent: Vec<String>, snapshot: Box<SessionSnapshot> },
    /// Starts nothing: probes a host below the child `below`, because that child is missing or slow.
    Probe { below: AgentId },
    /// Starts nothing: probes a host for `asker`, in the subtree of `branch`.
    ProbeFor { branch: AgentId, asker: AgentId },
}

impl Purpose {
    pub fn is_probe(&self) -> bool {
        matches!(self, Purpose::Probe { .. } | Purpose::ProbeFor { .. })
    }
}

/// What the agent has to do after a remote shell has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing to do.
    Nothing,
    /// The shell will be called again; the note is for the user.
    Again(Option<Note>),
    Lost(Wish, Problem),
    /// A probe was answered.
    Reached(Wish),
}

pub struct ShellCalls {
    me: AgentId,
    first: How,
    remote: bool,
    /// This machine's architecture, if it is known.
    arch: Option<&'static str>,
    max: usize,
    next: u32,
    queue: VecDeque<Call>,
    /// Calls to be repeated, each with the time at which its pause ends.
    pausing: Vec<(Instant, Call)>,
    calls: BTreeMap<ShellId, (Call, State)>,
}

struct Call {
    wish: Wish,
    how: How,
    attempt: u32,
    /// Whether the program was sent to the host.
    sent: bool,
    /// The error message of the last call that failed because the host was busy.
    busy: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The agent that the shell has started is linked.
    Linked,
}

impl ShellCalls {
    pub fn new(me: AgentId, shell: &RemoteShell, max: u32, arch: Option<&'static str>) -> Self {
        let method = shell.start_method();
        ShellCalls {
            me,
            first: if method.looks_first { How::Look } else { How::Plain },
            remote: !method.same_machine,
            arch,
            max: max.max(1) as usize,
            next: 0,
            queue: VecDeque::new(),
            pausing: Vec::new(),
            calls: BTreeMap::new(),
        }
    }

    /// Whether agents are on other hosts, so that another agent's remote shell may reach a host that this agent's
    /// cannot.
    pub fn is_remote(&self) -> bool {
        self.remote
    }

    pub fn wish(&mut self, wish: Wish) {
        self.queue.push_back(Call { wish, how: self.first, attempt: 0, sent: false, busy: None });
    }

    /// Calls as many remote shells as allowed.
    pub fn call_shells(&mut self, cx: &mut Cx, snapshot: SnapshotOf<'_>) {
        while let Some((shell, wish, how)) = self.next(cx.agent.now) {
            let bootstrap = self.bootstrap(cx, snapshot, &wish).map(Box::new);
            let host = cx.host_of(wish.agent).unwrap_or_default().to_owned();
            cx.output(Output::StartAgent { shell, agent: wish.agent, host, how, bootstrap });
        }
    }

    /// The bootstrap message for an agent; `None` for a probe.
    fn bootstrap(&self, cx: &Cx, snapshot: SnapshotOf<'_>, wish: &Wish) -> Option<Bootstrap> {
        let (parent, by_parent, snapshot) = match &wish.purpose {
            Purpose::Child => (Vec::new(), true, snapshot(cx)),
            Purpose::Stead { parent, snapshot, .. } => (parent.clone(), false, (**snapshot).clone()),
            Purpose::Probe { .. } | Purpose::ProbeFor { .. } => return None,
        };
        let mut session = cx.session.clone();
        session.start_timeout_ns = cx.agent.start_by - cx.agent.now;
        // Ranks wait for the link if another call may have started the same agent: only the agent that links runs them.
        let is_called_again = |(call, _): &(Call, State)| call.wish.agent == wish.agent && call.attempt > 0;
        session.hold_ranks = !by_parent || self.calls.values().any(is_called_again);
        let jobs = wish.jobs.iter().filter_map(|job| cx.jobs.spec(*job)).cloned().collect();
        Some(Bootstrap { secret: Secret([0; 32]), agent: wish.agent, parent, by_parent, session, jobs, snapshot })
    }

    /// The next shell to call, if there is one and the limit allows it.
    fn next(&mut self, now: Instant) -> Option<(ShellId, Wish, How)> {
        while let Some(due) = self.pausing.iter().position(|(until, _)| *until <= now) {
            self.queue.push_back(self.pausing.remove(due).1);
        }
        if self.queue.is_empty() || self.running().count() >= self.max {
            return None;
        }
        let call = self.queue.pop_front()?;
        let shell = self.new_shell();
        let (wish, how) = (call.wish.clone(), call.how);
        self.calls.insert(shell, (call, State::Running));
        Some((shell, wish, how))
    }

    /// A new number for a call of a remote shell or of a batch system's step.
    pub fn new_shell(&mut self) -> ShellId {
        let shell = ShellId(self.next);
        self.next += 1;
        shell
    }

    fn running(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().filter(|(_, state)| *state == State::Running).map(|(call, _)| call)
    }

    /// An agent has linked, to this agent or to the parent that it was to dial: its shell no longer counts towards the
    /// limit, and other calls for the agent are dropped. Returns whether a shell for it was in progress here.
    pub fn on_linked(&mut self, agent: AgentId) -> bool {
        let starts = |call: &Call| call.wish.agent == agent && !call.wish.purpose.is_probe();
        self.queue.retain(|call| !starts(call));
        self.pausing.retain(|(_, call)| !starts(call));
        let mut found = false;
        for (_, state) in self.calls.values_mut().filter(|(call, state)| starts(call) && *state == State::Running) {
            *state = State::Linked;
            found = true;
        }
        found
    }

    /// The agent that this shell has started, if the agent has linked: the shell then ends with its agent.
    pub fn linked_by(&self, shell: ShellId) -> Option<AgentId> {
        self.calls.get(&shell).filter(|(_, state)| *state == State::Linked).map(|(call, _)| call.wish.agent)
    }

    /// Whether the shell of a linked agent was called here and has not ended.
    pub fn has_linked(&self, agent: AgentId) -> bool {
        self.calls.values().any(|(call, state)| *state == State::Linked && call.wish.agent == agent)
    }

    /// A linked agent is lost: forgets its shell, whose messages must not be attributed to the agent's next
    /// incarnation.
    pub fn on_lost(&mut self, agent: AgentId) {
        self.calls.retain(|_, (call, state)| *state != State::Linked || call.wish.agent != agent);
    }

    /// A shell could not be called.
    pub fn on_failed(&mut self, shell: ShellId, problem: Problem) -> Outcome {
        match self.calls.remove(&shell) {
            Some((call, State::Running)) => Outcome::Lost(call.wish, problem),
            _ => Outcome::Nothing,
        }
    }

    /// A shell ended. Retries must happen before `until`.
    pub fn on_exited(
        &mut self,
        now: Instant,
        until: Instant,
        shell: ShellId,
        status: ExitStatus,
        stderr: &str,
    ) -> Outcome {
        let Some((mut call, State::Running)) = self.calls.remove(&shell) else {
            return Outcome::Nothing;
        };
        let agent = call.wish.agent;
        let is_probe = call.wish.purpose.is_probe();
        match verdict(call.how, status, stderr, self.remote, is_probe, self.arch) {
            Verdict::Reached => Outcome::Reached(call.wish),
            Verdict::Lost(problem) => Outcome::Lost(call.wish, problem),
            Verdict::Other(How::Send) if call.sent => Outcome::Lost(
                call.wish,
                joined(
                    "it received wireup but cannot find it; does its ~/.cache/wireup belong to another user?",
                    stderr,
                )
                .into(),
            ),
            Verdict::Other(how) => {
                let was_sent = call.how == How::Send;
                call.how = how;
                call.sent |= was_sent;
                self.queue.push_front(call);
                let note = || Note::Sent { agent, to_second_cache: is_in_second_cache(stderr, None) };
                Outcome::Again(was_sent.then(note))
            }
            Verdict::Busy(problem) => {
                let again_at = now + self.pause_ns(agent, call.attempt);
                if again_at >= until {
                    return Outcome::Lost(call.wish, problem.into());
                }
                call.attempt += 1;
                call.busy = Some(problem.clone());
                let note = Note::Retry { agent, attempt: call.attempt, problem };
                self.pausing.push((again_at, call));
                Outcome::Again(Some(note))
            }
        }
    }

    /// Length of the pause before a call is repeated (ns). The pause doubles with each attempt, and varies between
    /// agents by up to a half, so that agents which were refused together do not retry together.
    fn pause_ns(&self, agent: AgentId, attempt: u32) -> u64 {
        let pause = (PAUSE_NS << attempt.min(20)).min(PAUSE_NS_MAX);
        let mut mixed = u64::from(agent.0) << 32 | u64::from(self.me.0) << 8 | u64::from(attempt);
        // The finalizer of splitmix64: every input bit affects every bit of the result.
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        pause / 2 + (mixed ^ (mixed >> 31)) % (pause / 2 + 1)
    }

    /// Gives up all calls for which `which` holds and whose agents have not linked, and kills their shells. Returns
    /// their wishes.
    pub fn give_up(&mut self, cx: &mut Cx, which: impl Fn(&Wish) -> bool) -> Vec<Wish> {
        let mut wishes = self.give_up_uncalled(&which);
        self.calls.retain(|shell, (call, state)| {
            let gone = *state == State::Running && which(&call.wish);
            if gone {
                wishes.push(call.wish.clone());
                cx.output(Output::StopShell { shell: *shell });
            }
            !gone
        });
        wishes
    }

    /// Gives up all calls that were never made or wait to be repeated, if `which` holds for them.
    pub fn give_up_uncalled(&mut self, which: impl Fn(&Wish) -> bool) -> Vec<Wish> {
        let (queued, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(|call| which(&call.wish));
        self.queue = kept;
        let (pausing, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pausing).into_iter().partition(|(_, call)| which(&call.wish));
        self.pausing = kept;
        queued.into_iter().chain(pausing.into_iter().map(|(_, call)| call)).map(|call| call.wish).collect()
    }

    /// Whether an agent is still waiting for its first call.
    pub fn is_queued(&self, agent: AgentId) -> bool {
        self.queue
            .iter()
            .any(|call| call.wish.agent == agent && call.wish.purpose == Purpose::Child && call.attempt == 0)
    }

    /// The error message of an agent's last call that failed because the host was busy.
    pub fn busy_words(&self, agent: AgentId) -> Option<String> {
        let calls = self.calls.values().map(|(call, _)| call).chain(&self.queue);
        calls.filter(|call| call.wish.agent == agent).find_map(|call| call.busy.clone())
    }

    /// Whether calls are queued or in progress.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.pausing.is_empty() || self.running().next().is_some()
    }

    /// Whether there are wishes on behalf of other agents or probes, in addition to starts of this agent's children.
    /// Such wishes are given up at the start timeout.
    pub fn serves_others(&self) -> bool {
        let waiting = self.queue.iter().chain(self.pausing.iter().map(|(_, call)| call));
        waiting.chain(self.running()).any(|call| call.wish.purpose != Purpose::Child)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.pausing.iter().map(|(until, _)| *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell_calls(max: u32) -> ShellCalls {
        ShellCalls::new(AgentId(0), &RemoteShell::Ssh(vec!["ssh".into()]), max, None)
    }

    fn child(agent: u32) -> Wish {
        Wish { agent: AgentId(agent), jobs: Vec::new(), purpose: Purpose::Child }
    }

    const T: Instant = Instant(1_000_000_000);
    const UNTIL: Instant = Instant(60_000_000_000);
    const BUSY: &str = "kex_exchange_identification: Connection closed by remote host";

    #[test]
    fn no_more_shells_than_the_limit_are_in_progress() {
        let mut calls = shell_calls(2);
        (1..=5).for_each(|agent| calls.wish(child(agent)));
        let first = calls.next(T).unwrap().0;
        calls.next(T).unwrap();
        assert!(calls.next(T).is_none());
        assert!(calls.on_linked(AgentId(1)));
        assert!(calls.next(T).is_some());
        assert!(calls.next(T).is_none());
        // The shell of a linked agent ends with the agent; this is not an error.
        assert_eq!(calls.on_exited(T, UNTIL, first, ExitStatus::Exited(1), ""), Outcome::Nothing);
    }

    #[test]
    fn a_busy_host_is_called_again_after_growing_pauses_for_a_limited_time() {
        let mut calls = shell_calls(64);
        calls.wish(child(7));
        let (mut now, mut pauses) = (T, Vec::new());
        loop {
            let (shell, _, _) = calls.next(now).expect("the call is due");
            match calls.on_exited(now, UNTIL, shell, ExitStatus::Exited(255), BUSY) {
                Outcome::Again(Some(Note::Retry { .. })) => {
                    let due = calls.deadline().unwrap();
                    assert!(calls.next(now).is_none());
                    pauses.push(due - now);
                    now = due;
                }
                Outcome::Lost(wish, problem) => {
                    assert_eq!(wish, child(7));
                    assert!(problem.contains("Connection closed"));
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(pauses.len() >= 5 && now < UNTIL);
        assert!(pauses.windows(2).all(|pair| pair[1] * 4 > pair[0]), "{pauses:?}");
        assert!(!calls.is_busy());
    }

    #[test]
    fn pauses_differ_between_agents() {
        let calls = shell_calls(1);
        let mut pauses: Vec<u64> = (1..=32).map(|agent| calls.pause_ns(AgentId(agent), 0)).collect();
        assert!(pauses.iter().all(|pause| (PAUSE_NS / 2..=PAUSE_NS).contains(pause)));
        pauses.sort_unstable();
        pauses.dedup();
        assert!(pauses.len() > 28);
    }

    #[test]
    fn a_call_is_repeated_first_to_look_for_the_program_and_to_send_it() {
        let mut calls = ShellCalls::new(AgentId(0), &RemoteShell::Command(vec!["rsh".into()]), 1, None);
        calls.wish(child(1));
        calls.wish(child(2));
        let (shell, _, how) = calls.next(T).unwrap();
        assert_eq!(how, How::Plain);
        assert_eq!(calls.on_exited(T, UNTIL, shell, ExitStatus::Exited(127), ""), Outcome::Again(None));
        let (shell, wish, how) = calls.next(T).unwrap();
        assert_eq!((wish, how), (child(1), How::Look));
        assert_eq!(calls.on_exited(T, UNTIL, shell, ExitStatus::Exited(89), "wireup-needed"), Outcome::Again(None));
        let (shell, _, how) = calls.next(T).unwrap();
        assert_eq!(how, How::Send);
        // The program was stored on the node; a node that still lacks it is not sent it again.
        let note = Some(Note::Sent { agent: AgentId(1), to_second_cache: true });
        let said = format!("mkdir: Read-only file system\n{SECOND_CACHE_WORDS}\n");
        assert_eq!(calls.on_exited(T, UNTIL, shell, ExitStatus::Exited(0), &said), Outcome::Again(note));
        let (shell, _, how) = calls.next(T).unwrap();
        assert_eq!(how, How::Look);
        assert!(matches!(calls.on_exited(T, UNTIL, shell, ExitStatus::Exited(89), "wireup-needed"), Outcome::Lost(..)));
    }

    #[test]
    fn giving_up_returns_the_wishes_and_stops_their_shells() {
        let mut calls = shell_calls(2);
        (1..=3).for_each(|agent| calls.wish(child(agent)));
        let (first, second) = (calls.next(T).unwrap().0, calls.next(T).unwrap().0);
        calls.on_linked(AgentId(1));
        let mut cx = crate::testing::one_run(0);
        cx.outputs();
        assert_eq!(calls.give_up(&mut cx, |_| true), [child(3), child(2)]);
        assert_eq!(cx.outputs(), [Output::StopShell { shell: second }]);
        assert!(!calls.is_busy());
        assert_ne!(first, second);
    }
}
