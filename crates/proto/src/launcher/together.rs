//! Tracks which jobs belong together, so that a failure of one ends the others.

use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::JobId;

#[derive(Default)]
pub struct Together {
    /// Number of open connections between two jobs, stored for both directions. It may be 0: one job has started the
    /// other, or a third job, now over, connected the two.
    links: BTreeMap<JobId, BTreeMap<JobId, u32>>,
}

impl Together {
    /// Joins two jobs: they belong together until all their connections, if there will be any, have ended.
    pub fn link(&mut self, one: JobId, other: JobId) {
        self.add(one, other, 0);
    }

    pub fn connect(&mut self, one: JobId, other: JobId) {
        self.add(one, other, 1);
    }

    fn add(&mut self, one: JobId, other: JobId, connections: u32) {
        for (from, to) in [(one, other), (other, one)] {
            *self.links.entry(from).or_default().entry(to).or_default() += connections;
        }
    }

    /// One connection has ended. Even after the last one the two jobs may belong together by way of other jobs.
    pub fn disconnect(&mut self, one: JobId, other: JobId) {
        for (from, to) in [(one, other), (other, one)] {
            let Some(links) = self.links.get_mut(&from) else { continue };
            match links.get_mut(&to) {
                Some(open) if *open > 1 => *open -= 1,
                Some(_) | None => drop(links.remove(&to)),
            }
        }
    }

    /// A job is over. Jobs that belonged together by way of it still belong together.
    pub fn remove(&mut self, job: JobId) {
        let neighbours: Vec<JobId> = self.links.remove(&job).unwrap_or_default().into_keys().collect();
        for neighbour in &neighbours {
            if let Some(links) = self.links.get_mut(neighbour) {
                links.remove(&job);
            }
        }
        neighbours.windows(2).for_each(|pair| self.link(pair[0], pair[1]));
        self.links.retain(|_, links| !links.is_empty());
    }

    /// All jobs that belong to this one, and the job itself.
    pub fn all_with(&self, job: JobId) -> BTreeSet<JobId> {
        let (mut found, mut open) = (BTreeSet::from([job]), vec![job]);
        while let Some(next) = open.pop() {
            let neighbours = self.links.get(&next).into_iter().flat_map(BTreeMap::keys).copied();
            open.extend(neighbours.filter(|neighbour| found.insert(*neighbour)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(together: &Together, job: u32) -> Vec<u32> {
        together.all_with(JobId(job)).into_iter().map(|job| job.0).collect()
    }

    #[test]
    fn jobs_belong_together_until_they_disconnect() {
        let mut together = Together::default();
        for (one, other) in [(1, 2), (2, 3), (4, 5)] {
            together.connect(JobId(one), JobId(other));
        }
        assert_eq!([with(&together, 1), with(&together, 5), with(&together, 6)], [vec![1, 2, 3], vec![4, 5], vec![6]]);
        together.disconnect(JobId(2), JobId(3));
        assert_eq!([with(&together, 1), with(&together, 3)], [vec![1, 2], vec![3]]);
    }

    #[test]
    fn jobs_belong_together_as_long_as_one_connection_is_open() {
        let mut together = Together::default();
        together.link(JobId(1), JobId(2));
        for _ in 0..2 {
            together.connect(JobId(1), JobId(2));
        }
        together.disconnect(JobId(2), JobId(1));
        assert_eq!(with(&together, 2), [1, 2]);
        together.disconnect(JobId(1), JobId(2));
        assert_eq!([with(&together, 1), with(&together, 2)], [vec![1], vec![2]]);
    }

    #[test]
    fn a_job_that_is_over_leaves_the_others_together() {
        let mut together = Together::default();
        [2, 3, 4].into_iter().for_each(|child| together.connect(JobId(1), JobId(child)));
        together.remove(JobId(1));
        assert_eq!(with(&together, 4), [2, 3, 4]);
        [2, 3, 4].into_iter().for_each(|job| together.remove(JobId(job)));
        assert!(together.links.is_empty());
    }
}
