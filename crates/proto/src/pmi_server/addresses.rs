//! Stores where ranks are reached: each rank reports its address to its agent, and other ranks ask when they need it
//! (S2: address requests; S3: direct modex).
//!
//! ```text
//!   rank here     agent here                    agent there      rank there
//!     ── get ──►  known? ── Want { rank } ───►  told? ◄──── set ──
//!     ◄────────          ◄── Have { cards } ──
//! ```
//!
//! The first answer to an agent takes along the addresses of the same name that the node's other ranks have reported,
//! so the node that asks rarely asks again. Answers are kept for all ranks of the node; an address never changes. A
//! question about a rank that has not reported an address waits until the rank does so or leaves.
//!
//! Cost: a message to the agent for each question of a rank; one frame each way the first time that one node needs an
//! address of another.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::addresses::{Between, Card};
use wireup_wire::hex;
use wireup_wire::ids::{Client, NodeId, Rank};
use wireup_wire::limits::{ADDRESS_BUNDLE_BYTES, ADDRESS_NAMES_MAX};

/// A name under which addresses are stored, and the rank that is reached at the address.
type Key = (Bytes, Rank);

/// A local rank's request for an address. `id`: the number that the rank has given to the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    pub client: Client,
    pub id: u32,
}

/// The answer to a local rank; `None` in place of the address: the rank in question has left without reporting one.
pub type Answer = (Question, Option<Bytes>);

#[derive(Default)]
pub struct Addresses {
    /// Addresses of the ranks of this node, and of ranks of other nodes that local ranks have asked for.
    known: BTreeMap<Key, Bytes>,
    waiting: BTreeMap<Key, Waiting>,
    /// Number of names under which each local rank has reported an address.
    names: BTreeMap<Rank, usize>,
    /// Local ranks that have left.
    left: BTreeSet<Rank>,
    /// Nodes that have received all addresses of a name.
    informed: BTreeSet<(NodeId, Bytes)>,
    answers: Vec<Answer>,
    messages: BTreeMap<NodeId, Vec<Between>>,
}

/// The local requests and the nodes that wait for one address.
#[derive(Default)]
struct Waiting {
    local: Vec<Question>,
    nodes: Vec<NodeId>,
}

