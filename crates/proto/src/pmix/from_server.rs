//! Checks the messages of this node's server process, and passes them to the parts that handle them: ranks are local or
//! in the job, sets are in order, lengths are within bounds.

use super::fences::{SubsetEntrance, WholeEntrance};
use super::server::{Asked, AskedOfJob, Waits};
use super::{Pmix, queries};
use crate::io::Stream;
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::time::Instant;
use wireup_wire::group::{Members, Run};
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::inter_job::Purpose;
use wireup_wire::limits::{
    PENDING_PUT_BYTES_MAX, PMIX_BLOB_BYTES_MAX, PMIX_KEY_LEN_MAX, PMIX_TIMER_LEAD_NS, STDIO_CHUNK_MAX,
};
use wireup_wire::modex::Up;
use wireup_wire::names;
use wireup_wire::peer::Cause;
use wireup_wire::pmix::{Answer, Ask, FromServer, Set};

impl Pmix {
    /// Handles the next message of the server process; everything that it causes must be done before the message after
    /// it is read. Returns `false` if there is none.
    pub fn read(&mut self, cx: &mut Cx<'_>) -> bool {
        match self.server.next() {
            Ok(Some(message)) => match check(cx.facts, &message) {
                Ok(()) => self.on_checked(cx, message),
                Err(problem) => self.server.fail(cx, problem),
            },
            Ok(None) => {
                self.modex.flush(cx);
                return false;
            }
            Err(problem) => self.server.fail(cx, problem),
        }
        true
    }

    fn on_checked(&mut self, cx: &mut Cx<'_>, message: FromServer) {
        let local = |rank| local(cx, rank);
        match message {
            FromServer::Ready { version, env, defaults } => {
                self.server.on_ready(cx, version, (env, &defaults));
            }
            FromServer::Failed { problem } => self.server.cannot_serve(cx, problem),
            FromServer::Connected { rank } => self.server.asked.push(Asked::Connected(local(rank))),
            FromServer::Finalized { rank } => {
                self.modex.offers.on_departed(rank, cx.now());
                self.server.asked.push(Asked::Finalized(local(rank)));
            }
            FromServer::Abort { rank, code, message } => {
                cx.fail_rank(local(rank), Cause::Aborted { code, message });
            }
            FromServer::Ask { id, ask } => self.on_ask(cx, id, ask),
            FromServer::Modex { request, status, blob } => match self.modex.on_answer(request, status, blob) {
                Ok(()) => self.end_if_emptied(cx),
                Err(problem) => self.server.fail(cx, problem),
            },
            FromServer::Raise { from, code, affected, to, infos } => {
                self.say(cx, Up::Event { code, from: Some(from), affected, to, infos });
            }
            FromServer::Watch => self.say(cx, Up::Watch),
            // `check` refuses this message.
            FromServer::Opened => {}
            FromServer::Alive => self.server.pulse.on_answer(),
            FromServer::Log { rank, stream, text } => {
                let stream = if stream == 1 { Stream::Out } else { Stream::Err };
                self.server.asked.push(Asked::OfJob(AskedOfJob::Log {
                    local: local(rank),
                    stream,
                    bytes: text.into(),
                }));
            }
        }
    }

