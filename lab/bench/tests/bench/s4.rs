//! `wireup bench s4` with few processes: every scheme connects all of them, and sends what its formula says; times are
//! not checked.

use std::fs;
use std::path::PathBuf;
use wireup_e2e::{Outcome, Run, executables, machines};

const SCHEMES: [&str; 5] = ["original", "ssh-dr", "ssh-bc", "mpd-bc", "hypercube"];

/// A folder for the output of a benchmark, which hosts of a testbed see as well; removed when dropped.
struct Results(PathBuf);

impl Results {
    fn of(name: &str) -> Results {
        let folder = wireup_e2e::programs::scratch().join(format!("s4-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Results(folder)
    }

    fn flags(&self) -> String {
        let folder = self.0.display();
        format!("--shared {folder} --json {folder}/out.json --csv {folder}/out.csv --svg {folder}")
    }

    /// A remote shell that runs its command here.
    fn shell(&self, script: &str) -> PathBuf {
        let path = self.0.join("rsh");
        executables::write(&path, &format!("#!/bin/sh\n{script}\n"), 0o700);
        path
    }

    /// One line for each scheme and size; the processes are connected after they were started.
    fn expect(&self, sizes: &[u32], outcome: &Outcome) {
        let text = fs::read_to_string(self.0.join("out.csv")).unwrap();
        assert_eq!(text.lines().count(), 1 + SCHEMES.len() * sizes.len(), "{text}\n{outcome}");
        for (scheme, size) in SCHEMES.iter().flat_map(|scheme| sizes.iter().map(move |size| (scheme, size))) {
            let head = format!("{scheme},{size},1,");
            let line =
                text.lines().find_map(|line| line.strip_prefix(&head)).unwrap_or_else(|| panic!("{head}: {text}"));
            let numbers: Vec<f64> = line.split(',').map(|number| number.parse().unwrap()).collect();
            let [connected, initiated, exchange, connecting, messages, bytes] = numbers[..] else { panic!("{line}") };
            assert!(0.0 < initiated && initiated < connected, "{head}{line}");
            assert!(exchange > 0.0 && connecting > 0.0 && messages > 0.0 && bytes > 8.0 * messages, "{head}{line}");
        }
        for figure in ["s4-connected.svg", "s4-setup.svg"] {
            assert!(fs::read_to_string(self.0.join(figure)).unwrap().contains("hypercube"), "{figure}");
        }
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bench(words: &str) -> Run {
    Run::wireup(["bench", "s4"].into_iter().chain(words.split_whitespace()).map(str::to_owned))
}

#[test]
fn s4_bench_connects_all_processes_by_every_scheme() {
    let results = Results::of("local");
    let shell = results.shell("shift\nexec /bin/sh -c \"$*\"");
    let hosts = "--hosts 127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4";
    let words = format!("{hosts} --remote-shell {} --processes 2,4,8 --rounds 1 {}", shell.display(), results.flags());
    let outcome = bench(&words).succeed();
    results.expect(&[2, 4, 8], &outcome);
    // Four secrets of 16 bytes, three values of 6 bytes from each, and twelve to each; eight bytes of header for each
    // message.
    let bytes = 4 * (8 + 16) + 4 * (8 + 3 * 6) + 4 * (8 + 12 * 6);
    let text = fs::read_to_string(results.0.join("out.csv")).unwrap();
    assert!(
        text.lines().any(|line| line.starts_with("original,4,1,") && line.ends_with(&format!(",12,{bytes}"))),
        "{text}"
    );
}

#[test]
fn s4_bench_uses_real_ssh() {
    let Some(machines) = machines::four() else { return };
    let results = Results::of("ssh");
    let words = format!("--hosts n0,n1,n2,n3 --processes 4 --rounds 1 {}", results.flags());
    let outcome = machines.shell(&format!("\"$WIREUP\" bench s4 {words}")).succeed();
    results.expect(&[4], &outcome);
}

#[test]
fn s4_bench_fails_if_it_has_measured_nothing() {
    let results = Results::of("nothing");
    let shell = results.shell("echo no such host >&2; exit 255");
    let words = format!(
        "--hosts 127.0.0.1 --remote-shell {} --processes 2 --scheme original --rounds 1 {}",
        shell.display(),
        results.flags()
    );
    let outcome = bench(&words).finish();
    assert_eq!(outcome.code(), 125, "{outcome}");
    assert!(
        outcome.out().contains("the remote shell of process 0 has ended") && outcome.out().contains("no such host"),
        "{outcome}"
    );
    let outcome = bench(&words.replace("original", "mpd-bc")).finish();
    assert_eq!(outcome.code(), 125, "{outcome}");
    assert!(outcome.err().contains("standing agents: no such host"), "{outcome}");
}
