//! Finds missing ranks: the root asks all agents, each reports about its own ranks.
//!
//! ```text
//!   a wait is long, or the user asks ──► StallAsk ↑ ──► the root, at most one request per interval ──► StallAsk ↓
//!                                                       launcher ◄── Stall ↑ (one per node) ◄───────────────┘
//! ```
//!
//! Cost: for each request one message down to each agent and one up from it.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use super::groups::words;
use super::ranks::{Process, Ranks};
use crate::collective::Exchanges;
use crate::collective::groups::Stall;
use crate::time::Instant;
use wireup_wire::collective::Collective;
use wireup_wire::ids::LocalRank;
use wireup_wire::limits::{STALL_NAMES_MAX, STALL_PAUSE_NS};
use wireup_wire::peer::{Control, GroupStall, InitStall, StallReport};

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

    /// A request for the missing ranks, of `collective` if that is known. `first`: the first collective in progress
    /// here.
    pub fn ask(
        &mut self,
        now: Instant,
        facts: &Facts,
        collective: Option<Collective>,
        first: Option<Collective>,
        out: &mut Effects,
    ) {
        if facts.root {
            let waiting = self.waiting.flatten();
            self.waiting = Some(waiting.or(collective));
            self.ask_if_due(now, out);
        } else {
            out.push(Effect::ControlUp(Control::StallAsk { collective: collective.or(first) }));
        }
    }

    pub fn ask_if_due(&mut self, now: Instant, out: &mut Effects) {
        if let Some(collective) = self.waiting.take_if(|_| now >= self.not_before) {
            self.not_before = now + STALL_PAUSE_NS;
            out.push(Effect::Survey(collective));
        }
    }
}

/// This node's report about `collective`, whose epochs are `exchanges`; `None` if it has no ranks.
pub fn report(
    facts: &Facts,
    ranks: &Ranks,
    collective: Option<Collective>,
    exchanges: &Exchanges,
    groups: impl Iterator<Item = Stall>,
) -> Option<StallReport> {
    let node = facts.node.filter(|_| !ranks.is_empty())?;
    // A PMIx server does not say which ranks of its node have entered, but those that have not come to it at all have
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

/// Ranks that may wait inside init for others of the node.
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

    fn surveys(out: &mut Effects) -> usize {
        let mut count = 0;
        while let Some(effect) = out.pop() {
            count += usize::from(matches!(effect, Effect::Survey(_)));
        }
        count
    }

    #[test]
    fn stall_requests_of_the_root_are_rate_limited() {
        let (facts, mut stalls, mut out) = (Facts::for_test(2, 2, 0), Stalls::default(), Effects::default());
        stalls.ask(Instant(1), &facts, None, None, &mut out);
        assert_eq!(surveys(&mut out), 1);
        stalls.ask(Instant(2), &facts, Some(Collective::Fence), None, &mut out);
        assert_eq!(surveys(&mut out), 0, "too soon");
        let due = stalls.deadline().expect("the request is delayed");
        stalls.ask_if_due(due, &mut out);
        assert_eq!((surveys(&mut out), stalls.deadline()), (1, None));
    }

    #[test]
    fn agents_below_the_root_forward_stall_requests() {
        let (facts, mut stalls, mut out) = (Facts::for_test(2, 2, 1), Stalls::default(), Effects::default());
        stalls.ask(Instant(1), &facts, None, Some(Collective::Ring), &mut out);
        let up = out.pop();
        assert!(matches!(up, Some(Effect::ControlUp(Control::StallAsk { collective: Some(Collective::Ring) }))));
    }
}
