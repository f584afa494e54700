//! Starts and ends the server process of this node, and releases the ranks that wait for it.
//!
//! Ranks are spawned when the server is ready and, if required, the link to the parent is up. If the ranks may run
//! without PMIx (because their interface is unknown), a server process that cannot start is not an error: they are
//! spawned without it.

use super::pulse::Beat;
use super::server::{Event, Phase};
use super::{Asked, AskedOfJob, Pmix, send};
use crate::io::{ExitStatus, Output, PmixPlan};
use crate::job::cx::Cx;
use crate::plan::{app_of, kernel_session};
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::inter_job::Parent;
use wireup_wire::job::{AppSpec, Binding, PmiFlavour};
use wireup_wire::limits::{PMIX_END_NS_MAX, PMIX_SILENT_NS_MAX, PMIX_START_NS_MAX};
use wireup_wire::peer::{Cause, Note, Opened, PmixFault, PmixProblem, SpawnError};
use wireup_wire::pmix::{App, Begin, ToServer};

/// Prefixes of the variables that are passed to a server process.
const LIBRARY_VARIABLES: [&[u8]; 8] =
    [b"PMIX_", b"WIREUP_PMIX", b"HWLOC_", b"PRTE_", b"LD_LIBRARY_PATH=", b"HOME=", b"TMPDIR=", b"OPAL_PREFIX="];

impl Pmix {
    /// Starts the server process; the ranks wait until it is ready.
    pub fn start(&mut self, cx: &mut Cx<'_>) {
        let plan = Box::new(plan(cx));
        let event = if plan.begin.has_endpoints { Event::Hold } else { start(cx.now()) };
        if self.server.on(event).is_ok() {
            cx.output(Output::StartPmix(plan));
        }
    }

    /// The addresses at which all ranks listen are known: a row for each node. A process that waits for them can
    /// register the job.
    pub fn on_endpoints(&mut self, cx: &mut Cx<'_>, rows: Vec<Bytes>) {
        if self.server.phase() == Phase::Held {
            self.server.on(start(cx.now())).expect("it waits for this");
            send(cx, &ToServer::Endpoints { rows });
        }
    }

    /// Handles the message that the server process is ready: asks for the start of the local ranks, each with its
    /// environment variables from `env` and those variables of `defaults` that the job does not set.
    pub(super) fn on_ready(
        &mut self,
        cx: &mut Cx<'_>,
        version: String,
        (mut env, defaults): (Vec<Vec<Vec<u8>>>, &[Vec<u8>]),
    ) {
        let local_size = cx.common.ranks.len();
        if !matches!(self.server.phase(), Phase::Starting { .. }) {
            return self.fail_server(cx, "it reported too early, or twice, that it is ready");
        }
        if env.len() != local_size {
            let problem = format!("it has variables for {} ranks of {local_size}", env.len());
            return self.fail_server(cx, problem);
        }
        self.server.on(Event::Ready).expect("it is starting");
        self.pulse.begin(cx.now());
        let said = std::mem::take(&mut self.server.said);
        if !said.is_empty() {
            self.on_said(cx, said);
        }
        self.on_opened(cx, Opened { node: cx.facts.own_node(), version });
        self.step(cx, |pmix, _, steps| pmix.modex.on_served(steps));
        add_defaults(cx, &mut env, defaults);
        self.asked.push(Asked::OfJob(AskedOfJob::StartRanks(env)));
    }

    /// The server process cannot serve this node.
    pub(super) fn cannot_serve(&mut self, cx: &mut Cx<'_>, problem: impl Into<PmixProblem>) {
        let problem = problem.into();
        let may_do_without = cx.facts.spec.options.pmi.flavour == PmiFlavour::Both && !cx.is_ending;
        if !self.server.is_starting() || !may_do_without {
            return self.fail_server(cx, problem);
        }
        self.stop(cx);
        let node = cx.facts.own_node();
        self.on_opened(cx, Opened { node, version: String::new() });
        let host = cx.facts.host();
        cx.note(Note::NoPmix { node, host, problem: problem.words });
        self.asked.push(Asked::OfJob(AskedOfJob::StartRanks(Vec::new())));
    }

    /// The server process has failed: kills it and ends the job.
    pub(super) fn fail_server(&mut self, cx: &mut Cx<'_>, problem: impl Into<PmixProblem>) {
        let starting = self.server.is_starting();
        self.stop(cx);
        cx.fail_here(Cause::PmixServer { problem: problem.into() });
        if starting {
            self.asked.push(Asked::OfJob(AskedOfJob::DropRanks));
        }
    }

    /// The process has written text to standard error. The user gets it once the process serves; if the process cannot
    /// serve, the text is part of the reason.
    pub fn on_said(&mut self, cx: &mut Cx<'_>, text: String) {
        match self.server.phase() {
            Phase::Held | Phase::Starting { .. } => self.server.said.push_str(&text),
            Phase::Serving | Phase::Emptying | Phase::Ending { .. } => {
                cx.note(Note::PmixSaid { host: cx.facts.host(), text });
            }
            Phase::None | Phase::Killed { .. } | Phase::Gone => {}
        }
    }

