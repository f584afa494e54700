//! The server process of this node: its start and end, the ranks that wait for it, its messages and its requests.
//!
//! Ranks are spawned when the server is ready and, if required, the link to the parent is up. If the ranks may run
//! without PMIx (because their interface is unknown), a server process that cannot start is not an error: they are
//! spawned without it.

use super::phase::{Event, Phase};
use crate::io::{ExitStatus, Output, PmixEnd, PmixPlan, SignalTarget, Stream};
use crate::job::cx::Cx;
use crate::plan::{app_of, described, kernel_session};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{Epoch, LocalRank, Rank};
use wireup_wire::inter_job::Parent;
use wireup_wire::job::{Binding, PmiFlavour};
use wireup_wire::limits::{PMIX_ASKS_MAX, PMIX_END_NS_MAX, PMIX_PULSE_NS, PMIX_SILENT_NS_MAX, PMIX_START_NS_MAX};
use wireup_wire::names;
use wireup_wire::peer::{Cause, Note, Opened, PmixFault, PmixProblem, SpawnError};
use wireup_wire::pmix::{Answer, Begin, FromServer, Status, ToServer, Unpacker, pieces};
use wireup_wire::signal::SIGKILL;

/// Prefixes of the variables that are passed to a server process.
const LIBRARY_VARIABLES: [&[u8]; 8] =
    [b"PMIX_", b"WIREUP_PMIX", b"HWLOC_", b"PRTE_", b"LD_LIBRARY_PATH=", b"HOME=", b"TMPDIR=", b"OPAL_PREFIX="];

/// The server process of this node: its state, the requests to it and its own requests.
#[derive(Default)]
pub struct ServerProcess {
    pub phase: Phase,
    pub pulse: Pulse,
    pub asks: Asks,
    unpacker: Unpacker,
    /// Text that the process has written to standard error before it was ready.
    said: String,
    /// Changes on which [`super::Pmix`] has not acted yet, the oldest first.
    pub news: Vec<ServerNews>,
    /// Requests of the PMIx service to the job, which the job handles after `news` when the service has returned.
    pub asked: Vec<Asked>,
}

/// A change of the server process that concerns other parts of the job's PMIx service.
pub enum ServerNews {
    /// This node has opened a PMIx library, or none could be opened.
    Opened(Opened),
    /// The server process is ready.
    Served,
    /// There is no server process any more.
    Unserved,
}

/// What the PMIx service of a job requests of the job's other parts.
#[derive(Debug)]
pub enum Asked {
    /// A local rank has connected.
    Connected(LocalRank),
    /// A local rank has called finalize.
    Finalized(LocalRank),
    /// A request about names or other jobs, for the root. `id`: the number of the server's request.
    Name { from: Rank, id: u64, ask: names::Ask },
    /// The server process has ended, and no ended rank will still finalize with it.
    Gone,
    /// A request to the job itself.
    OfJob(AskedOfJob),
}

/// What the job itself must do for the PMIx service.
#[derive(Debug)]
pub enum AskedOfJob {
    /// Pass on output that a rank writes through its library.
    Log { local: LocalRank, stream: Stream, bytes: Bytes },
    /// The ranks can start, with these variables for each local rank; empty: they run without the server.
    StartRanks(Vec<Vec<Vec<u8>>>),
    /// The ranks that wait for the server will not be started.
    DropRanks,
}

impl ServerProcess {
    /// Starts the process; the ranks wait until it is ready.
    pub fn start(&mut self, cx: &mut Cx<'_>) {
        let plan = Box::new(plan(cx));
        let event = if plan.begin.has_endpoints { Event::Hold } else { start(cx.now()) };
        if self.phase.on(event).is_ok() {
            cx.output(Output::StartPmix(plan));
        }
    }

    /// The addresses at which all ranks listen are known: a row for each node. A process that waits for them can
    /// register the job.
    pub fn on_endpoints(&mut self, cx: &mut Cx<'_>, rows: Vec<Bytes>) {
        if self.phase == Phase::Held {
            self.phase.on(start(cx.now())).expect("it waits for this");
            send(cx, &ToServer::Endpoints { rows });
        }
    }

    pub fn on_bytes(&mut self, bytes: &[u8]) {
        if self.phase.speaks() {
            self.unpacker.push(bytes);
        }
    }

