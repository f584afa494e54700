//! Sorts records, one for each member, by their bytes (bitonic sort, for any number of members).
//!
//! Both halves are sorted in opposite directions, then merged: each member compares its record with the member at the
//! largest power of two below the size of the part, on the side where that lies, and keeps the smaller or the larger
//! one. So only links of the graph are used (lwgrp; Lang's bitonic sort for any n).

use super::Step;
use crate::shape::{Link, Shape, Side};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Copy)]
struct Comparison {
    link: Link,
    keeps_smaller: bool,
}

pub struct Sort {
    pub record: Vec<u8>,
    /// The comparisons that are still to be made; the next one is last.
    left: Vec<Comparison>,
    current: Option<Comparison>,
}

impl Sort {
    pub fn new(shape: &Shape, record: Vec<u8>) -> Sort {
        let mut left = Vec::new();
        sort(shape.me, shape.size, true, &mut left);
        left.reverse();
        Sort { record, left, current: None }
    }

    pub fn next(&mut self) -> Option<Step> {
        self.current = self.left.pop();
        let link = self.current?.link;
        Some(Step { sends: vec![(link, self.record.clone())], receives: vec![link] })
    }

    pub fn on_message(&mut self, other: &[u8]) {
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
