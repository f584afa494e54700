//! Stops processes as a terminal's `^Z` does.
//!
//! `SIGTSTP` alone does not stop every process: a program may handle it, and the kernel ignores it for a process group
//! that no other process in its session could continue, such as a rank with a terminal of its own. So `SIGSTOP`
//! follows, with a delay for programs that prepare for the stop; `SIGCONT` cancels it.

use wireup_wire::signal::{SIGCONT, SIGTSTP};

/// Delay from `SIGTSTP` to `SIGSTOP`. Chosen: a handler needs microseconds, and a user who presses `^Z` does not notice
/// the delay.
const GRACE_NS: u64 = 50_000_000;

/// Pending `SIGSTOP`s.
#[derive(Default)]
pub(super) struct Stops {
    /// Slots that will receive a `SIGSTOP` (`None`: all slots), each with the time of the signal (ns).
    due: Vec<(Option<u32>, u64)>,
}

impl Stops {
    /// Notes that a signal was sent to one process or to all processes.
    pub fn on_signal(&mut self, slot: Option<u32>, signal: i32, now_ns: u64) {
        match signal {
            SIGTSTP => self.due.push((slot, now_ns + GRACE_NS)),
            SIGCONT if slot.is_none() => self.due.clear(),
            SIGCONT => self.due.retain(|(whom, _)| *whom != slot),
            _ => {}
        }
    }

    /// Takes the slots to be stopped now.
    pub fn take_due(&mut self, now_ns: u64) -> Vec<Option<u32>> {
        let (due, later) = std::mem::take(&mut self.due).into_iter().partition(|(_, at)| *at <= now_ns);
        self.due = later;
        due.into_iter().map(|(whom, _)| whom).collect()
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.due.iter().map(|(_, at)| *at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_follows_its_signal_unless_a_continue_cancels_it() {
        let mut stops = Stops::default();
        stops.on_signal(None, SIGTSTP, 0);
        stops.on_signal(Some(3), SIGTSTP, 10);
        stops.on_signal(Some(4), SIGTSTP, 20);
        stops.on_signal(None, 15, 30);
        assert_eq!(stops.next_ns(), Some(GRACE_NS));
        assert_eq!(stops.take_due(GRACE_NS), [None]);
        stops.on_signal(Some(3), SIGCONT, GRACE_NS);
        assert_eq!(stops.take_due(GRACE_NS + 20), [Some(4)]);
        assert_eq!(stops.next_ns(), None);
        stops.on_signal(Some(3), SIGTSTP, 0);
        stops.on_signal(None, SIGCONT, 1);
        assert!(stops.take_due(u64::MAX).is_empty());
    }
}
