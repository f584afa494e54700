//! `--profile` on hosts whose clocks differ.

use wireup_e2e::machines;

/// The hosts' clocks differ by hundreds of seconds.
#[test]
fn clock_offsets_of_hosts_are_corrected_in_the_trace() {
    let Some(machines) = machines::own(4, |spec| spec.clock_offsets = true) else { return };
    let script = "$WIREUP run --hosts n[0-3] --fanout 1 --profile $TMPDIR/trace true && \
        cat $TMPDIR/trace && rm $TMPDIR/trace";
    let outcome = machines.shell(script).succeed();
    let trace: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("a trace is JSON");
    let events = trace.get("traceEvents").unwrap_or(&trace).as_array().expect("a trace has events");
    let number = |event: &serde_json::Value, name: &str| event.get(name).and_then(serde_json::Value::as_f64);
    let times: Vec<(f64, f64)> =
        events.iter().filter_map(|event| Some((number(event, "ts")?, number(event, "dur").unwrap_or(0.0)))).collect();
    assert!(times.len() > 8, "{outcome}");
    for (begin, took) in times {
        // 40 s is the time limit of a run, in microseconds; the smallest clock offset is more than twice that.
        assert!((-1e6..40e6).contains(&begin) && (0.0..40e6).contains(&took), "{begin} {took}: {outcome}");
    }
    outcome.expect_err_line(&["clocks of the nodes", "off by", "ms"]);
}

#[test]
fn staged_and_gathered_files_are_phases_with_times_of_each_node() {
    let Some(machines) = machines::sixteen() else { return };
    let script = "mkdir -p /run/apps; head -c 300000 /dev/urandom > /run/apps/data; \
        $WIREUP run --hosts n[0-2] --ppn 1 --pmi none --profile $TMPDIR/trace --stage --stage-also /run/apps/data \
        --stage-out \"/run/made/out=>$TMPDIR/got/{node}\" sh -c 'mkdir -p /run/made; echo x > /run/made/out' && \
        cat $TMPDIR/trace && ls $TMPDIR/got >&2 && rm -r $TMPDIR/trace $TMPDIR/got; code=$?; rm -r /run/apps; exit \
        $code";
    for node in 0..3 {
        machines.ask(node, "mkdir -p /run/apps");
    }
    let outcome = machines.shell(script).finish();
    for node in 0..3 {
        machines.ask(node, "rm -rf /run/made /run/apps /dev/shm/wireup-stage-*");
    }
    let outcome = outcome.expect_code(0);
    for words in [
        &["/-- start session:", "4 agents"][..],
        &["/-- stage:", "3 nodes, last n"],
        &["/-- look:", "1 file, 292 KiB"],
        &["/-- ask:"],
        &["/-- send:", "until all nodes have them"],
        &["/-- stage out:", "3 files, 6 bytes"],
    ] {
        outcome.expect_err_line(words);
    }
    let trace: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("a trace is JSON");
    let events = trace["traceEvents"].as_array().expect("a trace has events");
    for name in ["stage", "stage out"] {
        let of =
            events.iter().filter(|event| event["name"] == name && event["dur"].as_f64().is_some_and(|took| took > 0.0));
        let mut of: Vec<u64> = of.filter_map(|event| event["pid"].as_u64()).collect();
        of.sort_unstable();
        assert_eq!(of, [0, 1, 2, 3], "{name}: the launcher and each node");
    }
}
