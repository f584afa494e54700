//! The times at which a run reaches certain points, such as the start of the ranks, and the progress that a run reports
//! to its watcher.

use crate::clock::START;
use wireup_proto::Instant;

/// A point of a run that several processes reach, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// An agent has linked to its parent.
    Linked,
    /// A node has all staged files; its staging rank records this by `Step::Reach`.
    Staged,
    /// A keeper has forked a rank of a job other than a staging job.
    Forked,
    /// The program of a rank of a job other than a staging job begins.
    Begun,
    /// A rank has completed its exchange; its script records this by `Step::Reach`.
    Exchanged,
    /// A rank has all that it needs to begin its work; its script records this by `Step::Reach`.
    Ready,
    /// The launcher of a job has reported a failure.
    Failed,
}

impl Point {
    pub const ALL: [Point; 7] =
        [Point::Linked, Point::Staged, Point::Forked, Point::Begun, Point::Exchanged, Point::Ready, Point::Failed];
}

/// The number of processes that have reached a point, and the time at which the last of them reached it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reached {
    pub count: u32,
    /// Virtual time from the start of the run until the last process reached the point (ns).
    pub last_ns: u64,
}

/// The times of all points of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Phases([Reached; Point::ALL.len()]);

impl Phases {
    pub fn reach(&mut self, point: Point, at: Instant) {
        let at_ns = at - START;
        let reached = &mut self.0[point as usize];
        *reached = Reached { count: reached.count + 1, last_ns: reached.last_ns.max(at_ns) };
    }

    pub fn at(&self, point: Point) -> Reached {
        self.0[point as usize]
    }
}

/// The progress of a run so far.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub events: u64,
    /// Virtual time since the start (ns).
    pub elapsed_ns: u64,
    pub phases: Phases,
}