impl Addresses {
    /// A local rank reports its address.
    ///
    /// # Errors
    /// The reason of the refusal, for the reply to the rank.
    pub fn tell(&mut self, name: Bytes, rank: Rank, value: Bytes) -> Result<(), &'static str> {
        let key = (name, rank);
        if self.known.contains_key(&key) {
            return Err("the_rank_has_told_an_address_of_this_name");
        }
        let names = self.names.entry(rank).or_default();
        if *names == ADDRESS_NAMES_MAX {
            return Err("too_many_addresses");
        }
        *names += 1;
        self.learn(key, value);
        Ok(())
    }

    /// The address of a rank, without its tag, if the rank has reported an address under this name that begins with
    /// `tag`. Our own clients report addresses in hexadecimal digits.
    pub fn tagged(&self, name: &Bytes, rank: Rank, tag: u8) -> Option<Bytes> {
        let told = hex::decode(self.known.get(&(name.clone(), rank))?)?;
        told.strip_prefix(&[tag]).map(Bytes::copy_from_slice)
    }

    /// Handles a local rank's request for the address of `rank`, which is on `node` or (`None`) on this node.
    pub fn ask(&mut self, question: Question, name: Bytes, rank: Rank, node: Option<NodeId>) {
        let key = (name, rank);
        if let Some(value) = self.known.get(&key) {
            return self.answers.push((question, Some(value.clone())));
        }
        if self.left.contains(&rank) {
            return self.answers.push((question, None));
        }
        if let Some(node) = node.filter(|_| !self.waiting.contains_key(&key)) {
            self.want(node, &key);
        }
        self.waiting.entry(key).or_default().local.push(question);
    }

    /// Handles another agent's request for the addresses of ranks of this node.
    pub fn on_want(&mut self, node: NodeId, name: &Bytes, ranks: Vec<Rank>, is_local: impl Fn(Rank) -> bool) {
        let mut cards = Vec::new();
        for rank in ranks {
            let key = (name.clone(), rank);
            match self.known.get(&key) {
                _ if !is_local(rank) => cards.push(Card { rank, value: None }),
                Some(value) => cards.push(Card { rank, value: Some(value.clone()) }),
                None if self.left.contains(&rank) => cards.push(Card { rank, value: None }),
                None => self.waiting.entry(key).or_default().nodes.push(node),
            }
        }
        if !cards.is_empty() && self.informed.insert((node, name.clone())) {
            self.add_others(name, is_local, &mut cards);
        }
        cards.into_iter().for_each(|card| self.have(node, name, card));
    }

    /// Adds the addresses of other local ranks, as many as fit.
    fn add_others(&self, name: &Bytes, is_local: impl Fn(Rank) -> bool, cards: &mut Vec<Card>) {
        let asked: BTreeSet<Rank> = cards.iter().map(|card| card.rank).collect();
        let all = self.known.range((name.clone(), Rank(0))..).take_while(|((of, _), _)| of == name);
        let mut bytes = 0;
        for ((_, rank), value) in all.filter(|((_, rank), _)| is_local(*rank) && !asked.contains(rank)) {
            bytes += value.len();
            if bytes > ADDRESS_BUNDLE_BYTES {
                return;
            }
            cards.push(Card { rank: *rank, value: Some(value.clone()) });
        }
    }

    /// Handles an agent's answer. Addresses of ranks that are not on its node are ignored.
    pub fn on_have(&mut self, name: &Bytes, cards: Vec<Card>, is_there: impl Fn(Rank) -> bool) {
        for Card { rank, value } in cards.into_iter().filter(|card| is_there(card.rank)) {
            let key = (name.clone(), rank);
            match value {
                Some(value) => self.learn(key, value),
                None => self.settle(&key, None),
            }
        }
    }

    /// A local rank has left: it will report no more addresses.
    pub fn on_left(&mut self, rank: Rank) {
        self.left.insert(rank);
        let waits: Vec<Key> = self.waiting.keys().filter(|key| key.1 == rank).cloned().collect();
        waits.iter().for_each(|key| self.settle(key, None));
    }

    /// A local rank has closed its socket: its requests are dropped.
    pub fn on_closed(&mut self, client: Client) {
        self.waiting.values_mut().for_each(|waiting| waiting.local.retain(|question| question.client != client));
    }

    /// Whether there are answers or messages to send.
    pub fn has_news(&self) -> bool {
        !self.answers.is_empty() || !self.messages.is_empty()
    }

    /// Removes and returns the answers for local ranks, in order.
    pub fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// Messages to the agents of other nodes.
    pub fn take_messages(&mut self) -> impl Iterator<Item = (NodeId, Between)> + use<> {
        let messages = std::mem::take(&mut self.messages).into_iter();
        messages.flat_map(|(node, messages)| messages.into_iter().map(move |message| (node, message)))
    }

    fn learn(&mut self, key: Key, value: Bytes) {
        self.settle(&key, Some(&value));
        self.known.insert(key, value);
    }

    /// Answers all local ranks and all nodes that wait for an address.
    fn settle(&mut self, key: &Key, value: Option<&Bytes>) {
        let Some(Waiting { local, nodes }) = self.waiting.remove(key) else { return };
        self.answers.extend(local.into_iter().map(|question| (question, value.cloned())));
        for node in nodes {
            self.have(node, &key.0, Card { rank: key.1, value: value.cloned() });
        }
    }

    /// Adds a rank to the request for an agent: the requests of one input share a message.
    fn want(&mut self, node: NodeId, (name, rank): &Key) {
        let messages = self.messages.entry(node).or_default();
        match messages.last_mut() {
            Some(Between::Want { name: of, ranks }) if of == name => ranks.push(*rank),
            _ => messages.push(Between::Want { name: name.clone(), ranks: vec![*rank] }),
        }
    }

    fn have(&mut self, node: NodeId, name: &Bytes, card: Card) {
        let messages = self.messages.entry(node).or_default();
        match messages.last_mut() {
            Some(Between::Have { name: of, cards }) if of == name => cards.push(card),
            _ => messages.push(Between::Have { name: name.clone(), cards: vec![card] }),
        }
    }
}

