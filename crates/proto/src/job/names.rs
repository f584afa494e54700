//! Requests about names or other jobs, of PMI or PMIx, which only the root can answer.
//!
//! A request goes up the job's tree to the root, whose agent has the names (`session/names`), the launchers
//! (`session/launchers`) and all jobs (`session/across`). The answer goes down the tree to the asker's node.

use super::cx::{Cx, FromJob};
use wireup_wire::frame::{DownFrame, Frame, PeerFrame, UpFrame};
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::inter_job::{InterJobReport, Order};
use wireup_wire::modex::Between;
use wireup_wire::names::{Answer, Ask, Asker, Down, Keep, Up};
use wireup_wire::peer::{self, Cause};

/// Sends a local rank's request to the root.
pub fn ask(cx: &mut Cx<'_>, from: Rank, asker: Asker, ask: Ask) {
    if let Ask::Publish { keep: Keep::Rank, .. } = ask {
        cx.common.publishers.insert(from);
    }
    send(cx, Up::Ask { agent: cx.facts.me, asker, from, ask });
}

/// A local rank has ended.
pub fn on_gone(cx: &mut Cx<'_>, rank: Rank) {
    if cx.common.publishers.remove(&rank) {
        send(cx, Up::Left { rank });
    }
}

/// Sends the root a message of this agent about another job.
pub fn report(cx: &mut Cx<'_>, report: InterJobReport) {
    send(cx, Up::Report { agent: cx.facts.me, report });
}

/// Sends a request or a message to the root.
fn send(cx: &mut Cx<'_>, message: Up) {
    if cx.facts.root {
        return serve(cx, message);
    }
    let payload = peer::encode(&message).into();
    cx.agent.links.send_job_up(cx.common.up, cx.facts.frame(UpFrame::NamesUp, 0, 0, payload));
}

/// Passes a request or a message to the root's agent.
pub fn serve(cx: &mut Cx<'_>, message: Up) {
    cx.agent.from_jobs.push_back(FromJob::Asked(cx.facts.id(), message));
}

/// Handles a child's request or message.
pub fn on_request(cx: &mut Cx<'_>, frame: Frame) {
    match cx.facts.root {
        true => read(cx, &frame).into_iter().for_each(|message| serve(cx, message)),
        false => cx.agent.links.send_job_up(cx.common.up, frame),
    }
}

/// An answer from the parent. Returns the answer if it is for this agent.
pub fn on_answer(cx: &mut Cx<'_>, frame: Frame) -> Option<Down> {
    match AgentId(frame.arg) {
        agent if agent == cx.facts.me => read(cx, &frame),
        agent => {
            pass_on(cx, agent, frame);
            None
        }
    }
}

/// The root's answer to an agent, at the root. Returns the answer if it is for this agent.
pub fn answer(cx: &mut Cx<'_>, agent: AgentId, down: Down) -> Option<Down> {
    if agent == cx.facts.me {
        return Some(down);
    }
    let frame = cx.facts.frame(DownFrame::NamesDown, 0, agent.0, peer::encode(&down).into());
    pass_on(cx, agent, frame);
    None
}

fn pass_on(cx: &mut Cx<'_>, to: AgentId, frame: Frame) {
    if let Some(child) = cx.children_towards(Some(to)).first() {
        return cx.agent.links.send_peer(*child, frame);
    }
    // All ranks in that subtree have ended: none needs an answer, but the root waits for the outcome of an order.
    match read(cx, &frame) {
        Some(Down { answer: Answer::Order(Order::TellDeparted), .. }) => {
            send(cx, Up::Report { agent: to, report: InterJobReport::Ended });
        }
        // The ranks of that agent have ended, but the agent has kept the data that they committed.
        Some(Down { answer: Answer::Order(order @ Order::Give { .. }), .. }) => {
            let payload = peer::encode(&Between::Order(order)).into();
            cx.agent.links.send_peer(to, cx.facts.frame(PeerFrame::Modex, 0, 0, payload));
        }
        Some(_) | None => {}
    }
}

