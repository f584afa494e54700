//! `wireup-simulate advise` as users run it: its advice follows from its predictions, and bad input is refused.

use serde_json::Value;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Runs the program in `folder`, in which it also looks for the user's machine files.
fn advise(folder: &TempDir, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wireup-simulate"));
    command.arg("advise").args(words.split_whitespace());
    command.env("XDG_CONFIG_HOME", folder.path()).current_dir(folder.path()).output().expect("the program runs")
}

/// The lines that the program prints, and its JSON object.
fn advice(folder: &TempDir, words: &str) -> (String, Value) {
    let output = advise(folder, &format!("{words} --json=advice.json"));
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read(folder.path().join("advice.json")).expect("an advice");
    (String::from_utf8(output.stdout).expect("text"), serde_json::from_slice(&json).expect("JSON"))
}

/// Checks that the advised candidate is the fastest. The default may be advised if no candidate saves a twentieth of
/// its time.
fn advised_is_fastest(choice: &Value) {
    let candidates = choice["candidates"].as_array().expect("a list");
    let seconds = |candidate: &Value| candidate["s"].as_f64().expect("a time");
    let advised = candidates.iter().find(|one| one["value"] == choice["advised"]).expect("it is a candidate");
    let fastest = candidates.iter().map(seconds).fold(f64::INFINITY, f64::min);
    let is_default = choice["advised"] == choice["default"];
    let enough = if is_default { seconds(advised) * 0.95 } else { seconds(advised) };
    assert!(fastest > 0.0 && enough <= fastest, "{choice}");
    assert_eq!(candidates[0]["value"], choice["default"]);
}

#[test]
fn the_fastest_candidates_are_advised() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, fanouts, schemes) in [
        ("--nodes 2 -n 8 --start local", 1, 4),
        ("--nodes 24 -n 48 --start ssh --machine s4", 4, 4),
        ("--nodes 24 -n 48 --start srun --value-bytes 1000", 4, 4),
        ("--nodes 1 -n 5 --start local", 1, 1),
    ] {
        let (text, json) = advice(&folder, words);
        for (choice, count) in [("fanout", fanouts), ("exchange", schemes)] {
            advised_is_fastest(&json[choice]);
            assert_eq!(json[choice]["candidates"].as_array().map(Vec::len), Some(count), "{words}: {choice}");
        }
        let session = &json["session"];
        let mut schemes_timed = json["exchange"]["candidates"].as_array().expect("a list").iter();
        let advised = schemes_timed.find(|one| one["value"] == json["exchange"]["advised"]).expect("a candidate");
        assert_eq!(session["single_s"], advised["s"], "{words}");
        assert_eq!(json["staging"], Value::Null, "{words}");
        let run = json["run"].as_str().expect("a command line");
        for choice in ["fanout", "exchange"] {
            let is_default = json[choice]["advised"] == json[choice]["default"];
            assert_eq!(run.contains(&format!("--{choice} ")), !is_default, "{run}");
        }
        assert!(text.contains(run), "{text}");
    }
}

/// On a machine where remote shells take 2 s each, one after the other on the machine that starts them, a tree is
/// faster than a flat start.
#[test]
fn a_machine_file_of_the_user_decides() {
    let folder = tempfile::tempdir().expect("a folder");
    let built_in = advice(&folder, "--nodes 24 -n 24").0;
    assert!(built_in.contains("frontier-like: built in, not measured here"), "{built_in}");
    let text = include_str!("../machines/s4.toml").replacen("\nshell_ns = ", "\nshell_ns = 2000000000 # ", 1);
    let text = text.replacen("\ncores = ", "\ncores = 1 # ", 1);
    let file = folder.path().join("wireup/machine-ssh.toml");
    std::fs::create_dir(file.parent().expect("a folder")).expect("it is new");
    std::fs::write(&file, text).expect("a file");
    let (text, json) = advice(&folder, "--nodes 24 -n 24");
    assert!(text.contains(&format!("{}: the machine file of this user", file.display())), "{text}");
    assert_eq!(advice(&folder, "--nodes 24 -n 24 --machine ssh"), (text, json.clone()));
    assert!(advice(&folder, "--nodes 2 -n 2 --machine local").0.contains("  here: built in, not measured here"));
    assert_eq!((&json["fanout"]["default"], &json["fanout"]["advised"]), (&"23".into(), &"4".into()), "{json}");
    assert!(json["run"].as_str().is_some_and(|run| run.contains("--fanout 4")), "{json}");
    assert!(json["session"]["up_s"].as_f64().is_some_and(|up_s| up_s > 6.0), "{json}");
}

#[test]
fn staging_is_advised_if_it_takes_less_time() {
    let folder = tempfile::tempdir().expect("a folder");
    for (times, verdict, advised) in [
        ("--read-ms 9000 --stage-ms 900", "yes: staging takes about 0.900 s; ", true),
        ("--read-ms 500 --stage-ms 900", "no: staging takes about 0.900 s; ", false),
        ("--read-ms 0 --stage-ms 0", "no: nothing", false),
    ] {
        let (text, json) = advice(&folder, &format!("--nodes 2 -n 4 {times}"));
        assert!(text.contains(verdict), "{text}");
        assert_eq!(json["staging"]["advised"], advised);
        assert_eq!(json["run"].as_str().map(|run| run.contains(" --stage ")), Some(advised), "{json}");
    }
    assert!(advice(&folder, "--nodes 2 -n 4 --machine s2").0.contains("of this machine's file server"));
}

#[test]
fn what_cannot_be_advised_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, expected) in [
        ("-n 4", "--nodes N"),
        ("--nodes 4", "-n RANKS"),
        ("--nodes 0 -n 4", "--nodes 0: give a whole number from 1"),
        ("--nodes 2 -n 0", "-n 0: give a whole number from 1"),
        ("--nodes 8 -n 3", "8 nodes for 3 ranks: 5 of them would have no rank"),
        ("--nodes 2 -n 4 --start session", "--start session"),
        ("--nodes 2 -n 4 --machine mars", "machine file mars: "),
        ("--nodes 2 -n 4 --value-bytes 4000", "--value-bytes 4000"),
        ("--nodes 2 -n 4 --read-ms 5", "give both"),
        ("--nodes 2 -n 4000000000", "at most"),
        ("--nodes 2 -n 4 --json=no/such/folder", "no/such/folder: "),
    ] {
        let output = advise(&folder, words);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(expected), "{words}: {message}");
    }
}
