//! The cases of `wireup bench start` and `jobs`: what is timed while a session is running, and the targets for jobs in
//! it.
use crate::cases::{Case, NoCase, Place, Stream, Work};
use crate::hosts::{self, Row};
use crate::metric::Metric;
use crate::stream;
use crate::target::{Against, Target};

/// The default set of `start` on virtual nodes.
const START: [&str; 2] = ["true-64x4", "true-16x16"];
/// The same across hosts, before process initiation.
const START_ON_HOSTS: [Row; 2] = [("true-64x4", false), ("true-16x16", false)];
/// The default of `jobs`.
const JOBS: &str = "jobs-1x1";
/// The stream is cut into this many slices, one per round, so that disturbances affect all launchers alike (chosen).
const SLICES: u32 = 5;

/// The cases that the user wants: which, where, by which remote shell.
pub struct Wanted<'a> {
    /// The default set if empty.
    pub names: &'a [String],
    /// This machine if empty.
    pub hosts: &'a [String],
    pub shell: Option<&'a str>,
}

impl Wanted<'_> {
    /// The cases of `wireup bench start`.
    pub fn start(&self) -> Result<Vec<Case>, NoCase> {
        let cases = match (self.hosts.is_empty(), self.names.is_empty()) {
            (false, _) => {
                let table = [&START_ON_HOSTS[..], &hosts::INITIATION].concat();
                hosts::cases(self.names, &table, self.hosts, self.shell)?
            }
            (true, true) => START.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
            (true, false) => self.names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
        };
        cases.into_iter().map(stand).collect()
    }

    /// The cases of `wireup bench jobs`: `jobs` in all, in slices.
    pub fn jobs(&self, jobs: u32, in_flight: u32, slices: Option<u32>) -> Result<Vec<Case>, NoCase> {
        let slices = slices.unwrap_or(SLICES).min(jobs);
        let stream = Stream { jobs: jobs.div_ceil(slices), in_flight };
        let table = [JOBS.to_owned()];
        let names = if self.names.is_empty() { &table } else { self.names };
        let limit = stream::limit(stream.jobs);
        let case = |name: &String| {
            let case = Case::stream(name, self.hosts, self.shell)?;
            Ok(Case {
                stream,
                rounds: slices,
                limit,
                is_standing: true,
                target: targets_of(case.work, case.place),
                ..case
            })
        };
        names.iter().map(case).collect()
    }
}

/// The case for `--soak`: jobs through a session of `node_count` nodes.
pub fn soaked(node_count: u32) -> Case {
    let place = Place { node_count, ppn: 1 };
    // As many nodes as ranks, in the form that names of cases have.
    let case = Case::stream(&format!("jobs-{place}"), &[], None);
    Case { is_standing: true, ..case.expect("the flags were checked") }
}

/// The case with a running session.
fn stand(case: Case) -> Result<Case, NoCase> {
    if case.work == Work::Memory {
        return Err(NoCase(case.name()));
    }
    let reference = if case.work == Work::True { Against::Baseline } else { case.reference };
    Ok(Case { is_standing: true, reference, target: targets_of(case.work, case.place), ..case })
}

fn targets_of(work: Work, place: Place) -> Vec<Target> {
    let wall = |against, factor| Target { metric: Metric::Wall, against, factor, plus: 0.0 };
    match (work, place.node_count, place.ppn) {
        (Work::True, 64, 4) | (Work::True, 16, 16) => vec![
            wall(Against::Baseline, 1.5),
            wall(Against::Srun, 1.0 / 3.0),
            wall(Against::Prun, 1.0 / 3.0),
            wall(Against::Hydra5, 0.5),
        ],
        (Work::Initiation, 16, 8) => vec![wall(Against::Serial, 0.02)],
        (Work::Jobs, 1, 1) => vec![wall(Against::Manager, 0.2)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Vec<String> {
        (0..64).map(|i| format!("n{i}")).collect()
    }

    fn names(cases: &[Case]) -> Vec<String> {
        cases.iter().map(Case::name).collect()
    }

    #[test]
    fn start_cases_use_a_session_and_have_targets_at_their_size() {
        let hosts = hosts();
        let here = Wanted { names: &[], hosts: &[], shell: None }.start().unwrap();
        assert_eq!(names(&here), START);
        let there = Wanted { names: &[], hosts: &hosts, shell: Some("rsh") }.start().unwrap();
        assert_eq!(names(&there)[1..3], ["true-16x16@rsh", "initiation-4x1@rsh"]);
        for case in here.iter().chain(&there) {
            let is_judged = case.work == Work::True || case.place.job_size() == 128;
            assert!(case.is_standing && case.target.is_empty() != is_judged, "{}", case.name());
            assert!(case.target.iter().all(|target| case.metrics().contains(&target.metric)), "{}", case.name());
        }
    }

    #[test]
    fn jobs_are_split_into_slices_on_all_hosts() {
        let hosts = hosts();
        let wanted = Wanted { names: &[], hosts: &hosts, shell: None };
        let cases = wanted.jobs(1001, 16, None).unwrap();
        assert_eq!((cases[0].stream, cases[0].rounds), (Stream { jobs: 201, in_flight: 16 }, SLICES));
        assert_eq!(cases[0].remote.as_ref().unwrap().hosts.len(), 64);
        assert_eq!(cases[0].target[0].to_string(), "<= 0.2 x best of srun, prun, flux");
        assert_eq!(Wanted { hosts: &[], ..wanted }.jobs(2, 1, Some(9)).unwrap()[0].rounds, 2);
    }

    #[test]
    fn unsuitable_work_is_refused() {
        let start = |name: &str| Wanted { names: &[name.to_owned()], hosts: &[], shell: None }.start();
        assert!(start("exchange-2x2").is_ok() && start("jobs-1x1").is_err() && start("memory-2x2").is_err());
        let jobs = |name: &str| Wanted { names: &[name.to_owned()], hosts: &[], shell: None }.jobs(1, 1, None);
        assert!(jobs("jobs-2x1").is_ok() && jobs("true-1x1").is_err());
    }
}
