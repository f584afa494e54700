use super::fuzzing::{Net, PING, add, get, request, set, text};
use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wireup_wire::limits::STORE_READ_AHEAD_BYTES;
use wireup_wire::store::{Operation, Question};
use wireup_wire::torch_store::Reply;

/// A model of the store: a single dictionary, whose answers are those that are expected.
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

/// The order of a list of keys is arbitrary: sorts the list.
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
    /// Whatever messages are in transit, a request that begins after another has ended sees the effects of that one.
    #[test]
    fn agents_answer_as_one_dictionary(
        seed: u64,
        acts in proptest::collection::vec((0..4_usize, 0..3_u32, act()), 1..120),
    ) {
        for mut net in [Net::new(4, seed), Net::tree(seed)] {
            let mut model = Model::default();
            for (at, client, act) in &acts {
                let reply = net.ask(*at, *client, &act.bytes());
                prop_assert_eq!(sorted(act, reply), model.reply(act), "{:?} by {}.{}", act, at, client);
            }
        }
    }

    /// One client sets growing numbers while others read at the same time.
    #[test]
    fn no_read_goes_back(seed: u64) {
        let mut net = if seed % 2 == 0 { Net::new(4, seed) } else { Net::tree(seed) };
        let (mut written, mut floor, mut is_writing) = (0_u64, 0_u64, false);
        // The smallest number that the open request of each reader may return; `None`: the reader has no open request.
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
        let mut net = if seed % 2 == 0 { Net::new(3, seed) } else { Net::tree(seed) };
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
        let mut net = if seed % 2 == 0 { Net::new(4, seed) } else { Net::tree(seed) };
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
        let mut net = if seed % 2 == 0 { Net::new(3, seed) } else { Net::tree(seed) };
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
    assert!(net.stores[0].is_drained(), "the client is forgotten");
}

/// A store whose ranks have ended is drained when the owners have all writes, even if other agents answer late.
#[test]
fn a_store_is_drained_when_the_owners_have_what_was_written() {
    for seed in 0..20 {
        let mut net = Net::new(3, seed);
        let keys: Vec<String> = (0..20).map(|key| format!("/key{key}")).collect();
        net.send(0, 1, &keys.iter().flat_map(|key| set(key, "here")).collect::<Vec<_>>());
        // A push, and an arrival at a barrier; the client does not wait for their effects.
        net.send(0, 2, &[request(14, "/queue", &text("value")), request(18, "/both", &2_i64.to_le_bytes())].concat());
        net.stores[0].on_ranks_gone(Instant(0));
        [1, 2].into_iter().for_each(|client| net.event(0, client, StoreEvent::Gone));
        while !net.stores[0].is_drained() {
            assert!(net.step(), "nothing is under way");
        }
        assert_eq!(net.stores[0].deadline(), None);
        // Only the keys of the ended store are left.
        let (ended, owners) = (&mut net.stores[0], vec![AgentId(0), AgentId(1), AgentId(2)]);
        let dictionary = std::mem::replace(ended, Store::new(AgentId(0), owners, None)).into_dictionary();
        ended.dictionary = dictionary;
        for key in &keys {
            assert_eq!(net.ask(1, 2, &get(key)), text("here"), "{key}");
        }
        net.send(2, 3, &request(18, "/both", &2_i64.to_le_bytes()));
        net.settle();
        assert_eq!(net.take(2, 3), [0], "the barrier is complete");
        assert_eq!(net.ask(2, 2, &request(16, "/queue", &[])), 1_i64.to_le_bytes());
    }
}

