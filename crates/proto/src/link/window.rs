//! Numbers the frames between two agents: they stay in order whatever route each takes, and none is lost with a link.
//!
//! ```text
//!   out:  0 1 2 │ 3 4 5 6 │ 7 …        in:  0 1 2 │ . 4 5
//!         acked │ kept    │ next            handed │ wait for 3
//!               │         │                 out    │
//! ```
//!
//! A frame through the tree carries its number. On a direct link each side sends the number of its first frame
//! (`begin`), and the following frames count from there, since a link keeps the order; so it does not matter if the
//! link overtakes the tree after the switch. Frames sent over the link are kept until the other side acknowledges them;
//! when the link breaks they are sent again, through the tree, and duplicates are dropped there. In a standing session
//! agents on the path through the tree may be lost while others continue, so frames sent through the tree are kept too.
//!
//! Cost: one small frame back per [`UNACKNOWLEDGED_FRAMES_MAX`] frames or [`UNACKNOWLEDGED_BYTES_MAX`] bytes over a
//! link.

use std::collections::{BTreeMap, VecDeque};
use wireup_wire::frame::Frame;
use wireup_wire::limits::{DIRECT_WAITING_BYTES_MAX, UNACKNOWLEDGED_BYTES_MAX, UNACKNOWLEDGED_FRAMES_MAX};

#[derive(Default)]
pub struct Window {
    /// Whether frames sent through the tree are kept until they are acknowledged, like those sent over a link.
    keeps_all: bool,
    /// Number of the next frame to send.
    pub next: u64,
    /// Frames that were sent and are not acknowledged, oldest first.
    kept: VecDeque<Kept>,
    /// Number of the next frame to hand to the receiver.
    expected: u64,
    /// Frames that arrived before their predecessors, by number.
    early: BTreeMap<u64, Frame>,
    early_bytes: usize,
    /// Number of the next frame that arrives on the link; `None`: the other side has not sent its first number yet.
    on_link: Option<u64>,
    /// Number of frames that were received in order and not acknowledged yet; `untold_bytes`: their bytes.
    untold_frames: u32,
    untold_bytes: usize,
}

struct Kept {
    number: u64,
    frame: Frame,
    /// Whether the frame was sent through the tree.
    is_routed: bool,
}

/// An error: more bytes of frames than allowed wait for a missing frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMuch;

impl Window {
    pub fn new(keeps_all: bool) -> Self {
        Window { keeps_all, ..Window::default() }
    }

    /// A frame is sent through the tree; returns its number.
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

    /// A frame is sent over the link: numbers it, and keeps it until it is acknowledged.
    pub fn keep(&mut self, frame: Frame) {
        let number = self.number();
        self.kept.push_back(Kept { number, frame, is_routed: false });
    }

    /// Handles an acknowledgement: the other side has received all frames before a number with these low 32 bits.
    pub fn on_acknowledged(&mut self, before: u32) {
        let before = whole(before, self.next);
        if before <= self.next {
            let there = self.kept.iter().take_while(|kept| kept.number < before).count();
            self.kept.drain(..there);
        }
    }

    /// The link is lost: returns the frames that may be lost, with their numbers.
    pub fn take_kept(&mut self) -> Vec<(u64, Frame)> {
        self.on_link = None;
        if self.keeps_all {
            self.kept.iter_mut().for_each(|kept| kept.is_routed = true);
            return self.routed();
        }
        (self.untold_frames, self.untold_bytes) = (0, 0);
        std::mem::take(&mut self.kept).into_iter().map(|kept| (kept.number, kept.frame)).collect()
    }

    /// Frames sent through the tree that may be lost, with their numbers.
    pub fn routed(&self) -> Vec<(u64, Frame)> {
        let routed = self.kept.iter().filter(|kept| kept.is_routed);
        routed.map(|kept| (kept.number, kept.frame.clone())).collect()
    }

    /// The acknowledgement to send: the low 32 bits of the number before which all frames were received; `None`: no
    /// frame was received.
    pub fn received(&self) -> Option<u32> {
        (self.expected > 0).then_some(self.expected as u32)
    }

    /// Bytes of the frames that are kept, or wait for their predecessors.
    pub fn held_bytes(&self) -> usize {
        self.kept.iter().map(|kept| kept.frame.wire_len()).sum::<usize>() + self.early_bytes
    }

    /// Notes the number of the first frame that the other side sends on the link.
    pub fn set_first_number(&mut self, number: u32) {
        self.on_link = Some(whole(number, self.expected));
    }

    /// A frame arrived over the link. Returns the frame if it is next in order; call `follower` afterwards.
    ///
    /// # Errors
    /// Too many frames wait.
    pub fn on_link(&mut self, frame: Frame) -> Result<Option<Frame>, TooMuch> {
        let Some(number) = &mut self.on_link else {
            // A correct agent announces its first frame number before its first frame, so this frame is dropped.
            return Ok(None);
        };
        let at = *number;
        *number += 1;
        self.place(at, frame, true)
    }

    /// A frame with this number arrived through the tree.
    ///
    /// # Errors
    /// Too many frames wait.
    pub fn on_routed(&mut self, number: u32, frame: Frame) -> Result<Option<Frame>, TooMuch> {
        self.place(whole(number, self.expected), frame, self.keeps_all)
    }

    /// Counts a received frame that is to be acknowledged. A frame that arrived early counts once its predecessors have
    /// arrived.
    fn count_untold(&mut self, frame: &Frame) {
        self.untold_frames += 1;
        self.untold_bytes += frame.wire_len();
    }

