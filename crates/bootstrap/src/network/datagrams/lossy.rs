//! Tests real wires, two in one process, through a wrapper that loses, repeats and reorders datagrams.

use super::*;
use crate::network::carrier::{ConnectionEvent, SERVER};
use std::collections::BTreeMap;

const SECRET: Secret = [6; 32];
const MESSAGES: usize = 200;

struct Lossy<W> {
    wire: W,
    seed: u64,
    /// A datagram that is delayed until the next one has been sent.
    held: Option<(WireAddress, Vec<u8>)>,
    lost: usize,
}

impl<W> Lossy<W> {
    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }
}

impl<W: Wire> Wire for Lossy<W> {
    fn fd(&self) -> c_int {
        self.wire.fd()
    }

    fn own_place(&self) -> WireAddress {
        self.wire.own_place()
    }

    fn datagram_len(&self) -> usize {
        self.wire.datagram_len()
    }

    fn understands(&self, address: &[u8]) -> bool {
        self.wire.understands(address)
    }

    fn place(&self, address: &[u8]) -> Option<WireAddress> {
        self.wire.place(address)
    }

    fn send(&mut self, to: &[u8], bytes: &[u8]) -> bool {
        let held = self.held.take();
        match self.random(10) {
            0 => self.lost += 1,
            1 => self.held = Some((to.to_vec(), bytes.to_vec())),
            2 => return self.wire.send(to, bytes) && self.wire.send(to, bytes),
            _ => return self.wire.send(to, bytes) && held.is_none_or(|(to, bytes)| self.wire.send(&to, &bytes)),
        }
        true
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.wire.receive(buffer)
    }
}

fn message(from: u32, nth: usize) -> Vec<u8> {
    vec![from as u8 + nth as u8 + 1; 2 + nth * 37 % 5_000]
}

/// Both ends send many messages; all must arrive, once and in order. `address`: that of the second wire.
fn exchange<W: Wire>(wires: [W; 2], address: &[u8]) {
    let mut ends = Vec::new();
    for (me, wire) in (0..).zip(wires) {
        let lossy = Lossy { wire, seed: 77 + u64::from(me), held: None, lost: 0 };
        ends.push(Datagrams::new(me, &SECRET, lossy).unwrap());
    }
    ends[0].dial(1, address, 0);
    let mut got: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
    let (until, mut events) = (now_ms() + 60_000, Vec::new());
    let is_over = |ends: &[Datagrams<Lossy<W>>], got: &BTreeMap<usize, Vec<Vec<u8>>>| {
        (0..2).all(|at| got.get(&at).map_or(0, Vec::len) == MESSAGES && ends[at].unsent() == Unsent::Nothing)
    };
    while !is_over(&ends, &got) {
        for (at, end) in ends.iter_mut().enumerate() {
            end.epoll.wait(1, &mut events);
            events.iter().filter(|event| event.token != SERVER).for_each(|event| end.on_event(*event));
            while let Some(happened) = end.poll() {
                match happened.event {
                    ConnectionEvent::Proved { .. } => {
                        (0..MESSAGES).for_each(|nth| end.send(happened.number, &message(at as u32, nth)));
                    }
                    ConnectionEvent::Message(bytes) => got.entry(at).or_default().push(bytes),
                    other => panic!("{other:?}"),
                }
            }
            end.flush();
        }
        assert!(now_ms() < until, "{:?}", got.values().map(Vec::len).collect::<Vec<_>>());
    }
    for (at, messages) in got {
        assert!(messages.iter().enumerate().all(|(nth, one)| *one == message(1 - at as u32, nth)));
        assert!(ends[at].wire.lost > 0);
    }
}

#[test]
fn everything_arrives_over_a_bad_network_of_libfabric() {
    match (Fabric::open(), Fabric::open()) {
        (Ok(one), Ok(other)) => {
            let address = other.address();
            exchange([one, other], &address);
        }
        (Err(error), _) | (_, Err(error)) => {
            assert!(std::env::var_os("WIREUP_REQUIRE_PEERS").is_none(), "{error:?}");
            std::eprintln!("skipped: {error:?}");
        }
    }
}
