//! Collectives: each collective completes once at every rank, only after all ranks have entered it, and with the same
//! result everywhere.

use std::collections::BTreeMap;
use wireup_wire::collective::Collective;

/// Checks of how many ranks have entered and left each collective so far.
#[derive(Debug)]
pub struct Collectives {
    size: u32,
    epochs: Vec<Epoch>,
    /// Whether ranks entered different collectives with the same number: then the job must fail.
    pub differ: bool,
}

#[derive(Debug)]
struct Epoch {
    collective: Collective,
    entered: u32,
    /// Number of ranks that have learnt that the collective is complete, or that did not have to wait (in a lazy
    /// fence).
    released: u32,
    /// Number of ranks that exited by themselves while the collective was in progress.
    abandoned: u32,
    /// Version of the kvs after a fence, as the first rank that left the fence has received it.
    version: Option<u32>,
    /// For each position of a ring, the rank there and its two neighbours.
    places: BTreeMap<u32, RingPosition>,
}

#[derive(Clone, Copy, Debug)]
struct RingPosition {
    rank: u32,
    left: u32,
    right: u32,
}

impl Collectives {
    pub fn new(size: u32) -> Self {
        Collectives { size, epochs: Vec::new(), differ: false }
    }

    /// A rank enters its collective number `epoch`.
    pub fn on_enter(&mut self, epoch: u32, collective: Collective) {
        if self.epochs.len() <= epoch as usize {
            let fresh =
                Epoch { collective, entered: 0, released: 0, abandoned: 0, version: None, places: BTreeMap::new() };
            self.epochs.push(fresh);
        }
        let seen = &mut self.epochs[epoch as usize];
        seen.entered += 1;
        self.differ |= seen.collective != collective;
    }

    /// A rank learns that its collective number `epoch` is complete.
    pub fn on_release(&mut self, epoch: u32) -> Result<(), String> {
        let size = self.size;
        self.expect_complete(epoch)?;
        let seen = &mut self.epochs[epoch as usize];
        seen.released += 1;
        if seen.released > size {
            return Err(format!("collective {epoch} releases more ranks than there are"));
        }
        Ok(())
    }

    /// A rank's lazy fence was answered: the rank may continue even if others have not entered it.
    pub fn on_lazy(&mut self, epoch: u32) {
        self.epochs[epoch as usize].released += 1;
    }

    /// A rank has exited by itself and no longer waits for this collective.
    pub fn on_abandon(&mut self, epoch: u32) {
        self.epochs[epoch as usize].abandoned += 1;
    }

    /// Checks that all ranks have entered collective `epoch`.
    pub fn expect_complete(&self, epoch: u32) -> Result<(), String> {
        let (seen, size) = (self.epochs.get(epoch as usize), self.size);
        match seen.map_or(0, |seen| seen.entered) {
            entered if entered == size => Ok(()),
            entered => Err(format!("continues after collective {epoch}, which {entered} of {size} ranks entered")),
        }
    }

    /// A rank receives the version of the kvs after fence `epoch`.
    pub fn on_version(&mut self, epoch: u32, version: u32) -> Result<(), String> {
        let known = *self.epochs[epoch as usize].version.get_or_insert(version);
        if known != version {
            return Err(format!("fence {epoch} has version {version} here and {known} at other ranks"));
        }
        Ok(())
    }

