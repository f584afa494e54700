//! The program as users run it: its result is that of the simulator, and what cannot be simulated is refused with a
//! message.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use wireup_sim::phases::Point;
use wireup_simulate::machine::Machine;
use wireup_simulate::plan::{EXCHANGES, Exchange, Plan, STARTS};
use wireup_wire::frame::Class;
use wireup_wire::job::ExchangeScheme;

fn program(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wireup-simulate"));
    command.args(words.split_whitespace());
    command
}

fn output(words: &str) -> Output {
    program(words).output().expect("the program runs")
}

/// Runs a command line that must be refused; returns the exit code and the last line of standard error.
fn refused(words: &str) -> (Option<i32>, String) {
    let output = output(words);
    let text = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.lines().last().unwrap_or_default().to_owned())
}

/// The trace and the result (`--json`) of a simulated run show the same times: the additional frames of profiling are
/// sent only after the ranks have their data.
#[test]
fn a_trace_has_the_times_of_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let [result, trace] = ["result", "trace"].map(|name| folder.path().join(name));
    let words = "-n 22 --nodes 6 --fanout 2 --machine s2 --exchange fence";
    let ran = output(&format!("{words} --json={} --profile {}", result.display(), trace.display()));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let [result, trace] = [result, trace]
        .map(|file| serde_json::from_slice::<Value>(&fs::read(file).expect("a result")).expect("it is JSON"));
    assert_eq!((&trace["otherData"]["simulated"], &trace["otherData"]["fanout"]), (&json!("s2"), &json!(2)));
    let events = trace["traceEvents"].as_array().expect("events");
    let ends = |name: &str| -> Vec<f64> {
        let spans = events.iter().filter(|event| event["name"] == name);
        spans.map(|span| span["ts"].as_f64().expect("ts") + span["dur"].as_f64().expect("dur")).collect()
    };
    assert_eq!((ends("exec").len(), ends("connect").len(), ends("fence 0").len()), (22, 5, 6));
    let seconds = |phase: &str| result["phases"][phase]["s"].as_f64().expect("seconds");
    let fenced = ends("fence 0").into_iter().fold(0.0, f64::max) / 1e6;
    assert!(seconds("forked") < fenced && fenced <= seconds("exchanged"), "{fenced} {result}");
    let printed = output(&format!("{words} --profile /dev/stdout")).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&printed).expect("only the trace is printed"), trace);
}

#[test]
fn a_reader_that_has_gone_ends_the_program_without_a_message() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ran = program("--help").stdout(writer).stderr(Stdio::piped()).output().expect("the program runs");
    assert_eq!((ran.status.signal(), ran.stderr), (Some(Signal::PIPE.as_raw()), Vec::new()));
}

#[test]
fn with_json_standard_output_has_nothing_else() {
    for (words, text) in [("-n 4 --machine s2", "forked"), ("advise --nodes 2 -n 4 --machine s4", "wireup run")] {
        let ran = output(&format!("{words} --json"));
        assert!(serde_json::from_slice::<Value>(&ran.stdout).expect("JSON")["record"].is_string(), "{words}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains(text), "{words}");
    }
}

#[test]
fn every_start_and_exchange_is_reported_as_the_simulator_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::load("s2").expect("it is built in");
    let all = STARTS.iter().flat_map(|start| EXCHANGES.iter().map(move |exchange| (start, exchange)));
    for ((start_name, start), (exchange_name, exchange)) in all {
        let file = folder.path().join("result.json");
        let words = format!("-n 22 --nodes 6 --fanout 2 --machine s2 --seed 3 --start {start_name}");
        let words = format!("{words} --exchange {exchange_name} --json={}", file.display());
        let ran = output(&words);
        assert!(ran.status.success(), "{words}: {}", String::from_utf8_lossy(&ran.stderr));
        let result: Value = serde_json::from_slice(&fs::read(&file).expect("a result")).expect("JSON");
        let (start, exchange, scheme) = (*start, *exchange, ExchangeScheme::Auto);
        let value_bytes = 18;
        let plan = Plan { ranks: 22, nodes: 6, ppn: 4, fanout: 2, start, exchange, scheme, value_bytes, seed: 3 };
        let report = wireup_sim::run(plan.world(&machine)).expect_good();
        for (class, count) in Class::ALL.iter().zip(&report.classes) {
            let name = format!("{class:?}").to_lowercase();
            assert_eq!(result["classes"][&name], json!({ "frames": count.frames, "bytes": count.bytes }), "{words}");
        }
        assert_eq!(result["digest"], format!("{:016x}", report.digest), "{words}");
        assert_eq!((&result["is_complete"], &result["failure"]), (&json!(true), &Value::Null), "{words}");
        let messages = result["rank_network"]["messages"].as_u64();
        assert_eq!(messages, report.rank_traffic.map(|traffic| traffic.messages), "{words}");
        let among_ranks = exchange_name.starts_with("rank-") || exchange == Exchange::PmiGroups;
        assert_eq!(messages.is_some(), among_ranks, "{words}");
        let ready = report.checks.phases.at(Point::Ready);
        assert_eq!((ready.count, &result["phases"]["ready"]["count"]), (22, &json!(22)), "{words}");
    }
}

