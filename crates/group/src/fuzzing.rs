//! Checks what must hold for members of a group, whatever messages other ranks send them. The fuzz target `group`
//! searches for violations.

#[path = "../../../dev/fuzz/input.rs"]
mod input;

use crate::algorithms::{Algorithm, Allgather, Allreduce, Alltoall, Barrier, Broadcast, Prefix, Shift, Wanted};
use crate::in_memory::{Ranks, Wrong};
use crate::message;
use crate::reduce::{Number, Op, Reduce};
use crate::{Context, Done, Peer, Request, WORLD};
use alloc::boxed::Box;
use alloc::vec::Vec;
use input::{byte, some};

/// Runs a group as the input says: its first byte gives the number of ranks, and each step that a rank takes reads a
/// few more bytes.
///
/// No message may make a member panic or loop forever, or complete a request twice; as long as all messages come from
/// members and no rank is lost or leaves, every request completes.
pub fn group(input: &[u8]) {
    if let Ok(message) = message::decode(input) {
        assert_eq!(message.encode(), input, "a message that decodes is the encoded one");
    }
    let mut input = input;
    let size = u32::from(byte(&mut input) % 9 + 1);
    let mut world = World::new(size);
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end();
}

/// Reads a number: usually below 255, sometimes any `u32`.
fn number(input: &mut &[u8]) -> u32 {
    match byte(input) {
        255 => u32::from_le_bytes([byte(input), byte(input), byte(input), byte(input)]),
        small => small.into(),
    }
}

struct World {
    ranks: Ranks,
    size: u32,
    /// Contexts of the groups that contain all ranks.
    contexts: Vec<Context>,
    started: Vec<(u32, Request)>,
    /// Whether a rank was lost or leaves, or a message was injected, so that requests may fail.
    is_disturbed: bool,
}

impl World {
    fn new(size: u32) -> World {
        let peer = |rank| Peer { rank, address: vec![rank as u8; 3] };
        let mut world = World {
            ranks: Ranks::apart((0..size).map(peer)),
            size,
            contexts: vec![WORLD],
            started: Vec::new(),
            is_disturbed: false,
        };
        for rank in 0..size {
            let request = world.ranks.form(WORLD, rank);
            world.started.push((rank, request));
            world.collect(rank);
        }
        world
    }

    fn step(&mut self, input: &mut &[u8]) {
        match byte(input) % 8 {
            0..=2 => {
                let place = usize::from(byte(input)) % self.ranks.under_way.len().max(1);
                let delivered = self.ranks.deliver(place).map(drop);
                self.check(delivered);
            }
            3 => self.settle(),
            4 => self.start_collective(input),
            5 => self.start_between_two(input),
            6 => {
                let what = byte(input);
                let rank = u32::from(what) % self.size;
                self.is_disturbed = true;
                match what >> 7 {
                    0 => drop(self.ranks.lose(rank)),
                    _ => self.ranks.members[rank as usize].is_leaving = true,
                }
            }
            _ => self.inject(input),
        }
    }

    /// Injects a message that no member has sent: random bytes, or a message in flight with one byte changed.
    fn inject(&mut self, input: &mut &[u8]) {
        let (to, from) = (number(input) % self.size, number(input));
        let context = self.context(input);
        let bytes = match self.ranks.under_way.get(usize::from(byte(input))) {
            Some(other) => {
                let mut bytes = other.message.clone();
                let at = number(input) as usize % bytes.len();
                bytes[at] ^= byte(input);
                bytes
            }
            None => {
                let (kind, a, b) = (byte(input), number(input), number(input));
                let mut bytes = vec![kind % 8];
                bytes.extend_from_slice(&context.to_le_bytes());
                bytes.extend([a, b].iter().flat_map(|number| number.to_le_bytes()));
                bytes.extend_from_slice(some(input));
                bytes
            }
        };
        self.is_disturbed = true;
        let member = &mut self.ranks.members[to as usize];
        let is_taken = member.on_message(from, &bytes).is_ok();
        assert!(!is_taken || message::decode(&bytes).is_ok(), "what is no message was taken");
        let _ = member.awaited();
        assert!(!member.is_behind(from), "a few messages are not too many");
        self.collect(to);
    }

