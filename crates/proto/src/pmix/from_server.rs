//! Passes the messages of this node's server process to the parts that handle them.

use super::asks::{Refused, Waits};
use super::fences::{subsets, whole};
use super::requests::{check, check_ask, members};
use super::server::Phase;
use super::step::{Step, Steps};
use super::{Pmix, queries};
use crate::io::Stream;
use crate::job::effect::{Effect, Effects};
use crate::job::facts::View;
use crate::time::Instant;
use wireup_wire::group::Members;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::limits::PMIX_TIMER_LEAD_NS;
use wireup_wire::modex::Up;
use wireup_wire::names::Asker;
use wireup_wire::peer::Cause;
use wireup_wire::pmix::{Answer, Ask, FromServer};

impl Pmix {
    /// Bytes from the server process.
    pub fn on_bytes(&mut self, view: &View<'_>, bytes: &[u8], out: &mut Effects) {
        if self.server.speaks() {
            self.server.unpacker.push(bytes);
            self.read_on(view, out);
        }
    }

    /// Handles the next message of the server process. Everything that one message causes is done before the next one
    /// is read.
    pub fn read_on(&mut self, view: &View<'_>, out: &mut Effects) {
        if self.read(view, out) {
            out.push(Effect::ReadServer);
        } else {
            self.flush(view, out);
        }
    }

    /// Returns `false` if there is no message.
    fn read(&mut self, view: &View<'_>, out: &mut Effects) -> bool {
        if !self.server.speaks() {
            return false;
        }
        match self.server.unpacker.next::<FromServer>() {
            Ok(Some(message)) => self.on_message(view, message, out),
            Ok(None) => return false,
            Err(error) => self.fail_server(view, format!("it cannot be understood: {error}"), out),
        }
        true
    }

    fn on_message(&mut self, view: &View<'_>, message: FromServer, out: &mut Effects) {
        let is_first = matches!(message, FromServer::Ready { .. } | FromServer::Failed { .. });
        let is_goodbye = matches!(message, FromServer::Finalized { .. });
        match self.server.phase() {
            Phase::Held | Phase::Starting { .. } if !is_first => {
                return self.fail_server(view, "it sent a request before it was ready", out);
            }
            // The server was told to end: only finalize messages still count.
            Phase::Ending { .. } if !is_goodbye => return,
            Phase::None
            | Phase::Held
            | Phase::Starting { .. }
            | Phase::Serving
            | Phase::Emptying
            | Phase::Ending { .. }
            | Phase::Killed { .. }
            | Phase::Gone => {}
        }
        match check(view.facts, &message) {
            Ok(()) => self.on_checked(view, message, out),
            Err(problem) => self.fail_server(view, problem, out),
        }
    }

    fn on_checked(&mut self, view: &View<'_>, message: FromServer, out: &mut Effects) {
        let local = |rank| local(view, rank);
        match message {
            FromServer::Ready { version, env, defaults } => self.on_ready(view, version, (env, &defaults), out),
            FromServer::Failed { problem } => self.cannot_serve(view, problem, out),
            FromServer::Connected { rank } => out.push(Effect::Connected { local: local(rank), by_pmix: true }),
            FromServer::Finalized { rank } => {
                self.modex.on_departed(rank, view.now);
                out.push(Effect::Finalized { local: local(rank), by_pmix: true });
            }
            FromServer::Abort { rank, code, message } => {
                out.push(Effect::FailRank { local: local(rank), cause: Cause::Aborted { code, message } });
            }
            FromServer::Ask { id, ask } => self.on_ask(view, id, ask, out),
            FromServer::Modex { request, status, blob } => {
                self.step(view, out, |pmix, steps| pmix.modex.on_answer(request, status, blob, steps));
                self.end_if_emptied(view, out);
            }
            FromServer::Raise { from, code, affected, to, infos } => {
                self.say(view, Up::Event { code, from: Some(from), affected, to, infos }, out);
            }
            FromServer::Watch => self.say(view, Up::Watch, out),
            // The check of this message has refused it.
            FromServer::Opened => {}
            FromServer::Alive => self.pulse.on_answer(),
            FromServer::Log { rank, stream, text } => {
                let stream = if stream == 1 { Stream::Out } else { Stream::Err };
                out.push(Effect::Stdio { local: local(rank), stream, bytes: text.into() });
            }
        }
    }

