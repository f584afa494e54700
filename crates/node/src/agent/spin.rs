//! Whether to look again for a moment before sleeping: an answer on a link may be on its way.
//!
//! To be put to sleep and woken takes longer than a small message between two agents. So an agent that has just had something from
//! another one looks for what comes next for some microseconds, as long as that pays: each look in vain makes it leave out twice as many
//! chances, and an agent that shares its cpus with others is soon back at sleeping at once.

/// How long (ns). Chosen: about two ways of a small message.
const SPIN_NS: u64 = 8_000;
/// Chances left out after many in vain. Chosen: then less than a tenth of a microsecond is lost for each.
const LEFT_OUT_MAX: u32 = 128;
/// Reads of the same link in a row before the others have their turn (chosen).
const UNASKED_MAX: u32 = 16;

#[derive(Default)]
pub struct Spin {
    /// Chances to leave out before the next look.
    left_out: u32,
    /// How many were left out before the last one.
    penalty: u32,
    talked: bool,
    /// Reads in a row for which the reactor was not asked.
    unasked: u32,
}

impl Spin {
    /// Another agent has just said something.
    pub fn on_talk(&mut self) {
        self.talked = true;
    }

    /// Until when to look, if that may pay.
    pub fn until_ns(&mut self, now_ns: u64) -> Option<u64> {
        if !std::mem::take(&mut self.talked) {
            return None;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return None;
        }
        Some(now_ns + SPIN_NS)
    }

    /// Whether the link that last had something may be read before the reactor is asked about all.
    pub fn may_read_first(&mut self) -> bool {
        self.unasked = (self.unasked + 1) % UNASKED_MAX;
        self.unasked != 0
    }

    /// What came of it.
    pub fn on_result(&mut self, paid: bool) {
        self.penalty = if paid { 0 } else { (self.penalty * 2 + 1).min(LEFT_OUT_MAX) };
        self.left_out = self.penalty;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_as_long_as_that_pays() {
        let mut spin = Spin::default();
        assert_eq!(spin.until_ns(5), None, "nobody spoke");
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
        // One that pays brings it back.
        spin.on_result(true);
        spin.on_talk();
        assert!(spin.until_ns(0).is_some());
    }
}
