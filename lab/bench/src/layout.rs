//! The number of nodes of a job and of ranks on each node.
use std::fmt;
use std::str::FromStr;

/// Maximum number of ranks of a benchmark job: with more, one machine gives no useful figures (chosen).
pub const JOB_SIZE_MAX: u32 = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub node_count: u32,
    pub ppn: u32,
}

impl Layout {
    pub fn job_size(self) -> u32 {
        self.node_count * self.ppn
    }

    /// The layout of `job_size` ranks on nodes that are filled with `ppn` ranks each.
    pub fn of(job_size: u32, ppn: u32) -> Layout {
        let ppn = ppn.min(job_size);
        Layout { node_count: job_size / ppn, ppn }
    }
}

impl FromStr for Layout {
    type Err = &'static str;

    /// Parses `NODESxPPN`.
    fn from_str(text: &str) -> Result<Layout, &'static str> {
        let wrong = "expected NODESxPPN, such as 4x16, and at most 65536 ranks";
        let (node_count, ppn) = text.split_once('x').ok_or(wrong)?;
        let layout =
            Layout { node_count: node_count.parse().map_err(|_| wrong)?, ppn: ppn.parse().map_err(|_| wrong)? };
        let size = layout.node_count.checked_mul(layout.ppn);
        size.filter(|size| (1..=JOB_SIZE_MAX).contains(size)).map(|_| layout).ok_or(wrong)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.node_count, self.ppn)
    }
}
