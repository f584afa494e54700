//! Reduces a world to the smallest one that still breaks a rule.

use super::spec::{Fault, JobPlan, Mischief, SessionSpec};

/// Removes faults, jobs and start failures, as many at a time as possible, while the world still fails.
pub fn shrink(mut spec: SessionSpec, fails: impl Fn(&SessionSpec) -> bool) -> SessionSpec {
    let ends = ends_of_jobs(&spec);
    let fails = |spec: &SessionSpec| (ends_of_jobs(spec) == ends || !has_endless_jobs(spec)) && fails(spec);
    loop {
        let before = size(&spec);
        spec = without(spec, &fails, |spec| &mut spec.faults);
        spec = without(spec, &fails, |spec| &mut spec.jobs);
        spec = without(spec, &fails, |spec| &mut spec.no_start);
        spec = without(spec, &fails, |spec| &mut spec.broken_shells);
        spec = with_fewer_agents(spec, &fails);
        if size(&spec) == before {
            return spec;
        }
    }
}

fn ends_of_jobs(spec: &SessionSpec) -> usize {
    spec.faults.iter().filter(|(_, fault)| *fault == Fault::EndJobs).count()
}

/// Whether a job must be ended from outside: a world in which that does not happen fails for this reason alone.
fn has_endless_jobs(spec: &SessionSpec) -> bool {
    spec.jobs.iter().any(|job| job.mischief.is_some_and(Mischief::is_endless))
}

fn size(spec: &SessionSpec) -> usize {
    spec.faults.len() + spec.jobs.len() + spec.no_start.len() + spec.broken_shells.len() + spec.agents as usize
}

/// Removes elements of one list: halves first, single ones last.
fn without<T>(
    mut spec: SessionSpec,
    fails: &impl Fn(&SessionSpec) -> bool,
    list: impl Fn(&mut SessionSpec) -> &mut Vec<T>,
) -> SessionSpec {
    let mut step = list(&mut spec).len().div_ceil(2);
    while step > 0 {
        let mut first = 0;
        while first < list(&mut spec).len() {
            let mut smaller = spec.clone();
            let end = list(&mut smaller).len().min(first + step);
            list(&mut smaller).drain(first..end);
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

fn with_fewer_agents(mut spec: SessionSpec, fails: &impl Fn(&SessionSpec) -> bool) -> SessionSpec {
    while spec.agents > 1 {
        let smaller = SessionSpec { agents: spec.agents - 1, ..spec.clone() };
        if names_more(&smaller) || !fails(&smaller) {
            break;
        }
        spec = smaller;
    }
    spec
}

/// Whether the spec mentions agents that do not exist.
fn names_more(spec: &SessionSpec) -> bool {
    let of_faults = spec.faults.iter().flat_map(|(_, fault)| agents_of(fault));
    let of_jobs = spec.jobs.iter().flat_map(|job| job.agents.iter().copied());
    let of_starts = spec.no_start.iter().chain(&spec.broken_shells).map(|(agent, _)| *agent);
    of_faults.chain(of_jobs).chain(of_starts).any(|agent| agent >= spec.agents)
}

fn agents_of(fault: &Fault) -> Vec<u32> {
    match fault {
        Fault::KillAgent { agent }
        | Fault::CutLink { agent }
        | Fault::SilenceLink { agent }
        | Fault::PowerLoss { agent, .. }
        | Fault::Stop { agent, .. } => vec![*agent],
        Fault::Wall { from, to, .. } => vec![*from, *to],
        Fault::CutDirect | Fault::Revive | Fault::EndJobs => Vec::new(),
    }
}

/// The spec as Rust code, for a test.
pub fn as_rust(spec: &SessionSpec) -> String {
    let mut text = String::from("SessionSpec {\n");
    let mut field = |name: &str, value: String| text.push_str(&format!("    {name}: {value},\n"));
    field("seed", spec.seed.to_string());
    field("agents", spec.agents.to_string());
    field("fanout", spec.fanout.to_string());
    field("transport", format!("AgentTransport::{:?}", spec.transport));
    field("jobs", list(spec.jobs.iter().map(job)));
    field("faults", list(spec.faults.iter().map(|(at_ns, fault)| format!("({at_ns}, Fault::{fault:?})"))));
    field("no_start", format!("vec!{:?}", spec.no_start));
    field("broken_shells", format!("vec!{:?}", spec.broken_shells));
    field("remote", spec.remote.to_string());
    text.push_str("    ..SessionSpec::default()\n}");
    text
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: String = items.map(|item| format!("\n        {item},")).collect();
    if items.is_empty() { "vec![]".into() } else { format!("vec![{items}\n    ]") }
}

fn job(plan: &JobPlan) -> String {
    let JobPlan { at_ns, wait_ns, agents, ppn, work_ns, lines, mischief, launcher_dies_ns, reads } = plan;
    let mischief = mischief.map(|mischief: Mischief| format!("Mischief::{mischief:?}"));
    let mischief = mischief.map_or("None".to_owned(), |mischief| format!("Some({mischief})"));
    format!(
        "JobPlan {{ at_ns: {at_ns}, wait_ns: {wait_ns}, agents: vec!{agents:?}, ppn: {ppn}, work_ns: {work_ns}, lines: {lines}, \
         mischief: {mischief}, launcher_dies_ns: {launcher_dies_ns:?}, reads: {reads} }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let faults = (0..9).map(|agent| (u64::from(agent), Fault::KillAgent { agent })).collect();
        let jobs = (0..5).map(|at_ns| JobPlan::plain(at_ns, [1], 1)).collect();
        let spec = SessionSpec { agents: 12, faults, jobs, ..SessionSpec::default() };
        let has = |spec: &SessionSpec, agent| spec.faults.iter().any(|(_, fault)| *fault == Fault::KillAgent { agent });
        let small = shrink(spec, |spec| has(spec, 2) && has(spec, 7) && spec.jobs.len() > 1);
        let faults: Vec<u64> = small.faults.iter().map(|(at_ns, _)| *at_ns).collect();
        assert_eq!((faults, small.jobs.len(), small.agents), (vec![2, 7], 2, 8));
        assert!(as_rust(&small).contains("(7, Fault::KillAgent { agent: 7 }),"));
    }
}
