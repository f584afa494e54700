//! Finds missing ranks: the root asks all agents, each reports about its own ranks.
//!
//! ```text
//!   a wait is long, or the user asks ──► StallAsk ↑ ──► the root, at most one request per interval ──► StallAsk ↓
//!                                                       launcher ◄── Stall ↑ (one per node) ◄───────────────┘
//! ```
//!
//! Cost: for each request one message down to each agent and one up from it.

use super::cx::Cx;
use super::facts::Facts;
use super::ranks::{Process, Ranks};
use crate::collective::Exchanges;
use crate::collective::groups::{Stall, words};
use crate::time::Instant;
use wireup_wire::collective::Collective;
use wireup_wire::ids::LocalRank;
use wireup_wire::limits::{STALL_NAMES_MAX, STALL_PAUSE_NS};
use wireup_wire::peer::{GroupStall, InitStall, StallReport};
use wireup_wire::talk::JobUp;

/// At the root: the request that is delayed until the interval has passed.
#[derive(Default)]
pub struct Stalls {
    not_before: Instant,
    waiting: Option<Option<Collective>>,
}

impl Stalls {
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.is_some().then_some(self.not_before)
    }

    /// Requests a search for missing ranks, in `collective` if that is known. `first`: the first collective in progress
    /// on this agent. The root keeps the request until `take_due` returns it; any other agent passes it on towards the
    /// root.
    pub fn ask(&mut self, cx: &mut Cx<'_>, collective: Option<Collective>, first: Option<Collective>) {
        if cx.facts.root {
            let waiting = self.waiting.flatten();
            self.waiting = Some(waiting.or(collective));
        } else {
            let ask = cx.facts.control(JobUp::StallAsk { collective: collective.or(first) });
            cx.agent.links.send_job_up(cx.common.up, ask);
        }
    }

    /// The request that is to be sent to all agents now, if one is due.
    pub fn take_due(&mut self, now: Instant) -> Option<Option<Collective>> {
        let due = self.waiting.take_if(|_| now >= self.not_before);
        if due.is_some() {
            self.not_before = now + STALL_PAUSE_NS;
        }
        due
    }
}

/// This node's report about `collective`, whose epochs are `exchanges`; `None`: the node has no ranks.
pub fn report(
    facts: &Facts,
    ranks: &Ranks,
    collective: Option<Collective>,
    exchanges: &Exchanges,
    groups: impl Iterator<Item = Stall>,
) -> Option<StallReport> {
    let node = facts.node.filter(|_| !ranks.is_empty())?;
    // A PMIx server does not report which ranks of its node have entered, but a rank that has never contacted it has
    // not.
    let absent = ranks.iter().filter(|process| !process.spoke_pmix).count();
    let absent_only = collective == Some(Collective::Modex) && (1..ranks.len()).contains(&absent);
    let missing = || {
        let is_missing = |(index, process): &(usize, &Process)| match absent_only {
            true => !process.spoke_pmix,
            false => !exchanges.has_arrived(LocalRank(*index as u16)),
        };
        ranks.iter().enumerate().filter(is_missing).map(|(_, process)| process)
    };
    let arrived = if absent_only { (ranks.len() - absent) as u32 } else { exchanges.arrived() };
    // A node whose ranks have all entered has none missing: it waits for others.
    Some(StallReport {
        node,
        host: facts.host(),
        epoch: exchanges.base(),
        collective,
        arrived,
        missing: missing().take(STALL_NAMES_MAX).map(|process| (process.rank, process.pid)).collect(),
        missing_count: missing().count() as u32,
        groups: groups.take(STALL_NAMES_MAX).map(|stall| group_stall(ranks, &stall)).collect(),
        running: ranks.iter().filter(|process| process.is_running()).count() as u32,
        initialised: ranks.iter().filter(|process| process.is_running() && process.spoke_pmi).count() as u32,
        init: init_stall(ranks),
    })
}

/// Ranks that may wait inside init for other ranks of the node.
fn init_stall(ranks: &Ranks) -> Option<InitStall> {
    let (arrived, missing) = ranks.in_init();
    (!missing.is_empty()).then(|| InitStall {
        arrived: arrived as u32,
        missing: missing.iter().take(STALL_NAMES_MAX).map(|process| (process.rank, process.pid)).collect(),
        missing_count: missing.len() as u32,
        by_other: missing.iter().filter(|process| process.spoke_pmi).count() as u32,
    })
}

fn group_stall(ranks: &[Process], stall: &Stall) -> GroupStall {
    let who = |local: &LocalRank| (ranks[local.index()].rank, ranks[local.index()].pid);
    GroupStall {
        group: words(&stall.group),
        arrived: stall.arrived,
        missing: stall.missing.iter().take(STALL_NAMES_MAX).map(who).collect(),
        missing_count: stall.missing.len() as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::cx::Sent;
    use wireup_wire::ids::AgentId;

    #[test]
    fn stall_requests_of_the_root_are_rate_limited() {
        let (facts, mut stalls) = (Facts::for_test(2, 2, 0), Stalls::default());
        Cx::bench(&facts, Instant(1), |cx| stalls.ask(cx, None, None));
        assert_eq!(stalls.take_due(Instant(1)), Some(None));
        Cx::bench(&facts, Instant(2), |cx| stalls.ask(cx, Some(Collective::Fence), None));
        assert_eq!(stalls.take_due(Instant(2)), None, "too soon");
        let due = stalls.deadline().expect("the request is delayed");
        assert_eq!((stalls.take_due(due), stalls.deadline()), (Some(Some(Collective::Fence)), None));
    }

    #[test]
    fn agents_below_the_root_forward_stall_requests() {
        let (facts, mut stalls) = (Facts::for_test(2, 2, 1), Stalls::default());
        let (_, sent, _) = Cx::bench(&facts, Instant(1), |cx| stalls.ask(cx, None, Some(Collective::Ring)));
        let ask = facts.control(JobUp::StallAsk { collective: Some(Collective::Ring) });
        assert_eq!(sent, [Sent::ToAgent(AgentId(0), ask)]);
        assert_eq!(stalls.take_due(Instant(1)), None);
    }
}
