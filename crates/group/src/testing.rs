//! All members of a group in one process. Messages between a pair of members are delivered in order, those of different
//! pairs in any order.

use crate::in_memory::Ranks;
use crate::{Context, Done, Failure, Groups, Peer, Request, WORLD};
use std::boxed::Box;
use std::vec::Vec;

pub struct Bench {
    pub ranks: Ranks,
    seed: u64,
}

pub fn peer(rank: u32) -> Peer {
    Peer { rank, address: std::format!("address of {rank}").into_bytes() }
}

impl Bench {
    /// Creates members that do not know each other's addresses.
    pub fn apart(size: u32, seed: u64) -> Bench {
        Bench { ranks: Ranks::apart((0..size).map(peer)), seed }
    }

    /// Creates members that have formed the group of all ranks.
    pub fn new(size: u32, seed: u64) -> Bench {
        let mut bench = Bench::apart(size, seed);
        let formed =
            bench.all(|groups, me| groups.form(WORLD, me, size, peer((me + size - 1) % size), peer((me + 1) % size)));
        for result in bench.take_results(formed) {
            assert_eq!(result, Ok(Done::Group(Some(WORLD))));
        }
        bench
    }

    pub fn member(&mut self, rank: u32) -> &mut Groups {
        &mut self.ranks.members[rank as usize]
    }

    /// Starts a request on every member; runs until no message is in flight.
    pub fn all(&mut self, mut start: impl FnMut(&mut Groups, u32) -> Request) -> Vec<Request> {
        let requests = (0..self.ranks.size()).map(|me| {
            let request = start(self.member(me), me);
            if self.random().is_multiple_of(2) {
                self.collect(me);
                self.deliver_some();
            }
            request
        });
        let requests: Vec<Request> = requests.collect();
        self.run_until_idle();
        requests
    }

    /// Starts a collective of group `of` on every member; returns the results.
    pub fn collective(
        &mut self,
        of: Context,
        mut algorithm: impl FnMut(u32) -> Box<dyn crate::Algorithm>,
    ) -> Vec<Result<Done, Failure>> {
        let requests = self.all(|groups, me| groups.start(of, algorithm(me)));
        self.take_results(requests)
    }

    pub fn take_results(&mut self, requests: Vec<Request>) -> Vec<Result<Done, Failure>> {
        let results = (0..).zip(requests).map(|(me, request)| self.take(me, request));
        results.map(|result| result.expect("nothing is under way, so all is over")).collect()
    }

    /// The result of a request of rank `me`; `None`: it is not complete.
    pub fn take(&mut self, me: u32, request: Request) -> Option<Result<Done, Failure>> {
        self.ranks.results.remove(&(me, request))
    }

    pub fn run_until_idle(&mut self) {
        for me in 0..self.ranks.size() {
            self.collect(me);
        }
        while self.is_busy() {
            self.deliver_one();
        }
    }

    pub fn is_busy(&self) -> bool {
        !self.ranks.under_way.is_empty()
    }

    /// Delivers at most three messages.
    pub fn deliver_some(&mut self) {
        for _ in 0..self.random() % 4 {
            self.deliver_one();
        }
    }

    /// Delivers a message, if one is in flight.
    pub fn deliver_one(&mut self) {
        if self.is_busy() {
            let at = self.random() as usize % self.ranks.under_way.len();
            self.ranks.deliver(at).expect("the ranks are correct");
        }
    }

    pub fn collect(&mut self, me: u32) {
        self.ranks.collect(me).expect("the rank is correct");
    }

    /// Ends a member; the members that can send to it notice the loss.
    pub fn kill(&mut self, rank: u32) {
        self.ranks.lose(rank).expect("the ranks are correct");
    }

    pub fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }
}