    /// The server process has ended.
    pub fn on_gone(&mut self, cx: &mut Cx<'_>, status: ExitStatus, stderr: &str, no_room: Option<String>) {
        let how = match status {
            ExitStatus::Exited(code) => format!("exited with code {code}"),
            ExitStatus::Signalled { signal, .. } => format!("was killed by signal {signal}"),
        };
        let said = if stderr.is_empty() { String::new() } else { format!("; it said: {}", stderr.trim()) };
        let fault = if no_room.is_some() { PmixFault::NoRoom } else { PmixFault::Other };
        let room = no_room.map(|words| format!("; {words}")).unwrap_or_default();
        match self.server.phase() {
            Phase::Held | Phase::Starting { .. } => {
                self.cannot_serve(cx, fault.with(format!("it {how} before it was ready{said}{room}")));
                self.forget_server(cx);
            }
            Phase::Serving | Phase::Emptying => {
                self.forget_server(cx);
                self.fail_server(cx, fault.with(format!("it {how}{said}{room}")));
            }
            Phase::None | Phase::Ending { .. } | Phase::Killed { .. } | Phase::Gone => self.forget_server(cx),
        }
        self.asked.push(Asked::Gone);
    }

    /// The server process could not be started.
    pub fn on_failed(&mut self, cx: &mut Cx<'_>, error: &SpawnError) {
        self.cannot_serve(cx, error.what.clone());
        self.forget_server(cx);
        self.asked.push(Asked::Gone);
    }

    /// No more messages from the process are expected.
    fn forget_server(&mut self, cx: &Cx<'_>) {
        self.on_keeper_lost();
        self.modex.on_unserved(cx.now());
    }

    /// The keeper has ended together with its processes, or the end of the process is no longer awaited.
    pub fn on_keeper_lost(&mut self) {
        // The process may have ended before, so a refusal is no error.
        let _ = self.server.on(Event::Gone);
        self.pulse.end();
        self.asks.clear();
    }

    /// No local rank is left: the process cleans up and exits.
    pub fn end(&mut self, cx: &mut Cx<'_>) {
        match self.server.phase() {
            Phase::Serving => {
                self.asks.clear();
                self.server.on(Event::RanksGone).expect("it serves");
                let mut keeps = false;
                if !cx.is_ending {
                    self.step(cx, |pmix, cx, steps| keeps = pmix.modex.keep_all(cx, steps));
                }
                if !keeps {
                    self.tell_end(cx);
                }
            }
            Phase::Held | Phase::Starting { .. } => self.stop(cx),
            Phase::None | Phase::Emptying | Phase::Ending { .. } | Phase::Killed { .. } | Phase::Gone => {}
        }
    }

    /// Ends the process once its ranks' data has been fetched.
    pub(super) fn end_if_emptied(&mut self, cx: &mut Cx<'_>) {
        if self.server.phase() == Phase::Emptying && self.modex.has_kept_all() {
            self.tell_end(cx);
        }
    }

    fn tell_end(&mut self, cx: &mut Cx<'_>) {
        self.tell(cx, &ToServer::End);
        self.pulse.end();
        self.server.on(Event::End { until: cx.now() + PMIX_END_NS_MAX }).expect("its ranks have ended");
    }

    /// Kills the process in any state.
    fn stop(&mut self, cx: &mut Cx<'_>) {
        if self.server.on(Event::Kill { until: cx.now() + PMIX_END_NS_MAX }).is_ok() {
            cx.output(Output::StopPmix { job: cx.facts.id() });
            self.pulse.end();
            self.asks.clear();
            self.modex.on_unserved(cx.now());
        }
    }

    /// The job is being ended: ranks that wait for the process will not be started.
    pub fn drop_deferred(&mut self, cx: &mut Cx<'_>) {
        if self.server.is_starting() {
            self.stop(cx);
            self.asked.push(Asked::OfJob(AskedOfJob::DropRanks));
        }
    }

    pub(super) fn check_server(&mut self, cx: &mut Cx<'_>) {
        if self.server.deadline().is_none_or(|due| cx.now() < due) {
            return;
        }
        match self.server.phase() {
            Phase::Starting { .. } => {
                let seconds = PMIX_START_NS_MAX / 1_000_000_000;
                self.cannot_serve(cx, PmixFault::Silent.with(format!("it was not ready after {seconds} s")));
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

    /// Asks the process whether it still answers, if that is due.
    pub(super) fn check_pulse(&mut self, cx: &mut Cx<'_>) {
        match self.pulse.on_tick(cx.now()) {
            Beat::Nothing => {}
            Beat::Ask => self.tell(cx, &ToServer::AreYouAlive),
            Beat::Dead => {
                let seconds = PMIX_SILENT_NS_MAX / 1_000_000_000;
                self.fail_server(cx, PmixFault::Silent.with(format!("it has not answered for {seconds} s")));
            }
        }
    }

    /// Whether local ranks may still finalize with the process.
    pub fn listens(&self) -> bool {
        self.server.listens()
    }

    /// Whether the process must still be waited for.
    pub fn is_there(&self) -> bool {
        self.server.is_there()
    }
}

/// The event that the process has all that it needs.
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
        apps: spec.apps.iter().map(app).collect(),
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

fn app(app: &AppSpec) -> App {
    let words = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    App { ranks: app.ranks, argv: app.argv.iter().map(words).collect(), cwd: words(&app.cwd) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_only_the_variables_of_its_library() {
        let env = ["PMIX_MCA_a=1", "PATH=/bin", "HOME=/root", "HOMEX=1"].map(|variable| variable.as_bytes().to_vec());
        assert_eq!(variables(&env), [env[0].clone(), env[2].clone()]);
    }
}
