//! Divides a group: members of the same colour form a new group, in the order of their keys (S2; Moody, Ahn and de
//! Supinski).
//!
//! ```text
//!   sort by colour, key, place     so that each new group is a run of neighbours
//!   exchange with both neighbours  where a run begins and ends
//!   scan in both directions        place in the run, its size, its first and last member
//!   sort by place                  the results return to where the records came from
//! ```
//!
//! Nothing here grows with the number of members or colours: a member holds one record at a time. A colour is a string
//! of bytes, so a name serves as well as a number. The members of no colour end up in a run of their own and are told
//! that they are in no group.

use super::reduce::{Combine, Scan};
use super::{Algorithm, NewPlace, Outcome, Step};
use crate::message::{Malformed, encode_peer, take_number, take_peer};
use crate::shape::{Link, Peer, Shape, Side};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a member requests in a split: the colour of its new group, and its sort key there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// At most 255 bytes; `None`: the member joins no new group.
    pub colour: Option<Vec<u8>>,
    pub key: i64,
}

pub struct Split {
    stage: Stage,
    place: Option<NewPlace>,
}

enum Stage {
    New { own: Record, key: i64 },
    Sort(Sort),
    Neighbours(Neighbours),
    Scan(Neighbours, Scan<Count>),
    Return(Sort),
    Over,
}

/// The record that this member holds after the sort, and the records of its neighbours.
struct Neighbours {
    bytes: Vec<u8>,
    record: Record,
    left: Option<Record>,
    right: Option<Record>,
    is_asked: bool,
}

/// First byte of the encoding of no colour, which sorts after all colours.
const NO_COLOUR: u8 = 2;

/// The record that is sorted, one per member. Encoded, it sorts by colour, key and place.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    colour: Vec<u8>,
    place: u32,
    peer: Peer,
}

impl Record {
    /// Encodes a colour so that no colour is a prefix of another: each byte follows a 1, and a 0 ends the colour.
    fn colour_bytes(colour: Option<&[u8]>) -> Vec<u8> {
        let Some(colour) = colour else { return vec![NO_COLOUR] };
        let mut bytes: Vec<u8> = colour.iter().flat_map(|byte| [1, *byte]).collect();
        bytes.push(0);
        bytes
    }

    fn encode(&self, key: i64) -> Vec<u8> {
        let key = (key as u64 ^ 1 << 63).to_be_bytes();
        [&self.colour[..], &key, &self.place.to_be_bytes(), &encode_peer(&self.peer)].concat()
    }

    fn decode(bytes: &[u8]) -> Result<Record, Malformed> {
        let mut len = 0;
        loop {
            match bytes.get(len) {
                Some(1) => len += 2,
                Some(0) => break,
                Some(&NO_COLOUR) if len == 0 => break,
                _ => return Err(Malformed),
            }
        }
        let (colour, rest) = bytes.split_at_checked(len + 1).ok_or(Malformed)?;
        let (_, rest) = rest.split_first_chunk::<8>().ok_or(Malformed)?;
        let (place, mut rest) = rest.split_first_chunk::<4>().ok_or(Malformed)?;
        let peer = take_peer(&mut rest)?;
        Ok(Record { colour: colour.to_vec(), place: u32::from_be_bytes(*place), peer })
    }
}

/// A run of neighbouring members of one new group: whether it reaches the edge of the new group, the number of its
/// members, and the place and peer of the member at that end.
struct Run<'a> {
    has_edge: bool,
    /// Whether the members, and the one beyond the end if the run does not reach the edge, are consecutive ranks.
    is_consecutive: bool,
    count: u32,
    end: &'a [u8],
}

impl<'a> Run<'a> {
    fn decode(mut bytes: &'a [u8]) -> Result<Run<'a>, Malformed> {
        let flags = take_number(&mut bytes)?;
        let (has_edge, is_consecutive) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Run { has_edge, is_consecutive, count: take_number(&mut bytes)?, end: bytes })
    }

    fn encode(&self) -> Vec<u8> {
        [&flags([self.has_edge, self.is_consecutive])[..], &self.count.to_le_bytes(), self.end].concat()
    }

