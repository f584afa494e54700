//! Events: what ranks raise, and ranks that go.
//!
//! Ranks that die or leave without a goodbye are told to all nodes, once a client of PMIx is there (`Up::Watch`). Those that
//! leave well are not: the end of a job would cost a message from each rank to each node.

use super::super::processes::Life;
use super::super::{Context, Job};
use bytes::Bytes;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::modex::Up;
use wireup_wire::pmix::{Event, Set, ToServer};

impl Job {
    /// A rank here is gone: its server, and whoever waits for such news, are told.
    pub(in crate::job) fn on_rank_gone(&mut self, local: LocalRank, cx: &mut Context<'_>) {
        if self.pmix.is_none() {
            return;
        }
        let process = &self.processes[local.index()];
        let (rank, life) = (process.rank, process.life);
        let deserted = process.spoke_pmi && !process.finalized;
        self.on_modex_departed(rank, cx.now);
        self.tell_server(&ToServer::Gone { rank }, cx);
        self.forget_published(rank, cx);
        if self.pmix.as_ref().is_some_and(|pmix| pmix.watched) {
            // A rank that leaves as it should is no news: every rank does, in the end.
            if life == (Life::Gone { exit: Some(0) }) && !deserted {
                return;
            }
            let code = Event::ProcAborted;
            self.pmix_up(&Up::Event { code, from: None, affected: Some(rank), to: Set::All, infos: Bytes::new() }, cx);
        }
    }

    /// An event reaches this node.
    pub(super) fn on_event(
        &mut self,
        code: Event,
        from: Option<Rank>,
        affected: Option<Rank>,
        to: &Set,
        infos: Bytes,
        cx: &mut Context<'_>,
    ) {
        let to = match to {
            Set::All => None,
            Set::Ranks(ranks) => {
                let here = ranks.iter().copied().filter(|rank| self.local_of(*rank).is_some());
                let here: Vec<Rank> = here.collect();
                if here.is_empty() {
                    return;
                }
                Some(here)
            }
        };
        self.tell_server(&ToServer::Event { code, from, affected, to, infos }, cx);
    }
}