fn read<T: serde::de::DeserializeOwned>(cx: &mut Cx<'_>, frame: &Frame) -> Option<T> {
    let message = peer::decode(&frame.payload);
    message
        .map_err(|error| cx.fail_here(Cause::Pmi { problem: format!("an agent's message about names: {error}") }))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::cx::{Common, Ending, Sent};
    use crate::job::facts::Facts;
    use crate::time::Instant;
    use wireup_wire::frame::FrameKind;
    use wireup_wire::ids::{Client, LocalRank};
    use wireup_wire::names::Range;
    use wireup_wire::pmix::Wanted;

    const CLIENT: Client = Client { local: LocalRank(1), number: 0 };
    const DOWN: Down = Down { asker: Asker::Client(CLIENT), answer: Answer::Done };

    fn publish() -> Ask {
        Ask::Publish { items: Vec::new(), range: Range::Session, keep: Keep::Rank }
    }

    /// Lets agent `me` of three agents act; agents 1 and 2 are children of agent 0.
    fn at<T>(me: u32, act: impl FnOnce(&mut Cx<'_>) -> T) -> (T, Vec<Sent>, Vec<Ending>) {
        Cx::bench(&Facts::for_test(3, 1, me), Instant(1), act)
    }

    #[test]
    fn a_request_goes_up_to_the_root_and_its_answer_down_to_the_node() {
        let (_, acts, _) = at(2, |cx| ask(cx, Rank(2), Asker::Client(CLIENT), publish()));
        let [Sent::ToAgent(AgentId(0), up)] = &acts[..] else { panic!("the root is asked") };
        let (_, acts, _) = at(0, |cx| on_request(cx, up.clone()));
        let [Sent::Asked(Up::Ask { agent, asker, from, .. })] = &acts[..] else { panic!("it serves") };
        assert_eq!((*agent, *asker, *from), (AgentId(2), DOWN.asker, Rank(2)));
        let (here, acts, _) = at(0, |cx| answer(cx, *agent, DOWN));
        let [Sent::ToAgent(AgentId(2), down)] = &acts[..] else { panic!("it answers") };
        assert_eq!(here, None);
        assert_eq!(at(2, |cx| on_answer(cx, down.clone())).0, Some(DOWN));
        let (here, acts, _) = at(1, |cx| on_answer(cx, down.clone()));
        assert_eq!((here, acts), (None, vec![]), "it is not for agent 1");
    }

    #[test]
    fn an_order_for_an_agent_that_has_ended_is_answered_for_it() {
        let facts = Facts::for_test(3, 2, 0);
        let mut common = Common::new(&facts, None);
        common.children.on_lost(AgentId(2));
        let mut order = |agent, order| {
            let down = Down { asker: Asker::Agent, answer: Answer::Order(order) };
            Cx::bench_in(&facts, &mut common, Instant(1), |cx| answer(cx, AgentId(agent), down)).1
        };
        assert!(matches!(&order(1, Order::TellDeparted)[..], [Sent::ToAgent(AgentId(1), _)]));
        let acts = order(2, Order::TellDeparted);
        let [Sent::Asked(Up::Report { agent: AgentId(2), report })] = &acts[..] else { panic!("the root is told") };
        assert_eq!(*report, InterJobReport::Ended);
        let give = Order::Give { ticket: 7, wanted: Wanted::data_of(Rank(4)) };
        let acts = order(2, give.clone());
        let [Sent::ToAgent(AgentId(2), frame)] = &acts[..] else { panic!("it has what its ranks left") };
        assert_eq!(peer::decode::<Between>(&frame.payload), Ok(Between::Order(give)));
    }

    #[test]
    fn the_root_is_told_once_that_a_publisher_has_ended() {
        let facts = Facts::for_test(3, 1, 1);
        let mut common = Common::new(&facts, None);
        let mut sent = |act: fn(&mut Cx<'_>)| Cx::bench_in(&facts, &mut common, Instant(1), act).1.len();
        let gone = |cx: &mut Cx<'_>| on_gone(cx, Rank(1));
        assert_eq!(sent(gone), 0);
        sent(|cx| ask(cx, Rank(1), DOWN.asker, publish()));
        assert_eq!((sent(gone), sent(gone)), (1, 0));
    }

    #[test]
    fn bytes_that_are_not_a_message_fail_the_job() {
        let frame = |kind: FrameKind, arg| Frame::new(kind, 0, 1, arg, vec![0xff].into());
        let up = at(0, |cx| on_request(cx, frame(UpFrame::NamesUp.into(), 0))).2;
        let down = at(1, |cx| on_answer(cx, frame(DownFrame::NamesDown.into(), 1))).2;
        for endings in [up, down] {
            let [Ending::Fail(failure)] = &endings[..] else { panic!("{endings:?}") };
            assert!(matches!(failure.cause, Cause::Pmi { .. }));
        }
    }
}
