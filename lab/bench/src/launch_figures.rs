//! The figures of launches: bars for the jobs on one node, and for Open MPI's time outside `MPI_Init`.
use crate::bars::{Bar, Bars, Panel};
use crate::cases::{Case, Work};
use crate::launcher::{Kind, Launcher};
use crate::measure::Measured;
use crate::metric::Metric;
use crate::stats;

/// The name of the bars of this launcher.
const OWN: &str = "wireup";

/// File names and figures, for the cases that were measured.
pub fn all(measured: &[Measured], launchers: &[Launcher], cores: usize) -> Vec<(&'static str, Bars)> {
    let figure = |name, title: &str, metric, shown: fn(&Case) -> Option<String>| {
        let panel = |measured: &Measured| panel(measured, launchers, metric, shown(&measured.case)?);
        let panels: Vec<Panel> = measured.iter().filter_map(panel).collect();
        let note = format!("Bars: median of the rounds; lines: fastest and slowest round. {cores} cores. Axes differ.");
        (name, Bars { title: format!("{title}: lower is better"), own: OWN.into(), panels, note })
    };
    vec![
        figure("launch", "Time to start and end a job on one node", Metric::Wall, on_one_node),
        figure("pmix-overhead", "Time of a job outside MPI_Init", Metric::Overhead, open_mpi),
    ]
}

fn on_one_node(case: &Case) -> Option<String> {
    let ranks = case.place.job_size();
    match case.work {
        _ if case.is_standing || case.remote.is_some() || case.place.node_count > 1 => None,
        Work::True => Some(format!("{ranks} x true ({} rounds)", case.rounds)),
        Work::MpiInit => Some(format!("{ranks} x MPI init, barrier, finalize ({} rounds)", case.rounds)),
        _ => None,
    }
}

fn open_mpi(case: &Case) -> Option<String> {
    let Work::OpenMpi(version) = case.work else { return None };
    let (ranks, nodes) = (case.place.job_size(), case.place.node_count);
    let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
    Some(format!("Open MPI {}, {ranks} ranks, {nodes} ({} rounds)", version.major(), case.rounds))
}

fn panel(measured: &Measured, launchers: &[Launcher], metric: Metric, title: String) -> Option<Panel> {
    let summaries: Vec<(String, stats::Summary)> = measured
        .series
        .iter()
        .filter_map(|series| {
            let values: Vec<f64> = series.values(metric).into_iter().flatten().collect();
            let launcher = &launchers[series.launcher];
            let name = if launcher.kind == Kind::Wireup { OWN.to_owned() } else { launcher.name.clone() };
            Some((name, stats::summarize(&values)?))
        })
        .collect();
    let most = summaries.iter().map(|(_, summary)| summary.max).reduce(f64::max)?;
    let (unit, per_second) = if most < 1.0 { ("ms", 1e3) } else { ("s", 1.0) };
    let bar = |(name, summary): (String, stats::Summary)| Bar {
        name,
        value: summary.median * per_second,
        range: (summary.count > 1).then_some((summary.min * per_second, summary.max * per_second)),
    };
    Some(Panel { title, values: format!("time [{unit}]"), bars: summaries.into_iter().map(bar).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Series;
    use crate::metric::Sample;

    #[test]
    fn jobs_on_one_node_are_drawn_with_their_range() {
        let runs = [9.0, 0.003, 0.004, 0.008].map(|wall| Ok(Sample(vec![(Metric::Wall, wall)])));
        let series = Series { launcher: 0, runs: runs.into(), given_up: false, left_behind: 0 };
        let measured = |name: &str| Measured {
            case: name.parse().unwrap(),
            series: vec![series.clone()],
            up: Vec::new(),
            load_1min: 0.0,
        };
        let launchers = [Launcher { kind: Kind::Wireup, ..Launcher::echo() }];
        let figures = all(&[measured("true-1x4"), measured("pmi-init-1x4096")], &launchers, 2);
        let (name, launch) = &figures[0];
        assert_eq!((*name, launch.panels.len()), ("launch", 1));
        assert_eq!(launch.panels[0].bars, [Bar { name: OWN.into(), value: 4.0, range: Some((3.0, 8.0)) }]);
        assert_eq!(launch.panels[0].values, "time [ms]");
        assert!(launch.draw().is_some());
        assert_eq!(figures[1].1.draw(), None);
    }
}
