//! Peers with which ranks exchange messages: chosen so that every process computes the same ones, and spread evenly
//! over the job. The programs of the benchmarks (`lab/bench/programs/groups.c`) have the same two functions.

/// The fractional part of the golden ratio times 2^32: its multiples modulo 1 lie far from each other.
const GOLDEN: u32 = 2_654_435_761;

fn spread(nth: u32, size: u32) -> u32 {
    ((u64::from((nth + 1).wrapping_mul(GOLDEN)) * u64::from(size)) >> 32) as u32
}

/// The distances, to the right in the ring, of the peers of every rank: at most `count`, all different.
pub fn peers(count: u32, size: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count).map(|nth| spread(nth, size)).filter(|shift| *shift != 0).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Distance to the right, in the ring, of the rank whose address the `nth` asker needs. The first one is among the
/// farthest in steps of powers of two.
pub fn distance(nth: u32, size: u32) -> u32 {
    if nth == 0 { size / 3 } else { spread(nth, size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_different_and_others() {
        assert_eq!(peers(4, 16), [3, 7, 9, 13]);
        assert_eq!((peers(3, 1), peers(1, 2)), (vec![], vec![1]));
        for size in 2..300u32 {
            let count = u32::BITS - (size - 1).leading_zeros();
            let peers = peers(count, size);
            assert!(peers.iter().all(|peer| (1..size).contains(peer)) && peers.is_sorted());
            // Multiples of the golden ratio modulo 1 are at least 1 / (2.7 n) apart.
            assert!(size < 64 || peers.len() == count as usize, "{size}");
        }
    }
}