    /// The next message of the process; `None`: there is none, or the process may not send one in its present state.
    ///
    /// # Errors
    /// How the process has violated the protocol.
    pub fn next(&mut self) -> Result<Option<FromServer>, String> {
        loop {
            if !self.phase.speaks() {
                return Ok(None);
            }
            let next = self.unpacker.next::<FromServer>();
            let Some(message) = next.map_err(|error| format!("it cannot be understood: {error}"))? else {
                return Ok(None);
            };
            let is_first = matches!(message, FromServer::Ready { .. } | FromServer::Failed { .. });
            let is_goodbye = matches!(message, FromServer::Finalized { .. });
            if self.phase.is_starting() && !is_first {
                return Err("it sent a request before it was ready".into());
            }
            // Once the process was told to end, only its finalize messages are still handled.
            if is_goodbye || !matches!(self.phase, Phase::Ending { .. }) {
                return Ok(Some(message));
            }
        }
    }

    /// The process reports that it is ready: asks for the start of the local ranks, each with its environment variables
    /// from `env` and those variables of `defaults` that the job does not set.
    pub fn on_ready(&mut self, cx: &mut Cx<'_>, version: String, (mut env, defaults): (Vec<Vec<Vec<u8>>>, &[Vec<u8>])) {
        let local_size = cx.common.ranks.len();
        if !matches!(self.phase, Phase::Starting { .. }) {
            return self.fail(cx, "it reported too early, or twice, that it is ready");
        }
        if env.len() != local_size {
            let problem = format!("it has variables for {} ranks of {local_size}", env.len());
            return self.fail(cx, problem);
        }
        self.phase.on(Event::Ready).expect("it is starting");
        self.pulse.begin(cx.now());
        let said = std::mem::take(&mut self.said);
        if !said.is_empty() {
            self.on_said(cx, said);
        }
        self.news.push(ServerNews::Opened(Opened { node: cx.facts.own_node(), version }));
        self.news.push(ServerNews::Served);
        add_defaults(cx, &mut env, defaults);
        self.asked.push(Asked::OfJob(AskedOfJob::StartRanks(env)));
    }

    /// The process cannot serve PMIx on this node: the ranks start without it if they may, otherwise the job fails.
    pub fn cannot_serve(&mut self, cx: &mut Cx<'_>, problem: impl Into<PmixProblem>) {
        let problem = problem.into();
        let may_do_without = cx.facts.spec.options.pmi.flavour == PmiFlavour::Both && !cx.is_ending;
        if !self.phase.is_starting() || !may_do_without {
            return self.fail(cx, problem);
        }
        self.stop(cx);
        let node = cx.facts.own_node();
        self.news.push(ServerNews::Opened(Opened { node, version: String::new() }));
        let host = cx.facts.host();
        cx.note(Note::NoPmix { node, host, problem: problem.words });
        self.asked.push(Asked::OfJob(AskedOfJob::StartRanks(Vec::new())));
    }

    /// The process has failed: kills it and ends the job.
    pub fn fail(&mut self, cx: &mut Cx<'_>, problem: impl Into<PmixProblem>) {
        let was_starting = self.phase.is_starting();
        self.stop(cx);
        cx.fail_here(Cause::PmixServer { problem: problem.into() });
        if was_starting {
            self.asked.push(Asked::OfJob(AskedOfJob::DropRanks));
        }
    }

    /// The process has written text to standard error. The user gets it once the process serves; if the process cannot
    /// serve, the text is part of the reason.
    pub fn on_said(&mut self, cx: &mut Cx<'_>, text: String) {
        match self.phase {
            Phase::Held | Phase::Starting { .. } => self.said.push_str(&text),
            Phase::Serving | Phase::Emptying | Phase::Ending { .. } => {
                cx.note(Note::PmixSaid { host: cx.facts.host(), text });
            }
            Phase::None | Phase::Killed { .. } | Phase::Gone => {}
        }
    }

    /// Called when the process has ended, or could not be started.
    pub fn on_gone(&mut self, cx: &mut Cx<'_>, end: Result<PmixEnd, SpawnError>) {
        match end {
            Ok(end) => self.on_ended(cx, end),
            Err(error) => {
                self.cannot_serve(cx, error.what);
                self.forget();
            }
        }
        self.asked.push(Asked::Gone);
    }

