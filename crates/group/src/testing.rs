//! All members of a group in one process. Messages of a pair are delivered in their order, those of different pairs in any order.

use crate::{Context, Done, Failure, Groups, Output, Peer, Request, WORLD};
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

pub struct Bench {
    pub members: Vec<Groups>,
    /// Under way: from, to, message.
    pub messages: Vec<(u32, u32, Vec<u8>)>,
    pub results: BTreeMap<(u32, Request), Result<Done, Failure>>,
    /// By member: whom it has sent to, and how much.
    pub sent: Vec<BTreeMap<u32, usize>>,
    pub bytes: usize,
    known: Vec<BTreeMap<u32, Peer>>,
    dead: Vec<bool>,
    seed: u64,
}

pub fn peer(rank: u32) -> Peer {
    Peer { rank, address: std::format!("address of {rank}").into_bytes() }
}

impl Bench {
    /// Members that know nothing of each other.
    pub fn apart(size: u32, seed: u64) -> Bench {
        let size_of = size as usize;
        Bench {
            members: (0..size).map(|rank| Groups::new(peer(rank))).collect(),
            messages: Vec::new(),
            results: BTreeMap::new(),
            sent: std::vec![BTreeMap::new(); size_of],
            bytes: 0,
            known: std::vec![BTreeMap::new(); size_of],
            dead: std::vec![false; size_of],
            seed,
        }
    }

    /// A group of all.
    pub fn new(size: u32, seed: u64) -> Bench {
        let mut bench = Bench::apart(size, seed);
        let formed =
            bench.all(|groups, me| groups.form(WORLD, me, size, peer((me + size - 1) % size), peer((me + 1) % size)));
        for (me, request) in (0..).zip(formed) {
            assert_eq!(bench.results.remove(&(me, request)), Some(Ok(Done::Group(Some(WORLD)))));
        }
        bench
    }

    /// Every member starts something; runs until nothing is under way.
    pub fn all(&mut self, mut start: impl FnMut(&mut Groups, u32) -> Request) -> Vec<Request> {
        let requests = (0..self.members.len() as u32).map(|me| {
            let request = start(&mut self.members[me as usize], me);
            if self.random().is_multiple_of(2) {
                self.collect(me);
                self.deliver_some();
            }
            request
        });
        let requests: Vec<Request> = requests.collect();
        self.run();
        requests
    }

    /// Every member starts a collective of a group; the results.
    pub fn collective(
        &mut self,
        of: Context,
        mut algorithm: impl FnMut(u32) -> Box<dyn crate::Algorithm>,
    ) -> Vec<Result<Done, Failure>> {
        let requests = self.all(|groups, me| groups.start(of, algorithm(me)));
        self.take(requests)
    }

    pub fn take(&mut self, requests: Vec<Request>) -> Vec<Result<Done, Failure>> {
        let results = (0..)
            .zip(requests)
            .map(|(me, request)| self.results.remove(&(me, request)).expect("nothing is under way, so all is over"));
        results.collect()
    }

    pub fn run(&mut self) {
        for me in 0..self.members.len() as u32 {
            self.collect(me);
        }
        while !self.messages.is_empty() {
            self.deliver_one();
        }
    }

    pub fn deliver_some(&mut self) {
        for _ in 0..self.random() % 4 {
            if !self.messages.is_empty() {
                self.deliver_one();
            }
        }
    }

    pub fn deliver_one(&mut self) {
        let at = self.random() as usize % self.messages.len();
        let pair = |message: &(u32, u32, Vec<u8>)| (message.0, message.1);
        let any = pair(&self.messages[at]);
        let first = self.messages.iter().position(|message| pair(message) == any).expect("it is there");
        let (from, to, message) = self.messages.remove(first);
        if !self.dead[to as usize] {
            self.known[to as usize].insert(from, peer(from));
            self.members[to as usize].on_message(from, &message).expect("a message of a correct member");
            self.collect(to);
        }
    }

    pub fn collect(&mut self, me: u32) {
        while let Some(output) = self.members[me as usize].poll() {
            match output {
                Output::Send { to, message } => {
                    assert!(self.known[me as usize].contains_key(&to), "rank {me} has not the address of {to}");
                    *self.sent[me as usize].entry(to).or_default() += 1;
                    self.bytes += message.len();
                    if !self.dead[me as usize] {
                        self.messages.push((me, to, message));
                    }
                }
                Output::Learnt(other) => {
                    assert_eq!(other, peer(other.rank));
                    assert_ne!(other.rank, me);
                    self.known[me as usize].insert(other.rank, other);
                }
                Output::Done { request, result } => {
                    assert!(self.results.insert((me, request), result).is_none(), "a request ends once");
                }
            }
        }
    }

    /// A member dies; those that have a link to it notice.
    pub fn kill(&mut self, rank: u32) {
        self.dead[rank as usize] = true;
        for me in (0..self.members.len() as u32).filter(|me| *me != rank) {
            if self.known[me as usize].contains_key(&rank) {
                self.members[me as usize].on_lost(rank);
                self.collect(me);
            }
        }
    }

    pub fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }
}