/// A process that is not a rank may keep its connection open after the ranks have ended; then the agent closes it.
#[test]
fn connections_that_stay_open_after_the_ranks_are_closed() {
    let mut net = Net::new(1, 1);
    net.send(0, 1, PING);
    net.stores[0].on_ranks_gone(Instant(5));
    net.event(0, 2, StoreEvent::Opened);
    assert!(net.closed.contains(&(0, 2)) && !net.stores[0].is_drained());
    assert_eq!(net.stores[0].deadline(), Some(Instant(5) + SILENT_NS_MAX));
    // On a busy machine the agent reads slowly what a rank has sent before its end: nothing of it is lost.
    let later = Instant(4) + SILENT_NS_MAX;
    net.stores[0].on_traffic(later);
    assert_eq!(net.stores[0].deadline(), Some(later + SILENT_NS_MAX));
    net.stores[0].on_traffic(Instant(4) + OPEN_NS_MAX);
    assert_eq!(net.stores[0].deadline(), Some(Instant(5) + OPEN_NS_MAX), "some other process goes on sending");
    net.stores[0].clients.close_all();
    let acts = net.stores[0].settle();
    net.carry(0, acts);
    assert!(net.closed.contains(&(0, 1)) && net.stores[0].is_drained());
}

/// The driver may have read bytes of a client before it is told to close the connection: they are ignored.
#[test]
fn bytes_behind_a_close_are_those_of_no_client() {
    let mut net = Net::new(1, 1);
    net.send(0, 1, &[99]);
    assert!(net.closed.contains(&(0, 1)));
    net.send(0, 1, &set("/k", "v"));
    net.event(0, 1, StoreEvent::Full(true));
    assert!(net.stores[0].clients.is_empty());
    assert_eq!(net.ask(0, 2, &[7]), 0_i64.to_le_bytes(), "number of keys");
}

/// A client gives up while a push that wakes it is in transit: another client gets the value.
#[test]
fn a_wake_up_that_crosses_a_cancellation_is_passed_on() {
    let wait = [&[6][..], &1_u64.to_le_bytes(), &text("/queue")].concat();
    let mut crossed = 0;
    for seed in 0..200 {
        let mut net = if seed % 2 == 0 { Net::new(4, seed) } else { Net::tree(seed) };
        net.send(0, 1, &wait);
        net.settle();
        net.send(3, 1, &wait);
        net.settle();
        net.send(2, 1, &request(14, "/queue", &text("value")));
        (0..net.below(8)).for_each(|_| _ = net.step());
        net.send(0, 1, &[12]);
        net.settle();
        let (first, second) = (net.take(0, 1), net.take(3, 1));
        crossed += u32::from(first == [1]);
        assert!(
            first == [0, 1] && second.is_empty() || first == [1] && second == [0],
            "seed {seed}: {first:?} {second:?}"
        );
    }
    assert!(crossed > 20, "{crossed} wake-ups have crossed");
}

/// When an agent's part of the job has ended, its clients wait no more, and it sends no answers for them.
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

/// Does what Gloo does when all ranks connect to each other: each of P clients sets a key, waits for all keys and reads
/// them.
fn full_mesh(agents: usize, clients: usize, value_bytes: usize) -> Net {
    let mut net = Net::new(agents, 1);
    let per_agent = clients / agents;
    let clients: Vec<(usize, u32)> = (0..clients).map(|number| (number / per_agent, number as u32)).collect();
    for &(at, client) in &clients {
        net.send(at, client, &set(&format!("/rank{client}"), &"a".repeat(value_bytes)));
    }
    for number in 0..clients.len() {
        let key = text(&format!("/rank{number}"));
        for bytes in [[&[6][..], &1_u64.to_le_bytes(), &key].concat(), [&[3][..], &key].concat()] {
            clients.iter().for_each(|&(at, client)| net.send(at, client, &bytes));
            net.settle();
        }
    }
    for &(at, client) in &clients {
        assert_eq!(net.take(at, client).len(), clients.len() * (1 + 8 + value_bytes));
    }
    for asked in &net.asked {
        let waits = asked.iter().filter(|question| question.operation != Operation::Get).count();
        assert!(waits <= clients.len() + per_agent, "{waits} waits and sets");
        assert_eq!(waits, asked.len(), "no value is fetched twice");
    }
    net
}

