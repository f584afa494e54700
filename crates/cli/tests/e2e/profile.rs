//! `--profile` across hosts whose clocks differ.

use crate::harness::machines;

/// The hosts' clocks differ by hundreds of seconds.
#[test]
fn clock_offsets_of_hosts_are_corrected_in_the_trace() {
    let Some(machines) = machines::own(4, |spec| spec.clock_offsets = true) else { return };
    let script = "$WIREUP run --remote-shell plainsh --hosts n[0-3] --fanout 1 --profile $TMPDIR/trace true && \
        cat $TMPDIR/trace && rm $TMPDIR/trace";
    let outcome = machines.shell(script).succeed();
    let trace: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("a trace is JSON");
    let events = trace.get("traceEvents").unwrap_or(&trace).as_array().expect("a trace has events");
    let number = |event: &serde_json::Value, name: &str| event.get(name).and_then(serde_json::Value::as_f64);
    let times: Vec<(f64, f64)> =
        events.iter().filter_map(|event| Some((number(event, "ts")?, number(event, "dur").unwrap_or(0.0)))).collect();
    assert!(times.len() > 8, "{outcome}");
    for (begin, took) in times {
        // The time limit of a run, in microseconds; the smallest clock offset is more than twice that.
        assert!((-1e6..40e6).contains(&begin) && (0.0..40e6).contains(&took), "{begin} {took}: {outcome}");
    }
    outcome.expect_err_line(&["clocks of the nodes", "off by", "ms"]);
}