/// The answer of an agent that no longer has the job: all of its ranks have left. `None`: the message needs no answer.
pub fn all_left(message: Between) -> Option<Between> {
    let Between::Want { name, ranks } = message else { return None };
    Some(Between::Have { name, cards: ranks.into_iter().map(|rank| Card { rank, value: None }).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::LocalRank;

    const NAME: Bytes = Bytes::from_static(b"net");

    fn question(local: u16, id: u32) -> Question {
        Question { client: LocalRank(local).into(), id }
    }

    fn messages(addresses: &mut Addresses) -> Vec<(u32, Between)> {
        addresses.take_messages().map(|(node, message)| (node.0, message)).collect()
    }

    fn card(rank: u32, value: Option<&'static str>) -> Card {
        Card { rank: Rank(rank), value: value.map(Bytes::from) }
    }

    fn want(ranks: &[u32]) -> Between {
        Between::Want { name: NAME, ranks: ranks.iter().copied().map(Rank).collect() }
    }

    fn have(cards: Vec<Card>) -> Between {
        Between::Have { name: NAME, cards }
    }

    #[test]
    fn a_question_is_asked_once_and_its_answer_is_kept() {
        let mut here = Addresses::default();
        for (local, rank) in [(0, 4), (1, 4), (0, 5)] {
            here.ask(question(local, rank), NAME, Rank(rank), Some(NodeId(2)));
        }
        assert_eq!(messages(&mut here), [(2, want(&[4, 5]))]);
        let is_there = |rank: Rank| rank.0 >= 4;
        here.on_have(&NAME, vec![card(4, Some("four")), card(6, Some("six")), card(1, Some("a lie"))], is_there);
        let told: Vec<(u32, bool)> = here.take_answers().iter().map(|(one, value)| (one.id, value.is_some())).collect();
        assert_eq!(told, [(4, true), (4, true)]);
        here.ask(question(0, 6), NAME, Rank(6), Some(NodeId(2)));
        assert_eq!(here.take_answers(), [(question(0, 6), Some("six".into()))]);
        assert!(messages(&mut here).is_empty() && !here.known.contains_key(&(NAME, Rank(1))));
        here.on_have(&NAME, vec![card(5, None)], is_there);
        assert_eq!(here.take_answers(), [(question(0, 5), None)]);
        // That another node has no address is not stored: the next request is sent to that node again.
        here.ask(question(0, 7), NAME, Rank(5), Some(NodeId(2)));
        assert_eq!(messages(&mut here), [(2, want(&[5]))]);
    }

    #[test]
    fn questions_wait_until_the_rank_has_told_or_has_left() {
        let mut there = Addresses::default();
        let is_local = |rank: Rank| rank.0 < 3;
        there.ask(question(2, 9), NAME, Rank(0), None);
        there.on_want(NodeId(7), &NAME, vec![Rank(0), Rank(1), Rank(5)], is_local);
        assert_eq!(messages(&mut there), [(7, have(vec![card(5, None)]))], "rank 5 is elsewhere");
        there.tell(NAME, Rank(0), "zero".into()).unwrap();
        assert_eq!(there.take_answers(), [(question(2, 9), Some("zero".into()))]);
        assert_eq!(messages(&mut there), [(7, have(vec![card(0, Some("zero"))]))]);
        there.on_left(Rank(1));
        assert_eq!(messages(&mut there), [(7, have(vec![card(1, None)]))]);
        there.ask(question(2, 10), NAME, Rank(1), None);
        assert_eq!(there.take_answers(), [(question(2, 10), None)]);
        assert!(there.waiting.is_empty());
    }

    #[test]
    fn the_first_answer_takes_all_addresses_of_the_name_along() {
        let mut there = Addresses::default();
        for (name, rank) in [("net", 0), ("net", 1), ("other", 2), ("net", 2)] {
            there.tell(name.into(), Rank(rank), format!("{name}{rank}").into()).unwrap();
        }
        let all = vec![card(1, Some("net1")), card(0, Some("net0")), card(2, Some("net2"))];
        there.on_want(NodeId(3), &NAME, vec![Rank(1)], |_| true);
        assert_eq!(messages(&mut there), [(3, have(all))]);
        there.on_want(NodeId(3), &NAME, vec![Rank(2)], |_| true);
        assert_eq!(messages(&mut there), [(3, have(vec![card(2, Some("net2"))]))]);
    }

    #[test]
    fn an_address_is_told_once_and_names_are_limited() {
        let mut here = Addresses::default();
        for name in 0..ADDRESS_NAMES_MAX {
            assert_eq!(here.tell(name.to_string().into(), Rank(0), "a".into()), Ok(()));
        }
        assert!(here.tell("0".into(), Rank(0), "b".into()).is_err() && here.tell(NAME, Rank(0), "b".into()).is_err());
        assert_eq!(here.tell(NAME, Rank(1), "b".into()), Ok(()));
    }

    #[test]
    fn a_rank_that_has_closed_gets_no_answer() {
        let mut here = Addresses::default();
        here.ask(question(0, 1), NAME, Rank(9), Some(NodeId(1)));
        here.on_closed(LocalRank(0).into());
        here.on_have(&NAME, vec![card(9, Some("nine"))], |_| true);
        assert!(here.take_answers().is_empty());
    }

    #[test]
    fn an_agent_without_the_job_says_that_all_have_left() {
        assert_eq!(all_left(want(&[3])), Some(have(vec![card(3, None)])));
        assert_eq!(all_left(have(vec![])), None);
    }
}