/// A single server would send P values to each of P clients. Here an agent sends its part of the values to each other
/// agent.
#[test]
fn gets_of_all_values_cost_an_agent_bytes_in_proportion_to_the_number_of_clients() {
    const VALUE_BYTES: usize = 100;
    for clients in [64, 128, 256] {
        let net = full_mesh(16, clients, VALUE_BYTES);
        let (all, most) = (net.sent_bytes.iter().sum::<usize>(), net.sent_bytes.iter().max().unwrap());
        println!("{clients} clients: {} bytes an agent, at most {most}", all / 16);
        // Values, questions with keys, and headers of frames: here each frame carries one of them.
        assert!(all / 16 <= 2 * clients * VALUE_BYTES, "{clients} clients: {all} bytes");
        // The hash assigns each agent somewhat more or fewer keys than the average.
        assert!(*most <= 3 * clients * VALUE_BYTES, "{clients} clients: at most {most} bytes an agent");
    }
}

#[test]
fn a_wait_can_be_cancelled_and_leaves_nothing() {
    for mut net in [Net::new(2, 1), Net::tree(1)] {
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
}

/// Clients of PyTorch 1 end a wait that has timed out by sending their next request.
#[test]
fn a_long_request_behind_a_wait_is_read() {
    let mut net = Net::new(1, 1);
    net.send(0, 1, &[&[6][..], &1_u64.to_le_bytes(), &text("/never")].concat());
    for part in set("/long", &"x".repeat(3 * STORE_READ_AHEAD_BYTES)).chunks(STORE_READ_AHEAD_BYTES) {
        assert!(net.unread.is_empty());
        net.send(0, 1, part);
    }
    assert_eq!(net.ask(0, 1, &[7]), 1_i64.to_le_bytes(), "number of keys");
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
    // The agent has a copy of the value for its own clients, which nobody will recall.
    net.ask(0, 0, &[set("/k", "old"), get("/k")].concat());
    let mut kept = net.stores.remove(0).into_dictionary();
    let ask = |id, operation| Between::Ask(vec![Question { id, key: "/k".into(), operation }]);
    let answers = answers_of_ended(Some(&mut kept), AgentId(3), ask(4, Operation::Set { value: "v".into() }));
    let done = wireup_wire::store::Outcome::Done;
    assert_eq!(answers, [(AgentId(3), Between::Answer { taken: true, answers: vec![(4, done)] })]);
    let answers = answers_of_ended(Some(&mut kept), AgentId(3), ask(5, Operation::Get));
    let value = wireup_wire::store::Outcome::Value(Some("v".into()));
    assert_eq!(answers, [(AgentId(3), Between::Answer { taken: true, answers: vec![(5, value)] })]);
    let forget = Between::Forget { keys: vec!["/x".into()] };
    assert_eq!(
        answers_of_ended(None, AgentId(3), forget),
        [(AgentId(3), Between::Forgotten { keys: vec!["/x".into()] })]
    );
}

/// A counter and a barrier of many clients cost an agent of a large job few questions, wherever the owner is.
#[test]
fn agents_of_a_large_job_ask_for_their_children() {
    let mut net = Net::tree(3);
    let agents = 0..net.stores.len();
    let clients: Vec<(usize, u32)> = agents.flat_map(|at| (0..20).map(move |client| (at, client))).collect();
    for &(at, client) in &clients {
        net.send(at, client, &[add("/count", 1), request(18, "/barrier", &180_i64.to_le_bytes())].concat());
    }
    net.settle();
    for &(at, client) in &clients {
        assert_eq!(net.take(at, client).len(), 8 + 1);
    }
    assert!(net.asked.iter().all(|asked| asked.len() < 20), "{:?}", net.asked.iter().map(Vec::len).collect::<Vec<_>>());
}
