//! The result of a benchmark.

pub struct Summary {
    /// Figures that missed their target.
    pub missed: usize,
    /// Whether there is any figure.
    pub has_measured: bool,
    pub interrupted: bool,
}

impl Summary {
    /// Of a command that only lists what would run.
    pub fn listed() -> Summary {
        Summary { missed: 0, has_measured: true, interrupted: false }
    }
}