    fn on_ask(&mut self, cx: &mut Cx<'_>, id: u64, ask: Ask) {
        if let Err(problem) = check_ask(cx.facts, &ask) {
            return self.server.fail(cx, problem);
        }
        match ask {
            Ask::Fence { set, collect, data, timeout_s } => match members(cx, &set) {
                Some(Members::World) => {
                    let until = cx.now().until(timeout_s);
                    let entrance = WholeEntrance { id, collect, data, is_impatient: until.is_some() };
                    self.fence_all(cx, entrance, until);
                }
                Some(members) => {
                    let entrance = SubsetEntrance { id, members, name: None, data };
                    self.fence_some(cx, entrance, cx.now().until(timeout_s));
                }
                None => {
                    self.server.fail(cx, "it requested a fence of ranks that do not exist, or of no rank of this node")
                }
            },
            Ask::Group { name, set, data, timeout_s, .. } => match members(cx, &set) {
                Some(members) => {
                    let entrance = SubsetEntrance { id, members, name: Some(name), data };
                    self.fence_some(cx, entrance, before_library(cx, timeout_s));
                }
                None => {
                    self.server.fail(cx, "it requested a group of ranks that do not exist, or of no rank of this node")
                }
            },
            Ask::Modex(wanted) => {
                let until = cx.now().until(wanted.timeout_s);
                self.take_on(cx, id, Waits::Modex, until, |pmix, cx| {
                    pmix.modex.want(cx, id, wanted, &mut pmix.server);
                });
            }
            Ask::ProcTable { here: true } => {
                let procs = queries::processes_here(cx);
                self.take_on(cx, id, Waits::Root, None, |pmix, cx| {
                    pmix.server.answer(cx, id, Answer::ProcTable { procs });
                });
            }
            Ask::Namespaces => {
                let names = vec![(cx.facts.spec.nspace.clone(), cx.facts.job_size)];
                self.take_on(cx, id, Waits::Root, None, |pmix, cx| {
                    pmix.server.answer(cx, id, Answer::Namespaces { names });
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
            Ask::Names { from, ask } => self.take_on(cx, id, Waits::Root, None, |pmix, _| {
                pmix.server.asked.push(Asked::Name { from, id, ask });
            }),
            Ask::Control { .. } | Ask::ProcTable { here: false } => {
                self.take_on(cx, id, Waits::Root, None, |pmix, cx| {
                    pmix.say(cx, Up::Ask { node: cx.facts.own_node(), id, ask });
                });
            }
        }
    }

    fn fence_all(&mut self, cx: &mut Cx<'_>, entrance: WholeEntrance, until: Option<Instant>) {
        let epoch = self.fences.next_epoch(entrance.is_impatient);
        self.take_on(cx, entrance.id, Waits::Fence(epoch), until, |pmix, cx| {
            pmix.fences.enter(cx, entrance, &mut pmix.server);
        });
    }

    fn fence_some(&mut self, cx: &mut Cx<'_>, entrance: SubsetEntrance, until: Option<Instant>) {
        self.take_on(cx, entrance.id, Waits::Subset, until, |pmix, cx| {
            pmix.fences.enter_some(cx, entrance, &mut pmix.server);
        });
    }

    /// Sends the root a request about another job, which only the agents of that job can answer (`session/across`).
    fn ask_across(&mut self, cx: &mut Cx<'_>, id: u64, until: Option<Instant>, ask: names::Ask) {
        let from = cx.common.ranks.first().map_or(Rank(0), |process| process.rank);
        self.take_on(cx, id, Waits::Across, until, |pmix, _| pmix.server.asked.push(Asked::Name { from, id, ask }));
    }

    /// Accepts a request and acts on it.
    fn take_on(
        &mut self,
        cx: &mut Cx<'_>,
        id: u64,
        waits: Waits,
        until: Option<Instant>,
        act: impl FnOnce(&mut Pmix, &mut Cx<'_>),
    ) {
        match self.server.asks.insert(id, waits, until) {
            Ok(()) => act(self, cx),
            Err(problem) => self.server.fail(cx, problem),
        }
    }
}

/// When a connect or a group construction with a timeout is given up: before the PMIx library's own timer expires,
/// since the library must not be called back after that. The agent has a timer because the library's may not work.
fn before_library(cx: &Cx<'_>, timeout_s: Option<u32>) -> Option<Instant> {
    cx.now().until(timeout_s).map(|until| Instant(until.0 - PMIX_TIMER_LEAD_NS))
}

fn local(cx: &Cx<'_>, rank: Rank) -> LocalRank {
    cx.facts.local_of(rank).expect("the ranks of a checked message are local")
}

/// The server process replaces bytes of a name that are not UTF-8 by a character of three bytes each.
const GROUP_NAME_LEN_MAX: usize = 3 * PMIX_KEY_LEN_MAX;
const GROUP_NAME_TOO_LONG: &str = "the name of a group exceeds the maximum length";

/// Checks a message that is not a request.
///
/// # Errors
/// How the message violates the protocol.
pub fn check(facts: &Facts, message: &FromServer) -> Result<(), String> {
    match message {
        FromServer::Connected { rank } | FromServer::Finalized { rank } | FromServer::Abort { rank, .. } => {
            is_here(facts, *rank)
        }
        FromServer::Log { rank, text, .. } => {
            is_here(facts, *rank)?;
            at_most(text.len(), STDIO_CHUNK_MAX, "it forwards more output at once than a rank may write")
        }
        FromServer::Raise { from, to, infos, .. } => {
            is_here(facts, *from)?;
            if infos.len() > PMIX_BLOB_BYTES_MAX || !is_in_order(facts, to) {
                return Err("it raised an event that is too long, or for ranks that do not exist".into());
            }
            Ok(())
        }
        FromServer::Ready { .. }
        | FromServer::Failed { .. }
        | FromServer::Ask { .. }
        | FromServer::Modex { .. }
        | FromServer::Watch
        | FromServer::Alive => Ok(()),
        // The driver reads this message, before the process gets a job.
        FromServer::Opened => Err("it reported that it has opened its library, which it was not asked for".into()),
    }
}

/// Checks a request, except for its set of ranks.
///
/// # Errors
/// How the request violates the protocol.
pub fn check_ask(facts: &Facts, ask: &Ask) -> Result<(), String> {
    match ask {
        Ask::Fence { data, .. } => {
            at_most(data.len(), PENDING_PUT_BYTES_MAX, "ranks have committed more than 64 MiB between two fences")
        }
        Ask::Group { name, data, .. } => {
            at_most(name.len(), GROUP_NAME_LEN_MAX, GROUP_NAME_TOO_LONG)?;
            at_most(data.len(), PMIX_BLOB_BYTES_MAX, "a rank brings more than 64 MiB to a group")
        }
        Ask::Names { ask: names::Ask::Join(_) | names::Ask::Fetch(_), .. } => {
            Err("it sent a request in a form that only agents may use".into())
        }
        Ask::Join { joint, .. } => {
            if let Purpose::Group(name) = &joint.purpose {
                at_most(name.len(), GROUP_NAME_LEN_MAX, GROUP_NAME_TOO_LONG)?;
            }
            let problem = "ranks bring more than 64 MiB to a collective of several jobs";
            at_most(joint.data.len(), PMIX_BLOB_BYTES_MAX, problem)
        }
        Ask::Fetch(fetch) => {
            let key = fetch.wanted.as_ref().and_then(|wanted| wanted.key.as_ref()).map_or(0, String::len);
            at_most(key, PMIX_KEY_LEN_MAX, "it requested a key that exceeds the maximum length")
        }
        Ask::Names { from, .. } | Ask::Control { from, .. } => {
            let here = facts.local_of(*from).is_some();
            here.then_some(()).ok_or_else(|| format!("it sent a request for rank {from}, which is not on this node"))
        }
        Ask::Modex(wanted) => {
            let len = wanted.key.as_ref().map_or(0, String::len);
            at_most(len, PMIX_KEY_LEN_MAX, "it requested a key that exceeds the maximum length")
        }
        Ask::ProcTable { .. } | Ask::Namespaces => Ok(()),
    }
}

fn is_here(facts: &Facts, rank: Rank) -> Result<(), String> {
    let here = facts.local_of(rank).is_some();
    here.then_some(()).ok_or_else(|| format!("it named rank {rank}, which is not on this node"))
}

fn at_most(len: usize, max: usize, problem: &str) -> Result<(), String> {
    if len <= max { Ok(()) } else { Err(problem.into()) }
}

/// The members of a set with at least one local rank; `None`: the set has no local rank, or is not a valid set of ranks
/// of the job.
pub fn members(cx: &Cx<'_>, set: &Set) -> Option<Members> {
    let members = match set {
        Set::All => return Some(Members::World),
        Set::Ranks(ranks) if !is_in_order(cx.facts, set) || ranks.is_empty() => return None,
        Set::Ranks(ranks) if ranks.len() == cx.facts.job_size as usize => return Some(Members::World),
        Set::Ranks(ranks) => Members::List(runs(ranks)),
    };
    let here = cx.common.ranks.iter().any(|process| members.contains(process.rank));
    here.then_some(members)
}

fn is_in_order(facts: &Facts, set: &Set) -> bool {
    match set {
        Set::All => true,
        Set::Ranks(ranks) => {
            ranks.is_sorted_by(|one, next| one < next) && ranks.last().is_none_or(|last| last.0 < facts.job_size)
        }
    }
}

fn runs(ranks: &[Rank]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some(last) if rank.0 == last.first + last.count => last.count += 1,
            Some(_) | None => runs.push(Run { first: rank.0, count: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::inter_job::Joint;

    #[test]
    fn consecutive_ranks_are_one_run() {
        let ranks: Vec<Rank> = [1, 2, 3, 7, 9, 10].map(Rank).into();
        let run = |first, count| Run { first, count };
        assert_eq!(runs(&ranks), [run(1, 3), run(7, 1), run(9, 2)]);
    }

    #[test]
    fn names_of_groups_are_bounded() {
        let facts = Facts::for_test(2, 2, 0);
        let ask = |len: usize| {
            let purpose = Purpose::Group("g".repeat(len));
            let joint = Joint { purpose, members: Vec::new(), data: Default::default() };
            check_ask(&facts, &Ask::Join { joint, timeout_s: None })
        };
        assert!(ask(PMIX_KEY_LEN_MAX).is_ok() && ask(GROUP_NAME_LEN_MAX + 1).is_err());
    }

    #[test]
    fn a_set_is_of_ranks_of_the_job_in_order() {
        let facts = Facts::for_test(2, 2, 0);
        let set = |ranks: &[u32]| is_in_order(&facts, &Set::Ranks(ranks.iter().copied().map(Rank).collect()));
        assert!(set(&[0, 3]) && set(&[]) && is_in_order(&facts, &Set::All));
        assert!(!set(&[0, 4]) && !set(&[1, 0]) && !set(&[1, 1]));
    }
}
