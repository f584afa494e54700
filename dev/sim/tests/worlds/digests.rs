//! The digests of 2,000 random runs, as recorded in `digests/recorded.txt`: a change that does not alter what agents do
//! keeps them.
//!
//! A normal test run compares every tenth; `WIREUP_SIM_DIGESTS=check` compares all, `WIREUP_SIM_DIGESTS=record` writes
//! the file anew, for a commit that changes what agents do or in which order, and states why.

use std::fmt::Write;
use std::path::PathBuf;
use wireup_sim::random::{self, collectives, modex, sessions};
use wireup_sim::{RunReport, run};

const SEEDS: u64 = 2000;

/// The kind of world for a seed, and the digests of its runs: first the run without faults.
fn digests(seed: u64) -> (&'static str, Vec<u64>) {
    let two = |reports: [RunReport; 2]| reports.iter().map(|report| report.digest).collect();
    match seed % 8 {
        0 => ("world", two(random::run_with_faults(seed))),
        1 => {
            let calm = run(collectives::collective_world(seed));
            let stormy = run(collectives::with_faults(seed, &calm));
            ("collectives", two([calm, stormy]))
        }
        2 => {
            let calm = run(collectives::group_world(seed));
            let stormy = run(collectives::group_world_with_faults(seed, &calm));
            ("groups", two([calm, stormy]))
        }
        3 => {
            let calm = run(modex::modex_world(seed));
            let stormy = run(modex::with_faults(seed, &calm));
            ("modex", two([calm, stormy]))
        }
        4 => ("remote", two([run(random::remote_world(seed)), run(random::remote_with_faults(seed))])),
        5 => ("calm session", vec![run(sessions::calm(seed)).digest]),
        6 => ("stormy session", vec![run(sessions::stormy(seed)).digest]),
        _ => ("wild session", vec![run(sessions::wild(seed)).digest]),
    }
}

fn line(seed: u64) -> String {
    let (kind, digests) = digests(seed);
    digests.iter().fold(format!("{seed} {kind}"), |mut line, digest| {
        write!(line, " {digest:016x}").expect("writing into a String cannot fail");
        line
    })
}

#[test]
fn runs_are_as_recorded() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/digests/recorded.txt");
    let wanted = std::env::var("WIREUP_SIM_DIGESTS").unwrap_or_default();
    if wanted == "record" {
        let lines: Vec<String> = (0..SEEDS).map(line).collect();
        std::fs::write(&path, lines.join("\n") + "\n").expect("the source tree can be written");
        return;
    }
    let recorded = std::fs::read_to_string(&path).expect("the digests are part of the source tree");
    assert_eq!(recorded.lines().count() as u64, SEEDS);
    let step = if wanted == "check" { 1 } else { 10 };
    // With every tenth seed from the same start, only half of the kinds of worlds would be compared.
    let looked_at = recorded.lines().enumerate().filter(|(at, _)| step == 1 || at % 10 == (at / 10) % 10);
    let changed: Vec<String> =
        looked_at.map(|(at, old)| (old, line(at as u64))).filter(|(old, new)| old != new).map(|(_, new)| new).collect();
    assert!(changed.is_empty(), "{} runs are not as recorded:\n{}", changed.len(), changed.join("\n"));
}
