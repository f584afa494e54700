//! Requests of this node's server process about other jobs, which go to the root (`session/across`), and the root's
//! orders.

use super::asks::Waits;
use super::from_server::before_library;
use super::step::Step;
use super::{Asked, Pmix};
use crate::job::cx::Cx;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::inter_job::{Fetch, Joint, Order, Report};
use wireup_wire::names::{Answer, Ask};
use wireup_wire::pmix::ToServer;

impl Pmix {
    /// The local members of a collective of several jobs have entered.
    pub(super) fn join(&mut self, cx: &mut Cx<'_>, id: u64, joint: Joint, timeout_s: Option<u32>) {
        let until = before_library(cx, timeout_s);
        self.take_on(cx, id, Waits::Across, until, |pmix, cx, _| pmix.ask(cx, id, Ask::Join(joint)));
    }

    /// A local rank asks for data about another job, which only the agents of that job have.
    pub(super) fn fetch(&mut self, cx: &mut Cx<'_>, id: u64, fetch: Fetch) {
        let until = cx.now().until(fetch.wanted.as_ref().and_then(|wanted| wanted.timeout_s));
        self.take_on(cx, id, Waits::Across, until, |pmix, cx, _| pmix.ask(cx, id, Ask::Fetch(fetch)));
    }

    /// An order of the root.
    pub fn on_order(&mut self, cx: &mut Cx<'_>, answer: Answer) {
        // No correct root sends anything else.
        let Answer::Order(order) = answer else { return };
        match order {
            Order::Give { ticket, wanted } => {
                self.step(cx, |pmix, cx, steps| pmix.modex.give(cx, ticket, wanted, steps));
                self.flush(cx);
            }
            Order::TellDeparted => {
                self.tells_departed = true;
                let groups = self.fences.subsets.groups();
                let locals = (0..cx.common.ranks.len() as u16).map(LocalRank);
                let gone = locals.filter(|local| groups.has_departed(*local));
                let ranks: Vec<Rank> = gone.map(|local| cx.common.ranks[local.index()].rank).collect();
                if !ranks.is_empty() {
                    cx.tell_root(Report::Departed { ranks });
                }
            }
            Order::Forget { nspace } => {
                self.step(cx, |_, _, steps| steps.push(Step::Tell(ToServer::Forget { nspace })));
            }
        }
    }

    /// A local rank enters no more collectives.
    pub(super) fn tell_departed(&self, cx: &mut Cx<'_>, rank: Rank) {
        if self.tells_departed {
            cx.tell_root(Report::Departed { ranks: vec![rank] });
        }
    }

    /// Asks the root for something of another job.
    fn ask(&mut self, cx: &Cx<'_>, id: u64, ask: Ask) {
        let from = cx.common.ranks.first().map_or(Rank(0), |process| process.rank);
        self.asked.push(Asked::Name { from, id, ask });
    }
}
