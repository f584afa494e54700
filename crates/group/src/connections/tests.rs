//! Two processes that dial each other and close connections at random times, where every hello, answer and stream may
//! be delayed by any amount.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

#[test]
fn a_connection_is_dialled_once_and_then_used() {
    let mut connections = Connections::default();
    assert_eq!(connections.route(5), Route::Dial);
    connections.on_dial(5, 1);
    assert_eq!(connections.route(5), Route::Wait);
    connections.on_dialled(5, 1);
    assert_eq!((connections.route(5), connections.open()), (Route::Open(1), 1));
    assert!(!connections.on_closed(5, 9) && connections.on_closed(5, 1));
    assert_eq!((connections.route(5), connections.open()), (Route::Dial, 0));
}

#[test]
fn the_one_that_was_not_used_for_the_longest_time_is_closed_unless_somebody_waits() {
    let mut connections = Connections::default();
    (1..=4).for_each(|peer| connections.on_dialled(peer, peer.into()));
    connections.on_used(1);
    assert_eq!(connections.close_one(4, |_| false), None);
    assert_eq!(connections.close_one(3, |peer| peer == 2), Some(3));
    assert_eq!((connections.open(), connections.closing(), connections.route(3)), (3, 1, Route::Wait));
    assert!(connections.on_declined(3, 3) && !connections.on_declined(3, 3));
    // Peer 3 has declined to close its connection: it is not asked again before that connection is used.
    assert_eq!([1, 1, 1].map(|max| connections.close_one(max, |_| false)), [Some(2), Some(4), Some(1)]);
    assert_eq!(connections.close_one(0, |_| false), None);
    connections.on_used(3);
    assert_eq!(connections.close_one(0, |_| false), Some(3));
    assert!(connections.on_finished(3, 3) && !connections.on_finished(3, 3));
    assert_eq!((connections.route(3), connections.closed(3), connections.closing()), (Route::Dial, 1, 3));
}

