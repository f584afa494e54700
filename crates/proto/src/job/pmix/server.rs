//! The life of the server process of this node, and the ranks that wait for it.
//!
//! ```text
//!            Ready                ranks gone: End          gone
//!   Starting ─────► Serving ──────────────────► Ending ───────────► Gone
//!      │ Failed, gone,  │ gone, broken rules      │ too long: kill   ▲
//!      │ too long       ▼                         ▼                  │
//!      └───────────► Killed ───────────────────► Killed ─────────────┘   (its end is waited for, but not for ever)
//! ```
//!
//! Before it is told to end, what its ranks have committed is fetched for other nodes (`Emptying`, not drawn).
//!
//! Ranks are spawned when it serves and the link to the parent is there, where that is asked for. Where ranks may do without
//! PMIx (nobody knows what they speak) a process that cannot begin ends nothing: they are spawned without it.

use super::super::interface::Act;
use super::super::processes::Life;
use super::super::{Context, Job};
use crate::io::{ExitStatus, Output, PmixPlan};
use crate::outbox::control_frame;
use crate::time::Instant;
use wireup_wire::job::{BindTo, PmiFlavour};
use wireup_wire::limits::{PMIX_END_NS_MAX, PMIX_START_NS_MAX};
use wireup_wire::peer::{Cause, Control, Note, Opened, SpawnError};
use wireup_wire::pmix::{App, Begin, ToServer, Unpacker};

#[derive(Default)]
pub struct Server {
    phase: Phase,
    pub unpacker: Unpacker,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    /// No ranks are here.
    #[default]
    None,
    Starting {
        until: Instant,
    },
    Serving,
    /// No rank is left; what they have committed is being fetched.
    Emptying,
    Ending {
        until: Instant,
    },
    Killed {
        until: Instant,
    },
    Gone,
}

impl Server {
    /// It serves ranks, so it hears of them.
    pub fn listens(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Emptying)
    }

    pub fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. })
    }

    /// What it says is read.
    pub fn speaks(&self) -> bool {
        !matches!(self.phase, Phase::None | Phase::Killed { .. } | Phase::Gone)
    }

    /// It was told to end: of what it says only goodbyes count.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    fn is_there(&self) -> bool {
        !matches!(self.phase, Phase::None | Phase::Gone)
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Starting { until } | Phase::Ending { until } | Phase::Killed { until } => Some(until),
            Phase::None | Phase::Serving | Phase::Emptying | Phase::Gone => None,
        }
    }
}

/// How the names of variables begin that a server process is given.
const LIBRARY_VARIABLES: [&[u8]; 8] =
    [b"PMIX_", b"WIREUP_PMIX", b"HWLOC_", b"PRTE_", b"LD_LIBRARY_PATH=", b"HOME=", b"TMPDIR=", b"OPAL_PREFIX="];

impl Job {
    /// Starts the process; the ranks wait for it.
    pub(in crate::job) fn start_server(&mut self, cx: &mut Context<'_>) {
        let plan = Box::new(self.pmix_plan());
        let Some(pmix) = &mut self.pmix else { return };
        pmix.server.phase = Phase::Starting { until: cx.now + PMIX_START_NS_MAX };
        cx.out.push(Output::StartPmix(plan));
    }

    fn pmix_plan(&self) -> PmixPlan {
        let spec = &self.facts.spec;
        let words = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let node = self.facts.node.unwrap_or_default();
        let app = |app: &wireup_wire::job::AppSpec| App {
            ranks: app.ranks,
            argv: app.argv.iter().map(words).collect(),
            cwd: words(&app.cwd),
        };
        let shared = spec.nodes[node.index()].shared;
        let begin = Begin {
            nspace: spec.nspace.clone(),
            nodes: spec.nodes.iter().map(|node| node.name.clone()).collect(),
            node,
            blocks: spec.blocks.clone(),
            apps: spec.apps.iter().map(app).collect(),
            cpus: vec![None; self.processes.len()],
            dir: String::new(),
            library: spec.options.pmix_library.clone(),
            shared,
            oversubscribed: false,
        };
        let bind_to = if shared { BindTo::None } else { spec.options.bind_to };
        let ranks_here = if shared { spec.job_size() } else { self.processes.len() as u32 };
        PmixPlan { job: self.id(), begin, bind_to, ranks_here, env: variables(&spec.env) }
    }

