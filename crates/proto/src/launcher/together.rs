//! Which jobs belong together: a failure of one ends the others.

use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::JobId;

#[derive(Default)]
pub struct Together {
    /// In both directions.
    links: BTreeMap<JobId, BTreeSet<JobId>>,
}

impl Together {
    pub fn connect(&mut self, one: JobId, other: JobId) {
        self.links.entry(one).or_default().insert(other);
        self.links.entry(other).or_default().insert(one);
    }

    /// They may still belong together by way of other jobs.
    pub fn disconnect(&mut self, one: JobId, other: JobId) {
        for (from, to) in [(one, other), (other, one)] {
            if let Some(links) = self.links.get_mut(&from) {
                links.remove(&to);
            }
        }
    }

    /// A job is over. Those that belonged together by way of it still do.
    pub fn remove(&mut self, job: JobId) {
        let neighbours: Vec<JobId> = self.links.remove(&job).unwrap_or_default().into_iter().collect();
        for neighbour in &neighbours {
            if let Some(links) = self.links.get_mut(neighbour) {
                links.remove(&job);
            }
        }
        neighbours.windows(2).for_each(|pair| self.connect(pair[0], pair[1]));
        self.links.retain(|_, links| !links.is_empty());
    }

    /// All jobs that belong to this one, with it.
    pub fn all_with(&self, job: JobId) -> BTreeSet<JobId> {
        let (mut found, mut open) = (BTreeSet::from([job]), vec![job]);
        while let Some(next) = open.pop() {
            let neighbours = self.links.get(&next).into_iter().flatten().copied();
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
    fn a_job_that_is_over_leaves_the_others_together() {
        let mut together = Together::default();
        [2, 3, 4].into_iter().for_each(|child| together.connect(JobId(1), JobId(child)));
        together.remove(JobId(1));
        assert_eq!(with(&together, 4), [2, 3, 4]);
        [2, 3, 4].into_iter().for_each(|job| together.remove(JobId(job)));
        assert!(together.links.is_empty());
    }
}
