//! `wireup bench stage` with small trees: every figure is there, and nothing stays on the hosts; times are not checked.

use std::fs;
use std::path::PathBuf;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::{Run, executables};

const TREES: [&str; 3] = ["mixed", "random", "small"];
const SIZES: &str = "--mib 2 --small-mib 1 --small-files 150 --rounds 1";

/// A folder for the output of a benchmark, which hosts of a testbed see as well; removed when dropped.
struct Results(PathBuf);

impl Results {
    fn of(name: &str) -> Results {
        let folder = wireup_e2e::programs::scratch().join(format!("stage-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Results(folder)
    }

    fn flags(&self) -> String {
        let folder = self.0.display();
        format!("{SIZES} --shared {folder} --json {folder}/out.json --csv {folder}/out.csv")
    }

    /// A remote shell that runs its command here.
    fn shell(&self, script: &str) -> String {
        let path = self.0.join("rsh");
        executables::write(&path, &format!("#!/bin/sh\n{script}\n"), 0o700);
        path.display().to_string()
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn expect_empty_memory(machines: &Machines, results: &Results) {
    for host in 0..3 {
        assert_eq!(machines.ask(host, "ls /dev/shm"), "", "n{host}");
    }
    let left = fs::read_dir(&results.0).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(left, 0, "the benchmark's own folder is still there");
}

#[test]
fn stage_bench_measures_every_figure() {
    let Some(machines) = machines::sixteen() else { return };
    let results = Results::of("all");
    let words = format!("--hosts n0,n1,n2 --memory-mib 3 {}", results.flags());
    let outcome = machines.shell(&format!("\"$WIREUP\" bench stage {words}")).succeed();
    let text = fs::read_to_string(results.0.join("out.csv")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), TREES.len() * 4 + 2, "{text}\n{outcome}");
    for line in lines {
        let [tree, contestant, bytes, round, seconds, again, growth] = line[..] else { panic!("{line:?}") };
        let mib = match tree {
            "mixed" | "random" => 2,
            "small" => 1,
            _ => 3,
        };
        assert_eq!((bytes, round), (&*(mib << 20).to_string(), "1"), "{line:?}");
        let is_there = |figure: &str| figure.parse::<f64>().is_ok_and(|figure| figure > 0.0);
        let is_wireup = contestant.starts_with("wireup");
        assert!(is_there(seconds) && is_there(again) == is_wireup, "{line:?}");
        assert_eq!(growth.parse::<u64>().is_ok(), is_wireup, "{line:?}");
    }
    for target in
        ["wireup mixed: speed", "wireup-plain small: second time", "wireup memory: growth of the largest agent"]
    {
        assert!(outcome.out().contains(target), "{target}: {outcome}");
    }
    expect_empty_memory(&machines, &results);
}

#[test]
fn stage_bench_leaves_nothing_when_it_is_interrupted() {
    let Some(machines) = machines::sixteen() else { return };
    let results = Results::of("interrupted");
    let words = format!("--hosts n0,n1,n2 {} --rounds 1000", results.flags());
    let script = format!("\"$WIREUP\" bench stage {words} & sleep 4; kill -TERM $!; wait $!");
    let outcome = machines.shell(&script).finish();
    assert_eq!(outcome.code(), 130, "{outcome}");
    expect_empty_memory(&machines, &results);
}

#[test]
fn stage_bench_fails_if_it_has_measured_nothing() {
    let results = Results::of("nothing");
    let here = results.shell("shift\nexec /bin/sh -c \"$*\"");
    let bench = |shell: &str, words: &str| {
        let words = format!("bench stage {words} --remote-shell {shell} {}", results.flags());
        let outcome = Run::wireup(words.split_whitespace().map(str::to_owned)).finish();
        assert_eq!(outcome.code(), 125, "{outcome}");
        outcome.err().to_owned()
    };
    let said = bench(&here, "--hosts 127.0.0.1,127.0.0.2");
    assert!(said.contains("host 127.0.0.2: it has the same /dev/shm as another host"), "{said}");
    let said = bench(&here, "--hosts 127.0.0.1 --wireup /bin/false");
    assert!(said.contains("wireup up: exit code 1"), "{said}");
    let said = bench(&results.shell("echo no such host >&2; exit 255"), "--hosts 127.0.0.1");
    assert!(said.contains("no such host"), "{said}");
    assert!(!results.0.join("out.csv").exists());
}
