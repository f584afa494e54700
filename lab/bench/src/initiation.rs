//! The figure of process initiation: one remote shell per rank, a tree of agents and a session, next to published
//! results.
use crate::cases::Work;
use crate::launcher::{Kind, Launcher};
use crate::measure::Measured;
use crate::metric::Metric;
use crate::published::{self, CITATION};
use crate::startup::chart::{Axis, Chart, Line, Point, Style};
use crate::stats;

/// `None` if no initiation was timed.
pub fn chart(measured: &[Measured], launchers: &[Launcher], cores: usize) -> Option<Chart> {
    let cases: Vec<&Measured> = measured.iter().filter(|m| m.case.work == Work::Initiation).collect();
    let shell = cases.first()?.case.remote.as_ref()?.shell_name().to_owned();
    let serial = format!("one {shell} after another");
    let shown = [(Kind::Serial, &*serial), (Kind::Wireup, "tree of agents"), (Kind::Session, "session")];
    let mut lines: Vec<Line> = shown.map(|(kind, name)| line(&cases, launchers, kind, name)).into();
    let of = |name: &str, style, value: fn(&published::Row) -> f64| Line {
        name: name.into(),
        style,
        points: published::TABLE.iter().map(|row| (f64::from(row.processes), value(row))).collect(),
    };
    lines.extend([
        of("published: ssh", Style::Published { is_first: true }, |row| row.original_s),
        of("published: daemons (MPD)", Style::Published { is_first: false }, |row| row.mpd_bc_s),
        of("published model: ssh", Style::Model, |row| published::initiation_by_ssh_s(row.processes)),
        of("published model: daemons", Style::Model, |row| published::initiation_by_mpd_s(row.processes)),
    ]);
    Some(Chart {
        name: "initiation",
        title: format!("Start of processes on up to 16 hosts by {shell} ({cores} cores for all): lower is better"),
        across: "processes",
        values: "wall time [s]",
        axis: Axis::Log,
        lines,
        note: format!(
            "Medians; bars: fastest and slowest round. Published: another machine, connections included:\n{CITATION}"
        ),
    })
}

fn line(cases: &[&Measured], launchers: &[Launcher], kind: Kind, name: &str) -> Line {
    let points = cases.iter().filter_map(|measured| {
        let series = measured.series.iter().find(|series| launchers[series.launcher].kind == kind)?;
        let walls: Vec<f64> = series.values(Metric::Wall).into_iter().flatten().collect();
        Some(Point::of(measured.case.place.job_size(), &stats::summarize(&walls)?, 1.0))
    });
    Line { name: name.into(), style: Style::Measured, points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Case;
    use crate::measure::Series;
    use crate::metric::Sample;

    #[test]
    fn the_chart_shows_medians_and_published_points() {
        let hosts: Vec<String> = (0..16).map(|i| format!("n{i}")).collect();
        let measured = |name: &str, walls: &[f64]| Measured {
            case: Case::on_hosts(name, &hosts, "ssh").unwrap(),
            series: vec![Series {
                launcher: 0,
                runs: walls.iter().map(|wall| Ok(Sample(vec![(Metric::Wall, *wall)]))).collect(),
                given_up: false,
                left_behind: 0,
            }],
            up: Vec::new(),
            load_1min: 0.0,
        };
        let launchers = [Launcher { kind: Kind::Session, ..Launcher::echo() }];
        let all = [measured("initiation-4x1", &[9.0, 0.1, 0.2, 0.3]), measured("true-16x16", &[9.0, 1.0])];
        assert!(chart(&all[1..], &launchers, 2).is_none());
        let chart = chart(&all, &launchers, 2).unwrap();
        assert_eq!(chart.lines[2].points.0, [Point { size: 4.0, value: 0.2, range: Some((0.1, 0.3)) }]);
        let published = chart.lines.iter().find(|line| line.name == "published: daemons (MPD)").unwrap();
        assert_eq!(published.points.0.last(), Some(&Point { size: 128.0, value: 3.10, range: None }));
        let text = chart.draw().unwrap();
        assert!(text.contains("InfiniBand") && text.contains("published model") && text.contains("wall time [s]"));
    }
}