    /// This run extended by the run `beyond`, unless this run already reaches the edge of the new group.
    fn and(self, beyond: Run<'a>) -> Run<'a> {
        if self.has_edge {
            return self;
        }
        Run {
            has_edge: beyond.has_edge,
            is_consecutive: self.is_consecutive && beyond.is_consecutive,
            count: self.count.saturating_add(beyond.count),
            end: beyond.end,
        }
    }
}

fn flags([first, second]: [bool; 2]) -> [u8; 4] {
    (u32::from(first) | u32::from(second) << 1).to_le_bytes()
}

/// Extends the runs of each new group to both sides, which counts their members.
struct Count;

impl Combine for Count {
    fn rightwards(&self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(Run::decode(right)?.and(Run::decode(left)?).encode())
    }

    fn leftwards(&self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, Malformed> {
        Ok(Run::decode(left)?.and(Run::decode(right)?).encode())
    }
}

impl Split {
    pub fn new(wanted: Wanted, own: Peer) -> Split {
        let Wanted { colour, key } = wanted;
        let own = Record { colour: Record::colour_bytes(colour.as_deref()), place: 0, peer: own };
        Split { stage: Stage::New { own, key }, place: None }
    }

    /// Moves to the next stage, once all messages of the current stage have arrived.
    fn advance(&mut self, shape: &Shape) -> Result<(), Malformed> {
        self.stage = match core::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New { own, key } => Stage::Sort(Sort::new(shape, Record { place: shape.me, ..own }.encode(key))),
            Stage::Sort(sort) => {
                let record = Record::decode(&sort.record)?;
                Stage::Neighbours(Neighbours { bytes: sort.record, record, left: None, right: None, is_asked: false })
            }
            Stage::Neighbours(neighbours) => {
                let scan = neighbours.scan();
                Stage::Scan(neighbours, scan)
            }
            Stage::Scan(neighbours, scan) => Stage::Return(Sort::new(shape, neighbours.result(&scan)?)),
            Stage::Return(sort) => {
                self.place = decode_result(&sort.record, shape.me)?;
                Stage::Over
            }
            Stage::Over => Stage::Over,
        };
        Ok(())
    }
}

impl Neighbours {
    fn next(&mut self, shape: &Shape) -> Option<Step> {
        if core::mem::replace(&mut self.is_asked, true) {
            return None;
        }
        let links: Vec<Link> = match shape.powers() {
            0 => Vec::new(),
            _ => [Link::left(0), Link::right(0)].into_iter().filter(|link| shape.is_inside(*link)).collect(),
        };
        Some(Step { sends: links.iter().map(|link| (*link, self.bytes.clone())).collect(), receives: links })
    }

    fn scan(&self) -> Scan<Count> {
        let Record { place, peer, colour } = &self.record;
        let end = [&place.to_le_bytes()[..], &encode_peer(peer)].concat();
        let run = |neighbour: &Option<Record>, rank: Option<u32>| {
            let neighbour = neighbour.as_ref().filter(|neighbour| neighbour.colour == *colour);
            let is_consecutive = neighbour.is_none_or(|neighbour| Some(neighbour.peer.rank) == rank);
            Run { has_edge: neighbour.is_none(), is_consecutive, count: 1, end: &end }.encode()
        };
        let (left, right) = (peer.rank.checked_sub(1), peer.rank.checked_add(1));
        Scan::with_both(Count, run(&self.left, left), run(&self.right, right))
    }

    /// Computes the result for the member whose record this member holds after the sort.
    fn result(&self, scan: &Scan<Count>) -> Result<Vec<u8>, Malformed> {
        let (left, right) = (Run::decode(&scan.up_to)?, Run::decode(&scan.from)?);
        let (first, last) = (end(left.end)?, end(right.end)?);
        let peer_of = |neighbour: &Option<Record>, around: &Peer| match neighbour {
            Some(neighbour) if neighbour.colour == self.record.colour => neighbour.peer.clone(),
            _ => around.clone(),
        };
        let me = left.count.checked_sub(1).ok_or(Malformed)?;
        let size = me.checked_add(right.count).ok_or(Malformed)?;
        let is_member = self.record.colour != [NO_COLOUR];
        let mut out = self.record.place.to_be_bytes().to_vec();
        out.extend(flags([is_member, left.is_consecutive && right.is_consecutive]));
        out.extend([me, size, first.0].iter().flat_map(|number| number.to_le_bytes()));
        out.extend(encode_peer(&peer_of(&self.left, &last.1)));
        out.extend(encode_peer(&peer_of(&self.right, &first.1)));
        Ok(out)
    }
}

fn end(mut bytes: &[u8]) -> Result<(u32, Peer), Malformed> {
    Ok((take_number(&mut bytes)?, take_peer(&mut bytes)?))
}

fn decode_result(bytes: &[u8], me: u32) -> Result<Option<NewPlace>, Malformed> {
    let (of, mut bytes) = bytes.split_first_chunk().ok_or(Malformed)?;
    let flags = take_number(&mut bytes)?;
    let (is_member, is_consecutive) = (flags & 1 != 0, flags & 2 != 0);
    let (place, size) = (take_number(&mut bytes)?, take_number(&mut bytes)?);
    let first = take_number(&mut bytes)?;
    let (left, right) = (take_peer(&mut bytes)?, take_peer(&mut bytes)?);
    if u32::from_be_bytes(*of) != me || place >= size {
        return Err(Malformed);
    }
    Ok(is_member.then_some(NewPlace { me: place, size, left, right, first, is_consecutive }))
}

impl Algorithm for Split {
    fn next(&mut self, shape: &mut Shape) -> Result<Option<Step>, Malformed> {
        loop {
            let step = match &mut self.stage {
                Stage::New { .. } => None,
                Stage::Sort(sort) | Stage::Return(sort) => sort.next(),
                Stage::Neighbours(neighbours) => neighbours.next(shape),
                Stage::Scan(_, scan) => scan.next(shape),
                Stage::Over => return Ok(None),
            };
            if step.is_some() {
                return Ok(step);
            }
            self.advance(shape)?;
        }
    }

