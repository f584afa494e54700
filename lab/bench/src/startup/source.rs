//! Results published by the source: S. Chakraborty, H. Subramoni, A. Moody, A. Venkatesh, J. Perkins, D. K. Panda,
//! Non-blocking PMI Extensions for Fast MPI Startup (CCGrid 2015). Its machine was Stampede, with 16 processes per node
//! and SLURM 2.6.5.
//!
//! Only numbers given in its text or tables; none are read off its curves.

pub const CITATION: &str =
    "Chakraborty et al., Non-blocking PMI Extensions for Fast MPI Startup, 2015 (Stampede, 16 per node)";

/// A row of its table I (Fence) or II (Allgather).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub job_size: u32,
    /// Bytes that each process sends in the gather phase: value, key, overhead.
    pub bytes_per_value: u32,
    pub gather_ms: f64,
    pub broadcast_kb: f64,
    pub broadcast_ms: f64,
    pub processing_ms: f64,
    pub total_ms: f64,
}

const fn row(job_size: u32, bytes_per_value: u32, ms: [f64; 4], broadcast_kb: f64) -> Row {
    let [gather_ms, broadcast_ms, processing_ms, total_ms] = ms;
    Row { job_size, bytes_per_value, gather_ms, broadcast_kb, broadcast_ms, processing_ms, total_ms }
}

pub const FENCE: [Row; 2] =
    [row(4096, 35, [236.0, 218.0, 4.28, 396.0], 143.0), row(8192, 35, [284.0, 386.0, 8.74, 685.0], 286.0)];
pub const ALLGATHER: [Row; 2] =
    [row(4096, 26, [165.0, 201.0, 0.18, 275.0], 104.0), row(8192, 26, [256.0, 356.0, 0.36, 471.0], 208.0)];

/// Its rows for one of our schemes, if it has any.
pub fn rows_of(scheme: &str) -> &'static [Row] {
    match scheme {
        "text-fence" | "fence" => &FENCE,
        "allgather" => &ALLGATHER,
        _ => &[],
    }
}
