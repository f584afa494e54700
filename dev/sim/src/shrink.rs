//! Reduces a world to the smallest one that still breaks a rule.

use crate::fault_injection::Fault;
use crate::remote::Remote;
use crate::spec::{ADDED, JobPlan, WorldSpec};
use crate::workload::Script;
use std::rc::Rc;

/// Maximum number of events of a world that is being reduced. Chosen: several times as many as random worlds have.
const EVENTS_MAX: u64 = 500_000;

/// Removes faults, jobs, agents and steps of programs, as many at a time as possible, while the world still fails.
pub fn shrink(mut spec: WorldSpec, fails: impl Fn(&WorldSpec) -> bool) -> WorldSpec {
    let ends = ends_of_jobs(&spec);
    // A smaller world needs fewer events. With a lower limit, a world that never ends is noticed soon.
    spec.event_max = spec.event_max.min(EVENTS_MAX);
    let fails = |spec: &WorldSpec| (ends_of_jobs(spec) == ends || !has_endless_jobs(spec)) && fails(spec);
    loop {
        let before = size(&spec);
        spec = without(spec, &fails, |spec| spec.faults.len(), |spec, range| drop(spec.faults.drain(range)));
        if spec.is_standing {
            spec = without(spec, &fails, |spec| spec.jobs.len(), |spec, range| drop(spec.jobs.drain(range)));
        }
        for job in 0..spec.jobs.len() {
            for app in 0..spec.jobs[job].apps.len() {
                let steps = |spec: &WorldSpec| spec.jobs[job].apps[app].1.steps.len();
                spec = without(spec, &fails, steps, |spec, range| remove_steps(&mut spec.jobs[job].apps[app].1, range));
            }
        }
        spec = with_fewer_agents(spec, &fails);
        if size(&spec) == before {
            return spec;
        }
    }
}

fn ends_of_jobs(spec: &WorldSpec) -> usize {
    spec.faults.iter().filter(|fault| matches!(fault, Fault::EndJobs { .. })).count()
}

/// Whether the world has a job that must be ended from outside: if nothing ends it, the world fails for this reason
/// alone.
fn has_endless_jobs(spec: &WorldSpec) -> bool {
    spec.jobs.iter().any(JobPlan::is_endless)
}

fn size(spec: &WorldSpec) -> usize {
    let steps = spec.jobs.iter().flat_map(|job| &job.apps).map(|(_, script)| script.steps.len());
    spec.faults.len() + spec.jobs.len() + spec.agents as usize + steps.sum::<usize>()
}

fn remove_steps(script: &mut Rc<Script>, range: std::ops::Range<usize>) {
    let mut steps = script.steps.to_vec();
    steps.drain(range);
    *script = Rc::new(Script { steps: steps.into(), ..(**script).clone() });
}

/// Removes elements of one list: halves first, single ones last.
fn without(
    mut spec: WorldSpec,
    fails: &impl Fn(&WorldSpec) -> bool,
    len: impl Fn(&WorldSpec) -> usize,
    remove: impl Fn(&mut WorldSpec, std::ops::Range<usize>),
) -> WorldSpec {
    let mut step = len(&spec).div_ceil(2);
    while step > 0 {
        let mut first = 0;
        while first < len(&spec) {
            let mut smaller = spec.clone();
            let end = len(&smaller).min(first + step);
            remove(&mut smaller, first..end);
            if fails(&smaller) {
                spec = smaller;
            } else {
                first += step;
            }
        }
        step /= 2;
    }
    spec
}

fn with_fewer_agents(mut spec: WorldSpec, fails: &impl Fn(&WorldSpec) -> bool) -> WorldSpec {
    while spec.agents > 1 {
        let agents = spec.agents - 1;
        let remote = spec.remote.clone().map(|mut remote: Remote| {
            remote.hosts.truncate(remote.hosts.len() - 1);
            remote
        });
        let smaller = WorldSpec { agents, remote, ..spec.clone() };
        if names_more(&smaller) || !fails(&smaller) {
            break;
        }
        spec = smaller;
    }
    spec
}

/// Whether the spec mentions agents that do not exist.
fn names_more(spec: &WorldSpec) -> bool {
    let of_faults = spec.faults.iter().flat_map(|fault| fault.agents());
    let of_jobs = spec.jobs.iter().flat_map(|job| job.nodes.iter().copied());
    of_faults.chain(of_jobs.filter(|agent| *agent != ADDED)).any(|agent| agent >= spec.agents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::sessions::empty;
    use crate::workload::{Step, Which};

    #[test]
    fn what_does_not_matter_is_left_out() {
        let faults = (0..9).map(|agent| Fault::KillAgent { agent, at_ns: u64::from(agent) }).collect();
        let steps = [Step::Init, Step::Hang, Step::Wait(Which::All), Step::Finalize];
        let jobs = (0..5).map(|_| JobPlan::even([1], 1, Script::plain(&steps))).collect();
        let ends = [Fault::EndJobs { at_ns: 1 }];
        let faults = [faults, ends.to_vec()].concat();
        let spec = WorldSpec { faults, jobs, ..empty(1, 12, 2) };
        let has = |spec: &WorldSpec, agent| spec.faults.contains(&Fault::KillAgent { agent, at_ns: u64::from(agent) });
        let hangs = |spec: &WorldSpec| spec.jobs.iter().filter(|job| job.is_endless()).count() > 1;
        let small = shrink(spec, |spec| has(spec, 2) && has(spec, 7) && hangs(spec));
        assert_eq!((small.faults.len(), small.jobs.len(), small.agents), (3, 2, 8));
        assert_eq!(small.jobs[0].apps[0].1.steps[..], [Step::Hang]);
    }
}
