//! The frames of two agents in both directions, numbered: in order whichever way each takes, none lost with a link.
//!
//! ```text
//!   out:  0 1 2 │ 3 4 5 6 │ 7 …        in:  0 1 2 │ . 4 5
//!         known │ kept    │ next            given │ waits for 3
//!         there │         │                 out   │
//! ```
//!
//! A frame that goes through the tree carries its number. On the link of the two the first of each side is told (`begin`), the others
//! count from there, since a link keeps the order; so the switch from the tree to the link, which may overtake, is not to be seen. What
//! left over the link is kept until the other side says that it came; when the link breaks it goes again, through the tree, and what
//! had come already is dropped there. In a standing session agents on the way through the tree may be lost while others go on, so
//! what went that way is kept too.
//!
//! Cost: one small frame back for each [`UNACKNOWLEDGED_FRAMES_MAX`] frames or [`UNACKNOWLEDGED_BYTES_MAX`] bytes over a link.

use std::collections::{BTreeMap, VecDeque};
use wireup_wire::frame::Frame;
use wireup_wire::limits::{DIRECT_WAITING_BYTES_MAX, UNACKNOWLEDGED_BYTES_MAX, UNACKNOWLEDGED_FRAMES_MAX};

#[derive(Default)]
pub struct Window {
    /// Frames that leave through the tree are kept too.
    keeps_all: bool,
    /// Number of the next frame out.
    next: u64,
    /// Left and may not have come, oldest first.
    kept: VecDeque<Kept>,
    /// Number of the next frame that is handed out.
    expected: u64,
    /// Came before those that they follow.
    early: BTreeMap<u64, Frame>,
    early_bytes: usize,
    /// Number of the next frame that comes over the link; none before the other side has said where it begins.
    on_link: Option<u64>,
    /// Come, in order, and not told yet.
    untold_frames: u32,
    untold_bytes: usize,
}

struct Kept {
    number: u64,
    frame: Frame,
    /// It left through the tree.
    is_routed: bool,
}

/// More waits for a frame that is missing than may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMuch;

impl Window {
    pub fn new(keeps_all: bool) -> Self {
        Window { keeps_all, ..Window::default() }
    }

