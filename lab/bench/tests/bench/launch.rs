//! `wireup bench launch` on tiny jobs with the baselines only: no launcher is needed.

use super::BENCH;
use crate::results::Results;
use std::fs;
use std::process::Command;

/// Runs the benchmark. A program that does nothing is passed as wireup, which the tests leave out.
fn bench(words: &str) -> i32 {
    program(words).status().unwrap().code().unwrap()
}

fn program(words: &str) -> Command {
    let mut words: Vec<&str> = words.split_whitespace().collect();
    if words.first().is_some_and(|word| *word != "--help") {
        words.splice(1..1, ["--wireup", "/bin/true"]);
    }
    let mut command = Command::new(BENCH);
    command.args(words);
    command
}

#[test]
fn with_json_standard_output_has_only_lines() {
    let ran = program("launch --without wireup --rounds 1 --case true-1x1 --json").output().unwrap();
    let (lines, text) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(["run", "sample"].iter().all(|record| lines.contains(&format!("\"record\":\"{record}\""))), "{lines}");
    assert!(lines.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{lines}");
    assert!(text.contains("  1 rounds\n"), "{text}");
}

#[test]
fn baselines_are_timed_and_a_broken_launcher_is_reported() {
    let results = Results::of("launch");
    let files = results.json();
    // Number of the lines that contain all of these words.
    let count = |words: &[&str]| {
        let text = fs::read_to_string(results.0.at("out.jsonl")).unwrap();
        text.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    };
    let has = |words: &[&str]| count(words) == 1;

    let tiny = "launch --without wireup --rounds 2 --case true-1x3 --case pmi-init-1x3 --case pmi-bare-1x3 \
                --case exchange-1x5";
    assert_eq!(bench(&format!("{tiny} {files}")), 0);
    for (contestant, program) in [
        ("baseline-1", "true"),
        ("baseline-2", "true"),
        ("echo", "pmi-init"),
        ("echo", "pmi-bare"),
        ("echo", "exchange"),
    ] {
        let [contestant, program] = [contestant, program].map(|word| format!("\"{word}\""));
        for round in ["\"round\":0", "\"round\":1"] {
            assert!(has(&["sample", &contestant, &program, "\"wall\"", round]), "{contestant} {program} {round}");
        }
    }
    assert!(has(&["echo", "exchange", "\"get-all\"", "\"unit\":\"s\"", "\"round\":0"]));
    // The value of `pair-bytes`: that of the keys bench-0 to bench-4 and of five values.
    assert!(has(&["echo", "exchange", "pair-bytes", "\"unit\":\"B\"", "\"round\":0", "\"value\":195.0"]));
    assert_eq!(count(&["failed", "baseline"]) + count(&["failed", "echo"]), 0);
    assert!(has(&["\"record\":\"run\"", "\"benchmark\":\"launch\"", "\"words\":[\"launch\""]));

    // Two hosts that are this machine, and a third host that does not answer. Launchers that wait for hosts of these
    // names reach the time limit.
    let shell = results.shell("test $1 = c && exit 255\nshift\nexec /bin/sh -c \"$*\"");
    let far = format!("--remote-shell {shell} --shared {} --rounds 1 --limit 3 --without wireup", results.folder());
    let cases = "--case true-2x3 --case exchange-2x4 --case true-3x1 --case true-4x1";
    assert_eq!(bench(&format!("launch --hosts a,b,c {far} {cases} {files}")), 0);
    assert!(has(&["\"bare\"", "\"remote-shell\":\"rsh\"", "\"ranks\":6", "\"wall\""]));
    assert!(has(&["baseline-1", "\"ranks\":6", "\"wall\""]) && has(&["echo", "\"ranks\":8", "\"get-all\""]));
    assert_eq!(count(&["\"nodes\":3"]) + count(&["\"nodes\":4"]), 0);

    // A wireup that starts no ranks is noticed, because the warm-up round counts the ranks; if nothing else is
    // measured, the benchmark fails.
    let fake = results.shell("exit 0");
    assert_eq!(bench(&format!("launch --wireup {fake} --rounds 1 --case true-1x4 --without baseline-2 {files}")), 0);
    assert!(has(&["failed", "wireup", "\"round\":-1", "0 of 4 ranks were started"]));
    assert_eq!(bench(&format!("launch --wireup {fake} --rounds 1 --case exchange-2x2 {files}")), 125);

    // A wireup that hangs is killed together with its children.
    let fake = results.shell("test $1 = --version && exit\ntrap '' TERM\nsleep 1000 & wait\nsleep 1000");
    assert_eq!(bench(&format!("launch --wireup {fake} --rounds 1 --limit 1 --case true-1x2 {files}")), 0);
    assert!(has(&["failed", "wireup", "\"round\":0", "not finished after 1 s, killed"]));

    for wrong in [
        "", "lunch", "launch --case nonsense", "launch --rounds 0", "launch --peer h5", "launch --what",
        "launch --hosts a,,b", "launch --hosts a[1-3]", "launch --remote-shell rsh", "launch --case jobs-1x1",
        "jobs --case true-1x1", "modex --part nothing",
    ] {
        assert_eq!(bench(wrong), 2, "{wrong}");
    }
    assert_eq!(bench("--help"), 0);
    assert_eq!(bench("launch --list"), 0);
}
