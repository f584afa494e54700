//! Fences: each rank leaves each fence once, and none before all are in.

/// Who is in and out of every fence so far.
#[derive(Debug)]
pub struct Fences {
    size: u32,
    epochs: Vec<Epoch>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Epoch {
    entered: u32,
    released: u32,
}

impl Fences {
    pub fn new(size: u32) -> Self {
        Fences { size, epochs: Vec::new() }
    }

    /// A rank enters its fence number `epoch`.
    pub fn on_enter(&mut self, epoch: u32) {
        if self.epochs.len() <= epoch as usize {
            self.epochs.push(Epoch::default());
        }
        self.epochs[epoch as usize].entered += 1;
    }

    /// A rank is released from its fence number `epoch`.
    pub fn on_release(&mut self, epoch: u32) -> Result<(), String> {
        let size = self.size;
        let Some(seen) = self.epochs.get_mut(epoch as usize) else {
            return Err(format!("released from fence {epoch}, which nobody entered"));
        };
        seen.released += 1;
        if seen.entered < size {
            return Err(format!("released from fence {epoch} with {} of {size} ranks in", seen.entered));
        }
        if seen.released > size {
            return Err(format!("fence {epoch} releases more ranks than there are"));
        }
        Ok(())
    }

    /// Fences that released all ranks.
    pub fn complete(&self) -> u32 {
        self.epochs.iter().filter(|epoch| epoch.released == self.size).count() as u32
    }

    /// The first fence that some ranks entered and not all left.
    pub fn unfinished(&self) -> Option<u32> {
        self.epochs.iter().position(|epoch| epoch.released < self.size).map(|epoch| epoch as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_release_is_seen() {
        let mut fences = Fences::new(2);
        fences.on_enter(0);
        assert!(fences.on_release(0).is_err());
        let mut fences = Fences::new(2);
        fences.on_enter(0);
        fences.on_enter(0);
        assert_eq!(fences.on_release(0), Ok(()));
        assert_eq!(fences.unfinished(), Some(0));
        assert_eq!(fences.on_release(0), Ok(()));
        assert_eq!((fences.complete(), fences.unfinished()), (1, None));
        assert!(fences.on_release(0).is_err(), "a third release of two ranks");
        assert!(fences.on_release(1).is_err());
    }
}
