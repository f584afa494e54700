//! The plain remote shell as its users see it.
use std::io::{Read, Write};
use std::process::Stdio;

use wireup_testbed::Testbed;

use super::{LIMIT, SILENCE, eventually, on_hub, output, spec, text};

#[test]
fn streams_and_exit_codes_are_forwarded() {
    let Some(testbed) = Testbed::start_or_skip(&spec(1)) else { return };
    let result = output(&mut on_hub(&testbed, "plainsh", &["-x", "me@n0", "echo out; echo err >&2;", "exit", "7"]));
    assert_eq!((&*result.stdout, &*result.stderr, result.status.code()), (&b"out\n"[..], &b"err\n"[..], Some(7)));
    let killed = output(&mut on_hub(&testbed, "plainsh", &["n0", "kill -TERM $$"]));
    assert_eq!(killed.status.code(), Some(128 + 15));
    for i in 0..200 {
        let code = i % 3;
        let result = output(&mut on_hub(&testbed, "plainsh", &["n0", &format!("echo {i}; exit {code}")]));
        assert_eq!((result.stdout, result.status.code()), (format!("{i}\n").into_bytes(), Some(code)));
    }
}

#[test]
fn plainshs_own_failures_give_exit_code_255_and_a_message() {
    let Some(testbed) = Testbed::start_or_skip(&spec(1)) else { return };
    for (words, part) in [
        (&["nowhere", "true"][..], "nowhere"),
        (&["hub", "true"], "refused"),
        (&["n0"], "which command"),
        (&["-Z", "n0", "true"], "-Z"),
        (&[], "usage"),
    ] {
        let result = output(&mut on_hub(&testbed, "plainsh", words));
        let errors = String::from_utf8_lossy(&result.stderr);
        assert_eq!(result.status.code(), Some(255), "{words:?}");
        assert!(errors.starts_with("plainsh: ") && errors.contains(part), "{words:?}: {errors}");
    }
}

#[test]
fn much_data_passes_both_ways_at_once() {
    let Some(testbed) = Testbed::start_or_skip(&spec(1)) else { return };
    let data: Vec<u8> = (0..8_000_003_u32).map(|i| (i ^ (i >> 9)) as u8).collect();
    let mut command = on_hub(&testbed, "plainsh", &["n0", "tee /dev/stderr"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start plainsh");
    let mut input = child.stdin.take().expect("piped");
    let sent = data.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent).expect("write to the child"));
    let result = child.wait_with_output().expect("wait for the child");
    writer.join().expect("no panic");
    assert!(result.status.success());
    assert!(result.stdout == data, "output differs");
    assert!(result.stderr == data, "errors differ");
}

#[test]
fn unread_input_does_not_delay_output() {
    let Some(testbed) = Testbed::start_or_skip(&spec(1)) else { return };
    let mut command =
        on_hub(&testbed, "sh", &["-c", "head -c 9000000 /dev/zero | plainsh n0 'seq 20000; exit 3' | tail -1"]);
    assert_eq!(text(&mut command), "20000");
}

#[test]
fn input_and_its_end_are_forwarded_immediately() {
    let Some(testbed) = Testbed::start_or_skip(&spec(1)) else { return };
    let mut child = on_hub(&testbed, "plainsh", &["n0", "cat; echo end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start plainsh");
    let (mut input, mut answers) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    for word in ["a", "b"] {
        input.write_all(word.as_bytes()).expect("write to the child");
        let mut byte = [0];
        answers.read_exact(&mut byte).expect("read the echo");
        assert_eq!(byte, word.as_bytes());
    }
    drop(input);
    let mut rest = String::new();
    answers.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(rest, "end\n");
    assert!(child.wait().expect("wait for the child").success());
}

#[test]
fn killing_the_client_ends_the_remote_command() {
    let Some(testbed) = Testbed::start_or_skip(&spec(1)) else { return };
    for ignored in ["", "trap '' HUP; "] {
        let script = format!("{ignored}sleep 1000 & sleep 1000; true");
        let mut child = on_hub(&testbed, "plainsh", &["n0", &script]).spawn().expect("start plainsh");
        eventually("three processes", || {
            testbed.processes(0).iter().filter(|p| p.command.contains("1000")).count() == 3
        });
        child.kill().expect("kill the child");
        child.wait().expect("wait for the child");
        assert!(testbed.await_idle(LIMIT), "{:?}", testbed.processes(0));
    }
}

#[test]
fn a_call_lasts_until_its_output_is_closed() {
    let Some(testbed) = Testbed::start_or_skip(&spec(1)) else { return };
    let mut child = on_hub(&testbed, "plainsh", &["n0", "sleep 1000 & exit 0"]).spawn().expect("start plainsh");
    eventually("sleep alone", || matches!(&testbed.processes(0)[..], [only] if only.command == "sleep 1000"));
    std::thread::sleep(SILENCE);
    assert!(child.try_wait().expect("wait for the child").is_none());
    let kill = testbed.in_node(0, "kill").arg(testbed.processes(0)[0].node_pid.to_string()).status();
    assert!(kill.expect("run kill").success());
    assert_eq!(child.wait().expect("wait for the child").code(), Some(0));
}

#[test]
fn hydra_starts_processes_through_plainsh() {
    let Some(testbed) = Testbed::start_or_skip(&spec(4)) else { return };
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("mpiexec.hydra").exists()));
    if !found {
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: there is no mpiexec.hydra\n");
        return;
    }
    let words = ["-hosts", &testbed.hosts(), "-launcher", "ssh", "-launcher-exec", "plainsh", "-n", "4", "hostname"];
    let mut command = on_hub(&testbed, "mpiexec.hydra", &words);
    // It uses its own working directory on every host; a clone below /tmp does not exist there.
    let names = text(command.current_dir("/"));
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["n0", "n1", "n2", "n3"]);
}