#[test]
fn a_dial_that_the_other_end_has_not_heard_of_gives_way() {
    for (is_begun, verdict) in [(true, Verdict::Refuse), (false, Verdict::KeepInsteadOf(1))] {
        let mut lower = Connections::default();
        lower.on_dial(5, 1);
        assert_eq!(lower.on_hello(2, (5, 0), 7, |number| number != 1 || is_begun), verdict);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Item {
    Message(u32),
    Said(Word),
}

/// An event at end `to`, which the test may deliver next, in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Event {
    to: usize,
    number: Number,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// The dialler's hello arrives.
    Hello { closed: u32 },
    /// The dialler receives the answer to its hello.
    Outcome { is_kept: bool },
    /// The first item of the connection's stream arrives.
    Item,
    /// Everything that the end has sent has arrived, and it sends no more.
    Closed,
}

#[derive(Default)]
struct Two {
    ends: [Connections; 2],
    waiting: [Vec<u32>; 2],
    sent: [u32; 2],
    got: [Vec<u32>; 2],
    is_wanted: [bool; 2],
    last: Number,
    /// Hellos and answers to them that have not arrived yet.
    under_way: Vec<Event>,
    /// Items not yet received, by connection and receiver.
    streams: BTreeMap<(Number, usize), VecDeque<Item>>,
    /// Connections and the end that sends nothing more on them, until `Event::Closed` reports that all has arrived.
    finishing: Vec<(Number, usize)>,
}

impl Two {
    fn send(&mut self, end: usize) {
        self.sent[end] += 1;
        self.waiting[end].push(self.sent[end]);
        self.flush(end);
    }

    fn flush(&mut self, end: usize) {
        let other = 1 - end as u32;
        match self.ends[end].route(other) {
            Route::Open(number) => {
                let messages = core::mem::take(&mut self.waiting[end]);
                for message in messages {
                    self.ends[end].on_used(other);
                    self.say(end, number, Item::Message(message));
                }
            }
            Route::Dial if !self.waiting[end].is_empty() => {
                self.last += 1;
                let (number, closed) = (self.last, self.ends[end].closed(other));
                self.ends[end].on_dial(other, number);
                self.under_way.push(Event { to: 1 - end, number, what: What::Hello { closed } });
            }
            Route::Dial | Route::Wait => {}
            Route::Nowhere => panic!("nobody leaves"),
        }
    }

    fn say(&mut self, from: usize, number: Number, item: Item) {
        assert!(!self.finishing.contains(&(number, from)), "nothing follows an Agree");
        self.streams.entry((number, 1 - from)).or_default().push_back(item);
    }

    fn close(&mut self, end: usize) {
        if let Some(number) = self.ends[end].close_one(0, |_| false) {
            self.say(end, number, Item::Said(Word::Close));
        }
    }

    fn events(&self) -> Vec<Event> {
        // A stream starts only after its receiver knows that the connection is kept.
        let is_known = |of: (Number, usize)| {
            let is_outcome = |one: &Event| matches!(one.what, What::Outcome { .. }) && (one.number, one.to) == of;
            !self.under_way.iter().any(is_outcome)
        };
        let items = self.streams.iter().filter(|(of, items)| !items.is_empty() && is_known(**of));
        let items = items.map(|((number, to), _)| Event { to: *to, number: *number, what: What::Item });
        let all_has_arrived =
            |(number, end): (Number, usize)| self.streams.get(&(number, 1 - end)).is_none_or(VecDeque::is_empty);
        let closed = self.finishing.iter().filter(|one| all_has_arrived(**one));
        let closed = closed.map(|(number, end)| Event { to: *end, number: *number, what: What::Closed });
        self.under_way.iter().copied().chain(items).chain(closed).collect()
    }

    fn happen(&mut self, event: Event) {
        self.under_way.retain(|one| *one != event);
        let Event { to, number, what } = event;
        let other = 1 - to as u32;
        match what {
            What::Hello { closed } => {
                let verdict = self.ends[to].on_hello(to as u32, (other, closed), number, |_| true);
                let is_kept = verdict != Verdict::Refuse;
                if is_kept {
                    let dialler = self.ends[1 - to].peers.get(&(to as u32));
                    assert_eq!(dialler, Some(&State::Dialling(number)), "a dial that was given up is refused");
                }
                if let Verdict::KeepInsteadOf(old) = verdict {
                    let left = self.streams.remove(&(old, to)).unwrap_or_default();
                    assert!(left.iter().all(|item| *item == Item::Said(Word::Agree)), "nothing is lost: {left:?}");
                    self.finishing.retain(|one| *one != (old, to));
                }
                self.under_way.push(Event { to: 1 - to, number, what: What::Outcome { is_kept } });
            }
            What::Outcome { is_kept } => match self.ends[to].peers.get(&other) {
                Some(State::Dialling(at)) if *at == number && is_kept => self.ends[to].on_dialled(other, number),
                Some(State::Dialling(at)) if *at == number => drop(self.ends[to].on_closed(other, number)),
                _ => {}
            },
            What::Item => {
                let item = self.streams.get_mut(&(number, to)).and_then(VecDeque::pop_front);
                match item.expect("it is there") {
                    Item::Message(message) => {
                        self.ends[to].on_used(other);
                        self.got[to].push(message);
                    }
                    Item::Said(word) => self.on_word(to, number, word),
                }
            }
            What::Closed => {
                self.finishing.retain(|one| *one != (number, to));
                self.ends[to].on_finished(other, number);
            }
        }
        self.flush(to);
    }

    fn on_word(&mut self, to: usize, number: Number, word: Word) {
        let other = 1 - to as u32;
        match word {
            Word::Close => {
                let answer =
                    self.ends[to].on_close(other, number, self.is_wanted[to]).expect("the connection is current");
                self.say(to, number, Item::Said(answer));
                if answer == Word::Agree {
                    self.finishing.push((number, to));
                }
            }
            Word::Agree => drop(self.ends[to].on_finished(other, number)),
            Word::Decline => assert!(self.ends[to].on_declined(other, number)),
            Word::Goodbye => panic!("nobody leaves"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn two_processes_agree_on_one_connection_and_no_close_loses_a_message(
        steps in proptest::collection::vec((0u8..12, any::<prop::sample::Index>()), 1..120),
    ) {
        let mut two = Two::default();
        for (step, which) in steps {
            let end = which.index(2);
            match step {
                0 | 1 => two.send(end),
                2 | 3 => two.close(end),
                4 => two.is_wanted[end] ^= true,
                _ => {
                    let events = two.events();
                    if !events.is_empty() {
                        two.happen(events[which.index(events.len())]);
                    }
                }
            }
        }
        two.send(0);
        for _ in 0..1_000 {
            let Some(event) = two.events().first().copied() else { break };
            two.happen(event);
        }
        prop_assert!(two.events().is_empty());
        for end in 0..2 {
            prop_assert_eq!(&two.got[end], &(1..=two.sent[1 - end]).collect::<Vec<u32>>());
            prop_assert_eq!(two.ends[end].closing(), 0);
        }
        let routes: Vec<Route> = (0..2).map(|end| two.ends[end].route(1 - end as u32)).collect();
        let is_open = routes.iter().all(|route| matches!(route, Route::Open(_)));
        prop_assert!(routes[0] == routes[1] && (is_open || routes[0] == Route::Dial), "{:?}", routes);
        prop_assert_eq!(two.ends[0].closed(1), two.ends[1].closed(0));
    }
}
