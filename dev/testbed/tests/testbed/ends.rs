//! However a testbed ends, nothing of it is left.
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use wireup_testbed::Testbed;

use super::{eventually, exists, on_hub, spec, text};

/// Pids of all processes that belong to a testbed, found from outside the testbed.
pub fn members(testbed: &Testbed) -> Vec<u32> {
    let nodes = (0..testbed.node_count()).flat_map(|i| {
        testbed.daemons(i).into_iter().chain(testbed.processes(i).into_iter().map(|process| process.pid))
    });
    let pids: Vec<u32> = nodes.chain(children(testbed.pid())).chain([testbed.pid()]).collect();
    assert!(pids.iter().all(|pid| exists(*pid)));
    pids
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    list.split_whitespace().map(|word| word.parse().expect("a pid")).collect()
}

#[test]
fn dropping_a_testbed_leaves_no_process() {
    let Some(testbed) = Testbed::start_or_skip(&spec(3)) else { return };
    let stubborn = "trap '' HUP TERM; setsid sleep 1000 >/dev/null 2>&1 </dev/null &";
    text(&mut on_hub(&testbed, "ssh", &["n1", stubborn]));
    let mut on_hub = on_hub(&testbed, "sleep", &["1000"]).spawn().expect("start sleep");
    let pids = members(&testbed);
    // The testbed's process, three nodes' first processes, three sshds, sleep, and perhaps the sshd that runs the
    // command above.
    assert!(pids.len() >= 8, "{pids:?}");
    drop(testbed);
    assert!(!pids.iter().any(|pid| exists(*pid)));
    assert!(!on_hub.wait().expect("wait for the child").success(), "not killed with the hub");
}

#[test]
fn killing_the_testbeds_process_leaves_no_process() {
    let Some(testbed) = Testbed::start_or_skip(&spec(3)) else { return };
    text(&mut on_hub(&testbed, "ssh", &["n1", "setsid sleep 1000 >/dev/null 2>&1 </dev/null &"]));
    let (own, pids) = (testbed.pid(), members(&testbed));
    let kill = Command::new("kill").args(["-KILL", &own.to_string()]).status().expect("run kill");
    assert!(kill.success());
    eventually("all gone", || !pids.iter().any(|pid| *pid != own && exists(*pid)));
    assert!(testbed.cut(0).is_err());
    drop(testbed);
    assert!(!exists(own));
}

#[test]
fn killing_the_program_that_runs_a_testbed_leaves_no_process() {
    if Testbed::start_or_skip(&spec(1)).is_none() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_wireup-testbed"));
    command.args(["run", "-n", "2", "--", "ssh", "n1", "echo up; sleep 1000"]);
    let mut user = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("start the program");
    let mut line = String::new();
    BufReader::new(user.stdout.take().expect("piped")).read_line(&mut line).expect("read a line");
    let mut pids = children(user.id());
    let below: Vec<u32> = pids.iter().flat_map(|pid| children(*pid)).collect();
    pids.extend(below.iter().flat_map(|pid| children(*pid)));
    pids.extend(below);
    // The testbed's process, the ssh of the command, two nodes' first processes, and two sshds.
    assert_eq!(pids.len(), 6);
    user.kill().expect("kill the child");
    user.wait().expect("wait for the child");
    eventually("all gone", || !pids.iter().any(|pid| exists(*pid)));
}

#[test]
fn the_run_command_returns_the_exit_code_of_its_program() {
    if Testbed::start_or_skip(&spec(1)).is_none() {
        return;
    }
    let run = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_wireup-testbed")).arg("run").args(words).output().expect("start the program")
    };
    let result = run(&["-n", "2", "--", "sh", "-c", "echo $WIREUP_TESTBED_HOSTS; exit 5"]);
    assert_eq!((&*result.stdout, result.status.code()), (&b"n0,n1\n"[..], Some(5)));
    for (words, code, part) in [
        (&["-n", "1", "no-such-program"][..], 127, "no-such-program"),
        (&["-n", "1"], 125, "which command"),
        (&["true"], 125, "-n N is missing"),
    ] {
        let result = run(words);
        assert_eq!(result.status.code(), Some(code));
        assert!(String::from_utf8_lossy(&result.stderr).contains(part), "{result:?}");
    }
}
