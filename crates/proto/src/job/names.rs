//! Forwards requests about names or other jobs, of PMI or PMIx, to the root along the job's tree, and the answers to
//! their nodes. The root's agent has the names (`session/names`) and knows all jobs (`session/across`).

use super::effect::{Effect, Effects};
use super::facts::{Facts, View};
use super::interface::Act;
use std::collections::BTreeSet;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::inter_job::{Order, Report};
use wireup_wire::modex::Between;
use wireup_wire::names::{Answer, Ask, Asker, Down, Keep, Up};
use wireup_wire::peer::{self, Cause};

#[derive(Default)]
pub struct Names {
    /// Local ranks with names that end with them.
    publishers: BTreeSet<Rank>,
}

impl Names {
    /// A request of a local rank.
    pub fn ask(&mut self, facts: &Facts, from: Rank, asker: Asker, ask: Ask, out: &mut Effects) {
        if let Ask::Publish { keep: Keep::Rank, .. } = ask {
            self.publishers.insert(from);
        }
        say(facts, Up::Ask { agent: facts.me, asker, from, ask }, out);
    }

    /// A local rank has ended.
    pub fn on_gone(&mut self, facts: &Facts, rank: Rank, out: &mut Effects) {
        if self.publishers.remove(&rank) {
            say(facts, Up::Left { rank }, out);
        }
    }
}

/// A message of this agent about another job.
pub fn report(facts: &Facts, report: Report, out: &mut Effects) {
    say(facts, Up::Report { agent: facts.me, report }, out);
}

fn say(facts: &Facts, message: Up, out: &mut Effects) {
    out.push(match facts.root {
        true => Effect::Act(Act::Names(message)),
        false => Effect::Up(facts.frame(Kind::NamesUp, 0, 0, peer::encode(&message).into())),
    });
}

/// A request from a child.
pub fn on_request(facts: &Facts, frame: Frame, out: &mut Effects) {
    match facts.root {
        true => read(&frame, out).into_iter().for_each(|message| out.push(Effect::Act(Act::Names(message)))),
        false => out.push(Effect::Up(frame)),
    }
}

/// An answer from the parent.
pub fn on_answer(view: &View<'_>, frame: Frame, out: &mut Effects) {
    match AgentId(frame.arg) {
        agent if agent == view.facts.me => read(&frame, out).into_iter().for_each(|down| out.push(Effect::Named(down))),
        agent => pass_on(view, agent, frame, out),
    }
}

/// The root's answer to an agent, at the root.
pub fn answer(view: &View<'_>, agent: AgentId, down: Down, out: &mut Effects) {
    if agent == view.facts.me {
        return out.push(Effect::Named(down));
    }
    pass_on(view, agent, view.facts.frame(Kind::NamesDown, 0, agent.0, peer::encode(&down).into()), out);
}

fn pass_on(view: &View<'_>, to: AgentId, frame: Frame, out: &mut Effects) {
    if let Some(child) = view.children_towards(Some(to)).next() {
        return out.for_agent(child, frame);
    }
    // All ranks there have ended. An answer is not needed any more, but the root waits for the outcome of an order.
    match read(&frame, out) {
        Some(Down { answer: Answer::Order(Order::TellDeparted), .. }) => {
            say(view.facts, Up::Report { agent: to, report: Report::Ended }, out);
        }
        // The agent has kept what its ranks have committed.
        Some(Down { answer: Answer::Order(order @ Order::Give { .. }), .. }) => {
            let payload = peer::encode(&Between::Order(order)).into();
            out.for_agent(to, view.facts.frame(Kind::Modex, 0, 0, payload));
        }
        Some(_) | None => {}
    }
}

