//! Several agents, with messages under way in any order between different pairs of them.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::store::{Operation, Question};
use wireup_wire::torch_store::Reply;

/// Agents that each have some clients.
struct Net {
    stores: Vec<Store>,
    under_way: BTreeMap<(usize, usize), VecDeque<Between>>,
    /// What each client has received and not taken, by agent and client.
    replies: BTreeMap<(usize, u32), Vec<u8>>,
    closed: BTreeSet<(usize, u32)>,
    /// Questions that each agent has sent to others.
    asked: Vec<Vec<Question>>,
    random: u64,
}

/// A request as the newest generation of clients sends it.
fn request(opcode: u8, key: &str, rest: &[u8]) -> Vec<u8> {
    [&[opcode][..], &text(key), rest].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn set(key: &str, value: &str) -> Vec<u8> {
    request(1, key, &text(value))
}

fn get(key: &str) -> Vec<u8> {
    request(3, key, &[])
}

fn add(key: &str, amount: i64) -> Vec<u8> {
    request(4, key, &amount.to_le_bytes())
}

const PING: &[u8] = &[13, 7, 0, 0, 0];

impl Net {
    fn new(agents: usize, seed: u64) -> Net {
        let owners: Vec<AgentId> = (0..agents as u32).map(AgentId).collect();
        Net {
            stores: owners.iter().map(|own| Store::new(*own, owners.clone())).collect(),
            under_way: BTreeMap::new(),
            replies: BTreeMap::new(),
            closed: BTreeSet::new(),
            asked: vec![Vec::new(); agents],
            random: seed,
        }
    }

    /// A number below `end` (splitmix64).
    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn carry(&mut self, at: usize, acts: Vec<(StoreClient, StoreAct)>) {
        for (client, act) in acts {
            match act {
                StoreAct::Write(bytes) => self.replies.entry((at, client.0)).or_default().extend(&bytes[..]),
                StoreAct::Read(_) => {}
                StoreAct::Close => drop(self.closed.insert((at, client.0))),
            }
        }
        for (to, message) in std::mem::take(&mut self.stores[at].messages) {
            if let Between::Ask(questions) = &message {
                self.asked[at].extend(questions.iter().cloned());
            }
            self.under_way.entry((at, to.index())).or_default().push_back(message);
        }
    }

    fn event(&mut self, at: usize, client: u32, event: StoreEvent) {
        let acts = self.stores[at].handle_event(StoreClient(client), event);
        self.carry(at, acts);
    }

    /// A client sends bytes. The first ones show its generation.
    fn send(&mut self, at: usize, client: u32, bytes: &[u8]) {
        let is_new = !self.replies.contains_key(&(at, client));
        self.replies.entry((at, client)).or_default();
        let magic: &[u8] = if is_new { &[0, 0xce, 0xf7, 0x85, 0x3c] } else { &[] };
        self.event(at, client, StoreEvent::Bytes([magic, bytes].concat().into()));
    }

    /// Delivers one message; `false`: none is under way.
    fn step(&mut self) -> bool {
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

    fn settle(&mut self) {
        while self.step() {}
    }

    fn take(&mut self, at: usize, client: u32) -> Vec<u8> {
        self.replies.get_mut(&(at, client)).map(std::mem::take).unwrap_or_default()
    }

    /// Lets a client send a request and a ping, and returns its reply as soon as both are answered; other messages stay
    /// under way.
    fn ask(&mut self, at: usize, client: u32, bytes: &[u8]) -> Vec<u8> {
        self.send(at, client, &[bytes, PING].concat());
        while !self.replies[&(at, client)].ends_with(&PING[1..]) {
            assert!(self.step(), "the client is not answered");
        }
        let mut reply = self.take(at, client);
        reply.truncate(reply.len() - PING[1..].len());
        reply
    }
}

/// What one dictionary answers.
#[derive(Default)]
struct Model(BTreeMap<String, Vec<u8>>);

#[derive(Clone, Debug)]
enum Act {
    Set(u8, u8),
    CompareSet(u8, u8, u8),
    Get(u8),
    Add(u8, i8),
    Check(u8),
    Append(u8, u8),
    Delete(u8),
    Count,
    List,
}

impl Act {
    fn bytes(&self) -> Vec<u8> {
        let key = |key: &u8| format!("/{key}");
        let value = |value: &u8| value.to_string();
        match self {
            Act::Set(k, v) => set(&key(k), &value(v)),
            Act::CompareSet(k, e, d) => request(2, &key(k), &[text(&value(e)), text(&value(d))].concat()),
            Act::Get(k) => get(&key(k)),
            Act::Add(k, amount) => add(&key(k), (*amount).into()),
            Act::Check(k) => [&[5][..], &1_u64.to_le_bytes(), &text(&key(k))].concat(),
            Act::Append(k, v) => request(9, &key(k), &text(&value(v))),
            Act::Delete(k) => request(8, &key(k), &[]),
            Act::Count => vec![7],
            Act::List => vec![17],
        }
    }
}

impl Model {
    fn reply(&mut self, act: &Act) -> Vec<u8> {
        let key = |key: &u8| format!("/{key}");
        let value = |value: &u8| value.to_string().into_bytes();
        let reply = match act {
            Act::Set(k, v) => {
                self.0.insert(key(k), value(v));
                return Vec::new();
            }
            Act::CompareSet(k, e, d) => {
                let slot = self.0.get_mut(&key(k));
                Reply::Value(
                    match slot {
                        None => value(e),
                        Some(now) if *now == value(e) => {
                            *now = value(d);
                            value(d)
                        }
                        Some(now) => now.clone(),
                    }
                    .into(),
                )
            }
            Act::Get(k) => Reply::Value(self.0.get(&key(k)).cloned().unwrap_or_default().into()),
            Act::Add(k, amount) => {
                let now = self.0.get(&key(k)).map_or(0, |now| String::from_utf8_lossy(now).parse::<i64>().unwrap());
                let sum = now + i64::from(*amount);
                self.0.insert(key(k), sum.to_string().into_bytes());
                Reply::Number(sum)
            }
            Act::Check(k) => Reply::Byte(u8::from(!self.0.contains_key(&key(k)))),
            Act::Append(k, v) => {
                self.0.entry(key(k)).or_default().extend(value(v));
                return Vec::new();
            }
            Act::Delete(k) => Reply::Number(self.0.remove(&key(k)).is_some().into()),
            Act::Count => Reply::Number(self.0.len() as i64),
            Act::List => Reply::Keys(self.0.keys().map(|key| Bytes::from(key.clone())).collect()),
        };
        reply.encode().to_vec()
    }
}

fn act() -> impl Strategy<Value = Act> {
    let (key, value) = (0..4_u8, 0..3_u8);
    prop_oneof![
        (key.clone(), value.clone()).prop_map(|(k, v)| Act::Set(k, v)),
        (key.clone(), value.clone(), value.clone()).prop_map(|(k, e, d)| Act::CompareSet(k, e, d)),
        key.clone().prop_map(Act::Get),
        key.clone().prop_map(Act::Get),
        (key.clone(), -3..9_i8).prop_map(|(k, amount)| Act::Add(k, amount)),
        key.clone().prop_map(Act::Check),
        // A number that is appended to must not become too long.
        (0..4_u8, 0..1_u8).prop_map(|(k, v)| Act::Append(k + 4, v)),
        key.prop_map(Act::Delete),
        Just(Act::Count),
        Just(Act::List),
    ]
}

/// A list of keys is in no order.
fn sorted(act: &Act, reply: Vec<u8>) -> Vec<u8> {
    if !matches!(act, Act::List) {
        return reply;
    }
    let mut keys = Vec::new();
    let mut rest = &reply[8..];
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        keys.push(Bytes::copy_from_slice(&rest[8..8 + length]));
        rest = &rest[8 + length..];
    }
    keys.sort();
    Reply::Keys(keys).encode().to_vec()
}

proptest! {
    /// Whatever is under way, a request that begins after the end of another sees what that one did.
    #[test]
    fn agents_answer_as_one_dictionary(
        seed: u64,
        acts in proptest::collection::vec((0..4_usize, 0..3_u32, act()), 1..120),
    ) {
        let (mut net, mut model) = (Net::new(4, seed), Model::default());
        for (at, client, act) in acts {
            let reply = net.ask(at, client, &act.bytes());
            prop_assert_eq!(sorted(&act, reply), model.reply(&act), "{:?} by {}.{}", act, at, client);
        }
    }

    /// One client sets growing numbers while others read at the same time.
    #[test]
    fn no_read_goes_back(seed: u64) {
        let mut net = Net::new(4, seed);
        let (mut written, mut floor, mut is_writing) = (0_u64, 0_u64, false);
        // What each reader's request may not fall below; `None`: it has no request.
        let mut readers: BTreeMap<(usize, u32), Option<u64>> =
            (0..4).flat_map(|at| (1..3).map(move |client| ((at, client), None))).collect();
        net.ask(0, 0, &set("/k", "0"));
        for _ in 0..600 {
            let who = (net.below(4), net.below(3) as u32);
            match readers.get_mut(&who) {
                Some(begun @ None) => {
                    *begun = Some(floor);
                    net.send(who.0, who.1, &get("/k"));
                }
                None if who == (0, 0) && !is_writing => {
                    (written, is_writing) = (written + 1, true);
                    net.send(0, 0, &[set("/k", &written.to_string()), PING.to_vec()].concat());
                }
                _ => drop(net.step()),
            }
            if !net.take(0, 0).is_empty() {
                (floor, is_writing) = (written, false);
            }
            for (&who, begun) in &mut readers {
                let reply = net.take(who.0, who.1);
                if let (Some(at_least), false) = (*begun, reply.is_empty()) {
                    let read: u64 = String::from_utf8_lossy(&reply[8..]).parse().unwrap();
                    prop_assert!(read >= at_least, "{read} after {at_least}");
                    floor = floor.max(read);
                    *begun = None;
                }
            }
        }
    }

    #[test]
    fn adds_at_the_same_time_have_distinct_sums(seed: u64) {
        let mut net = Net::new(3, seed);
        let clients: Vec<(usize, u32)> = (0..3).flat_map(|at| (0..5).map(move |client| (at, client))).collect();
        for _ in 0..4 {
            for &(at, client) in &clients {
                net.send(at, client, &add("/counter", 1));
                if net.below(3) == 0 {
                    net.step();
                }
            }
        }
        net.settle();
        let mut sums: Vec<i64> = Vec::new();
        for &(at, client) in &clients {
            let reply = net.take(at, client);
            let own: Vec<i64> = reply.chunks(8).map(|sum| i64::from_le_bytes(sum.try_into().unwrap())).collect();
            prop_assert!(own.is_sorted() && own.len() == 4, "{own:?}");
            sums.extend(own);
        }
        sums.sort_unstable();
        prop_assert_eq!(sums, (1..=60).collect::<Vec<i64>>());
        // Adds that wait at an agent are sent together.
        prop_assert!(net.asked.iter().all(|asked| asked.len() < 20));
    }

    #[test]
    fn no_wait_and_no_barrier_is_lost(seed: u64) {
        let mut net = Net::new(4, seed);
        let mut events: Vec<(usize, u32, Vec<u8>)> = Vec::new();
        for at in 0..4 {
            events.push((at, 0, set(&format!("/key{at}"), "v")));
            for client in 1..4 {
                let keys: Vec<u8> = (0..4).flat_map(|key| text(&format!("/key{key}"))).collect();
                events.push((at, client, [&[6][..], &4_u64.to_le_bytes(), &keys].concat()));
                events.push((at, client + 3, request(18, "/barrier", &12_i64.to_le_bytes())));
            }
        }
        while !events.is_empty() {
            let index = net.below(events.len());
            let (at, client, bytes) = events.swap_remove(index);
            net.send(at, client, &bytes);
            if net.below(2) == 0 {
                net.step();
            }
        }
        net.settle();
        for (at, client) in (0..4).flat_map(|at| (1..7).map(move |client| (at, client))) {
            prop_assert_eq!(net.take(at, client), [0], "client {} of {}", client, at);
        }
    }

    /// Each value of a queue goes to one of the clients that wait for it.
    #[test]
    fn each_push_wakes_one_client(seed: u64) {
        let mut net = Net::new(3, seed);
        let waiting: Vec<(usize, u32)> = (0..3).flat_map(|at| (0..3).map(move |client| (at, client))).collect();
        let wait = [&[6][..], &1_u64.to_le_bytes(), &text("/queue")].concat();
        for &(at, client) in &waiting {
            net.send(at, client, &wait);
        }
        net.settle();
        let mut values = Vec::new();
        for push in 1..=9 {
            net.ask(push % 3, 9, &request(14, "/queue", &text(&push.to_string())));
            net.settle();
            let woken: Vec<(usize, u32)> =
                waiting.iter().copied().filter(|&(at, client)| net.take(at, client) == [0]).collect();
            prop_assert_eq!(woken.len(), 1);
            values.push(net.ask(woken[0].0, woken[0].1, &request(15, "/queue", &[])));
        }
        let expected = |push: i32| {
            Reply::Popped { length: 1, value: Some(push.to_string().into()) }.encode().to_vec()
        };
        prop_assert_eq!(values, (1..=9).map(expected).collect::<Vec<_>>());
    }
}

/// Pushes that arrive together wake as many clients of one agent as there are values.
#[test]
fn pushes_at_the_same_time_wake_as_many_clients() {
    for seed in 0..50 {
        let mut net = Net::new(3, seed);
        let wait = [&[6][..], &1_u64.to_le_bytes(), &text("/queue")].concat();
        for client in 0..3 {
            net.send(0, client, &wait);
        }
        net.settle();
        for push in 0..3 {
            net.send(seed as usize % 3, 9 + push, &request(14, "/queue", &text("value")));
        }
        net.settle();
        let woken = (0..3).filter(|&client| net.take(0, client) == [0]).count();
        assert_eq!(woken, 3, "seed {seed}");
    }
}

/// A client may close its connection right after requests that have no reply.
#[test]
fn what_a_client_sent_before_it_closed_is_carried_out() {
    let mut net = Net::new(3, 1);
    let keys: Vec<String> = (0..20).map(|key| format!("/key{key}")).collect();
    net.send(0, 1, &keys.iter().flat_map(|key| set(key, "here")).collect::<Vec<_>>());
    net.event(0, 1, StoreEvent::Gone);
    net.settle();
    for key in &keys {
        assert_eq!(net.ask(1, 2, &get(key)), text("here"), "{key}");
    }
    assert_eq!(net.stores[0].clients.number(), 0, "the client is forgotten");
}

/// A client whose agent's part of the job has ended waits no more, and nobody answers it.
#[test]
fn an_ended_agent_has_no_answers_for_itself() {
    let mut net = Net::new(1, 1);
    net.send(0, 1, &[&[6][..], &1_u64.to_le_bytes(), &text("/late")].concat());
    net.settle();
    let mut dictionary = net.stores.remove(0).into_dictionary();
    let question = Question { id: 1, key: "/late".into(), operation: Operation::Set { value: "x".into() } };
    let answers = answers_of_ended(Some(&mut dictionary), AgentId(1), Between::Ask(vec![question]));
    assert!(answers.iter().all(|(agent, _)| *agent == AgentId(1)) && !answers.is_empty(), "{answers:?}");
}

/// P clients set a key each, and each of them waits for all keys and reads them.
#[test]
fn an_agent_asks_for_each_key_once() {
    const AGENTS: usize = 4;
    const PER_AGENT: u32 = 8;
    const CLIENTS: usize = AGENTS * PER_AGENT as usize;
    let mut net = Net::new(AGENTS, 1);
    let clients: Vec<(usize, u32)> =
        (0..AGENTS).flat_map(|at| (0..PER_AGENT).map(move |client| (at, client))).collect();
    for (number, &(at, client)) in clients.iter().enumerate() {
        net.send(at, client, &set(&format!("/rank{number}"), &"a".repeat(100)));
    }
    for number in 0..CLIENTS {
        let key = text(&format!("/rank{number}"));
        for bytes in [[&[6][..], &1_u64.to_le_bytes(), &key].concat(), [&[3][..], &key].concat()] {
            clients.iter().for_each(|&(at, client)| net.send(at, client, &bytes));
            net.settle();
        }
    }
    for &(at, client) in &clients {
        assert_eq!(net.take(at, client).len(), CLIENTS * (1 + 8 + 100));
    }
    for asked in &net.asked {
        let waits = asked.iter().filter(|question| question.operation != Operation::Get).count();
        assert!(waits <= CLIENTS + PER_AGENT as usize, "{waits} waits and sets");
        assert_eq!(waits, asked.len(), "no value is fetched twice");
    }
}

#[test]
fn a_wait_can_be_cancelled_and_leaves_nothing() {
    let mut net = Net::new(2, 1);
    let wait = |key: &str| [&[6][..], &1_u64.to_le_bytes(), &text(key)].concat();
    for key in ["/a", "/b", "/c", "/d"] {
        net.send(0, 0, &wait(key));
        net.settle();
        net.send(0, 0, &[12]);
        net.settle();
        assert_eq!(net.take(0, 0), [1]);
        // Any other request ends a wait as well, and so does the end of the connection.
        net.send(0, 1, &wait(key));
        net.send(0, 1, PING);
        assert_eq!(net.take(0, 1), PING[1..]);
        net.send(1, 2, &wait(key));
        net.event(1, 2, StoreEvent::Gone);
        net.replies.remove(&(1, 2));
    }
    net.settle();
    assert!(net.stores.iter().all(|store| store.questions.is_idle() && store.dictionary.is_unawaited()));
}

#[test]
fn what_cannot_be_stored_or_counted_closes_the_connection() {
    let mut net = Net::new(2, 1);
    net.ask(0, 0, &set("/text", "abc"));
    for (client, bytes) in [(1, add("/text", 1)), (2, vec![99]), (3, [&[1][..], &u64::MAX.to_le_bytes()].concat())] {
        net.send(1, client, &bytes);
        net.settle();
        assert!(net.closed.contains(&(1, client)) && net.stores[1].clients.take_problem().is_some());
    }
    assert_eq!(net.ask(1, 4, &get("/text")), text("abc"));
}

#[test]
fn an_agent_whose_ranks_have_ended_still_has_its_keys() {
    let mut net = Net::new(1, 1);
    net.ask(0, 0, &set("/k", "v"));
    let mut kept = net.stores.remove(0).into_dictionary();
    let ask = Between::Ask(vec![Question { id: 5, key: "/k".into(), operation: Operation::Get }]);
    let answers = answers_of_ended(Some(&mut kept), AgentId(3), ask);
    let value = wireup_wire::store::Outcome::Value(Some("v".into()));
    assert_eq!(answers, [(AgentId(3), Between::Answer { taken: true, answers: vec![(5, value)] })]);
    let forget = Between::Forget { keys: vec!["/x".into()] };
    assert_eq!(
        answers_of_ended(None, AgentId(3), forget),
        [(AgentId(3), Between::Forgotten { keys: vec!["/x".into()] })]
    );
}