    fn on_ended(&mut self, cx: &mut Cx<'_>, PmixEnd { status, stderr, no_room }: PmixEnd) {
        let how = match status {
            ExitStatus::Exited(code) => format!("exited with code {code}"),
            ExitStatus::Signalled { signal, .. } => format!("was killed by signal {signal}"),
        };
        let said = if stderr.is_empty() { String::new() } else { format!("; it said: {}", stderr.trim()) };
        let fault = if no_room.is_some() { PmixFault::NoRoom } else { PmixFault::Other };
        let room = no_room.map(|words| format!("; {words}")).unwrap_or_default();
        match self.phase {
            Phase::Held | Phase::Starting { .. } => {
                self.cannot_serve(cx, fault.with(format!("it {how} before it was ready{said}{room}")));
                self.forget();
            }
            Phase::Serving | Phase::Emptying => {
                self.forget();
                self.fail(cx, fault.with(format!("it {how}{said}{room}")));
            }
            Phase::None | Phase::Ending { .. } | Phase::Killed { .. } | Phase::Gone => self.forget(),
        }
    }

    /// Records that the process has ended, and that no more messages from it are expected.
    fn forget(&mut self) {
        self.on_keeper_lost();
        self.news.push(ServerNews::Unserved);
    }

    /// The keeper has ended together with its processes, or the end of the process is no longer awaited.
    pub fn on_keeper_lost(&mut self) {
        // The process may have ended before, so a refusal is no error.
        let _ = self.phase.on(Event::Gone);
        self.pulse.end();
        self.asks = Asks::default();
    }

    /// No local rank is left. Returns whether the process has the data of the ranks; it has none if it was never ready.
    pub fn on_ranks_gone(&mut self, cx: &mut Cx<'_>) -> bool {
        match self.phase {
            Phase::Serving => {
                self.asks = Asks::default();
                self.phase.on(Event::RanksGone).expect("it serves");
                return true;
            }
            Phase::Held | Phase::Starting { .. } => self.stop(cx),
            Phase::None | Phase::Emptying | Phase::Ending { .. } | Phase::Killed { .. } | Phase::Gone => {}
        }
        false
    }

    /// Whether no local rank is left, and the ranks' data is being fetched.
    pub fn is_emptying(&self) -> bool {
        self.phase == Phase::Emptying
    }

    /// Tells the process to clean up and exit, once its ranks' data has been fetched.
    pub fn end(&mut self, cx: &mut Cx<'_>) {
        self.tell(cx, &ToServer::End);
        self.pulse.end();
        self.phase.on(Event::End { until: cx.now() + PMIX_END_NS_MAX }).expect("its ranks have ended");
    }

    /// Kills the process in any state.
    fn stop(&mut self, cx: &mut Cx<'_>) {
        if self.phase.on(Event::Kill { until: cx.now() + PMIX_END_NS_MAX }).is_ok() {
            let (job, target) = (cx.facts.id(), SignalTarget::Server);
            cx.output(Output::Signal { job, target, signal: SIGKILL });
            self.pulse.end();
            self.asks = Asks::default();
            self.news.push(ServerNews::Unserved);
        }
    }

    /// The job is being ended: ranks that wait for the process will not be started.
    pub fn drop_deferred(&mut self, cx: &mut Cx<'_>) {
        if self.phase.is_starting() {
            self.stop(cx);
            self.asked.push(Asked::OfJob(AskedOfJob::DropRanks));
        }
    }

    /// Checks that the process starts and ends in time, and sends it a question (is it alive?) when one is due.
    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.phase.deadline().is_some_and(|due| cx.now() >= due) {
            self.on_late(cx);
        }
        match self.pulse.on_tick(cx.now()) {
            Beat::Nothing => {}
            Beat::Ask => self.tell(cx, &ToServer::AreYouAlive),
            Beat::Dead => {
                let seconds = PMIX_SILENT_NS_MAX / 1_000_000_000;
                self.fail(cx, PmixFault::Silent.with(format!("it has not answered for {seconds} s")));
            }
        }
    }

    fn on_late(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Starting { .. } => {
                let seconds = PMIX_START_NS_MAX / 1_000_000_000;
                let problem = PmixFault::Silent.with(format!("it was not ready after {seconds} s"));
                self.cannot_serve(cx, problem);
            }
            Phase::Ending { .. } => self.stop(cx),
            Phase::Killed { .. } => {
                // The kernel cannot end the process now; the keeper keeps trying.
                self.on_keeper_lost();
                self.asked.push(Asked::Gone);
            }
            Phase::None | Phase::Held | Phase::Serving | Phase::Emptying | Phase::Gone => {}
        }
    }

    /// Answers a request, unless it was already answered: its timeout may have expired.
    pub fn answer(&mut self, cx: &mut Cx<'_>, id: u64, answer: Answer) {
        if self.asks.finish(id).is_some() {
            self.tell(cx, &ToServer::Answer { id, answer });
        }
    }

    pub fn refuse(&mut self, cx: &mut Cx<'_>, id: u64, status: Status) {
        self.answer(cx, id, Answer::Status(status));
    }

    /// Sends a message to the process, unless it has ended or not started.
    pub fn tell(&self, cx: &mut Cx<'_>, message: &ToServer) {
        if self.phase.listens() {
            send(cx, message);
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.phase.deadline().into_iter().chain(self.pulse.deadline()).chain(self.asks.deadline()).min()
    }
}

