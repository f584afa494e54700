//! The result of a benchmark.

pub struct Summary {
    /// Figures that missed their target.
    pub missed: usize,
    pub interrupted: bool,
}
