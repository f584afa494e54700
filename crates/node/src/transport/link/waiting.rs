//! Queues frames that have not begun to be sent, by class; the first frame of the lowest non-empty class is sent next.

use bytes::Bytes;
use std::collections::VecDeque;
use wireup_wire::frame::{Class, Frame};

/// Bytes of frames that are moved out of the queues at once. Chosen: for more bytes, the cost of a system call is
/// small.
pub const BEGUN_BYTES_MAX: usize = 256 << 10;
/// Most pieces of frames that are moved out of the queues at once.
const BEGUN_PIECES_MAX: usize = 64;
/// Most bytes of frames joined in one buffer. Chosen: to copy fewer bytes than this costs less than to track pieces.
const SMALL_BYTES_MAX: usize = 8 << 10;

#[derive(Default)]
pub struct Waiting {
    queues: [VecDeque<Frame>; Class::ALL.len()],
    bytes: usize,
}

/// Whether a frame follows the small frames at the head of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    Nothing,
    /// The next frame is large, or there are more small frames than are joined at once.
    More,
}

impl Waiting {
    pub fn push(&mut self, frame: Frame) {
        self.bytes += frame.wire_len();
        self.queues[frame.class as usize].push_back(frame);
    }

    /// Total bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Moves the next frames into one buffer as long as they are small.
    pub fn join_small(&mut self, joined: &mut Vec<u8>) -> Next {
        while let Some(queue) = self.queues.iter_mut().find(|queue| !queue.is_empty())
            && let Some(frame) = queue.pop_front()
        {
            if joined.len() + frame.wire_len() > SMALL_BYTES_MAX {
                queue.push_front(frame);
                return Next::More;
            }
            self.bytes -= frame.wire_len();
            joined.extend_from_slice(&frame.header());
            joined.extend_from_slice(&frame.payload);
        }
        Next::Nothing
    }

    /// Moves the frames to be sent now to `pieces`; a frame of a bulk class (stdio or staging) ends the group.
    pub fn move_next_group(&mut self, pieces: &mut VecDeque<Bytes>) {
        let mut bytes = 0;
        while bytes < BEGUN_BYTES_MAX && pieces.len() + 2 <= BEGUN_PIECES_MAX {
            let Some(frame) = self.queues.iter_mut().find_map(VecDeque::pop_front) else {
                break;
            };
            bytes += frame.wire_len();
            let last = frame.class >= Class::Stdio;
            pieces.push_back(Bytes::copy_from_slice(&frame.header()));
            if !frame.payload.is_empty() {
                pieces.push_back(frame.payload);
            }
            if last {
                break;
            }
        }
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::frame::{FrameKind, HEADER_LEN};

    fn frame(class: Class, len: usize) -> Frame {
        Frame { kind: FrameKind::Control, class, stream: 0, job: 1, arg: 0, payload: vec![class as u8; len].into() }
    }

    #[test]
    fn small_frames_leave_together_ordered_by_class() {
        let mut waiting = Waiting::default();
        for (class, len) in [(Class::Stdio, 5), (Class::Exchange, 7), (Class::Control, 0), (Class::Stdio, 9_000)] {
            waiting.push(frame(class, len));
        }
        assert_eq!(waiting.bytes(), 4 * HEADER_LEN + 9_012);
        let mut joined = Vec::new();
        assert_eq!(waiting.join_small(&mut joined), Next::More);
        assert_eq!((joined.len(), joined[2 * HEADER_LEN]), (3 * HEADER_LEN + 12, Class::Exchange as u8));
        let mut pieces = VecDeque::new();
        waiting.move_next_group(&mut pieces);
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [HEADER_LEN, 9_000]);
        assert!(waiting.is_empty() && waiting.bytes() == 0);
        joined.clear();
        assert_eq!((waiting.join_small(&mut joined), joined.len()), (Next::Nothing, 0));
    }

    #[test]
    fn only_a_few_large_frames_begin_at_once() {
        let mut waiting = Waiting::default();
        for _ in 0..3 {
            waiting.push(frame(Class::Stdio, 10));
            waiting.push(frame(Class::Exchange, 200_000));
        }
        let mut begun = || {
            let mut pieces = VecDeque::new();
            waiting.move_next_group(&mut pieces);
            pieces.iter().map(Bytes::len).collect::<Vec<_>>()
        };
        assert_eq!(begun(), [HEADER_LEN, 200_000, HEADER_LEN, 200_000]);
        assert_eq!(begun(), [HEADER_LEN, 200_000, HEADER_LEN, 10]);
        assert_eq!(begun(), [HEADER_LEN, 10]);
    }
}
