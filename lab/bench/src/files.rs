//! The results as files: JSON with everything, CSV with one line per sample.
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::launcher::Launcher;
use crate::machine::Machine;
use crate::measure::{Measured, Series};
use crate::metric::Sample;
use crate::stats;
use crate::verdict::{judge, ratio, reference_values};

/// Increased when a reader of older files would misread newer ones.
const FORMAT: u32 = 1;

pub fn json(
    benchmark: &str,
    machine: &Machine,
    launchers: &[Launcher],
    missing: &[String],
    measured: &[Measured],
) -> Value {
    json!({
        "benchmark": benchmark,
        "format": FORMAT,
        "machine": machine,
        "launchers": launchers,
        "missing": missing,
        "cases": measured.iter().map(|m| case(m, launchers)).collect::<Vec<_>>(),
    })
}

fn case(measured: &Measured, launchers: &[Launcher]) -> Value {
    json!({
        "name": measured.case.name(),
        "work": measured.case.work.to_string(),
        "place": measured.case.place_value(),
        "rounds": measured.case.rounds,
        "limit_s": measured.case.limit.as_secs_f64(),
        "load_1min_after": measured.load_1min,
        "in_session": measured.case.is_standing,
        "up_s": measured.up.iter().map(|(who, s)| (launchers[*who].name.clone(), json!(s))).collect::<Map<_, _>>(),
        "series": measured.series.iter().map(|s| series(s, measured, launchers)).collect::<Vec<_>>(),
    })
}

fn series(series: &Series, measured: &Measured, launchers: &[Launcher]) -> Value {
    let launcher = &launchers[series.launcher];
    let figures = measured.case.metrics().iter().map(|metric| {
        let values = series.values(*metric);
        let reference = reference_values(measured.case.reference, *metric, series, measured, launchers);
        json!({
            "metric": metric,
            "unit": metric.unit().name(),
            "summary": stats::summarize(&values.iter().copied().flatten().collect::<Vec<_>>()),
            "reference": reference.as_ref().ok().map(|(name, _)| name),
            "ratio_median": reference.as_ref().ok().and_then(|(_, base)| ratio(&values, base)),
        })
    });
    let target = measured.case.target.iter().filter(|_| launcher.is_judged(&measured.case)).map(|target| {
        json!({
            "metric": target.metric,
            "target": target.to_string(),
            "verdict": judge(target, series, measured, launchers),
        })
    });
    json!({
        "launcher": launcher.name,
        "figures": figures.collect::<Vec<_>>(),
        "target": target.collect::<Vec<_>>(),
        "given_up": series.given_up,
        "left_behind": series.left_behind,
        "runs": series.runs.iter().enumerate().map(|(round, run)| json!({
            "round": round,
            "warm_up": round == 0,
            "values": run.as_ref().ok().map(|Sample(values)| {
                values.iter().map(|(m, v)| (m.name().to_owned(), json!(v))).collect::<Map<_, _>>()
            }),
            "failure": run.as_ref().err().map(ToString::to_string),
        })).collect::<Vec<_>>(),
    })
}

/// Columns: case, launcher, version, round (0 is the warm-up), metric, unit, value, failure.
pub fn csv(launchers: &[Launcher], measured: &[Measured]) -> String {
    let mut text = String::from("case,launcher,version,round,metric,unit,value,failure\n");
    for measured in measured {
        for series in &measured.series {
            let launcher = &launchers[series.launcher];
            for (round, run) in series.runs.iter().enumerate() {
                let head = [&measured.case.name(), &launcher.name, &launcher.version].map(|f| quote(f)).join(",");
                // Writing to a string cannot fail.
                let _ = match run {
                    Ok(Sample(values)) => values.iter().try_for_each(|(metric, value)| {
                        writeln!(text, "{head},{round},{metric},{},{value},", metric.unit().name())
                    }),
                    Err(failure) => writeln!(text, "{head},{round},,,,{}", quote(&failure.to_string())),
                };
            }
        }
    }
    text
}

/// Quotes a field that contains a comma, a quote or a newline (RFC 4180).
fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Failure;
    use crate::metric::Metric;

    fn fixture() -> (Vec<Launcher>, Vec<Measured>) {
        let runs =
            vec![Ok(Sample(vec![(Metric::Wall, 0.5)])), Err(Failure::Wrong("a, \"b\"".into())), Ok(Sample::default())];
        let series = vec![Series { launcher: 0, runs, given_up: false, left_behind: 0 }];
        let case = "true-1x4".parse().unwrap();
        (vec![Launcher::baseline(1)], vec![Measured { case, series, up: Vec::new(), load_1min: 0.5 }])
    }

    #[test]
    fn csv_has_a_line_per_sample_and_per_failure() {
        let (launchers, measured) = fixture();
        let text = csv(&launchers, &measured);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "true-1x4,baseline-1,,0,wall,s,0.5,");
        assert_eq!(lines[2], "true-1x4,baseline-1,,1,,,,\"a, \"\"b\"\"\"");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn json_contains_place_values_and_failures() {
        let (launchers, measured) = fixture();
        let value = json("launch", &Machine::look(), &launchers, &["srun".into()], &measured);
        let case = &value["cases"][0];
        assert_eq!(case["place"], json!({ "kind": "one-node", "node_count": 1, "ppn": 4 }));
        assert_eq!(case["series"][0]["runs"][1]["failure"], "a, \"b\"");
        assert_eq!(case["series"][0]["runs"][0]["values"]["wall"], 0.5);
        assert_eq!(value["missing"][0], "srun");
    }
}
