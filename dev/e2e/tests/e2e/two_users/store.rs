//! The store for PyTorch: a TCP port to which every process of the machine can connect.

use std::path::Path;
use std::process::Command;
use wireup_e2e::Run;
use wireup_e2e::strangers::{can_be_stranger, stranger};

/// Runs a client that asks the store for its number of keys, as the oldest clients do, and prints the length of the
/// answer (bytes).
fn answer_bytes(mut shell: Command, port: &str) -> String {
    let ask =
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '\\x06' >&3; timeout 20 head -c 8 <&3 2>/dev/null | wc -c");
    let output = shell.args(["-c", &ask]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_stranger_is_not_served_by_the_store_of_a_job() {
    if !can_be_stranger() {
        return;
    }
    let run = Run::job("-n 1 --stdin all --for torch").sh("echo port=$MASTER_PORT; read go").stdin_open();
    let mut job = run.start_until("port=", 1);
    let out = job.out_text();
    let port = out.lines().find_map(|line| line.strip_prefix("port=")).expect("a port");
    let bash = Path::new("/bin/bash");
    assert_eq!(answer_bytes(stranger(bash), port), "0");
    assert_eq!(answer_bytes(Command::new(bash), port), "8", "the same user is served");
    job.write(b"go\n");
    job.succeed();
}
