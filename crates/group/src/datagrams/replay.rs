//! Replay protection: records which datagram counters have been accepted, so that none is accepted twice.

/// How far a counter may be below the highest one. Chosen: several windows of segments and their acknowledgements.
const BEHIND_MAX: u64 = 1024;
const WORDS: usize = (BEHIND_MAX / 64) as usize;

#[derive(Default)]
pub struct Replay {
    /// All counters from this one on have not been seen yet.
    end: u64,
    /// One bit for each of the last [`BEHIND_MAX`] counters, at index `counter % BEHIND_MAX`.
    seen: [u64; WORDS],
}

impl Replay {
    /// Whether a datagram with this counter may be accepted.
    pub fn is_new(&self, counter: u64) -> bool {
        let is_old = counter < self.end && (self.end - counter > BEHIND_MAX || self.bit(counter));
        !is_old && counter < u64::MAX
    }

    /// Records the counter of a datagram that is accepted: the datagram was authenticated, and [`Replay::is_new`] has
    /// returned `true` for its counter.
    pub fn note(&mut self, counter: u64) {
        if counter >= self.end {
            let fresh = (counter + 1 - self.end).min(BEHIND_MAX);
            (0..fresh).for_each(|back| self.put(counter - back, false));
            self.end = counter + 1;
        }
        self.put(counter, true);
    }

    /// Whether this counter is higher than all counters accepted so far.
    pub fn is_latest(&self, counter: u64) -> bool {
        counter >= self.end
    }

    fn bit(&self, counter: u64) -> bool {
        self.seen[(counter % BEHIND_MAX / 64) as usize] >> (counter % 64) & 1 == 1
    }

    fn put(&mut self, counter: u64, is_seen: bool) {
        let word = &mut self.seen[(counter % BEHIND_MAX / 64) as usize];
        *word = *word & !(1 << (counter % 64)) | u64::from(is_seen) << (counter % 64);
    }
}
