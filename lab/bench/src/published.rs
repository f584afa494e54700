//! Results published by W. Yu, J. Wu and D. K. Panda: Fast and Scalable Startup of MPI Programs in InfiniBand Clusters,
//! 2004.
//!
//! Their machine had 256 nodes with two 2.4 GHz Xeons each. They are not used for verdicts, only shown next to our
//! measurements.
use crate::cases::{Case, Work};

pub const CITATION: &str =
    "Yu, Wu, Panda, Fast and Scalable Startup of MPI Programs in InfiniBand Clusters, 2004, table 1 and section 5.2";

/// A row of their table 1: the whole start of a job, including the connections between its processes (s).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub processes: u32,
    /// One ssh after the other.
    pub original_s: f64,
    /// The same with less data to exchange.
    pub ssh_dr_s: f64,
    /// The same, with the data exchanged over a ring of the processes.
    pub ssh_bc_s: f64,
    /// By standing daemons (MPD), with connections made over a ring of their own.
    pub mpd_bc_s: f64,
}

const fn row(processes: u32, [original_s, ssh_dr_s, ssh_bc_s, mpd_bc_s]: [f64; 4]) -> Row {
    Row { processes, original_s, ssh_dr_s, ssh_bc_s, mpd_bc_s }
}

pub const TABLE: [Row; 6] = [
    row(4, [0.59, 0.58, 0.61, 0.61]),
    row(8, [0.92, 0.94, 0.95, 0.63]),
    row(16, [1.74, 1.69, 1.70, 0.64]),
    row(32, [3.4, 3.37, 3.38, 0.84]),
    row(64, [7.3, 6.77, 6.76, 1.58]),
    row(128, [13.7, 13.45, 13.3, 3.10]),
];

/// Their model of the initiation alone, one ssh after the other (s).
pub fn initiation_by_ssh_s(processes: u32) -> f64 {
    0.1 * f64::from(processes)
}

/// The same by MPD (s).
pub fn initiation_by_mpd_s(processes: u32) -> f64 {
    0.2 + 0.001 * f64::from(processes)
}

/// The published line for a case of the same work and size.
pub fn beside(case: &Case) -> Option<String> {
    let job_size = case.place.job_size();
    let row = TABLE.iter().find(|row| row.processes == job_size)?;
    let by_ssh = initiation_by_ssh_s(job_size);
    let mut line = format!(
        "published (Yu 2004, SSH-DR, {job_size} processes): start {:.2} s, of which initiation {by_ssh:.1} s by its model",
        row.ssh_dr_s
    );
    if case.is_standing {
        let by_mpd = initiation_by_mpd_s(job_size);
        line += &format!("; MPD-BC, standing daemons: {:.2} s, of which {by_mpd:.2} s", row.mpd_bc_s);
    }
    (case.work == Work::Initiation).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_are_shown_only_at_their_size() {
        let hosts: Vec<String> = (0..16).map(|i| format!("n{i}")).collect();
        let at = |name: &str| Case::on_hosts(name, &hosts, "ssh").unwrap();
        let line = |name: &str| beside(&at(name));
        assert!(line("initiation-16x8").unwrap().ends_with("start 13.45 s, of which initiation 12.8 s by its model"));
        assert_eq!((line("initiation-3x1"), line("true-16x8")), (None, None));
        let running_session = Case { is_standing: true, ..at("initiation-16x8") };
        assert!(beside(&running_session).unwrap().ends_with("standing daemons: 3.10 s, of which 0.33 s"));
    }
}
