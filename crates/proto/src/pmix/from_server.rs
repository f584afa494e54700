//! Passes the messages of this node's server process to the parts that handle them.

use super::asks::Waits;
use super::fences::{subsets, whole};
use super::requests::{check, check_ask, members};
use super::step::{Asked, AskedOfJob, Step, Steps};
use super::{Pmix, queries};
use crate::io::Stream;
use crate::job::cx::Cx;
use crate::time::Instant;
use wireup_wire::group::Members;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::limits::PMIX_TIMER_LEAD_NS;
use wireup_wire::modex::Up;
use wireup_wire::names;
use wireup_wire::peer::Cause;
use wireup_wire::pmix::{Answer, Ask, FromServer};

impl Pmix {
    /// Handles the next message of the server process; everything that it causes must be done before the message after
    /// it is read. Returns `false` if there is none.
    pub fn read(&mut self, cx: &mut Cx<'_>) -> bool {
        match self.server.next() {
            Ok(Some(message)) => match check(cx.facts, &message) {
                Ok(()) => self.on_checked(cx, message),
                Err(problem) => self.fail_server(cx, problem),
            },
            Ok(None) => {
                self.modex.flush(cx);
                return false;
            }
            Err(problem) => self.fail_server(cx, problem),
        }
        true
    }

    fn on_checked(&mut self, cx: &mut Cx<'_>, message: FromServer) {
        let local = |rank| local(cx, rank);
        match message {
            FromServer::Ready { version, env, defaults } => {
                self.step(cx, |pmix, cx, steps| pmix.server.on_ready(cx, version, (env, &defaults), steps));
            }
            FromServer::Failed { problem } => {
                self.step(cx, |pmix, cx, steps| pmix.server.cannot_serve(cx, problem, steps));
            }
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
            FromServer::Alive => self.server.on_alive(),
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
            Ask::Join { joint, timeout_s } => {
                let until = before_library(cx, timeout_s);
                self.ask_across(cx, id, until, names::Ask::Join(joint));
            }
            Ask::Fetch(fetch) => {
                let until = cx.now().until(fetch.wanted.as_ref().and_then(|wanted| wanted.timeout_s));
                self.ask_across(cx, id, until, names::Ask::Fetch(fetch));
            }
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
        let epoch = self.fences.whole.next_epoch(cx, entrance.is_impatient);
        self.take_on(cx, entrance.id, Waits::Fence(epoch), until, |pmix, cx, steps| {
            pmix.fences.whole.enter(cx, entrance, steps);
        });
    }

    fn fence_some(&mut self, cx: &mut Cx<'_>, entrance: subsets::Entrance, until: Option<Instant>) {
        self.take_on(cx, entrance.id, Waits::Subset, until, |pmix, cx, steps| {
            pmix.fences.subsets.enter(cx, entrance, steps);
        });
    }

    /// Asks the root for something of another job, which only the agents of that job have (`session/across`).
    fn ask_across(&mut self, cx: &mut Cx<'_>, id: u64, until: Option<Instant>, ask: names::Ask) {
        let from = cx.common.ranks.first().map_or(Rank(0), |process| process.rank);
        self.take_on(cx, id, Waits::Across, until, |pmix, _, _| pmix.asked.push(Asked::Name { from, id, ask }));
    }

    /// Accepts a request and acts on it.
    fn take_on(
        &mut self,
        cx: &mut Cx<'_>,
        id: u64,
        waits: Waits,
        until: Option<Instant>,
        act: impl FnOnce(&mut Pmix, &mut Cx<'_>, &mut Steps),
    ) {
        match self.server.take_on(id, waits, until) {
            Ok(()) => self.step(cx, act),
            Err(problem) => self.fail_server(cx, problem),
        }
    }
}

/// When a connection or a group is given up. The library has a timer for it, which may not work, and must not be called
/// back once that timer has expired.
fn before_library(cx: &Cx<'_>, timeout_s: Option<u32>) -> Option<Instant> {
    cx.now().until(timeout_s).map(|until| Instant(until.0 - PMIX_TIMER_LEAD_NS))
}

fn local(cx: &Cx<'_>, rank: Rank) -> LocalRank {
    cx.facts.local_of(rank).expect("the ranks of a checked message are local")
}
