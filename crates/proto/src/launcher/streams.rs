//! Credit for the standard streams that the launcher relays: output that is not written yet, and input that may be
//! read.

use crate::io::Stream;
use crate::time::Instant;
use std::collections::VecDeque;
use wireup_wire::ids::JobId;
use wireup_wire::limits::{STDIN_CHUNK_MAX, STDIN_WINDOW_BYTES};

/// Once the user or the time limit ends the job, how long to wait for a reader of the output (ns); each piece that is
/// read restarts the time. Chosen: a person who pressed Ctrl-C waits for a prompt.
const UNTAKEN_NS_MAX: u64 = 1_000_000_000;

/// Output that the driver has received and has not written yet.
pub struct Unwritten {
    /// For standard output and error: job and number of bytes of each piece, in the order in which they are written.
    pieces: [VecDeque<(JobId, u32)>; 2],
    /// Whether output is dropped, since nobody reads it any more.
    pub is_dropped: bool,
    /// Whether the end was requested: unread output is then awaited only for a limited time.
    pub is_impatient: bool,
    /// When a reader last took output, or output began to wait for a reader.
    pub moved_at: Instant,
}

impl Unwritten {
    pub fn new(now: Instant) -> Unwritten {
        Unwritten { pieces: Default::default(), is_dropped: false, is_impatient: false, moved_at: now }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(VecDeque::is_empty)
    }

    /// The end was requested.
    pub fn hurry(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.is_impatient, true) {
            self.moved_at = now;
        }
    }

    /// When unread output is given up.
    pub fn deadline(&self) -> Option<Instant> {
        (self.is_impatient && !self.is_empty()).then(|| self.moved_at + UNTAKEN_NS_MAX)
    }

    /// Output of a job arrives. Returns whether it is to be written; otherwise it is dropped.
    pub fn add(&mut self, now: Instant, job: JobId, stream: Stream, bytes: u32) -> bool {
        if self.is_dropped {
            return false;
        }
        if self.is_empty() {
            self.moved_at = now;
        }
        if bytes > 0 {
            self.pieces[stream as usize - 1].push_back((job, bytes));
        }
        true
    }

    /// Removes up to `bytes_max` of the oldest output, all of one job. Returns the job, which gets credit, and the
    /// number of bytes.
    pub fn take_oldest(&mut self, stream: Stream, bytes_max: u32) -> Option<(JobId, u32)> {
        let pieces = &mut self.pieces[stream as usize - 1];
        let (job, waiting) = pieces.front_mut().filter(|_| bytes_max > 0)?;
        let taken = (*job, bytes_max.min(*waiting));
        *waiting -= taken.1;
        if *waiting == 0 {
            pieces.pop_front();
        }
        Some(taken)
    }
}

/// Standard input of the job, on its way to the root.
pub struct Stdin {
    /// Whether the input goes through the launcher and has not ended.
    is_open: bool,
    credit: usize,
}

impl Stdin {
    pub fn new(is_relayed: bool) -> Stdin {
        Stdin { is_open: is_relayed, credit: STDIN_WINDOW_BYTES }
    }

    /// The ranks' agents have taken input.
    pub fn on_credit(&mut self, bytes: u32) {
        self.credit = (self.credit + bytes as usize).min(STDIN_WINDOW_BYTES);
    }

    /// Input was read; no bytes: its end. Returns whether it is sent.
    pub fn on_read(&mut self, bytes: usize) -> bool {
        let is_sent = self.is_open;
        self.credit = self.credit.saturating_sub(bytes);
        self.is_open &= bytes > 0;
        is_sent
    }

    /// How much may be read; `None`: nothing more is read.
    pub fn bytes_max(&self) -> Option<u32> {
        self.is_open.then(|| self.credit.min(STDIN_CHUNK_MAX) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(1);

    #[test]
    fn output_is_awaited_for_a_limited_time_once_the_end_was_requested() {
        let mut unwritten = Unwritten::new(Instant(0));
        assert!(unwritten.add(Instant(1), JOB, Stream::Out, 5) && unwritten.add(Instant(2), JOB, Stream::Err, 1));
        assert_eq!(unwritten.deadline(), None);
        for _ in 0..2 {
            unwritten.hurry(Instant(3));
            unwritten.moved_at = Instant(4);
        }
        assert_eq!(unwritten.deadline(), Some(Instant(4) + UNTAKEN_NS_MAX));
        unwritten.is_dropped = true;
        let taken = [(Stream::Out, 2), (Stream::Out, u32::MAX), (Stream::Out, 9), (Stream::Err, 1), (Stream::Err, 0)];
        let taken = taken.map(|(stream, max)| unwritten.take_oldest(stream, max).map(|(_, bytes)| bytes));
        assert_eq!(taken, [Some(2), Some(3), None, Some(1), None]);
        assert_eq!((unwritten.deadline(), unwritten.add(Instant(5), JOB, Stream::Out, 5)), (None, false));
    }

    #[test]
    fn input_is_read_as_far_as_its_credit_goes_and_until_its_end() {
        assert_eq!(Stdin::new(false).bytes_max(), None);
        let mut stdin = Stdin::new(true);
        assert_eq!(stdin.bytes_max(), Some(STDIN_CHUNK_MAX.min(STDIN_WINDOW_BYTES) as u32));
        assert!(stdin.on_read(STDIN_WINDOW_BYTES));
        assert_eq!(stdin.bytes_max(), Some(0));
        stdin.on_credit(7);
        assert_eq!(stdin.bytes_max(), Some(7));
        assert_eq!([stdin.on_read(0), stdin.on_read(1)], [true, false]);
        assert_eq!(stdin.bytes_max(), None);
    }
}
