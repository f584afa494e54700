//! Faults that tests inject into a testbed; the unaffected parts notice no more of them than of a real fault.
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};

use wireup_testbed::Testbed;

use super::{SILENCE, eventually, exists, is_idle, on_hub, output, spec, text};

/// An ssh command on a host that has printed "up" and then echoes its input.
fn echo(testbed: &Testbed, host: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = on_hub(testbed, "ssh", &[host, "echo up; cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start ssh");
    let mut answers = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    answers.read_line(&mut line).expect("read a line");
    assert_eq!(line, "up\n");
    (child, answers)
}

#[test]
fn a_cut_node_is_silent_until_it_is_healed() {
    let Some(testbed) = Testbed::start_or_skip(&spec(2)) else { return };
    let (mut child, mut answers) = echo(&testbed, "n1");
    testbed.cut(1).expect("cut a node off");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"x").expect("taken by the client");
    std::thread::sleep(SILENCE);
    assert!(child.try_wait().expect("wait for the child").is_none(), "the cut was noticed");
    assert_eq!(text(testbed.in_node(1, "cat").arg("/sys/class/net/lo/carrier")), "1");
    let node_ping = "timeout 0.3 ssh n0 true";
    assert_eq!(testbed.in_node(1, "sh").args(["-c", node_ping]).status().expect("run sh").code(), Some(124));
    assert_eq!(text(&mut on_hub(&testbed, "ssh", &["n0", "hostname"])), "n0", "the other node does not work");
    testbed.heal(1).expect("reconnect the node");
    let mut byte = [0];
    answers.read_exact(&mut byte).expect("read the echo");
    assert_eq!(&byte, b"x");
    drop(input);
    assert!(child.wait().expect("wait for the child").success());
}

#[test]
fn a_powered_off_node_sends_nothing_and_has_no_processes() {
    let Some(testbed) = Testbed::start_or_skip(&spec(2)) else { return };
    let (mut child, _answers) = echo(&testbed, "n1");
    let daemons = testbed.daemons(1);
    assert_eq!(daemons.len(), 1);
    eventually("sh and cat", || testbed.processes(1).len() == 2);
    testbed.power_off(1).expect("switch a node off");
    assert!(!exists(daemons[0]) && testbed.processes(1).is_empty());
    std::thread::sleep(SILENCE);
    assert!(child.try_wait().expect("wait for the child").is_none(), "the end was noticed");
    child.kill().expect("kill the child");
    child.wait().expect("wait for the child");
    assert_eq!(text(&mut on_hub(&testbed, "ssh", &["n0", "hostname"])), "n0", "the other node does not work");
    assert!(testbed.cut(1).expect_err("the node is off").to_string().contains("n1 is off"));
}

#[test]
fn processes_left_on_a_node_are_listed() {
    let Some(testbed) = Testbed::start_or_skip(&spec(2)) else { return };
    eventually("idle nodes", || is_idle(&testbed));
    text(&mut on_hub(&testbed, "ssh", &["n1", "setsid sleep 1000 >/dev/null 2>&1 </dev/null &"]));
    let commands = || testbed.processes(1).into_iter().map(|process| process.command).collect::<Vec<_>>();
    eventually("only the process that was left", || commands() == ["sleep 1000"]);
    assert!(testbed.processes(0).is_empty());
    text(testbed.in_node(1, "kill").arg(testbed.processes(1)[0].node_pid.to_string()));
    eventually("idle nodes", || is_idle(&testbed));
}

#[test]
fn files_and_disks_of_one_node_can_be_replaced() {
    let Some(testbed) = Testbed::start_or_skip(&spec(2)) else { return };
    let uname = text(&mut on_hub(&testbed, "sh", &["-c", "command -v uname"]));
    testbed.shadow(1, &uname, "#!/bin/sh\necho other\n", 0o755).expect("replace a file");
    assert_eq!(text(&mut on_hub(&testbed, "ssh", &["n1", "uname", "-m"])), "other");
    assert_ne!(text(&mut on_hub(&testbed, "ssh", &["n0", "uname", "-m"])), "other");
    testbed.small_disk(1, "/tmp/small", 8192).expect("mount a small disk");
    let fill = "head -c 100000 /dev/zero >/tmp/small/file";
    let full = output(&mut on_hub(&testbed, "ssh", &["n1", fill]));
    assert!(String::from_utf8_lossy(&full.stderr).contains("No space left"), "{full:?}");
    assert!(testbed.shadow(1, "/no/such/file", "", 0o644).is_err());
}