    fn on_ask(&mut self, view: &View<'_>, id: u64, ask: Ask, out: &mut Effects) {
        if let Err(problem) = check_ask(view.facts, &ask) {
            return self.fail_server(view, problem, out);
        }
        match ask {
            Ask::Fence { set, collect, data, timeout_s } => match members(view, &set) {
                Some(Members::World) => {
                    let until = view.now.until(timeout_s);
                    let entrance = whole::Entrance { id, collect, data, is_impatient: until.is_some() };
                    self.fence_all(view, entrance, until, out);
                }
                Some(members) => {
                    let entrance = subsets::Entrance { id, members, name: None, data };
                    self.fence_some(view, entrance, view.now.until(timeout_s), out);
                }
                None => self.fail_server(
                    view,
                    "it requested a fence of ranks that do not exist, or of no rank of this node",
                    out,
                ),
            },
            Ask::Group { name, set, data, timeout_s, .. } => match members(view, &set) {
                Some(members) => {
                    let entrance = subsets::Entrance { id, members, name: Some(name), data };
                    self.fence_some(view, entrance, before_library(view, timeout_s), out);
                }
                None => self.fail_server(
                    view,
                    "it requested a group of ranks that do not exist, or of no rank of this node",
                    out,
                ),
            },
            Ask::Modex(wanted) => {
                let until = view.now.until(wanted.timeout_s);
                self.take_on(view, id, Waits::Modex, until, out, |pmix, steps| {
                    pmix.modex.want(view.facts, id, wanted, steps);
                });
            }
            Ask::ProcTable { here: true } => {
                let procs = queries::processes_here(view);
                self.take_on(view, id, Waits::Root, None, out, |_, steps| {
                    steps.answer(id, Answer::ProcTable { procs });
                });
            }
            Ask::Namespaces => {
                let names = vec![(view.facts.spec.nspace.clone(), view.facts.job_size)];
                self.take_on(view, id, Waits::Root, None, out, |_, steps| {
                    steps.answer(id, Answer::Namespaces { names });
                });
            }
            Ask::Join { joint, timeout_s } => self.join(view, id, joint, timeout_s, out),
            Ask::Fetch(fetch) => self.fetch(view, id, fetch, out),
            Ask::Names { from, ask } => self.take_on(view, id, Waits::Root, None, out, |_, steps| {
                steps.job(Effect::AskName { from, asker: Asker::Server(id), ask });
            }),
            Ask::Control { .. } | Ask::ProcTable { here: false } => {
                self.take_on(view, id, Waits::Root, None, out, |_, steps| {
                    steps.push(Step::Up(Up::Ask { node: view.facts.own_node(), id, ask }));
                });
            }
        }
    }

    fn fence_all(&mut self, view: &View<'_>, entrance: whole::Entrance, until: Option<Instant>, out: &mut Effects) {
        let epoch = self.fences.whole.begin(view, entrance.is_impatient);
        self.take_on(view, entrance.id, Waits::Fence(epoch), until, out, |pmix, steps| {
            pmix.fences.whole.enter(view, entrance, steps);
        });
    }

    fn fence_some(&mut self, view: &View<'_>, entrance: subsets::Entrance, until: Option<Instant>, out: &mut Effects) {
        self.take_on(view, entrance.id, Waits::Subset, until, out, |pmix, steps| {
            pmix.fences.subsets.enter(view, entrance, steps);
        });
    }

    /// Accepts a request and acts on it; a number that is already outstanding, or too many requests, violate the
    /// protocol.
    pub(super) fn take_on(
        &mut self,
        view: &View<'_>,
        id: u64,
        waits: Waits,
        until: Option<Instant>,
        out: &mut Effects,
        act: impl FnOnce(&mut Pmix, &mut Steps),
    ) {
        match self.asks.begin(id, waits, until) {
            Ok(()) => self.step(view, out, act),
            Err(Refused::Twice) => self.fail_server(view, format!("it used request number {id} twice"), out),
            Err(Refused::TooMany) => {
                let problem = format!("it has more than {} requests outstanding", self.asks.len());
                self.fail_server(view, problem, out);
            }
        }
    }
}

/// When a connection or a group is given up. The library has a timer for it, which may not work, and must not be called
/// back once that timer has expired.
pub(super) fn before_library(view: &View<'_>, timeout_s: Option<u32>) -> Option<Instant> {
    view.now.until(timeout_s).map(|until| Instant(until.0 - PMIX_TIMER_LEAD_NS))
}

fn local(view: &View<'_>, rank: Rank) -> LocalRank {
    view.facts.local_of(rank).expect("the ranks of a checked message are local")
}