    fn on_message(&mut self, _: &mut Shape, from: Link, payload: &[u8]) -> Result<(), Malformed> {
        match &mut self.stage {
            Stage::Sort(sort) | Stage::Return(sort) => sort.on_message(payload),
            Stage::Neighbours(neighbours) => {
                let record = Some(Record::decode(payload)?);
                match from.side {
                    Side::Left => neighbours.left = record,
                    Side::Right => neighbours.right = record,
                }
            }
            Stage::Scan(_, scan) => scan.on_message(from, payload)?,
            Stage::New { .. } | Stage::Over => return Err(Malformed),
        }
        Ok(())
    }

    fn outcome(self: Box<Self>) -> Outcome {
        Outcome::Place(self.place)
    }
}

#[derive(Clone, Copy)]
struct Comparison {
    link: Link,
    keeps_smaller: bool,
}

/// Sorts records, one for each member, by their bytes (bitonic sort, for any number of members).
///
/// Both halves are sorted in opposite directions, then merged: each member compares its record with the member at the
/// largest power of two below the size of the part, on the side where that lies, and keeps the smaller or the larger
/// one. So only links of the graph are used (lwgrp; Lang's bitonic sort for any n).
struct Sort {
    record: Vec<u8>,
    /// The comparisons that are still to be made; the next one is last.
    left: Vec<Comparison>,
    current: Option<Comparison>,
}

impl Sort {
    fn new(shape: &Shape, record: Vec<u8>) -> Sort {
        let mut left = Vec::new();
        sort(shape.me, shape.size, true, &mut left);
        left.reverse();
        Sort { record, left, current: None }
    }

    fn next(&mut self) -> Option<Step> {
        self.current = self.left.pop();
        let link = self.current?.link;
        Some(Step { sends: vec![(link, self.record.clone())], receives: vec![link] })
    }

    fn on_message(&mut self, other: &[u8]) {
        let keeps_smaller = self.current.is_some_and(|comparison| comparison.keeps_smaller);
        let is_better = if keeps_smaller { other < &self.record[..] } else { other > &self.record[..] };
        if is_better {
            self.record = other.to_vec();
        }
    }
}

/// Appends the comparisons of member `me` of `0..size` to `out`.
fn sort(me: u32, size: u32, is_ascending: bool, out: &mut Vec<Comparison>) {
    if size < 2 {
        return;
    }
    let half = size / 2;
    if me < half {
        sort(me, half, !is_ascending, out);
    } else {
        sort(me - half, size - half, is_ascending, out);
    }
    merge(me, size, is_ascending, out);
}

fn merge(me: u32, size: u32, is_ascending: bool, out: &mut Vec<Comparison>) {
    if size < 2 {
        return;
    }
    let power = (size - 1).ilog2();
    let distance = 1 << power;
    if me < size - distance {
        let link = Link { side: Side::Right, power: power as usize };
        out.push(Comparison { link, keeps_smaller: is_ascending });
    }
    if me >= distance {
        let link = Link { side: Side::Left, power: power as usize };
        out.push(Comparison { link, keeps_smaller: !is_ascending });
    }
    if me < distance {
        merge(me, distance, is_ascending, out);
    } else {
        merge(me - distance, size - distance, is_ascending, out);
    }
}
