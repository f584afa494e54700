//! How a benchmark has ended.

pub struct Summary {
    /// Figures that were asked for and not reached.
    pub missed: usize,
    pub interrupted: bool,
}
