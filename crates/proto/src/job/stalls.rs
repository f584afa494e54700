//! Who has not arrived: the root asks all agents, each answers for its own ranks.
//!
//! ```text
//!   a wait is long somewhere, or a person asks ──► StallAsk ↑ ──► the root, at most one question in a while ──► StallAsk ↓
//!                                                                 launcher ◄── Stall ↑ (one of each node) ◄──┘
//! ```
//!
//! Cost: for each question one message down to each agent and one up from it.

use super::{Context, Job};
use crate::time::Instant;
use wireup_wire::collective::Collective;
use wireup_wire::ids::LocalRank;
use wireup_wire::limits::{STALL_NAMES_MAX, STALL_PAUSE_NS};
use wireup_wire::peer::{Control, StallReport};

/// At the root: the question that waits until it may be asked.
#[derive(Default)]
pub struct Asking {
    not_before: Instant,
    waiting: Option<Option<Collective>>,
}

impl Asking {
    fn deadline(&self) -> Option<Instant> {
        self.waiting.is_some().then_some(self.not_before)
    }

    /// The question, if it may be asked now.
    fn take(&mut self, now: Instant) -> Option<Option<Collective>> {
        let question = self.waiting.take_if(|_| now >= self.not_before)?;
        self.not_before = now + STALL_PAUSE_NS;
        Some(question)
    }
}

impl Job {
    /// A wait became long: the root asks everybody.
    pub(super) fn check_stall(&mut self, cx: &mut Context<'_>) {
        if self.wait_deadline().is_some_and(|due| cx.now >= due) {
            self.mark_asked();
            self.ask_stall(None, cx);
        }
        self.ask_if_due(cx);
    }

    fn ask_if_due(&mut self, cx: &mut Context<'_>) {
        if let Some(collective) = self.asking.take(cx.now) {
            self.on_stall_ask(collective, cx);
        }
    }

    pub(super) fn stall_deadline(&self) -> Option<Instant> {
        self.wait_deadline().into_iter().chain(self.asking.deadline()).min()
    }

    fn wait_deadline(&self) -> Option<Instant> {
        let after_ns = self.facts.spec.options.stall_report_ns;
        let fences = self.pmix.as_ref().map(|pmix| &pmix.fences);
        let exchanges = fences.and_then(|fences| fences.exchanges.stall_deadline(after_ns));
        let groups = fences.and_then(|fences| fences.groups.stall_deadline(after_ns));
        let of_ranks = self.exchanges.stall_deadline(after_ns).into_iter().chain(self.groups.stall_deadline(after_ns));
        of_ranks.chain(exchanges).chain(groups).min()
    }

    /// Somebody wants to know who is missing.
    pub(super) fn ask_stall(&mut self, collective: Option<Collective>, cx: &mut Context<'_>) {
        if self.facts.root {
            let waiting = self.asking.waiting.flatten();
            self.asking.waiting = Some(waiting.or(collective));
            self.ask_if_due(cx);
        } else {
            let collective = collective.or(self.first_collective());
            cx.control_up(self.id(), &Control::StallAsk { collective });
        }
    }

    fn mark_asked(&mut self) {
        self.exchanges.on_asked();
        self.groups.on_asked();
        if let Some(pmix) = &mut self.pmix {
            pmix.fences.exchanges.on_asked();
            pmix.fences.groups.on_asked();
        }
    }

    fn first_collective(&self) -> Option<Collective> {
        self.exchanges.first().or(self.pmix.as_ref().and_then(|pmix| pmix.fences.exchanges.first()))
    }

    pub(super) fn on_stall_ask(&mut self, collective: Option<Collective>, cx: &mut Context<'_>) {
        let collective = collective.or(self.first_collective());
        self.mark_asked();
        self.forward_down(&Control::StallAsk { collective }, cx);
        let Some(node) = self.facts.node.filter(|_| !self.processes.is_empty()) else {
            return;
        };
        // A node's PMIx server does not tell which of its ranks are in: all are, or none.
        let exchanges = match &self.pmix {
            Some(pmix) if collective == Some(Collective::Modex) => &pmix.fences.exchanges,
            _ => &self.exchanges,
        };
        let missing = || {
            let all = self.processes.iter().enumerate();
            all.filter(|(index, _)| !exchanges.has_arrived(LocalRank(*index as u16))).map(|(_, process)| process)
        };
        // A node whose ranks have all arrived waits for others: its absent ranks are none.
        let report = StallReport {
            node,
            host: self.host(),
            epoch: exchanges.base(),
            collective,
            arrived: exchanges.arrived(),
            missing: missing().take(STALL_NAMES_MAX).map(|process| (process.rank, process.pid)).collect(),
            missing_count: missing().count() as u32,
            groups: self.group_stalls(),
        };
        cx.control_up(self.id(), &Control::Stall(report));
    }
}
