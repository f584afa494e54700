//! `--for torch`: the store for PyTorch that the agents of a job serve.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use wireup_e2e::peers::skip;
use wireup_e2e::{Run, machines};
use xtask::layout;

/// Debian's interpreter, for which Debian has PyTorch.
const PYTHON: &str = "/usr/bin/python3";

fn has_torch() -> bool {
    let has = Path::new("/usr/lib/python3/dist-packages/torch/__init__.py").is_file();
    if !has {
        skip::<()>("no python3-torch");
    }
    has
}

#[test]
fn unmodified_programs_of_pytorch_train() {
    if !has_torch() {
        return;
    }
    let script = layout::sources().join("python/torch_ddp.py");
    for nodes in ["", "--virtual-nodes 2"] {
        Run::job(&format!("-n 4 {nodes} --for torch {PYTHON}")).arg(&script).succeed().expect_all_right(4);
    }
    let Some(machines) = machines::four() else { return };
    let run = machines.job(&format!("--hosts n[0-1] --ppn 2 --for torch {PYTHON}")).arg(&script);
    run.succeed().expect_all_right(4);
}

#[test]
fn every_request_of_each_generation_is_answered() {
    let script = layout::sources().join("python/store_client.py");
    for (ranks, nodes) in [(1, ""), (5, ""), (8, "--virtual-nodes 4"), (3, "--virtual-nodes 3")] {
        let run = Run::job(&format!("-n {ranks} {nodes} --for torch {PYTHON}")).arg(&script);
        run.succeed().expect_all_right(ranks);
    }
}

/// Clients that lie, hang up or say nothing disturb nobody else.
#[test]
fn clients_that_lie_are_closed_and_others_are_served() {
    let script = format!(
        "echo port=$MASTER_PORT; read go; exec {PYTHON} {}",
        layout::sources().join("python/store_client.py").display()
    );
    let mut job = Run::job("-n 2 --stdin all --for torch").sh(&script).stdin_open().start_until("port=", 2);
    let out = job.out_text();
    let port = out.lines().find_map(|line| line.strip_prefix("port=")).expect("a port").to_owned();
    let connect = || TcpStream::connect(format!("127.0.0.1:{port}")).expect("a connection");
    let magic = [0, 0xce, 0xf7, 0x85, 0x3c];
    let mut kept = Vec::new();
    for lie in [
        &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..],
        &[200][..],
        &[6, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0][..],
        &[4, 1, 0][..],
    ] {
        let mut client = connect();
        client.write_all(&[&magic, lie].concat()).expect("room");
        kept.push(client);
    }
    for number in 0..2000 {
        let mut client = connect();
        if number % 2 == 0 {
            // A wait for a key that nobody sets.
            let key = [6, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'x'];
            let _ = client.write_all(&[&magic[..], &key].concat());
        }
        if number % 3 == 0 {
            let _ = client.shutdown(Shutdown::Both);
        } else if kept.len() < 500 {
            kept.push(client);
        }
    }
    job.write(b"go\n");
    let outcome = job.succeed();
    assert_eq!(outcome.out().matches("right").count(), 2, "{outcome}");
    outcome.expect_err_line(&["a connection to the store for PyTorch was closed"]);
    drop(kept);
}

/// An agent that was killed together with its keeper has left a folder for error files: the next job removes it.
#[test]
fn folders_of_killed_agents_are_removed() {
    let name = format!("wireup-job-{}-{:016x}", rustix::process::geteuid().as_raw(), std::process::id());
    let left = Path::new("/dev/shm").join(name);
    DirBuilder::new().mode(0o700).create(&left).expect("a folder");
    fs::write(left.join("0"), "").expect("a file");
    Run::job("-n 1 --pmi none --for torch").arg("true").env("TMPDIR", "").succeed();
    assert!(!left.exists());
}
