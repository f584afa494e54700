//! `wireup bench stage` with small trees: every value is there, and nothing stays on the hosts.

use crate::BENCH;
use crate::results::Results;
use std::fs;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::{Run, wireup};

const SIZES: &str = "--mib 2 --small-mib 1 --small-files 150 --rounds 1";

fn flags(results: &Results) -> String {
    format!("{SIZES} --shared {} {}", results.folder(), results.json())
}

fn expect_empty_memory(machines: &Machines, results: &Results) {
    for host in 0..3 {
        assert_eq!(machines.ask(host, "ls /dev/shm"), "", "n{host}");
    }
    let left = fs::read_dir(results.folder()).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(left, 0, "the benchmark's own folder is still there");
}

#[test]
fn stage_bench_measures_every_tree_and_contestant() {
    let Some(machines) = machines::sixteen() else { return };
    let results = Results::of("stage-all");
    let words = format!("--hosts n0,n1,n2 {}", flags(&results));
    machines.shell(&format!("{BENCH} stage --wireup \"$WIREUP\" {words}")).succeed();
    let lines = results.lines();
    for (tree, mib) in [("mixed", 2), ("random", 2), ("small", 1)] {
        let case = format!("tree={tree},bytes={},hosts=3", mib << 20);
        lines.expect(&["wireup", "wireup-plain"], &case, &["speed", "time", "again"]);
        assert!(lines.value("wireup", &case, "growth") >= 0.0);
        lines.expect(&["chain", "binary-tree"], &case, &["speed", "time"]);
    }
    expect_empty_memory(&machines, &results);
}

#[test]
fn stage_bench_leaves_nothing_when_it_is_interrupted() {
    let Some(machines) = machines::sixteen() else { return };
    let results = Results::of("stage-interrupted");
    let words = format!("--hosts n0,n1,n2 {} --rounds 1000", flags(&results));
    let script = format!("{BENCH} stage --wireup \"$WIREUP\" {words} & sleep 4; kill -TERM $!; wait $!");
    let outcome = machines.shell(&script).finish();
    assert_eq!(outcome.code(), 130, "{outcome}");
    expect_empty_memory(&machines, &results);
}

#[test]
fn stage_bench_fails_if_it_has_measured_nothing() {
    let results = Results::of("stage-nothing");
    let here = results.shell("shift\nexec /bin/sh -c \"$*\"");
    let run = |shell: &str, words: &str| {
        let words = format!("stage {words} --remote-shell {shell} {}", flags(&results));
        let outcome = Run::tool(BENCH, words.split_whitespace()).finish();
        assert_eq!(outcome.code(), 125, "{outcome}");
        outcome.err().to_owned()
    };
    let said = run(&here, &format!("--hosts 127.0.0.1,127.0.0.2 --wireup {}", wireup().display()));
    let why = "it has the same /dev/shm as another host";
    assert!(said.contains("host 127.0.0.2: it has ended") && said.contains(why), "{said}");
    let said = run(&here, "--hosts 127.0.0.1 --wireup /bin/false");
    assert!(said.contains("wireup up: exit code 1"), "{said}");
    let said = run(&results.shell("echo no such host >&2; exit 255"), "--hosts 127.0.0.1 --wireup /bin/false");
    assert!(said.contains("no such host"), "{said}");
}
