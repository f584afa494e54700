//! Records which nodes know of which other jobs: these nodes are told when such a job is over, so that their PMIx
//! servers forget it.

use super::place::{Place, order};
use crate::session::Cx;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::JobId;
use wireup_wire::inter_job::Order;
use wireup_wire::job::JobSpec;

#[derive(Default)]
pub struct Told {
    of: BTreeMap<JobId, Known>,
}

struct Known {
    nspace: String,
    by: BTreeSet<Place>,
}

impl Told {
    /// A node is told of a job.
    pub fn note(&mut self, spec: &JobSpec, to: Place) {
        if spec.job != to.job {
            let new = || Known { nspace: spec.nspace.clone(), by: BTreeSet::new() };
            self.of.entry(spec.job).or_insert_with(new).by.insert(to);
        }
    }

    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId) {
        self.of.retain(|_, known| {
            known.by.retain(|place| place.job != job);
            !known.by.is_empty()
        });
        let Some(Known { nspace, by }) = self.of.remove(&job) else { return };
        by.into_iter().for_each(|place| order(cx, place, Order::Forget { nspace: nspace.clone() }));
    }

    pub fn size(&self) -> usize {
        self.of.len()
    }
}
