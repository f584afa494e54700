//! Compares targets with measurements, within one run of the benchmark.
//!
//! The two figures of a round are combined first, and then the median is taken over the rounds: a disturbance that
//! lasts for a whole round affects both figures and cancels out.
use serde::Serialize;

use crate::cases::OpenMpi;
use crate::launcher::{Kind, Launcher};
use crate::measure::{Measured, Series};
use crate::metric::Metric;
use crate::peers::{PeerKind, major};
use crate::stats;
use crate::target::{Against, Target};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The figure for display: a ratio, or a difference if the target is a sum.
    Met(String),
    Missed(String),
    /// The reason why there is no verdict.
    NotJudged(String),
}

/// The median of the per-round ratios of `subject` to `reference`. Rounds that lack either value are left out; there is
/// no ratio to a reference too short for its clock.
pub fn ratio(subject: &[Option<f64>], reference: &[Option<f64>]) -> Option<f64> {
    stats::median(&by_round(subject, reference, |value, base| value / base)).filter(|ratio| ratio.is_finite())
}

fn by_round(subject: &[Option<f64>], reference: &[Option<f64>], of: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    subject.iter().zip(reference).filter_map(|(value, base)| Some(of((*value)?, (*base)?))).collect()
}

/// The values that `subject`'s figures are compared with, and the name of their owner.
pub fn reference_values(
    against: Against,
    metric: Metric,
    subject: &Series,
    measured: &Measured,
    launchers: &[Launcher],
) -> Result<(String, Vec<Option<f64>>), String> {
    if let Against::Own(own) = against {
        if own.unit() != metric.unit() {
            return Err(format!("{metric} is not measured in the unit of {own}"));
        }
        return Ok((own.name().to_owned(), subject.values(own)));
    }
    if against == Against::BareAndBaseline {
        let (bare, bare_values) = reference_values(Against::Bare, metric, subject, measured, launchers)?;
        let (baseline, baseline_values) = reference_values(Against::Baseline, metric, subject, measured, launchers)?;
        let sum =
            bare_values.iter().zip(&baseline_values).map(|(bare, baseline)| Some((*bare)? + (*baseline)?)).collect();
        return Ok((format!("({bare} + {baseline})"), sum));
    }
    let series = find(against, metric, measured, launchers).ok_or_else(|| format!("{} was not timed", say(against)))?;
    Ok((launchers[series.launcher].name.clone(), series.values(metric)))
}

pub fn judge(target: &Target, subject: &Series, measured: &Measured, launchers: &[Launcher]) -> Verdict {
    let values = subject.values(target.metric);
    let failures = subject.failures().count();
    if failures > 0 || values.is_empty() {
        return Verdict::Missed(format!("{failures} of {} runs failed", subject.runs.len()));
    }
    let (name, base) = match reference_values(target.against, target.metric, subject, measured, launchers) {
        Ok(reference) => reference,
        Err(why) => return Verdict::NotJudged(why),
    };
    // A target with a sum is judged by what remains beyond the factor's part, one without by the ratio.
    let (figure, bound, shown) = if target.plus == 0.0 {
        let Some(figure) = ratio(&values, &base) else {
            return Verdict::NotJudged(format!("{name} has no figure"));
        };
        (figure, target.factor, format!("{figure:.3} x {name}"))
    } else {
        let Some(figure) = stats::median(&by_round(&values, &base, |v, b| v - target.factor * b)) else {
            return Verdict::NotJudged(format!("{name} has no figure"));
        };
        let unit = target.metric.unit();
        (figure, target.plus, format!("{} x {name} + {}", target.factor, unit.show(figure)))
    };
    if figure <= bound { Verdict::Met(shown) } else { Verdict::Missed(shown) }
}

fn find<'a>(against: Against, metric: Metric, measured: &'a Measured, launchers: &[Launcher]) -> Option<&'a Series> {
    let newest_hydra = |at_least: u32| {
        measured
            .series
            .iter()
            .filter(|s| launchers[s.launcher].kind == Kind::Peer(PeerKind::Hydra))
            .filter(|s| major(&launchers[s.launcher].version).unwrap_or(0) >= at_least)
            .max_by_key(|s| version_key(&launchers[s.launcher].version))
    };
    let of_kind = |kind: Kind| measured.series.iter().find(|s| launchers[s.launcher].kind == kind);
    match against {
        Against::Baseline => of_kind(Kind::Baseline { spawners: 1 }),
        Against::Echo => of_kind(Kind::Echo),
        Against::Hydra => newest_hydra(0),
        Against::Hydra5 => newest_hydra(5),
        Against::OpenMpi(version) => {
            let is_it = |s: &&Series| {
                let launcher = &launchers[s.launcher];
                launcher.kind == Kind::Peer(PeerKind::OpenMpi) && major(&launcher.version) == Some(version.major())
            };
            measured.series.iter().find(is_it)
        }
        Against::Srun => of_kind(Kind::Peer(PeerKind::Srun)),
        Against::Prun => of_kind(Kind::Prun),
        Against::Manager => {
            let median = |s: &Series| stats::median(&s.values(metric).into_iter().flatten().collect::<Vec<_>>());
            let kinds = [Kind::Peer(PeerKind::Srun), Kind::Prun, Kind::Peer(PeerKind::Flux)];
            let known = measured.series.iter().filter(|s| kinds.contains(&launchers[s.launcher].kind));
            let timed = known.filter_map(|s| Some((median(s)?, s)));
            timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, s)| s)
        }
        Against::Bare => of_kind(Kind::Bare),
        Against::Serial => of_kind(Kind::Serial),
        Against::BareAndBaseline | Against::Own(_) => None,
    }
}

