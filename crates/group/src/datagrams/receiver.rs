//! The receiving half of a stream over datagrams: puts segments in order.

use super::{Ack, WINDOW};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

#[derive(Default)]
pub struct Receiver {
    /// Number of the next segment to deliver; all segments before it were delivered.
    next: u64,
    /// Segments that arrived out of order, by number; fewer than [`WINDOW`].
    held: BTreeMap<u64, Vec<u8>>,
}

impl Receiver {
    /// Handles a segment, and appends to `out` the bytes that are in order now. A segment that has arrived before, or
    /// is not in the window, is ignored.
    pub fn on_segment(&mut self, number: u64, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(ahead) = number.checked_sub(self.next).filter(|ahead| *ahead < WINDOW as u64) else { return };
        if ahead > 0 {
            self.held.entry(number).or_insert_with(|| bytes.to_vec());
            return;
        }
        out.extend_from_slice(bytes);
        self.next += 1;
        while let Some(bytes) = self.held.remove(&self.next) {
            out.extend_from_slice(&bytes);
            self.next += 1;
        }
    }

    pub fn ack(&self) -> Ack {
        let seen = self.held.keys().fold(0, |seen, number| seen | 1 << (number - self.next - 1));
        Ack { next: self.next, seen }
    }
}
