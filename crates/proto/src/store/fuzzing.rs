//! Several agents of a job's store, with messages under way in any order between different pairs of them; and what must
//! hold for them whatever their clients send. The fuzz target `store` searches for violations.

use super::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::store::Question;

pub struct Net {
    pub stores: Vec<Store>,
    pub under_way: BTreeMap<(usize, usize), VecDeque<Between>>,
    /// Bytes that each client has received and the test has not taken, by agent and client.
    pub replies: BTreeMap<(usize, u32), Vec<u8>>,
    pub closed: BTreeSet<(usize, u32)>,
    /// Clients that are not read at present.
    pub unread: BTreeSet<(usize, u32)>,
    /// Questions that each agent has sent to others.
    pub asked: Vec<Vec<Question>>,
    /// Bytes of the frames that each agent has sent to others.
    pub sent_bytes: Vec<usize>,
    pub random: u64,
}

/// A request as the newest generation of clients sends it.
pub fn request(opcode: u8, key: &str, rest: &[u8]) -> Vec<u8> {
    [&[opcode][..], &text(key), rest].concat()
}

pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

pub fn set(key: &str, value: &str) -> Vec<u8> {
    request(1, key, &text(value))
}

pub fn get(key: &str) -> Vec<u8> {
    request(3, key, &[])
}

pub fn add(key: &str, amount: i64) -> Vec<u8> {
    request(4, key, &amount.to_le_bytes())
}

pub const PING: &[u8] = &[13, 7, 0, 0, 0];

impl Net {
    /// Agents that all own keys.
    pub fn new(agents: usize, seed: u64) -> Net {
        Net::with_parents(&vec![None; agents], seed)
    }

    /// The agents of a large job, of which three own keys:
    ///
    /// ```text
    ///       7       8    3
    ///       4     5   6
    ///     0   1   2
    /// ```
    pub fn tree(seed: u64) -> Net {
        Net::with_parents(&[Some(4), Some(4), Some(5), None, Some(7), Some(8), Some(8), None, None], seed)
    }

    fn with_parents(parents: &[Option<u32>], seed: u64) -> Net {
        let agents = parents.len();
        let of_agents = (0..).map(AgentId).zip(parents.iter().map(|parent| parent.map(AgentId)));
        let is_owner = |(agent, parent): (AgentId, Option<AgentId>)| parent.is_none().then_some(agent);
        let owners: Vec<AgentId> = of_agents.clone().filter_map(is_owner).collect();
        Net {
            stores: of_agents.map(|(own, parent)| Store::new(own, owners.clone(), parent)).collect(),
            under_way: BTreeMap::new(),
            replies: BTreeMap::new(),
            closed: BTreeSet::new(),
            unread: BTreeSet::new(),
            asked: vec![Vec::new(); agents],
            sent_bytes: vec![0; agents],
            random: seed,
        }
    }

    /// A number below `end` (splitmix64).
    pub fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    pub fn carry(&mut self, at: usize, acts: Vec<(StoreClient, StoreAct)>) {
        for (client, act) in acts {
            match act {
                StoreAct::Write(bytes) => self.replies.entry((at, client.0)).or_default().extend(&bytes[..]),
                StoreAct::Read(true) => drop(self.unread.remove(&(at, client.0))),
                StoreAct::Read(false) => drop(self.unread.insert((at, client.0))),
                StoreAct::Close => drop(self.closed.insert((at, client.0))),
            }
        }
        for (to, message) in std::mem::take(&mut self.stores[at].messages) {
            self.sent_bytes[at] += frame(JobId(1), &message).wire_len();
            if let Between::Ask(questions) = &message {
                self.asked[at].extend(questions.iter().cloned());
            }
            self.under_way.entry((at, to.index())).or_default().push_back(message);
        }
    }

    pub fn event(&mut self, at: usize, client: u32, event: StoreEvent) {
        let acts = self.stores[at].handle_event(StoreClient(client), event);
        self.carry(at, acts);
    }

    /// A client sends bytes. Its first bytes show the generation of its protocol.
    pub fn send(&mut self, at: usize, client: u32, bytes: &[u8]) {
        let is_new = !self.replies.contains_key(&(at, client));
        self.replies.entry((at, client)).or_default();
        if is_new {
            self.event(at, client, StoreEvent::Opened);
        }
        let magic: &[u8] = if is_new { &[0, 0xce, 0xf7, 0x85, 0x3c] } else { &[] };
        self.event(at, client, StoreEvent::Bytes([magic, bytes].concat().into()));
    }