fn version_key(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

fn say(against: Against) -> &'static str {
    match against {
        Against::Baseline => "the baseline",
        Against::Echo => "the echo server",
        Against::Hydra => "a Hydra",
        Against::Hydra5 => "a Hydra 5",
        Against::Bare => "the bare remote shell",
        Against::BareAndBaseline => "the bare remote shell or the baseline",
        Against::Serial => "the serial start",
        Against::OpenMpi(OpenMpi::V4) => "an Open MPI 4",
        Against::OpenMpi(OpenMpi::V5) => "an Open MPI 5",
        Against::Srun => "srun",
        Against::Prun => "prun",
        Against::Manager => "a peer among srun, prun, flux",
        Against::Own(metric) => metric.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Failure;
    use crate::metric::Sample;

    fn launcher(kind: Kind, version: &str) -> Launcher {
        Launcher { version: version.into(), kind, name: format!("c-{version}"), ..Launcher::echo() }
    }

    fn series(launcher: usize, walls: &[f64]) -> Series {
        let runs = walls.iter().map(|w| Ok(Sample(vec![(Metric::Wall, *w)]))).collect();
        Series { launcher, runs, given_up: false, left_behind: 0 }
    }

    /// Contestant 0 is wireup; the first value of each is the warm-up.
    fn bench(all: &[(Kind, &str, &[f64])]) -> (Measured, Vec<Launcher>) {
        let launchers = all.iter().map(|(kind, version, _)| launcher(*kind, version)).collect();
        let series = all.iter().enumerate().map(|(i, (_, _, walls))| series(i, walls)).collect();
        let case = "true-1x4".parse().unwrap();
        (Measured { case, series, up: Vec::new(), load_1min: 0.0 }, launchers)
    }

    fn wall(against: Against, factor: f64, plus: f64) -> Target {
        Target { metric: Metric::Wall, against, factor, plus }
    }

    #[test]
    fn a_ratio_to_zero_is_undefined() {
        assert_eq!(ratio(&[Some(1.0), None, Some(2.0)], &[Some(2.0), Some(1.0), Some(4.0)]), Some(0.5));
        assert_eq!(ratio(&[Some(1.0)], &[Some(0.0)]), None);
        assert_eq!(ratio(&[Some(0.0)], &[Some(0.0)]), None);
    }

    const FLOOR: Kind = Kind::Baseline { spawners: 1 };
    const HYDRA: Kind = Kind::Peer(PeerKind::Hydra);

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_ratios() {
        // A disturbance in the third round affects both; the ratio of the medians would be 1.5.
        let (m, c) = bench(&[(Kind::Wireup, "", &[9.0, 1.2, 1.5, 12.0]), (FLOOR, "", &[1.0, 1.0, 1.0, 10.0])]);
        assert_eq!(judge(&wall(Against::Baseline, 1.25, 0.0), &m.series[0], &m, &c), Verdict::Met("1.200 x c-".into()));
        assert_eq!(
            judge(&wall(Against::Baseline, 1.1, 0.0), &m.series[0], &m, &c),
            Verdict::Missed("1.200 x c-".into())
        );
    }

    #[test]
    fn a_target_with_an_addend_is_judged_by_the_difference() {
        let (m, c) = bench(&[(Kind::Wireup, "", &[1.0, 0.005, 0.006]), (FLOOR, "", &[1.0, 0.003, 0.004])]);
        let verdict = judge(&wall(Against::Baseline, 1.0, 0.003), &m.series[0], &m, &c);
        assert_eq!(verdict, Verdict::Met("1 x c- + 2.00 ms".into()));
        let verdict = judge(&wall(Against::Baseline, 1.0, 0.001), &m.series[0], &m, &c);
        assert_eq!(verdict, Verdict::Missed("1 x c- + 2.00 ms".into()));
    }

    #[test]
    fn hydra_means_the_newest_and_hydra_5_only_version_5() {
        let (m, c) =
            bench(&[(Kind::Wireup, "", &[1.0, 1.0]), (HYDRA, "4.0.2", &[1.0, 2.0]), (HYDRA, "4.10.0", &[1.0, 4.0])]);
        assert_eq!(
            judge(&wall(Against::Hydra, 1.0, 0.0), &m.series[0], &m, &c),
            Verdict::Met("0.250 x c-4.10.0".into())
        );
        assert_eq!(
            judge(&wall(Against::Hydra5, 1.0, 0.0), &m.series[0], &m, &c),
            Verdict::NotJudged("a Hydra 5 was not timed".into())
        );
    }

    #[test]
    fn a_failed_run_misses_the_target() {
        let (mut m, c) = bench(&[(Kind::Wireup, "", &[1.0, 1.0, 1.0]), (FLOOR, "", &[1.0, 9.0, 9.0])]);
        m.series[0].runs[2] = Err(Failure::TimedOut(5.0));
        let verdict = judge(&wall(Against::Baseline, 1.25, 0.0), &m.series[0], &m, &c);
        assert_eq!(verdict, Verdict::Missed("1 of 3 runs failed".into()));
    }

    #[test]
    fn a_reference_without_values_gives_no_verdict() {
        let (mut m, c) = bench(&[(Kind::Wireup, "", &[1.0, 1.0]), (FLOOR, "", &[1.0, 1.0])]);
        m.series[1].runs = vec![Err(Failure::TimedOut(5.0))];
        let verdict = judge(&wall(Against::Baseline, 1.25, 0.0), &m.series[0], &m, &c);
        assert_eq!(verdict, Verdict::NotJudged("c- has no figure".into()));
    }
}
