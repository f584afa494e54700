//! The links of agents carry the frames and payload bytes of collectives that the simulator has recorded
//! (`dev/sim/tests/traffic.rs`), counted for each agent, link and direction.

use std::path::Path;
use wireup_e2e::libraries::own;
use wireup_e2e::{Run, wireup};
use xtask::layout;

/// The recorded cases whose names begin so: name and exchange scheme.
fn cases(begin: &str) -> Vec<(String, String)> {
    let cases = recorded().lines().filter(|line| line.starts_with(begin)).map(case).collect::<Vec<_>>();
    assert!(cases.len() > 8, "{begin}: {cases:?}");
    cases.into_iter().step_by(4).collect()
}

fn recorded() -> String {
    std::fs::read_to_string(layout::root().join("dev/sim/tests/traffic/recorded.txt")).expect("the simulator's record")
}

fn case(line: &str) -> (String, String) {
    let mut words = line.split(' ').map(str::to_owned);
    (words.next().expect("a case"), words.next().expect("a scheme"))
}

/// Compares with the simulator: 13 ranks on four nodes, the last of which has only one.
fn expect_recorded((case, scheme): (String, String), program: &Path, args: &str) {
    let script = format!(
        "$WIREUP run -n 13 --virtual-nodes 4 --ppn 4 --fanout 2 --exchange {scheme} \
         --profile $TMPDIR/trace $PROGRAM {args} >&2 && cat $TMPDIR/trace && rm $TMPDIR/trace"
    );
    let run = Run::shell(&script).env("PROGRAM", program).linked();
    let outcome = run.succeed();
    let trace: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("a trace is JSON");
    let events = trace["traceEvents"].as_array().expect("a trace has events");
    let mut lines = Vec::new();
    for event in events.iter().filter(|event| event["name"] == "exchange traffic") {
        let links = ["up", "down", "direct"].map(|link| {
            let counts = ["frames_in", "bytes_in", "frames_out", "bytes_out"];
            let counts = counts.map(|name| event["args"][link][name].as_u64().expect("a count").to_string());
            format!("{link} {}", counts.join(" "))
        });
        // Process 0 is the launcher; virtual node n is agent n.
        let agent = event["pid"].as_u64().expect("a process") - 1;
        lines.push(format!("{case} {scheme} agent {agent} {}", links.join(" ")));
    }
    lines.sort();
    let recorded = recorded();
    let begin = format!("{case} {scheme} ");
    assert_eq!(lines, recorded.lines().filter(|line| line.starts_with(&begin)).collect::<Vec<_>>());
}

/// `wireup pmi exchange`: puts and fences in both dialects.
#[test]
fn text_clients_cause_the_simulated_traffic() {
    for case in cases("pmi-") {
        let dialect = case.0.trim_start_matches("pmi-").to_owned();
        let args = format!("pmi exchange --dialect {dialect} --rounds 2 --value-len 100 --get none");
        expect_recorded(case, &wireup(), &args);
    }
}

/// Our library: fences, allgathers and rings, several in progress at once.
#[test]
fn clients_of_our_library_cause_the_simulated_traffic() {
    for case in cases("library-") {
        let value_bytes = case.0.trim_start_matches("library-").to_owned();
        expect_recorded(case, &own("traffic"), &value_bytes);
    }
}
