//! What is copied, and who copies it.

/// A contestant with a tree.
pub type Case = (Kind, Contestant);

/// A tree of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Mixed,
    Random,
    Small,
    /// Like `Mixed`, staged once for the agents' memory.
    Memory,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Mixed, Kind::Random, Kind::Small, Kind::Memory];
    pub const TIMED: [Kind; 3] = [Kind::Mixed, Kind::Random, Kind::Small];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Mixed => "mixed",
            Kind::Random => "random",
            Kind::Small => "small",
            Kind::Memory => "memory",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contestant {
    /// `wireup stage up` with encrypted links, the default.
    Encrypted,
    /// The same with `--plain-links`.
    Plain,
    Relays(Shape),
}

/// How bare relays are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    Chain,
    BinaryTree,
}

impl Contestant {
    pub const ALL: [Contestant; 4] =
        [Contestant::Encrypted, Contestant::Plain, Contestant::RELAYS[0], Contestant::RELAYS[1]];
    pub const SESSIONS: [Contestant; 2] = [Contestant::Encrypted, Contestant::Plain];
    pub const RELAYS: [Contestant; 2] = [Contestant::Relays(Shape::Chain), Contestant::Relays(Shape::BinaryTree)];

    pub fn name(self) -> &'static str {
        match self {
            Contestant::Encrypted => "wireup",
            Contestant::Plain => "wireup-plain",
            Contestant::Relays(Shape::Chain) => "chain",
            Contestant::Relays(Shape::BinaryTree) => "binary-tree",
        }
    }
}

impl Shape {
    /// The relays below this one; all have higher numbers.
    pub fn children(self, index: usize, count: usize) -> impl Iterator<Item = usize> {
        let first = match self {
            Shape::Chain => index + 1..index + 2,
            Shape::BinaryTree => 2 * index + 1..2 * index + 3,
        };
        first.filter(move |child| *child < count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_relay_but_the_first_has_one_parent() {
        for (shape, count) in
            [Shape::Chain, Shape::BinaryTree].into_iter().flat_map(|shape| [1, 2, 7, 16].map(|n| (shape, n)))
        {
            let mut all: Vec<usize> = (0..count).flat_map(|index| shape.children(index, count)).collect();
            all.sort_unstable();
            assert_eq!(all, (1..count).collect::<Vec<_>>(), "{shape:?} {count}");
        }
        assert_eq!(Shape::BinaryTree.children(2, 6).collect::<Vec<_>>(), [5]);
    }
}