fn send(cx: &mut Cx<'_>, message: &ToServer) {
    let job = cx.facts.id();
    pieces(message).into_iter().for_each(|bytes| cx.output(Output::PmixSend { job, bytes }));
}

/// The event for a process that has all that it needs to start.
fn start(now: Instant) -> Event {
    Event::Start { until: now + PMIX_START_NS_MAX }
}

/// The start parameters of a server process.
fn plan(cx: &Cx<'_>) -> PmixPlan {
    let spec = &cx.facts.spec;
    let node = cx.facts.own_node();
    let shared = spec.nodes[node.index()].shared;
    let begin = Begin {
        nspace: spec.nspace.clone(),
        nodes: spec.nodes.iter().map(|node| node.name.clone()).collect(),
        node,
        blocks: spec.blocks.clone(),
        apps: spec.apps.iter().map(described).collect(),
        cpus: vec![None; cx.common.ranks.len()],
        dir: String::new(),
        library: spec.options.pmi.pmix_library.clone(),
        shared,
        oversubscribed: false,
        has_endpoints: spec.options.process.rank_ports.is_some(),
        agent: cx.facts.me,
        universe: spec.options.pmi.universe_size,
        parent: spec.spawned.as_ref().map(|by| Parent { nspace: by.nspace.clone(), rank: by.rank }),
    };
    let binding = match shared {
        true => Binding::NONE,
        false => spec.options.binding.of_ranks(cx.facts.mapping.ranks_of(node)),
    };
    let ranks_here = if shared { spec.job_size() } else { cx.common.ranks.len() as u32 };
    PmixPlan {
        job: spec.job,
        begin,
        binding,
        ranks_here,
        kernel_session: kernel_session(spec, node),
        env: variables(&spec.env),
    }
}

fn add_defaults(cx: &Cx<'_>, env: &mut [Vec<Vec<u8>>], defaults: &[Vec<u8>]) {
    let spec = &cx.facts.spec;
    for (rank, env) in cx.facts.mapping.ranks_of(cx.facts.own_node()).zip(env) {
        let own = &spec.apps[usize::from(app_of(spec, rank))].env;
        let is_set = |name: &[u8]| spec.env.iter().chain(own).any(|variable| variable.starts_with(name));
        env.extend(defaults.iter().filter(|default| !is_set(with_equals_sign(default))).cloned());
    }
}

/// The part `NAME=` of `NAME=VALUE`.
fn with_equals_sign(variable: &[u8]) -> &[u8] {
    let end = variable.iter().position(|byte| *byte == b'=').map_or(variable.len(), |at| at + 1);
    &variable[..end]
}

/// The variables that are read by the PMIx library and the libraries that it loads; the server gets no other variables
/// of the job.
fn variables(env: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_for_it = |variable: &&Vec<u8>| LIBRARY_VARIABLES.iter().any(|prefix| variable.starts_with(prefix));
    env.iter().filter(is_for_it).cloned().collect()
}

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// A fence of the whole job, with this epoch.
    Fence(Epoch),
    Subset,
    Modex,
    /// An answer of the root, which itself checks the timeout of the request.
    Root,
    /// Ranks of other jobs, by way of the root.
    Across,
}

/// The unanswered requests of a server process, and their timeouts.
#[derive(Default)]
pub struct Asks {
    pub all: BTreeMap<u64, Waiting>,
    due: BTreeSet<(Instant, u64)>,
}

pub struct Waiting {
    waits: Waits,
    until: Option<Instant>,
}

impl Asks {
    /// Accepts a request.
    ///
    /// # Errors
    /// How the process violates the protocol: the number is already outstanding, or there are too many.
    pub fn insert(&mut self, id: u64, waits: Waits, until: Option<Instant>) -> Result<(), String> {
        if self.all.contains_key(&id) {
            return Err(format!("it used request number {id} twice"));
        }
        if self.all.len() >= PMIX_ASKS_MAX {
            return Err(format!("it has more than {PMIX_ASKS_MAX} requests outstanding"));
        }
        self.all.insert(id, Waiting { waits, until });
        self.due.extend(until.map(|until| (until, id)));
        Ok(())
    }