    /// A frame leaves through the tree; its number.
    pub fn route(&mut self, frame: &Frame) -> u64 {
        let number = self.number();
        if self.keeps_all {
            self.kept.push_back(Kept { number, frame: frame.clone(), is_routed: true });
        }
        number
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The number of the next frame that leaves.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// A frame leaves over the link.
    pub fn keep(&mut self, frame: Frame) {
        let number = self.number();
        self.kept.push_back(Kept { number, frame, is_routed: false });
    }

    /// All before that number have come (its low 32 bits).
    pub fn on_acknowledged(&mut self, before: u32) {
        let before = whole(before, self.next);
        if before <= self.next {
            let there = self.kept.iter().take_while(|kept| kept.number < before).count();
            self.kept.drain(..there);
        }
    }

    /// The link is gone: what may not have come, with its numbers.
    pub fn take_kept(&mut self) -> Vec<(u64, Frame)> {
        self.on_link = None;
        if self.keeps_all {
            self.kept.iter_mut().for_each(|kept| kept.is_routed = true);
            return self.routed();
        }
        (self.untold_frames, self.untold_bytes) = (0, 0);
        std::mem::take(&mut self.kept).into_iter().map(|kept| (kept.number, kept.frame)).collect()
    }

    /// What left through the tree and may not have come, with its numbers.
    pub fn routed(&self) -> Vec<(u64, Frame)> {
        let routed = self.kept.iter().filter(|kept| kept.is_routed);
        routed.map(|kept| (kept.number, kept.frame.clone())).collect()
    }

    /// All before that number have come (its low 32 bits); none if nothing has.
    pub fn received(&self) -> Option<u32> {
        (self.expected > 0).then_some(self.expected as u32)
    }

    /// Bytes of what is kept, or waits for what it follows.
    pub fn held_bytes(&self) -> usize {
        self.kept.iter().map(|kept| kept.frame.wire_len()).sum::<usize>() + self.early_bytes
    }

    /// The other side begins the link with that number.
    pub fn begin(&mut self, number: u32) {
        self.on_link = Some(whole(number, self.expected));
    }

    /// A frame came over the link. Handed back if it is its turn; then ask for `follower`s.
    ///
    /// # Errors
    /// One too many waits.
    pub fn on_link(&mut self, frame: Frame) -> Result<Option<Frame>, TooMuch> {
        let Some(number) = &mut self.on_link else {
            // Nobody of ours says something before it has said where it begins.
            return Ok(None);
        };
        let at = *number;
        *number += 1;
        self.place(at, frame, true)
    }

    /// A frame with this number came through the tree.
    ///
    /// # Errors
    /// One too many waits.
    pub fn on_routed(&mut self, number: u32, frame: Frame) -> Result<Option<Frame>, TooMuch> {
        self.place(whole(number, self.expected), frame, self.keeps_all)
    }

    /// What came before those that it follows counts when they have come: only then is it told.
    fn count_untold(&mut self, frame: &Frame) {
        self.untold_frames += 1;
        self.untold_bytes += frame.wire_len();
    }

    fn place(&mut self, number: u64, frame: Frame, is_kept: bool) -> Result<Option<Frame>, TooMuch> {
        if is_kept && number <= self.expected {
            // Also what came twice: the other side does not know.
            self.count_untold(&frame);
        }
        if number == self.expected {
            self.expected += 1;
            return Ok(Some(frame));
        }
        if number > self.expected {
            self.early_bytes += frame.wire_len();
            if let Some(twice) = self.early.insert(number, frame) {
                self.early_bytes -= twice.wire_len();
            }
            if self.early_bytes > DIRECT_WAITING_BYTES_MAX {
                return Err(TooMuch);
            }
        }
        Ok(None)
    }

    /// The next frame of those that waited, if it is its turn.
    pub fn follower(&mut self) -> Option<Frame> {
        let frame = self.early.remove(&self.expected)?;
        self.early_bytes -= frame.wire_len();
        self.expected += 1;
        self.count_untold(&frame);
        Some(frame)
    }

    /// What to tell the other side, once enough has come.
    pub fn acknowledge(&mut self) -> Option<u32> {
        if self.untold_frames < UNACKNOWLEDGED_FRAMES_MAX && self.untold_bytes < UNACKNOWLEDGED_BYTES_MAX {
            return None;
        }
        self.acknowledge_now(0)
    }

    /// The same if it is about more than so many bytes.
    pub fn acknowledge_now(&mut self, bytes: usize) -> Option<u32> {
        if self.untold_bytes <= bytes {
            return None;
        }
        (self.untold_frames, self.untold_bytes) = (0, 0);
        Some(self.expected as u32)
    }
}

/// The number that has these low bits and is nearest to `about`.
fn whole(low: u32, about: u64) -> u64 {
    about.saturating_add_signed(i64::from(low.wrapping_sub(about as u32) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use wireup_wire::frame::{Class, Kind};

    fn frame(arg: u32) -> Frame {
        Frame { kind: Kind::Direct, class: Class::Exchange, stream: 0, job: 1, arg, payload: Bytes::new() }
    }

    #[test]
    fn numbers_are_whole_again() {
        for (low, about, number) in [
            (5, 0, 5),
            (0, 5, 0),
            (u32::MAX, 1 << 32, (1 << 32) - 1),
            (3, (1 << 32) - 2, (1 << 32) + 3),
            (u32::MAX, 0, 0),
        ] {
            assert_eq!(whole(low, about), number, "{low} near {about}");
        }
    }

    #[test]
    fn acknowledgements_come_after_frames_or_bytes() {
        let mut window = Window::default();
        window.begin(0);
        for arg in 0..UNACKNOWLEDGED_FRAMES_MAX {
            assert_eq!(window.acknowledge(), None);
            window.on_link(frame(arg)).unwrap();
        }
        assert_eq!(window.acknowledge(), Some(UNACKNOWLEDGED_FRAMES_MAX));
        assert_eq!(window.acknowledge(), None);
        window.on_link(Frame { payload: vec![0; UNACKNOWLEDGED_BYTES_MAX].into(), ..frame(0) }).unwrap();
        assert_eq!(window.acknowledge(), Some(UNACKNOWLEDGED_FRAMES_MAX + 1));
    }

    #[test]
    fn what_waited_is_acknowledged_when_it_has_followed() {
        let mut window = Window::new(true);
        let large = Frame { payload: vec![0; UNACKNOWLEDGED_BYTES_MAX].into(), ..frame(0) };
        assert_eq!(window.on_routed(1, large.clone()), Ok(None));
        assert_eq!(window.acknowledge(), None, "nothing has come in order");
        assert!(window.on_routed(0, frame(0)).unwrap().is_some());
        assert_eq!(window.follower(), Some(large.clone()));
        assert_eq!(window.acknowledge(), Some(2));
        assert_eq!(window.on_routed(1, large), Ok(None), "twice: the acknowledgement may be lost");
        assert_eq!(window.acknowledge(), Some(2));
    }

    #[test]
    fn only_so_much_waits_and_lies_change_nothing() {
        let mut window = Window::default();
        assert_eq!(window.on_link(frame(0)), Ok(None), "before the beginning");
        window.on_acknowledged(77);
        window.keep(frame(0));
        window.on_acknowledged(77);
        assert_eq!(window.take_kept().len(), 1);
        let large = Frame { payload: vec![0; DIRECT_WAITING_BYTES_MAX / 2].into(), ..frame(0) };
        assert_eq!(window.on_routed(7, large.clone()), Ok(None));
        assert_eq!(window.on_routed(7, large.clone()), Ok(None), "the same one");
        assert_eq!(window.on_routed(8, large), Err(TooMuch));
    }

    proptest! {
        /// A sender that changes its way, over a link that breaks anywhere: all comes once, in order.
        #[test]
        fn nothing_is_lost_and_nothing_comes_twice(
            before in 0u32..70,
            over in 0u32..200,
            after in 0u32..70,
            arrived in 0u32..200,
            start in prop_oneof![Just(0u64), Just((1u64 << 32) - 20)],
            shuffle in any::<u64>(),
        ) {
            let (mut out, mut there) = (Window { next: start, ..Window::default() }, Window { expected: start, ..Window::default() });
            let mut heard = Vec::new();
            let mut hear = |there: &mut Window, frame: Option<Frame>| {
                heard.extend(frame.map(|frame| frame.arg));
                while let Some(frame) = there.follower() {
                    heard.push(frame.arg);
                }
            };
            let mut routed: Vec<(u32, Frame)> = (0..before).map(|arg| (out.number() as u32, frame(arg))).collect();
            let begin = out.next() as u32;
            there.begin(begin);
            let mut on_link: VecDeque<Frame> = VecDeque::new();
            for arg in before..before + over {
                out.keep(frame(arg));
                on_link.push_back(frame(arg));
                if arg - before < arrived {
                    let frame = on_link.pop_front().unwrap();
                    let given = there.on_link(frame).unwrap();
                    hear(&mut there, given);
                    if let Some(before) = there.acknowledge() {
                        out.on_acknowledged(before);
                    }
                }
            }
            routed.extend(out.take_kept().into_iter().map(|(number, frame)| (number as u32, frame)));
            routed.extend((before + over..before + over + after).map(|arg| (out.number() as u32, frame(arg))));
            let mut state = shuffle;
            while !routed.is_empty() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (number, frame) = routed.remove((state >> 33) as usize % routed.len());
                let given = there.on_routed(number, frame).unwrap();
                hear(&mut there, given);
            }
            prop_assert_eq!(heard, (0..before + over + after).collect::<Vec<_>>());
        }
    }
}