    /// Delivers one message; `false`: none is in transit.
    pub fn step(&mut self) -> bool {
        self.under_way.retain(|_, queue| !queue.is_empty());
        if self.under_way.is_empty() {
            return false;
        }
        let at = self.below(self.under_way.len());
        let Some((&(from, to), queue)) = self.under_way.iter_mut().nth(at) else { return false };
        let Some(message) = queue.pop_front() else { return false };
        let acts = self.stores[to].handle_message(AgentId(from as u32), message);
        self.carry(to, acts);
        true
    }

    pub fn settle(&mut self) {
        while self.step() {}
    }

    pub fn take(&mut self, at: usize, client: u32) -> Vec<u8> {
        self.replies.get_mut(&(at, client)).map(std::mem::take).unwrap_or_default()
    }

    /// Lets a client send a request and a ping, and returns its reply as soon as both are answered; other messages stay
    /// in transit.
    pub fn ask(&mut self, at: usize, client: u32, bytes: &[u8]) -> Vec<u8> {
        self.send(at, client, &[bytes, PING].concat());
        while !self.replies[&(at, client)].ends_with(&PING[1..]) {
            assert!(self.step(), "the client is not answered");
        }
        let mut reply = self.take(at, client);
        reply.truncate(reply.len() - PING[1..].len());
        reply
    }
}

/// Most steps of one input, so that each input is fast.
const STEPS_MAX: usize = 300;

/// Agents and what their clients do, as the input says: its first byte is the number of agents or a tree of them, then
/// each step takes a few bytes.
///
/// Checks that no input makes an agent panic, and that only keys are left when all clients have gone.
pub fn store(input: &[u8]) {
    let mut input = input.iter().copied();
    let Some(first) = input.next() else { return };
    let mut net = if first % 5 == 4 { Net::tree(first.into()) } else { Net::new(usize::from(first % 5) + 1, 0) };
    let mut generations = [0; 16];
    for _ in 0..STEPS_MAX {
        let Some(step) = input.next() else { break };
        net.do_step(step, &mut input, &mut generations);
    }
    net.expect_nothing_left();
}

impl Net {
    /// One step: a client sends any bytes or a whole request, closes its connection or reads no replies; or some
    /// messages arrive. Sixteen clients act at a time; `generations` counts how often each has been replaced.
    fn do_step(&mut self, step: u8, input: &mut impl Iterator<Item = u8>, generations: &mut [u32; 16]) {
        let mut next = || input.next().unwrap_or(0);
        let who = next();
        let generation = &mut generations[usize::from(who & 15)];
        let (at, client) = (usize::from(who & 3) % self.stores.len(), u32::from(who & 15) | *generation << 4);
        match step % 8 {
            0 => {
                let length = next();
                let bytes: Vec<u8> = (0..length).map(|_| next()).collect();
                self.send(at, client, &bytes);
            }
            1..4 => {
                let bytes = any_request(next(), next(), next());
                self.send(at, client, &bytes);
            }
            4 | 5 => {
                self.random = who.into();
                (0..step >> 3).for_each(|_| _ = self.step());
            }
            6 => {
                self.event(at, client, StoreEvent::Gone);
                *generation += 1;
            }
            _ => self.event(at, client, StoreEvent::Full(step & 8 != 0)),
        }
    }

    /// Lets all clients go and all messages arrive.
    fn expect_nothing_left(&mut self) {
        for at in 0..self.stores.len() {
            self.stores[at].on_ranks_gone(Instant(0));
            self.stores[at].clients.close_all();
            let acts = self.stores[at].settle();
            self.carry(at, acts);
        }
        self.settle();
        for store in &self.stores {
            assert!(store.is_drained() && store.questions.is_idle() && store.clients.has_no_bytes());
            assert!(store.dictionary.is_unawaited() && store.dictionary.bytes_are_right());
        }
    }
}

/// A request about one of four keys, of any kind.
fn any_request(opcode: u8, key: u8, value: u8) -> Vec<u8> {
    let key = text(&(key & 3).to_string());
    let value_text = text(&(value & 7).to_string());
    let (count, number) = (1_u64.to_le_bytes(), i64::from(value & 7).to_le_bytes());
    let rest: Vec<&[u8]> = match opcode % 20 {
        1 | 9 | 14 => vec![&key, &value_text],
        2 => vec![&key, &value_text, &key],
        4 | 18 => vec![&key, &number],
        5 | 6 | 10 => vec![&count, &key],
        11 => vec![&count, &key, &value_text],
        7 | 12 | 17 => vec![],
        13 => vec![&number[..4]],
        _ => vec![&key],
    };
    [&[opcode % 20][..], &rest.concat()].concat()
}

#[cfg(test)]
#[path = "../../../../dev/fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    #[test]
    fn every_corpus_file_passes_its_target() {
        super::replay::replay(&[("store", super::store)]);
    }
}
