//! The contributions of ranks to allgathers and rings: functions of rank and epoch, so that the receivers can check
//! them.

use crate::rng::mix;

/// The lengths of the values of an allgather.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lens {
    /// All values of the allgather have this length.
    Fixed(u32),
    /// Values have any length up to this; many values are empty.
    UpTo(u32),
}

impl Lens {
    /// The greatest length that a value can have.
    pub fn max(self) -> u32 {
        match self {
            Lens::Fixed(len) | Lens::UpTo(len) => len,
        }
    }

    fn of(self, seed: u64, rank: u32, epoch: u32) -> usize {
        match self {
            Lens::Fixed(len) => len as usize,
            Lens::UpTo(max) => {
                let drawn = mix(seed ^ (u64::from(rank) << 32 | u64::from(epoch)) ^ 0x6c65_6e73);
                if drawn & 3 == 0 { 0 } else { (drawn >> 2) as usize % (max as usize + 1) }
            }
        }
    }
}

/// A rank's value in an allgather: any bytes that a C string can hold, including those that PMI must escape.
pub fn value(seed: u64, rank: u32, epoch: u32, lens: Lens) -> Vec<u8> {
    let len = lens.of(seed, rank, epoch);
    let mut state = mix(seed ^ (u64::from(epoch) << 32 | u64::from(rank)));
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(state.to_le_bytes().map(|byte| byte.max(1)));
        if state & 7 == 0 {
            bytes.extend_from_slice(b";;a;");
        }
        state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
    bytes.truncate(len);
    bytes
}

/// A rank's value in a ring: starts with rank and epoch, and is padded to `value_bytes`.
pub fn ring_value(rank: u32, epoch: u32, value_bytes: u16) -> String {
    let mut text = format!("{rank}.{epoch}.");
    while text.len() < usize::from(value_bytes) {
        text.push('r');
    }
    text
}

/// The rank that contributed this value to ring `epoch`.
pub fn ring_rank(value: &[u8], epoch: u32) -> Option<u32> {
    let mut fields = std::str::from_utf8(value).ok()?.splitn(3, '.');
    let (rank, of) = (fields.next()?.parse().ok()?, fields.next()?.parse::<u32>().ok()?);
    let filled = fields.next()?.bytes().all(|byte| byte == b'r');
    (of == epoch && filled).then_some(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_length_and_differ() {
        assert_eq!(value(1, 2, 3, Lens::Fixed(100)).len(), 100);
        assert_ne!(value(1, 2, 3, Lens::Fixed(100)), value(1, 2, 4, Lens::Fixed(100)));
        assert_ne!(value(1, 2, 3, Lens::Fixed(100)), value(1, 3, 3, Lens::Fixed(100)));
        let lens: Vec<usize> = (0..100).map(|rank| value(1, rank, 0, Lens::UpTo(5)).len()).collect();
        assert!((0..=5).all(|len| lens.contains(&len)) && lens.iter().all(|len| *len <= 5));
        assert!((0..10).any(|rank| value(1, rank, 0, Lens::Fixed(100)).contains(&b';')));
    }

    #[test]
    fn a_ring_value_says_whose_it_is() {
        assert_eq!(ring_rank(ring_value(17, 3, 40).as_bytes(), 3), Some(17));
        assert_eq!(ring_rank(ring_value(17, 3, 40).as_bytes(), 4), None);
        assert_eq!(ring_rank(b"17.3.rrx", 3), None);
    }
}