/// Virtual nodes of one machine share one store of staged files.
#[test]
fn every_store_has_the_program_before_a_rank_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    for (start, stores) in [("session", 6), ("ssh", 6), ("srun", 6), ("local", 1)] {
        let words =
            format!("-n 22 --nodes 6 --fanout 2 --machine s2 --stage 1 --start {start} --json={}", file.display());
        let ran = output(&words);
        assert!(ran.status.success(), "{words}: {}", String::from_utf8_lossy(&ran.stderr));
        let result: Value = serde_json::from_slice(&fs::read(&file).expect("a result")).expect("JSON");
        let [staged, forked, begun] = ["staged", "forked", "begun"].map(|phase| &result["phases"][phase]);
        assert_eq!(
            (&result["stage_mib"], &staged["count"], &staged["of"]),
            (&json!(1), &json!(stores), &json!(stores))
        );
        assert_eq!([&forked["count"], &begun["count"]], [22, 22], "staging ranks are not among them");
        assert!(forked["s"].as_f64() > staged["s"].as_f64(), "{words}: {result}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_before_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let no_room = folder.path().join("missing/result.json");
    let (code, message) = refused(&format!("-n 4 --json={}", no_room.display()));
    assert!(code == Some(2) && message.contains(&format!("{}: ", no_room.display())), "{code:?} {message}");
    let file = folder.path().join("machine.toml");
    let text = include_str!("../machines/s2.toml");
    fs::write(&file, text.replacen("\ncores = ", "\nscores = ", 1)).expect("a file");
    let line = text.lines().position(|line| line.starts_with("cores = ")).expect("a line") + 1;
    let (code, message) = refused(&format!("-n 4 --machine {}", file.display()));
    let expected = format!("machine file {}, line {line}: unknown field `scores`", file.display());
    assert!(code == Some(2) && message.contains(&expected), "{code:?} {message}");
    let (code, message) = refused("-n 4000000000 --ppn 1");
    assert!(code == Some(125) && message.contains("--force"), "{code:?} {message}");
    let (code, message) = refused("compare 2x4 2by4");
    assert!(code == Some(2) && message.contains("2by4: give virtual nodes"), "{code:?} {message}");
    assert_eq!(refused("compare --wireup /nowhere/wireup 1x2").0, Some(2));
    assert_eq!(refused("calibrate -o /dev/null --rounds 1 --wireup /nowhere/wireup").0, Some(2));
}

#[test]
fn an_interrupted_run_prints_what_was_known() {
    let mut child = program("-n 65536 --nodes 4096 --machine s2")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut first = String::new();
    let stderr = child.stderr.take().expect("a pipe");
    BufReader::new(stderr).read_line(&mut first).expect("a line");
    assert!(first.starts_with("memory: "), "{first}");
    kill_process(Pid::from_child(&child), Signal::INT).expect("the program still runs");
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{text}");
    assert!(text.contains("interrupted; until then:") && text.contains(" control\n"), "{text}");
}

#[test]
fn the_manual_page_has_every_command() {
    let page = String::from_utf8(output("man").stdout).expect("UTF-8").replace("\\-", "-");
    for usage in ["", " calibrate", " compare", " advise", " table"] {
        assert!(page.contains(&format!("\nwireup simulate{usage} [FLAGS]")), "{usage}: {page}");
    }
    for heading in ["-n RANKS", "--sensitivity-ranks N", "--stage-ms MS"] {
        assert!(page.contains(&format!("\\fB{heading}\\fR\n")), "{heading}: {page}");
    }
}