    /// It can begin to serve: each rank gets its variables.
    pub(super) fn on_ready(&mut self, version: String, env: Vec<Vec<Vec<u8>>>, cx: &mut Context<'_>) {
        let (node, local_size) = (self.facts.node.unwrap_or_default(), self.processes.len());
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.server.is_starting()) else {
            return self.fail_pmix("it said twice that it is ready", cx);
        };
        if env.len() != local_size {
            return self.fail_pmix(format!("it has variables for {} ranks of {local_size}", env.len()), cx);
        }
        pmix.server.phase = Phase::Serving;
        self.on_opened(Opened { node, version }, cx);
        self.seek_at_last(cx);
        if let Some(plan) = &mut self.held {
            plan.ranks.iter_mut().zip(env).for_each(|(rank, env)| rank.env.extend(env));
        }
        self.spawn_held(cx);
    }

    /// It cannot serve this node.
    pub(super) fn on_server_failed(&mut self, problem: String, cx: &mut Context<'_>) {
        let (node, host) = (self.facts.node.unwrap_or_default(), self.host());
        let starting = self.pmix.as_ref().is_some_and(|pmix| pmix.server.is_starting());
        if !starting || self.facts.spec.options.pmi != PmiFlavour::Both || self.is_ending() {
            return self.fail_pmix(problem, cx);
        }
        self.stop_server(cx);
        self.on_opened(Opened { node, version: String::new() }, cx);
        cx.control_up(self.id(), &Control::Note(Note::NoPmix { node, host, problem }));
        self.spawn_held(cx);
    }

    pub fn on_pmix_gone(&mut self, status: ExitStatus, stderr: &str, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let before = std::mem::replace(&mut pmix.server.phase, Phase::Gone);
        pmix.asks.clear();
        self.seek_no_more(cx.now);
        let how = match status {
            ExitStatus::Exited(code) => format!("left with exit code {code}"),
            ExitStatus::Signalled { signal, .. } => format!("was killed by signal {signal}"),
        };
        let said = if stderr.is_empty() { String::new() } else { format!("; it said: {}", stderr.trim()) };
        match before {
            Phase::Starting { .. } => {
                if let Some(pmix) = &mut self.pmix {
                    pmix.server.phase = before;
                }
                self.on_server_failed(format!("it {how} before it was ready{said}"), cx);
                if let Some(pmix) = &mut self.pmix {
                    pmix.server.phase = Phase::Gone;
                }
            }
            Phase::Serving | Phase::Emptying => self.fail_pmix(format!("it {how}{said}"), cx),
            Phase::None | Phase::Ending { .. } | Phase::Killed { .. } | Phase::Gone if !stderr.is_empty() => {
                let note = Note::PmixSaid { host: self.host(), text: stderr.into() };
                cx.out.act(Act::NoteUp(control_frame(self.id(), &Control::Note(note))));
            }
            Phase::None | Phase::Ending { .. } | Phase::Killed { .. } | Phase::Gone => {}
        }
        self.depart_without_goodbye(cx);
        self.sweep_if_done(cx);
    }

    pub fn on_pmix_failed(&mut self, error: &SpawnError, cx: &mut Context<'_>) {
        let reason = std::io::Error::from_raw_os_error(error.errno);
        let problem = format!("{}: {reason} ({})", error.what, error.step.words());
        self.on_server_failed(problem, cx);
        if let Some(pmix) = &mut self.pmix {
            pmix.server.phase = Phase::Gone;
        }
        self.sweep_if_done(cx);
    }

    /// No rank is left here: it cleans up and leaves. True if that is waited for.
    pub(in crate::job) fn end_server(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.server.is_there()) else { return false };
        match pmix.server.phase {
            Phase::Serving => {
                pmix.asks.clear();
                pmix.server.phase = Phase::Emptying;
                if self.is_ending() || !self.keep_blobs(cx) {
                    self.tell_end(cx);
                }
            }
            Phase::Starting { .. } => self.stop_server(cx),
            Phase::None | Phase::Emptying | Phase::Ending { .. } | Phase::Killed { .. } | Phase::Gone => {}
        }
        true
    }

    fn tell_end(&mut self, cx: &mut Context<'_>) {
        self.tell_server(&ToServer::End, cx);
        if let Some(pmix) = &mut self.pmix {
            pmix.server.phase = Phase::Ending { until: cx.now + PMIX_END_NS_MAX };
        }
    }

    /// Nothing more is wanted of it.
    pub(super) fn end_emptied_server(&mut self, cx: &mut Context<'_>) {
        if self.pmix.as_ref().is_some_and(|pmix| pmix.server.phase == Phase::Emptying) && self.has_kept_all() {
            self.tell_end(cx);
        }
    }

    /// It is killed, whatever it does.
    pub(super) fn stop_server(&mut self, cx: &mut Context<'_>) {
        let job = self.id();
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.server.is_there()) else { return };
        if !matches!(pmix.server.phase, Phase::Killed { .. }) {
            pmix.server.phase = Phase::Killed { until: cx.now + PMIX_END_NS_MAX };
            cx.out.push(Output::StopPmix { job });
        }
        pmix.asks.clear();
        self.seek_no_more(cx.now);
    }

    pub(super) fn check_server(&mut self, cx: &mut Context<'_>) {
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.server.deadline().is_some_and(|due| cx.now >= due))
        else {
            return;
        };
        match pmix.server.phase {
            Phase::Starting { .. } => {
                let seconds = PMIX_START_NS_MAX / 1_000_000_000;
                self.on_server_failed(format!("it was not ready after {seconds} s"), cx);
            }
            Phase::Ending { .. } => self.stop_server(cx),
            Phase::Killed { .. } => {
                // The kernel cannot end it now; the keeper goes on trying.
                pmix.server.phase = Phase::Gone;
                self.depart_without_goodbye(cx);
                self.sweep_if_done(cx);
            }
            Phase::None | Phase::Serving | Phase::Emptying | Phase::Gone => {}
        }
    }

    /// The job is being ended: ranks that wait for the process are not started any more.
    pub(in crate::job) fn drop_held(&mut self, cx: &mut Context<'_>) {
        if self.pmix.as_ref().is_some_and(|pmix| pmix.server.is_starting()) {
            self.stop_server(cx);
            self.give_held_up();
        }
    }

    /// The keeper is gone, and its processes with it.
    pub(in crate::job) fn on_server_lost(&mut self) {
        if let Some(pmix) = &mut self.pmix {
            pmix.server.phase = Phase::Gone;
            pmix.asks.clear();
        }
    }

    pub(in crate::job) fn serves_pmix(&self) -> bool {
        self.pmix.as_ref().is_some_and(|pmix| pmix.server.listens())
    }

    /// Whether the process is still to be waited for.
    pub(in crate::job) fn has_server(&self) -> bool {
        self.pmix.as_ref().is_some_and(|pmix| pmix.server.is_there())
    }

    pub(in crate::job) fn sweep_if_done(&mut self, cx: &mut Context<'_>) {
        let gone = |life| matches!(life, Life::Gone { .. });
        if !self.has_server() && self.processes.iter().all(|process| gone(process.life)) {
            cx.out.push(Output::Sweep { job: self.id() });
        }
    }

    /// A subtree has opened this; all nodes must have opened libraries that understand each other.
    pub(in crate::job) fn on_opened(&mut self, below: Opened, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let Some(known) = &pmix.opened else {
            pmix.opened = Some(below);
            return;
        };
        if series(&known.version) == series(&below.version) {
            return;
        }
        if self.facts.spec.options.pmi == PmiFlavour::Both && (known.version.is_empty() || below.version.is_empty()) {
            // Who needs it there will say so; others have been told and do without.
            if known.version.is_empty() {
                pmix.opened = Some(below);
            }
            return;
        }
        let name = |opened: &Opened| {
            let name = self.facts.spec.nodes.get(opened.node.index()).map_or("", |node| node.name.as_str());
            match opened.version.as_str() {
                "" => format!("none on node {name}"),
                version => format!("{version} on node {name}"),
            }
        };
        let problem = format!(
            "nodes have different PMIx libraries, which do not understand each other: {} and {}",
            name(known),
            name(&below)
        );
        self.fail_here(Cause::PmixServer { problem }, cx);
    }

    /// What the subtree has opened, for the parent.
    pub(in crate::job) fn opened(&self) -> Option<Opened> {
        self.pmix.as_ref().and_then(|pmix| pmix.opened.clone())
    }
}

/// What the library, and those that it loads, look at: the job's other variables are its own affair.
fn variables(env: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_for_it = |variable: &&Vec<u8>| LIBRARY_VARIABLES.iter().any(|prefix| variable.starts_with(prefix));
    env.iter().filter(is_for_it).cloned().collect()
}

/// `4.2` of `4.2.9`.
fn series(version: &str) -> Vec<&str> {
    version.split('.').take(2).collect()
}
