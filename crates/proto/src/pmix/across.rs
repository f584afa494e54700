//! Requests of this node's server process about other jobs, which go to the root (`session/across`), and the root's
//! orders.

use super::Pmix;
use super::asks::Waits;
use super::from_server::before_library;
use super::step::{Step, Steps};
use crate::job::effect::{Effect, Effects};
use crate::job::facts::View;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::inter_job::{Fetch, Joint, Order, Report};
use wireup_wire::names::{Answer, Ask, Asker};
use wireup_wire::pmix::ToServer;

impl Pmix {
    /// The local members of a collective of several jobs have entered.
    pub(super) fn join(&mut self, view: &View<'_>, id: u64, joint: Joint, timeout_s: Option<u32>, out: &mut Effects) {
        let until = before_library(view, timeout_s);
        self.take_on(view, id, Waits::Across, until, out, |_, steps| ask(view, id, Ask::Join(joint), steps));
    }

    /// A local rank asks for data about another job, which only the agents of that job have.
    pub(super) fn fetch(&mut self, view: &View<'_>, id: u64, fetch: Fetch, out: &mut Effects) {
        let until = view.now.until(fetch.wanted.as_ref().and_then(|wanted| wanted.timeout_s));
        self.take_on(view, id, Waits::Across, until, out, |_, steps| ask(view, id, Ask::Fetch(fetch), steps));
    }

    /// An order of the root.
    pub fn on_order(&mut self, view: &View<'_>, answer: Answer, out: &mut Effects) {
        // No correct root sends anything else.
        let Answer::Order(order) = answer else { return };
        match order {
            Order::Give { ticket, wanted } => {
                self.step(view, out, |pmix, steps| pmix.modex.give(view, ticket, wanted, steps));
                self.flush(view, out);
            }
            Order::TellDeparted => {
                self.tells_departed = true;
                let groups = self.fences.subsets.groups();
                let locals = (0..view.ranks.len() as u16).map(LocalRank);
                let gone = locals.filter(|local| groups.has_departed(*local));
                let ranks: Vec<Rank> = gone.map(|local| view.ranks[local.index()].rank).collect();
                if !ranks.is_empty() {
                    out.push(Effect::TellRoot(Report::Departed { ranks }));
                }
            }
            Order::Forget { nspace } => {
                self.step(view, out, |_, steps| steps.push(Step::Tell(ToServer::Forget { nspace })));
            }
        }
    }

    /// A local rank enters no more collectives.
    pub(super) fn tell_departed(&self, rank: Rank, out: &mut Effects) {
        if self.tells_departed {
            out.push(Effect::TellRoot(Report::Departed { ranks: vec![rank] }));
        }
    }
}

fn ask(view: &View<'_>, id: u64, ask: Ask, steps: &mut Steps) {
    let from = view.ranks.first().map_or(Rank(0), |process| process.rank);
    steps.job(Effect::AskName { from, asker: Asker::Server(id), ask });
}