    fn start_collective(&mut self, input: &mut &[u8]) {
        let (of, what, root) = (self.context(input), byte(input), u32::from(byte(input)) % self.size);
        let value = some(input);
        let members: Vec<u32> = (0..self.size).filter(|rank| self.has_formed(*rank)).collect();
        if members.len() < self.size as usize && !self.is_disturbed {
            return;
        }
        for rank in members {
            let member = &mut self.ranks.members[rank as usize];
            let value = value.to_vec();
            let reduce = Reduce { number: Number::U64, op: Op::Sum };
            let vector = value.as_chunks::<8>().0.as_flattened().to_vec();
            let algorithm: Box<dyn Algorithm> = match what % 9 {
                0 => Box::<Barrier>::default(),
                1 => Box::new(Allgather::new(value)),
                2 => Box::new(Alltoall::new(vec![value; self.size as usize])),
                3 => Box::new(Broadcast::new(root, value)),
                4 => Box::new(Shift::new(value)),
                5 => Box::new(Allreduce::new(reduce, vector)),
                6 => Box::new(Prefix::new(reduce, vector, root & 1 == 1)),
                7 => {
                    let colour = (!(rank == root && what & 64 == 64)).then(|| vec![(rank % (root + 1)) as u8]);
                    let wanted = Wanted { colour, key: i64::from(what) - i64::from(rank) };
                    let request = member.split(of, wanted);
                    self.started.push((rank, request));
                    self.collect(rank);
                    continue;
                }
                _ => {
                    let made = member.duplicate(of);
                    self.contexts.extend(made.ok().filter(|_| rank == 0));
                    self.collect(rank);
                    continue;
                }
            };
            let request = member.start(of, algorithm);
            self.started.push((rank, request));
            self.collect(rank);
        }
    }

    /// Starts a tagged message between two members and its receive, or a group of the two, or a search for an address.
    fn start_between_two(&mut self, input: &mut &[u8]) {
        let (of, what) = (self.context(input), byte(input));
        let (one, other) = (u32::from(byte(input)) % self.size, u32::from(byte(input)) % self.size);
        if !self.has_formed(one) || !self.has_formed(other) {
            return;
        }
        let members = &mut self.ranks.members;
        let mut started = Vec::new();
        match what % 3 {
            0 => {
                let tag = number(input);
                started.push((one, members[one as usize].send_tagged(other, of, tag, some(input))));
                started.push((other, members[other as usize].receive_tagged(one, of, tag)));
            }
            1 => started.push((one, members[one as usize].locate(of, other))),
            _ => {
                let (list, name) = ([one, other], some(input));
                let list = if one == other { &list[..1] } else { &list };
                started.extend(list.iter().map(|me| (*me, members[*me as usize].create(of, list, name))));
            }
        }
        self.started.append(&mut started);
        self.collect(one);
        self.collect(other);
    }

    /// Whether the first request of a rank, to form the group of all ranks, is complete.
    fn has_formed(&self, rank: u32) -> bool {
        matches!(self.ranks.results.get(&self.started[rank as usize]), Some(Ok(Done::Group(Some(WORLD)))))
    }

    fn context(&self, input: &mut &[u8]) -> Context {
        self.contexts[usize::from(byte(input)) % self.contexts.len()]
    }

    fn settle(&mut self) {
        while !self.ranks.under_way.is_empty() {
            let delivered = self.ranks.deliver(0).map(drop);
            self.check(delivered);
        }
    }

    fn collect(&mut self, rank: u32) {
        // After a wrong output, collects the remaining outputs too.
        while let Err(wrong) = self.ranks.collect(rank) {
            self.check(Err(wrong));
        }
    }

    fn check(&self, outcome: Result<(), Wrong>) {
        if let Err(wrong) = outcome {
            assert!(self.is_disturbed && !matches!(wrong, Wrong::Twice { .. }), "{wrong:?}");
        }
    }

    fn end(mut self) {
        (0..self.size).for_each(|rank| self.collect(rank));
        self.settle();
        let missing = self.started.iter().filter(|started| !self.ranks.results.contains_key(started)).count();
        assert!(self.is_disturbed || missing == 0, "{missing} requests have not ended");
    }
}

#[cfg(test)]
#[path = "../../../dev/fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn every_corpus_file_passes_its_target() {
        super::replay::replay(&[("group", super::group)]);
    }
}
