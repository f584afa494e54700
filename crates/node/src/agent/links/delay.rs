//! Delays frames of collectives, all by the same time: simulates slow links on one machine, for measurements.
//!
//! Enabled by `--inject-link-delay`. It should change only the duration of exchanges, so control frames are not delayed.

use std::collections::VecDeque;
use wireup_proto::io::LinkId;
use wireup_wire::frame::Frame;

pub struct DelayLine {
    delay_ns: u64,
    /// Each with its due time; they stay in order of arrival, since all wait equally long.
    waiting: VecDeque<(u64, LinkId, Frame)>,
}

impl DelayLine {
    /// `None` without a delay.
    pub fn new(delay_ns: u64) -> Option<DelayLine> {
        (delay_ns > 0).then(|| DelayLine { delay_ns, waiting: VecDeque::new() })
    }

    pub fn push(&mut self, now_ns: u64, link: LinkId, frame: Frame) {
        self.waiting.push_back((now_ns + self.delay_ns, link, frame));
    }

    /// The next frame whose time has come.
    pub fn pop(&mut self, now_ns: u64) -> Option<(LinkId, Frame)> {
        if self.deadline_ns()? > now_ns {
            return None;
        }
        self.waiting.pop_front().map(|(_, link, frame)| (link, frame))
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.waiting.front().map(|(due_ns, ..)| *due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wireup_wire::frame::{Class, Kind};

    #[test]
    fn frames_leave_in_order_when_their_time_has_come() {
        assert!(DelayLine::new(0).is_none());
        let mut line = DelayLine::new(10).unwrap();
        let frame = |arg| Frame {
            kind: Kind::ExchangeUp,
            class: Class::Exchange,
            stream: 0,
            job: 0,
            arg,
            payload: Bytes::new(),
        };
        line.push(100, LinkId(1), frame(1));
        line.push(105, LinkId(2), frame(2));
        assert_eq!(line.deadline_ns(), Some(110));
        assert!(line.pop(109).is_none());
        assert_eq!(line.pop(120).map(|(link, frame)| (link, frame.arg)), Some((LinkId(1), 1)));
        assert_eq!(line.pop(120).map(|(link, frame)| (link, frame.arg)), Some((LinkId(2), 2)));
        assert!(line.pop(120).is_none());
        assert_eq!(line.deadline_ns(), None);
    }
}
