//! A sender and a receiver, connected by a network that loses, repeats and delays datagrams.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const SEGMENT_LEN: usize = 10;

/// Network faults: the percentages of datagrams lost and repeated, and the maximum delay.
#[derive(Clone, Copy, Debug)]
struct Weather {
    lost: u64,
    repeated: u64,
    delay_ms_max: u64,
}

/// A datagram that has been sent and has not arrived.
enum Datagram {
    Segment(u64, Vec<u8>),
    Ack(Ack),
}

struct Net {
    weather: Weather,
    seed: u64,
    now: u64,
    last: u64,
    under_way: BTreeMap<(u64, u64), Datagram>,
}

impl Net {
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }

    fn carry(&mut self, make: impl Fn() -> Datagram) {
        let copies = if self.random() % 100 < self.weather.repeated { 2 } else { 1 };
        for _ in 0..copies {
            if self.random() % 100 >= self.weather.lost {
                let at = self.now + 1 + self.random() % (self.weather.delay_ms_max + 1);
                self.last += 1;
                self.under_way.insert((at, self.last), make());
            }
        }
    }
}

/// Sends pieces of these lengths from one end to the other; returns the time taken (ms) and the number of segments
/// sent.
fn transfer(weather: Weather, seed: u64, lens: &[usize]) -> (u64, u64) {
    let mut net = Net { weather, seed, now: 0, last: 0, under_way: BTreeMap::new() };
    let (mut sender, mut receiver, mut got) = (Sender::new(SEGMENT_LEN), Receiver::default(), Vec::new());
    let mut wanted = Vec::new();
    for (nth, len) in lens.iter().enumerate() {
        let piece: Vec<u8> = (0..*len).map(|at| (nth * 31 + at) as u8).collect();
        wanted.extend_from_slice(&piece);
        sender.push(piece);
    }
    let mut segments = 0;
    while sender.unacknowledged() > 0 {
        while let Some((number, bytes)) = sender.poll(net.now) {
            assert!(!bytes.is_empty() && bytes.len() <= SEGMENT_LEN);
            let bytes = bytes.to_vec();
            segments += 1;
            net.carry(|| Datagram::Segment(number, bytes.clone()));
        }
        let arrival = net.under_way.keys().next().map(|(at, _)| *at);
        let next = [arrival, sender.deadline()].into_iter().flatten().min().expect("something is to happen");
        assert!(next >= net.now && next < 10_000_000, "seed {seed}: it takes for ever");
        net.now = next;
        while let Some(entry) = net.under_way.first_entry().filter(|entry| entry.key().0 <= next) {
            match entry.remove() {
                Datagram::Segment(number, bytes) => {
                    receiver.on_segment(number, &bytes, &mut got);
                    let ack = receiver.ack();
                    net.carry(|| Datagram::Ack(ack));
                }
                Datagram::Ack(ack) => sender.on_ack(next, ack),
            }
        }
        sender.on_tick(next);
    }
    assert_eq!(sender.deadline(), None);
    assert!(got == wanted, "seed {seed}");
    (net.now, segments)
}

proptest! {
    #[test]
    fn all_bytes_arrive_once_and_in_order(
        seed: u64,
        lens in proptest::collection::vec(0usize..3000, 0..6),
        lost in 0u64..60,
        repeated in 0u64..50,
        delay_ms_max in 0u64..300,
    ) {
        transfer(Weather { lost, repeated, delay_ms_max }, seed, &lens);
    }

    #[test]
    fn a_counter_is_accepted_once(counters in proptest::collection::vec(0u64..3000, 0..400)) {
        let (mut replay, mut seen, mut latest) = (Replay::default(), Vec::new(), 0);
        for counter in counters {
            let is_far_behind = latest >= counter + 1024;
            let is_new = !seen.contains(&counter) && (!is_far_behind || seen.is_empty());
            prop_assert_eq!(replay.is_new(counter), is_new, "{}", counter);
            if is_new {
                replay.note(counter);
                seen.push(counter);
                latest = latest.max(counter);
            }
        }
    }

    #[test]
    fn no_acknowledgement_makes_a_sender_lose_bytes(
        acks in proptest::collection::vec((0u64..40, any::<u128>()), 1..20),
    ) {
        let mut sender = Sender::new(SEGMENT_LEN);
        sender.push(vec![7; 200]);
        for (now, (next, seen)) in (0..).zip(acks) {
            while sender.poll(now).is_some() {}
            sender.on_ack(now, Ack { next, seen });
            while sender.poll(now).is_some() {}
            prop_assert_eq!(sender.unacknowledged() == 0, sender.deadline().is_none());
        }
    }
}

#[test]
fn without_losses_nothing_is_sent_twice() {
    let (_, segments) = transfer(Weather { lost: 0, repeated: 0, delay_ms_max: 0 }, 1, &[5_000]);
    assert_eq!(segments, 500);
}

#[test]
fn a_single_loss_is_repaired_without_a_pause() {
    let mut sender = Sender::new(1);
    sender.push(vec![0; 8]);
    let mut sent = vec![];
    while let Some((number, _)) = sender.poll(0) {
        sent.push(number);
    }
    assert_eq!(sent, [0, 1, 2, 3, 4, 5, 6, 7]);
    // All segments but segment 2 arrive.
    sender.on_ack(1, Ack { next: 2, seen: 0b11 });
    assert_eq!(sender.poll(1), None);
    sender.on_ack(1, Ack { next: 2, seen: 0b111 });
    assert_eq!(sender.poll(1).map(|(number, _)| number), Some(2));
    assert_eq!(sender.poll(1), None);
    sender.on_ack(2, Ack { next: 8, seen: 0 });
    assert_eq!((sender.unacknowledged(), sender.deadline()), (0, None));
}

#[test]
fn a_peer_that_computes_is_asked_ever_more_rarely_but_for_ever() {
    let mut sender = Sender::new(100);
    sender.push(vec![1; 1000]);
    while sender.poll(0).is_some() {}
    let (mut now, mut last_pause) = (0, 0);
    for nth in 0..100 {
        let due = sender.deadline().unwrap();
        let pause = due - now;
        assert!(pause >= last_pause && pause <= PAUSE_MS_MAX);
        (now, last_pause) = (due, pause);
        sender.on_tick(now);
        assert_eq!(sender.poll(now).map(|(number, _)| number), Some(0), "{nth}");
        assert!(sender.poll(now).is_none());
    }
    assert_eq!(last_pause, PAUSE_MS_MAX);
    // The first segments are still in the peer's socket: once the peer reads them, it acknowledges everything at once.
    sender.on_ack(now, Ack { next: 10, seen: 0 });
    assert_eq!(sender.unacknowledged(), 0);
}

#[test]
fn a_receiver_holds_no_more_than_a_window() {
    let (mut receiver, mut out) = (Receiver::default(), Vec::new());
    for number in (1..1000).rev() {
        receiver.on_segment(number, b"x", &mut out);
    }
    assert!(out.is_empty());
    assert_eq!(receiver.ack(), Ack { next: 0, seen: u128::MAX >> 1 });
    receiver.on_segment(0, b"y", &mut out);
    assert_eq!((out.len(), receiver.ack().next), (WINDOW, WINDOW as u64));
    receiver.on_segment(0, b"y", &mut out);
    receiver.on_segment(u64::MAX, b"y", &mut out);
    assert_eq!(out.len(), WINDOW);
}