    fn place(&mut self, number: u64, frame: Frame, is_kept: bool) -> Result<Option<Frame>, TooMuch> {
        if is_kept && number <= self.expected {
            // Duplicates count as well: a duplicate shows that the other side lacks the acknowledgement.
            self.count_untold(&frame);
        }
        let frame = Frame { class: frame.kind.class(), ..frame };
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

    /// Removes and returns the frame that is next in order, if it was waiting.
    pub fn follower(&mut self) -> Option<Frame> {
        let frame = self.early.remove(&self.expected)?;
        self.early_bytes -= frame.wire_len();
        self.expected += 1;
        self.count_untold(&frame);
        Some(frame)
    }

    /// Number of the next expected frame, to be acknowledged; `None`: too little was received since the last
    /// acknowledgement.
    pub fn acknowledge(&mut self) -> Option<u32> {
        if self.untold_frames < UNACKNOWLEDGED_FRAMES_MAX && self.untold_bytes < UNACKNOWLEDGED_BYTES_MAX {
            return None;
        }
        self.acknowledge_now(0)
    }

    /// Number of the next expected frame, to be acknowledged if more than `bytes` bytes were received since the last
    /// acknowledgement.
    pub fn acknowledge_now(&mut self, bytes: usize) -> Option<u32> {
        if self.untold_bytes <= bytes {
            return None;
        }
        (self.untold_frames, self.untold_bytes) = (0, 0);
        Some(self.expected as u32)
    }
}

/// The number nearest to `about` whose low 32 bits are `low`.
fn whole(low: u32, about: u64) -> u64 {
    about.saturating_add_signed(i64::from(low.wrapping_sub(about as u32) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use wireup_wire::frame::{Class, DownFrame, PeerFrame, UpFrame};

    fn frame(arg: u32) -> Frame {
        Frame::new(PeerFrame::Direct, 0, 1, arg, Bytes::new())
    }

    #[test]
    fn frames_have_the_class_of_their_kind_again() {
        let mut window = Window::new(true);
        window.set_first_number(0);
        let (input, credit) = (DownFrame::Input.into(), UpFrame::InputCredit.into());
        for (kind, class) in [(input, Class::Stdio), (credit, Class::Control)] {
            let placed = window.on_link(Frame { kind, ..frame(0) }).unwrap();
            assert_eq!(placed.map(|frame| frame.class), Some(class));
        }
        assert_eq!(window.on_routed(3, Frame { kind: UpFrame::Output.into(), ..frame(0) }), Ok(None));
        assert!(window.on_routed(2, frame(0)).unwrap().is_some());
        assert_eq!(window.follower().map(|frame| frame.class), Some(Class::Stdio));
    }

    #[test]
    fn shortened_frame_numbers_are_restored() {
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
    fn acknowledgements_are_sent_after_a_number_of_frames_or_bytes() {
        let mut window = Window::default();
        window.set_first_number(0);
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
    fn a_frame_that_waited_is_acknowledged_after_its_delivery() {
        let mut window = Window::new(true);
        let large = Frame { payload: vec![0; UNACKNOWLEDGED_BYTES_MAX].into(), ..frame(0) };
        assert_eq!(window.on_routed(1, large.clone()), Ok(None));
        assert_eq!(window.acknowledge(), None, "nothing has come in order");
        assert!(window.on_routed(0, frame(0)).unwrap().is_some());
        assert_eq!(window.follower(), Some(large.clone()));
        assert_eq!(window.acknowledge(), Some(2));
        assert_eq!(window.on_routed(1, large), Ok(None), "a duplicate: the acknowledgement may be lost");
        assert_eq!(window.acknowledge(), Some(2));
    }

    #[test]
    fn waiting_frames_are_bounded_and_false_acknowledgements_ignored() {
        let mut window = Window::default();
        assert_eq!(window.on_link(frame(0)), Ok(None), "before the first number");
        window.on_acknowledged(77);
        window.keep(frame(0));
        window.on_acknowledged(77);
        assert_eq!(window.take_kept().len(), 1);
        let large = Frame { payload: vec![0; DIRECT_WAITING_BYTES_MAX / 2].into(), ..frame(0) };
        assert_eq!(window.on_routed(7, large.clone()), Ok(None));
        assert_eq!(window.on_routed(7, large.clone()), Ok(None), "a duplicate");
        assert_eq!(window.on_routed(8, large), Err(TooMuch));
    }

    proptest! {
        /// A sender that changes its route, over a link that breaks at any time: all frames arrive once, in order.
        #[test]
        fn every_frame_arrives_once(
            before in 0u32..70,
            over in 0u32..200,
            after in 0u32..70,
            arrived in 0u32..200,
            start in prop_oneof![Just(0u64), Just((1u64 << 32) - 20)],
            shuffle in any::<u64>(),
        ) {
            let mut out = Window { next: start, ..Window::default() };
            let mut there = Window { expected: start, ..Window::default() };
            let mut received = Vec::new();
            let mut receive = |there: &mut Window, frame: Option<Frame>| {
                received.extend(frame.map(|frame| frame.arg));
                while let Some(frame) = there.follower() {
                    received.push(frame.arg);
                }
            };
            let mut routed: Vec<(u32, Frame)> = (0..before).map(|arg| (out.number() as u32, frame(arg))).collect();
            let begin = out.next as u32;
            there.set_first_number(begin);
            let mut on_link: VecDeque<Frame> = VecDeque::new();
            for arg in before..before + over {
                out.keep(frame(arg));
                on_link.push_back(frame(arg));
                if arg - before < arrived {
                    let frame = on_link.pop_front().unwrap();
                    let given = there.on_link(frame).unwrap();
                    receive(&mut there, given);
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
                receive(&mut there, given);
            }
            prop_assert_eq!(received, (0..before + over + after).collect::<Vec<_>>());
        }
    }
}