    /// A rank receives its position in ring `epoch`.
    pub fn on_place(&mut self, epoch: u32, position: u32, rank: u32, left: u32, right: u32) -> Result<(), String> {
        let size = self.size;
        let places = &mut self.epochs[epoch as usize].places;
        if position >= size {
            return Err(format!("has the invalid position {position} in ring {epoch}"));
        }
        if let Some(other) = places.insert(position, RingPosition { rank, left, right }) {
            return Err(format!("has position {position} in ring {epoch}, and so has {other:?}"));
        }
        let rank_at = |position: u32| places.get(&(position % size)).map(|place| place.rank);
        let (before, behind) = (rank_at(position + size - 1), rank_at(position + 1));
        if before.is_some_and(|before| before != left) || behind.is_some_and(|behind| behind != right) {
            let around = format!("{before:?} and {behind:?}");
            return Err(format!("has neighbours {left} and {right} in ring {epoch}, expected {around}"));
        }
        let looks = |position: u32| places.get(&(position % size));
        let seen_from_left = looks(position + size - 1).is_none_or(|place| place.right == rank);
        let seen_from_right = looks(position + 1).is_none_or(|place| place.left == rank);
        if !seen_from_left || !seen_from_right {
            return Err(format!("has position {position} in ring {epoch}, but a neighbour has another rank beside it"));
        }
        Ok(())
    }

    /// Number of collectives that released all ranks; `only`: count only collectives of this kind.
    pub fn complete(&self, only: Option<Collective>) -> u32 {
        let complete = |epoch: &&Epoch| epoch.released == self.size && only.is_none_or(|only| epoch.collective == only);
        self.epochs.iter().filter(complete).count() as u32
    }

    /// The first collective that some rank has entered, and has neither completed nor abandoned.
    pub fn unfinished(&self) -> Option<u32> {
        let waits = |epoch: &Epoch| epoch.entered > epoch.released + epoch.abandoned;
        self.epochs.iter().position(waits).map(|epoch| epoch as u32)
    }

    /// Whether some ranks have entered this collective, but not all.
    pub fn is_torn(&self, epoch: u32) -> bool {
        self.epochs.get(epoch as usize).is_some_and(|epoch| epoch.entered < self.size)
    }

    /// Whether every collective was entered by all ranks or by none.
    pub fn all_entered(&self) -> bool {
        self.epochs.iter().all(|epoch| epoch.entered == self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE: Collective = Collective::Fence;

    #[test]
    fn an_early_release_is_seen() {
        let mut fences = Collectives::new(2);
        fences.on_enter(0, FENCE);
        assert!(fences.on_release(0).is_err());
        let mut fences = Collectives::new(2);
        fences.on_enter(0, FENCE);
        assert!(fences.is_torn(0) && !fences.all_entered());
        fences.on_enter(0, FENCE);
        assert_eq!(fences.on_release(0), Ok(()));
        assert_eq!(fences.unfinished(), Some(0));
        assert_eq!(fences.on_release(0), Ok(()));
        assert_eq!((fences.complete(None), fences.complete(Some(Collective::Ring)), fences.unfinished()), (1, 0, None));
        assert!(fences.on_release(0).is_err(), "a third release of two ranks");
        assert!(fences.on_release(1).is_err());
    }

    #[test]
    fn versions_are_the_same_everywhere() {
        let mut fences = Collectives::new(2);
        fences.on_enter(0, FENCE);
        assert_eq!(fences.on_version(0, 3), Ok(()));
        assert_eq!(fences.on_version(0, 3), Ok(()));
        assert!(fences.on_version(0, 4).is_err());
    }

    #[test]
    fn a_ring_is_one_ring() {
        let places = |all: &[(u32, u32, u32, u32)]| {
            let mut rings = Collectives::new(3);
            rings.on_enter(0, Collective::Ring);
            all.iter().try_for_each(|&(position, rank, left, right)| rings.on_place(0, position, rank, left, right))
        };
        assert_eq!(places(&[(0, 1, 0, 2), (2, 0, 2, 1), (1, 2, 1, 0)]), Ok(()));
        assert!(places(&[(0, 1, 0, 2), (2, 0, 2, 1), (1, 2, 0, 1)]).is_err(), "left and right exchanged");
        assert!(places(&[(0, 1, 0, 2), (0, 2, 1, 0)]).is_err(), "one position twice");
        assert!(places(&[(3, 1, 0, 2)]).is_err(), "no such position");
        assert!(places(&[(0, 1, 0, 2), (1, 2, 0, 0)]).is_err(), "a neighbour is skipped");
    }
}
