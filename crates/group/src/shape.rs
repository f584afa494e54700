//! A member's view of its group: its place, and the members at distances 1, 2, 4, … on both sides.

use alloc::vec::Vec;

/// Another process: its rank in the job, and the address at which it accepts connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    pub rank: u32,
    /// Address bytes, at most 255, which only the transport interprets.
    pub address: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    Left,
    Right,
}

/// A link to the member at distance `2^power` on one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    pub side: Side,
    pub power: usize,
}

impl Link {
    pub fn left(power: usize) -> Link {
        Link { side: Side::Left, power }
    }

    pub fn right(power: usize) -> Link {
        Link { side: Side::Right, power }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    pub me: u32,
    pub size: u32,
    /// Whether a split has made the group of consecutive ranks of the job, in ascending order.
    pub is_consecutive: bool,
    /// Peers on the left: entry `n` is at distance `2^n`.
    left: Vec<Peer>,
    right: Vec<Peer>,
}

impl Shape {
    /// The shape of a member that knows only its two neighbours; a group of one has no links.
    pub fn new(me: u32, size: u32, left: Peer, right: Peer) -> Shape {
        let (left, right) = if size > 1 { (vec![left], vec![right]) } else { (Vec::new(), Vec::new()) };
        Shape { me, size, is_consecutive: false, left, right }
    }

    /// The shape of a member that can find every other member by itself; `find` returns the peer at a place.
    pub fn whole(me: u32, size: u32, find: &dyn Fn(u32) -> Peer) -> Shape {
        let mut shape = Shape { me, size, is_consecutive: false, left: Vec::new(), right: Vec::new() };
        for power in 0..shape.powers() {
            let [left, right] = [Link::left(power), Link::right(power)].map(|link| find(shape.place(link)));
            shape.extend(left, right);
        }
        shape
    }

    /// Number of powers of two below the size: `ceil(log2 size)`.
    pub fn powers(&self) -> usize {
        powers(self.size)
    }

    pub fn peer(&self, link: Link) -> &Peer {
        match link.side {
            Side::Left => &self.left[link.power],
            Side::Right => &self.right[link.power],
        }
    }

    pub fn links(&self) -> usize {
        self.left.len() + self.right.len()
    }

    /// Adds the two members at the next power of two.
    pub fn extend(&mut self, left: Peer, right: Peer) {
        self.left.push(left);
        self.right.push(right);
    }

    /// The known members, with their places; a member may appear twice.
    pub fn known(&self) -> impl Iterator<Item = (u32, &Peer)> {
        let size = u64::from(self.size);
        let at = move |distance: u64| ((u64::from(self.me) + distance) % size) as u32;
        let right = self.right.iter().enumerate().map(move |(power, peer)| (at(1 << power), peer));
        let left = self.left.iter().enumerate().map(move |(power, peer)| (at(size - (1 << power)), peer));
        right.chain(left)
    }

    /// The place of the member that this link leads to.
    pub fn place(&self, link: Link) -> u32 {
        let (size, distance) = (u64::from(self.size), 1u64 << link.power);
        let right = match link.side {
            Side::Right => distance,
            Side::Left => size - distance,
        };
        ((u64::from(self.me) + right) % size) as u32
    }

    /// Whether the link does not wrap around from the last place to the first, or back.
    pub fn is_inside(&self, link: Link) -> bool {
        let distance = 1u64 << link.power;
        match link.side {
            Side::Right => u64::from(self.me) + distance < u64::from(self.size),
            Side::Left => u64::from(self.me) >= distance,
        }
    }
}

pub fn powers(size: u32) -> usize {
    (u32::BITS - size.saturating_sub(1).leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_reach_every_distance_below_the_size() {
        assert_eq!([1, 2, 3, 4, 5, 8, 9].map(powers), [0, 1, 2, 2, 3, 3, 4]);
        let peer = |rank| Peer { rank, address: Vec::new() };
        let mut shape = Shape::new(1, 5, peer(0), peer(2));
        shape.extend(peer(4), peer(3));
        shape.extend(peer(2), peer(0));
        assert_eq!(Shape::whole(1, 5, &peer), shape);
        for (place, peer) in shape.known() {
            assert_eq!(place, peer.rank);
        }
        assert_eq!((shape.place(Link::left(1)), shape.place(Link::right(2))), (4, 0));
        assert!(shape.is_inside(Link::left(0)) && !shape.is_inside(Link::left(1)));
        assert!(shape.is_inside(Link::right(1)) && !shape.is_inside(Link::right(2)));
    }
}
