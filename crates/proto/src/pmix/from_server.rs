//! Passes the messages of this node's server process to the parts that handle them.

use super::asks::{Refused, Waits};
use super::fences::{subsets, whole};
use super::requests::{check, check_ask, members};
use super::server::Phase;
use super::step::{Step, Steps};
use super::{Asked, AskedOfJob, Pmix, queries};
use crate::io::Stream;
use crate::job::cx::Cx;
use crate::time::Instant;
use wireup_wire::group::Members;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::limits::PMIX_TIMER_LEAD_NS;
use wireup_wire::modex::Up;
use wireup_wire::peer::Cause;
use wireup_wire::pmix::{Answer, Ask, FromServer};

impl Pmix {
    /// Takes bytes from the server process; `read` handles the messages in them.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        if self.server.speaks() {
            self.server.unpacker.push(bytes);
        }
    }

    /// Handles the next message of the server process; everything that it causes must be done before the message after
    /// it is read. Returns `false` if there is none.
    pub fn read(&mut self, cx: &mut Cx<'_>) -> bool {
        let next = if self.server.speaks() { self.server.unpacker.next::<FromServer>() } else { Ok(None) };
        match next {
            Ok(Some(message)) => self.on_message(cx, message),
            Ok(None) => {
                self.flush(cx);
                return false;
            }
            Err(error) => self.fail_server(cx, format!("it cannot be understood: {error}")),
        }
        true
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, message: FromServer) {
        let is_first = matches!(message, FromServer::Ready { .. } | FromServer::Failed { .. });
        let is_goodbye = matches!(message, FromServer::Finalized { .. });
        match self.server.phase() {
            Phase::Held | Phase::Starting { .. } if !is_first => {
                return self.fail_server(cx, "it sent a request before it was ready");
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
        match check(cx.facts, &message) {
            Ok(()) => self.on_checked(cx, message),
            Err(problem) => self.fail_server(cx, problem),
        }
    }

    fn on_checked(&mut self, cx: &mut Cx<'_>, message: FromServer) {
        let local = |rank| local(cx, rank);
        match message {
            FromServer::Ready { version, env, defaults } => self.on_ready(cx, version, (env, &defaults)),
            FromServer::Failed { problem } => self.cannot_serve(cx, problem),
            FromServer::Connected { rank } => self.asked.push(Asked::Connected(local(rank))),
            FromServer::Finalized { rank } => {
                self.modex.on_departed(rank, cx.now());
                self.asked.push(Asked::Finalized(local(rank)));
            }
            FromServer::Abort { rank, code, message } => {
                cx.fail_rank(local(rank), Cause::Aborted { code, message });
            }
            FromServer::Ask { id, ask } => self.on_ask(cx, id, ask),
            FromServer::Modex { request, status, blob } => {
                self.step(cx, |pmix, _, steps| pmix.modex.on_answer(request, status, blob, steps));
                self.end_if_emptied(cx);
            }
            FromServer::Raise { from, code, affected, to, infos } => {
                self.say(cx, Up::Event { code, from: Some(from), affected, to, infos });
            }
            FromServer::Watch => self.say(cx, Up::Watch),
            // The check of this message has refused it.
            FromServer::Opened => {}
            FromServer::Alive => self.pulse.on_answer(),
            FromServer::Log { rank, stream, text } => {
                let stream = if stream == 1 { Stream::Out } else { Stream::Err };
                self.asked.push(Asked::OfJob(AskedOfJob::Log { local: local(rank), stream, bytes: text.into() }));
            }
        }
    }

    fn on_ask(&mut self, cx: &mut Cx<'_>, id: u64, ask: Ask) {
        if let Err(problem) = check_ask(cx.facts, &ask) {
            return self.fail_server(cx, problem);
        }
        match ask {
            Ask::Fence { set, collect, data, timeout_s } => match members(cx, &set) {
                Some(Members::World) => {
                    let until = cx.now().until(timeout_s);
                    let entrance = whole::Entrance { id, collect, data, is_impatient: until.is_some() };
                    self.fence_all(cx, entrance, until);
                }
                Some(members) => {
                    let entrance = subsets::Entrance { id, members, name: None, data };
                    self.fence_some(cx, entrance, cx.now().until(timeout_s));
                }
                None => {
                    self.fail_server(cx, "it requested a fence of ranks that do not exist, or of no rank of this node")
                }
            },
            Ask::Group { name, set, data, timeout_s, .. } => match members(cx, &set) {
                Some(members) => {
                    let entrance = subsets::Entrance { id, members, name: Some(name), data };
                    self.fence_some(cx, entrance, before_library(cx, timeout_s));
                }
                None => {
                    self.fail_server(cx, "it requested a group of ranks that do not exist, or of no rank of this node")
                }
            },
            Ask::Modex(wanted) => {
                let until = cx.now().until(wanted.timeout_s);
                self.take_on(cx, id, Waits::Modex, until, |pmix, cx, steps| {
                    pmix.modex.want(cx.facts, id, wanted, steps);
                });
            }
            Ask::ProcTable { here: true } => {
                let procs = queries::processes_here(cx);
                self.take_on(cx, id, Waits::Root, None, |_, _, steps| {
                    steps.answer(id, Answer::ProcTable { procs });
                });
            }
            Ask::Namespaces => {
                let names = vec![(cx.facts.spec.nspace.clone(), cx.facts.job_size)];
                self.take_on(cx, id, Waits::Root, None, |_, _, steps| {
                    steps.answer(id, Answer::Namespaces { names });
                });
            }
            Ask::Join { joint, timeout_s } => self.join(cx, id, joint, timeout_s),
            Ask::Fetch(fetch) => self.fetch(cx, id, fetch),
            Ask::Names { from, ask } => self.take_on(cx, id, Waits::Root, None, |pmix, _, _| {
                pmix.asked.push(Asked::Name { from, id, ask });
            }),
            Ask::Control { .. } | Ask::ProcTable { here: false } => {
                self.take_on(cx, id, Waits::Root, None, |_, _, steps| {
                    steps.push(Step::Up(Up::Ask { node: cx.facts.own_node(), id, ask }));
                });
            }
        }
    }

    fn fence_all(&mut self, cx: &mut Cx<'_>, entrance: whole::Entrance, until: Option<Instant>) {
        let epoch = self.fences.whole.begin(cx, entrance.is_impatient);
        self.take_on(cx, entrance.id, Waits::Fence(epoch), until, |pmix, cx, steps| {
            pmix.fences.whole.enter(cx, entrance, steps);
        });
    }

    fn fence_some(&mut self, cx: &mut Cx<'_>, entrance: subsets::Entrance, until: Option<Instant>) {
        self.take_on(cx, entrance.id, Waits::Subset, until, |pmix, cx, steps| {
            pmix.fences.subsets.enter(cx, entrance, steps);
        });
    }

    /// Accepts a request and acts on it; a number that is already outstanding, or too many requests, violate the
    /// protocol.
    pub(super) fn take_on(
        &mut self,
        cx: &mut Cx<'_>,
        id: u64,
        waits: Waits,
        until: Option<Instant>,
        act: impl FnOnce(&mut Pmix, &mut Cx<'_>, &mut Steps),
    ) {
        match self.asks.begin(id, waits, until) {
            Ok(()) => self.step(cx, act),
            Err(Refused::Twice) => self.fail_server(cx, format!("it used request number {id} twice")),
            Err(Refused::TooMany) => {
                let problem = format!("it has more than {} requests outstanding", self.asks.len());
                self.fail_server(cx, problem);
            }
        }
    }
}

/// When a connection or a group is given up. The library has a timer for it, which may not work, and must not be called
/// back once that timer has expired.
pub(super) fn before_library(cx: &Cx<'_>, timeout_s: Option<u32>) -> Option<Instant> {
    cx.now().until(timeout_s).map(|until| Instant(until.0 - PMIX_TIMER_LEAD_NS))
}

fn local(cx: &Cx<'_>, rank: Rank) -> LocalRank {
    cx.facts.local_of(rank).expect("the ranks of a checked message are local")
}
