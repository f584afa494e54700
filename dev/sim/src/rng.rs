//! Random numbers: one small deterministic generator, split into a stream for each purpose.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). The parts of a run draw
//! from streams of their own, so that one more draw in one part does not change the numbers of another.

/// A stream of random numbers; equal seeds give equal streams.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(mix(seed ^ 0x9e37_79b9_7f4a_7c15))
    }

    /// An independent stream for one purpose.
    pub fn stream(seed: u64, purpose: &str) -> Self {
        let tag = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Rng::new(mix(seed) ^ tag)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A random number of `0..bound`; 0 for an empty range.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A random number of `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `permille` of 1,000 cases.
    pub fn chance(&mut self, permille: u32) -> bool {
        permille > 0 && self.below(1000) < u64::from(permille)
    }

    /// A random element of `choices`.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// Makes every bit of the result depend on every bit of `value`.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, purpose| {
            let mut rng = Rng::stream(seed, purpose);
            [rng.draw(), rng.draw(), rng.draw()]
        };
        assert_eq!(draw(1, "net"), draw(1, "net"));
        assert_ne!(draw(1, "net"), draw(2, "net"));
        assert_ne!(draw(1, "net"), draw(1, "ranks"));
    }

    #[test]
    fn ranges_are_kept_to_their_ends() {
        let mut rng = Rng::new(7);
        let drawn: Vec<u64> = (0..200).map(|_| rng.between(3, 5)).collect();
        assert!((3..=5).all(|value| drawn.contains(&value)));
        assert!(drawn.iter().all(|value| (3..=5).contains(value)));
        assert_eq!(rng.below(0), 0);
    }
}