fn read<T: serde::de::DeserializeOwned>(frame: &Frame, out: &mut Effects) -> Option<T> {
    let message = peer::decode(&frame.payload);
    message
        .map_err(|error| out.fail_here(Cause::Pmi { problem: format!("an agent's message about names: {error}") }))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::children::Children;
    use crate::time::Instant;
    use wireup_wire::ids::{Client, LocalRank};
    use wireup_wire::names::{Answer, Range};
    use wireup_wire::pmix::Wanted;

    const CLIENT: Client = Client { local: LocalRank(1), number: 0 };
    const DOWN: Down = Down { asker: Asker::Client(CLIENT), answer: Answer::Done };

    fn ask() -> Ask {
        Ask::Publish { items: Vec::new(), range: Range::Session, keep: Keep::Rank }
    }

    /// What agent `me` of three does, of which 1 and 2 are children of 0.
    fn at(me: u32, act: impl FnOnce(&View<'_>, &mut Effects)) -> Vec<Effect> {
        let facts = Facts::for_test(3, 1, me);
        let (children, mut out) = (Children::new(&facts.below), Effects::default());
        act(&View { now: Instant(1), facts: &facts, ranks: &[], children: &children, is_ending: false }, &mut out);
        out.into_vec()
    }

    #[test]
    fn a_request_goes_up_to_the_root_and_its_answer_down_to_the_node() {
        let mut names = Names::default();
        let effects = at(2, |view, out| names.ask(view.facts, Rank(2), Asker::Client(CLIENT), ask(), out));
        let [Effect::Up(up)] = &effects[..] else { panic!("the root is asked") };
        let effects = at(0, |view, out| on_request(view.facts, up.clone(), out));
        let [Effect::Act(Act::Names(Up::Ask { agent, asker, from, .. }))] = &effects[..] else { panic!("it serves") };
        assert_eq!((*agent, *asker, *from), (AgentId(2), DOWN.asker, Rank(2)));
        let effects = at(0, |view, out| answer(view, *agent, DOWN, out));
        let [Effect::Act(Act::ToAgent(AgentId(2), down))] = &effects[..] else { panic!("it answers") };
        let effects = at(2, |view, out| on_answer(view, down.clone(), out));
        assert!(matches!(&effects[..], [Effect::Named(down)] if *down == DOWN));
        assert!(at(1, |view, out| on_answer(view, down.clone(), out)).is_empty(), "it is not for agent 1");
    }

    #[test]
    fn an_order_for_an_agent_that_has_ended_is_answered_for_it() {
        let facts = Facts::for_test(3, 2, 0);
        let (mut children, mut out) = (Children::new(&facts.below), Effects::default());
        children.on_done(AgentId(2), Default::default());
        let view = View { now: Instant(1), facts: &facts, ranks: &[], children: &children, is_ending: false };
        let down = Down { asker: Asker::Agent, answer: Answer::Order(Order::TellDeparted) };
        answer(&view, AgentId(1), down.clone(), &mut out);
        assert!(matches!(&out.into_vec()[..], [Effect::Act(Act::ToAgent(AgentId(1), _))]));
        let mut out = Effects::default();
        answer(&view, AgentId(2), down, &mut out);
        let effects = out.into_vec();
        let [Effect::Act(Act::Names(Up::Report { agent: AgentId(2), report }))] = &effects[..] else {
            panic!("the root is told")
        };
        assert_eq!(*report, Report::Ended);
        let order = Order::Give { ticket: 7, wanted: Wanted::data_of(Rank(4)) };
        let down = Down { asker: Asker::Agent, answer: Answer::Order(order.clone()) };
        let mut out = Effects::default();
        answer(&view, AgentId(2), down, &mut out);
        let effects = out.into_vec();
        let [Effect::Act(Act::ToAgent(AgentId(2), frame))] = &effects[..] else { panic!("it has what its ranks left") };
        assert_eq!(peer::decode::<Between>(&frame.payload), Ok(Between::Order(order)));
    }

    #[test]
    fn the_root_is_told_once_that_a_publisher_has_ended() {
        let mut names = Names::default();
        let gone = |names: &mut Names| at(1, |view, out| names.on_gone(view.facts, Rank(1), out)).len();
        assert_eq!(gone(&mut names), 0);
        at(1, |view, out| names.ask(view.facts, Rank(1), DOWN.asker, ask(), out));
        assert_eq!((gone(&mut names), gone(&mut names)), (1, 0));
    }

    #[test]
    fn bytes_that_are_not_a_message_fail_the_job() {
        let frame = |kind, arg| Frame::new(kind, 0, 1, arg, vec![0xff].into());
        let up = at(0, |view, out| on_request(view.facts, frame(Kind::NamesUp, 0), out));
        let down = at(1, |view, out| on_answer(view, frame(Kind::NamesDown, 1), out));
        for effects in [up, down] {
            assert!(matches!(&effects[..], [Effect::FailHere(Cause::Pmi { .. })]));
        }
    }
}
