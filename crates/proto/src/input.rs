//! Standard input on its way down: spread to the ranks that read it, with credit returned for what all of them took.
//!
//! One `InputSpread` per job. Bytes are passed on at once to every sink (a local rank or a child's subtree); the source
//! may have [`STDIO_WINDOW_BYTES`] under way that not all sinks have taken. A sink that ends no longer counts; when none
//! is left no credit returns, so nobody reads on for nothing.

use std::collections::BTreeMap;
use wireup_wire::ids::LocalRank;

/// Who takes standard input here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sink {
    Local(LocalRank),
    /// A child agent, by its position among the job's children.
    Child(usize),
}

#[derive(Default)]
pub struct InputSpread {
    /// Bytes that each sink has taken since the beginning.
    sinks: BTreeMap<Sink, u64>,
    passed: u64,
    credited: u64,
    ended: bool,
}

impl InputSpread {
    pub fn new(sinks: impl IntoIterator<Item = Sink>) -> Self {
        InputSpread { sinks: sinks.into_iter().map(|sink| (sink, 0)).collect(), ..Self::default() }
    }

    /// `bytes` came from above (0: the end); the sinks that they go to.
    pub fn on_bytes(&mut self, bytes: usize) -> impl Iterator<Item = Sink> + use<> {
        self.passed += bytes as u64;
        self.ended |= bytes == 0;
        self.sinks.keys().copied().collect::<Vec<_>>().into_iter()
    }

    /// A sink took `bytes`; returns the credit to pass up.
    pub fn on_taken(&mut self, sink: Sink, bytes: u32) -> u32 {
        if let Some(taken) = self.sinks.get_mut(&sink) {
            *taken = (*taken + u64::from(bytes)).min(self.passed);
        }
        self.new_credit()
    }

    /// A sink is gone; returns the credit to pass up.
    pub fn on_gone(&mut self, sink: Sink) -> u32 {
        self.sinks.remove(&sink);
        self.new_credit()
    }

    fn new_credit(&mut self) -> u32 {
        let Some(slowest) = self.sinks.values().min().copied() else {
            return 0;
        };
        let credit = slowest.saturating_sub(self.credited);
        self.credited += credit;
        u32::try_from(credit).expect("at most a window is under way")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Sink = Sink::Local(LocalRank(0));
    const B: Sink = Sink::Child(0);

    #[test]
    fn the_slowest_sink_decides() {
        let mut spread = InputSpread::new([A, B]);
        assert_eq!(spread.on_bytes(100).collect::<Vec<_>>(), [A, B]);
        assert_eq!(spread.on_taken(A, 60), 0);
        assert_eq!(spread.on_taken(B, 40), 40);
        assert_eq!(spread.on_taken(B, 60), 20);
        assert_eq!(spread.on_gone(A), 40);
    }

    #[test]
    fn nobody_left_returns_nothing() {
        let mut spread = InputSpread::new([A]);
        assert_eq!(spread.on_bytes(10).count(), 1);
        assert_eq!(spread.on_gone(A), 0);
        assert_eq!(spread.on_bytes(10).count(), 0);
    }

    #[test]
    fn a_sink_cannot_take_what_it_did_not_get() {
        let mut spread = InputSpread::new([A]);
        assert_eq!(spread.on_bytes(10).count(), 1);
        assert_eq!(spread.on_taken(A, 4_000_000_000), 10);
    }
}
