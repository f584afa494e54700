//! Decides whether to poll for a moment before sleeping, since an answer on a link may be about to arrive.
//!
//! Going to sleep and being woken takes longer than a small message between two agents. So an agent that has just
//! received something from another one polls for the next message for some microseconds, as long as that pays off: each
//! poll in vain makes it skip twice as many chances, and an agent that shares its CPUs with others soon sleeps at once
//! again.

/// Duration of a poll (ns). Chosen: about two one-way times of a small message.
const SPIN_NS: u64 = 8_000;
/// Most chances skipped after many polls in vain. Chosen: the loss is then below a tenth of a microsecond per chance.
const LEFT_OUT_MAX: u32 = 128;
/// Number of reads of the same link in a row before the other descriptors are looked at (chosen).
const UNASKED_MAX: u32 = 16;

#[derive(Default)]
pub struct Spin {
    /// Whether there are too few CPUs to poll: the other agent may need this one.
    is_off: bool,
    /// Number of chances that are skipped before the next poll.
    left_out: u32,
    /// Number of chances that were skipped before the last poll.
    penalty: u32,
    talked: bool,
    /// Number of reads in a row without a call of the reactor.
    unasked: u32,
}

impl Spin {
    /// The state for an agent that may use this many CPUs.
    pub fn new(cpus: usize) -> Spin {
        Spin { is_off: cpus < 2, ..Spin::default() }
    }

    /// Another agent has just sent something.
    pub fn on_talk(&mut self) {
        self.talked = true;
    }

    /// Time until which to poll (ns), if that may pay off.
    pub fn until_ns(&mut self, now_ns: u64) -> Option<u64> {
        if !std::mem::take(&mut self.talked) || self.is_off {
            return None;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return None;
        }
        Some(now_ns + SPIN_NS)
    }

    /// Whether the link that last received something may be read before the reactor is called.
    pub fn may_read_first(&mut self) -> bool {
        self.unasked = (self.unasked + 1) % UNASKED_MAX;
        self.unasked != 0
    }

    /// The result of a poll.
    pub fn on_result(&mut self, paid: bool) {
        self.penalty = if paid { 0 } else { (self.penalty * 2 + 1).min(LEFT_OUT_MAX) };
        self.left_out = self.penalty;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_becomes_rare_while_it_finds_nothing() {
        let mut spin = Spin::default();
        assert_eq!(spin.until_ns(5), None, "no agent has sent anything");
        let mut alone = Spin::new(1);
        alone.on_talk();
        assert_eq!(alone.until_ns(5), None, "the other agent needs the cpu");
        for _ in 0..3 {
            spin.on_talk();
            assert_eq!(spin.until_ns(5), Some(5 + SPIN_NS));
            spin.on_result(true);
        }
        let mut looks = 0;
        for _ in 0..10_000 {
            spin.on_talk();
            if spin.until_ns(0).is_some() {
                looks += 1;
                spin.on_result(false);
            }
        }
        assert!(looks < 10_000 / LEFT_OUT_MAX + 10, "{looks}");
        // One success resets it.
        spin.on_result(true);
        spin.on_talk();
        assert!(spin.until_ns(0).is_some());
    }
}
