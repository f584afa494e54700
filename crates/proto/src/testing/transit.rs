//! Messages that were sent and have not arrived.

use std::collections::{BTreeSet, VecDeque};

/// A small pseudo-random generator.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    /// Returns true with a probability of `of_thousand` / 1000.
    pub fn hits(&mut self, of_thousand: usize) -> bool {
        self.below(1000) < of_thousand
    }
}

/// Messages in the order in which they were sent, each with its path. Messages on one path arrive in order.
pub struct Transit<P, M>(VecDeque<(P, M)>);

impl<P, M> Default for Transit<P, M> {
    fn default() -> Self {
        Transit(VecDeque::new())
    }
}

impl<P: Copy + Ord, M> Transit<P, M> {
    pub fn push(&mut self, path: P, message: M) {
        self.0.push_back((path, message));
    }

    pub fn first(&mut self) -> Option<(P, M)> {
        self.0.pop_front()
    }

    /// The first message of a random path.
    pub fn any(&mut self, dice: &mut Dice) -> Option<(P, M)> {
        if self.0.is_empty() {
            return None;
        }
        let paths: BTreeSet<P> = self.0.iter().map(|(path, _)| *path).collect();
        let path = *paths.iter().nth(dice.below(paths.len()))?;
        let at = self.0.iter().position(|(of, _)| *of == path)?;
        self.0.remove(at)
    }

    /// Drops all messages of a path except for the first `keep`.
    pub fn truncate(&mut self, path: P, keep: usize) {
        let mut seen = 0;
        self.0.retain(|(of, _)| {
            seen += usize::from(*of == path);
            *of != path || seen <= keep
        });
    }

    pub fn len(&self, path: P) -> usize {
        self.0.iter().filter(|(of, _)| *of == path).count()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