    /// Removes an answered request; `None`: it was answered before.
    pub fn finish(&mut self, id: u64) -> Option<Waits> {
        let Waiting { waits, until } = self.all.remove(&id)?;
        if let Some(until) = until {
            self.due.remove(&(until, id));
        }
        Some(waits)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }

    /// The first request whose timeout has expired.
    pub fn overdue(&self, now: Instant) -> Option<(u64, Waits)> {
        let (until, id) = self.due.first()?;
        (*until <= now).then(|| (*id, self.all[id].waits))
    }
}

/// What [`Pulse::on_tick`] asks of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beat {
    Nothing,
    Ask,
    /// The process has been silent for too long.
    Dead,
}

/// Notices a PMIx server process that has stopped answering: a client may hold up the library's only thread, the
/// library may wait for itself, or somebody may have stopped the process. Its ranks would wait in their next fence
/// forever.
///
/// ```text
///   serves ── a question every PMIX_PULSE_NS ──► the process passes it to the library's thread, which answers
///   no answer for PMIX_SILENT_NS_MAX: the job ends, and the node is named
/// ```
///
/// Cost: two short messages within the node, four times a minute.
#[derive(Default)]
pub struct Pulse {
    /// When the next question is due; `None`: the process does not serve.
    next_at: Option<Instant>,
    /// When the oldest unanswered question was sent.
    asked_at: Option<Instant>,
}

impl Pulse {
    /// Starts the questions: the process serves from now on.
    pub fn begin(&mut self, now: Instant) {
        (self.next_at, self.asked_at) = (Some(now + PMIX_PULSE_NS), None);
    }

    /// Ends the questions.
    pub fn end(&mut self) {
        *self = Pulse::default();
    }

    pub fn on_answer(&mut self) {
        self.asked_at = None;
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.next_at
    }

    pub fn on_tick(&mut self, now: Instant) -> Beat {
        let Some(at) = self.next_at.filter(|at| *at <= now) else { return Beat::Nothing };
        if now - at >= PMIX_PULSE_NS {
            // This tick is a whole interval late, so this agent was itself stopped, perhaps together with the server
            // process. The server's answer may have arrived without having been read, so the wait for it starts anew.
            self.asked_at = None;
        }
        self.next_at = Some(now + PMIX_PULSE_NS);
        let since = *self.asked_at.get_or_insert(now);
        if now - since >= PMIX_SILENT_NS_MAX { Beat::Dead } else { Beat::Ask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_only_the_variables_of_its_library() {
        let env = ["PMIX_MCA_a=1", "PATH=/bin", "HOME=/root", "HOMEX=1"].map(|variable| variable.as_bytes().to_vec());
        assert_eq!(variables(&env), [env[0].clone(), env[2].clone()]);
    }

    #[test]
    fn request_numbers_are_unique_and_time_out() {
        let mut asks = Asks::default();
        assert_eq!(asks.insert(1, Waits::Modex, Some(Instant(9))), Ok(()));
        assert_eq!(asks.insert(2, Waits::Root, None), Ok(()));
        assert_eq!(asks.insert(3, Waits::Subset, Some(Instant(5))), Ok(()));
        assert_eq!(asks.insert(1, Waits::Root, None), Err("it used request number 1 twice".into()));
        assert_eq!((asks.deadline(), asks.overdue(Instant(4))), (Some(Instant(5)), None));
        assert_eq!(asks.overdue(Instant(5)), Some((3, Waits::Subset)));
        assert_eq!(asks.finish(3), Some(Waits::Subset));
        assert_eq!(asks.finish(3), None);
        assert_eq!(asks.finish(1), Some(Waits::Modex));
        assert_eq!((asks.deadline(), asks.all.len()), (None, 1));
        for id in 10..10 + PMIX_ASKS_MAX as u64 - 1 {
            assert_eq!(asks.insert(id, Waits::Root, None), Ok(()));
        }
        assert!(asks.insert(5, Waits::Root, None).is_err_and(|problem| problem.contains("requests outstanding")));
    }

    #[test]
    fn an_agent_that_was_stopped_itself_blames_nobody() {
        let mut pulse = Pulse::default();
        pulse.begin(Instant(1));
        assert_eq!(pulse.on_tick(Instant(2)), Beat::Nothing);
        let due = pulse.deadline().expect("it serves");
        assert_eq!(pulse.on_tick(due), Beat::Ask);
        let late = due + 3 * PMIX_SILENT_NS_MAX;
        assert_eq!(pulse.on_tick(late), Beat::Ask);
    }
}
