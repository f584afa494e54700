//! `--for torch`: the store for PyTorch that the agents of a job serve; and the Python modules for PyTorch and Ray.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use wireup_e2e::folders::Folder;
use wireup_e2e::peers::skip;
use wireup_e2e::strangers::{can_be_stranger, stranger};
use wireup_e2e::{Run, is_night, machines};
use wireup_node::record::Recording;
use wireup_sim::traffic::{Frames, received};
use wireup_wire::frame::HEADER_LEN;
use wireup_wire::ids::AgentId;
use xtask::layout;

/// Debian's Python interpreter, for which Debian has PyTorch packages.
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

/// Lets programs import wireup's Python package.
fn with_package(run: Run) -> Run {
    run.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", layout::root().join("python"))
}

#[test]
fn the_scheme_wireup_gives_a_client_of_the_agents_store() {
    if !has_torch() {
        return;
    }
    for (script, arg) in [("torch_ddp.py", Some("wireup://")), ("torch_store.py", None)] {
        let job = with_package(Run::job("-n 4 --virtual-nodes 2 --for torch"));
        let job = job.arg(PYTHON).arg(layout::sources().join("python").join(script)).args(arg);
        job.succeed().expect_all_right(4);
    }
    let script = "import wireup_launcher.torch, torch.distributed as d; next(d.rendezvous('wireup://'))";
    let outcome = with_package(Run::job("-n 1")).args([PYTHON, "-c", script]).finish().expect_code(1);
    outcome.expect_err_line(&["wireup serves no store here: start the program with wireup run --for torch"]);
}

/// `-r 1 -t 1` instead of the default numbers, with which torchrun of PyTorch 1.13 fails under Python 3.11.
#[test]
fn torchrun_finds_the_other_nodes_by_the_agents_and_starts_workers_again() {
    if !has_torch() {
        return;
    }
    let logs = Folder::new("torchrun");
    let torchrun = |nodes: u32| {
        let options = format!("--rdzv_backend wireup --nnodes {nodes} --nproc_per_node 2 --max_restarts 1 -r 1 -t 1");
        let job = with_package(Run::job("-n 2 --virtual-nodes 2 --for torch"));
        let job = job.args([PYTHON, "-m", "wireup_launcher.torchrun"]).args(options.split(' '));
        let job = job.arg("--log_dir").arg(&logs.0);
        job.arg(layout::sources().join("python/torch_restart.py"))
    };
    torchrun(2).succeed().expect_all_right(4);
    let outcome = torchrun(3).finish().expect_code(1);
    outcome.expect_err_line(&["wireup has started torchrun 2 times: --nnodes must be 2"]);
}

/// Ray is replaced by a module that records its arguments.
#[test]
fn a_program_of_ray_starts_once_when_all_nodes_have_joined() {
    let folder = Folder::new("ray");
    let log = folder.at("log");
    let stub = format!("import sys\nopen({log:?}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n");
    folder.write("ray/scripts/scripts.py", stub);
    folder.write("ray-2.60.0.dist-info/METADATA", "Name: ray\nVersion: 2.60.0\n");
    let path = format!("{}:{}", folder.0.display(), layout::root().join("python").display());
    for (end, code) in [("exit 3", 3), ("kill -TERM $$", 143)] {
        folder.write("log", "");
        let program = format!("echo $RAY_ADDRESS; cat {}; {end}", log.display());
        let job = with_package(Run::job("-n 3 --virtual-nodes 3 --rank-env")).linked().env("PYTHONPATH", &path);
        let job = job.args([PYTHON, "-m", "wireup_launcher.ray", "--num-cpus=1", "--", "sh", "-c", &program]);
        let outcome = job.finish().expect_code(code);
        let out = outcome.out();
        let (address, started) = out.split_once('\n').expect("an address");
        let (host, port) = address.split_once(':').expect("a port");
        let start = "start --min-worker-port=0 --max-worker-port=0";
        let head = format!("{start} --head --node-ip-address={host} --port={port} --num-cpus=1\n");
        let others = format!("{start} --address={address} --num-cpus=1\n").repeat(2);
        assert_eq!(started, head + &others, "{outcome}");
    }
}

#[test]
fn every_request_of_each_generation_is_answered() {
    let script = layout::sources().join("python/store_client.py");
    for (ranks, nodes) in [(1, ""), (5, ""), (8, "--virtual-nodes 4"), (3, "--virtual-nodes 3")] {
        let run = Run::job(&format!("-n {ranks} {nodes} --for torch {PYTHON}")).arg(&script);
        run.succeed().expect_all_right(ranks);
    }
}

/// Ranks set values and exit; ranks of other nodes read these values afterwards.
#[test]
fn what_a_rank_wrote_before_it_exited_is_there() {
    let script = layout::sources().join("python/store_ranks.py");
    let run = Run::job(&format!("-n 4 --virtual-nodes 4 --for torch {PYTHON}")).arg(&script).arg("leave");
    run.succeed().expect_all_right(1);
}

/// Gloo's full mesh: each of P ranks sets a value and gets the values of all ranks. A server in one process would send
/// P * P values; each agent receives P, with keys and headers.
#[test]
fn gets_of_all_values_cost_each_agent_few_bytes() {
    const VALUE_BYTES: u64 = 100;
    let script = layout::sources().join("python/store_ranks.py");
    let large: &[(u32, u32)] = if is_night() { &[(16, 64), (16, 128), (16, 256)] } else { &[] };
    for (nodes, ranks) in [(4, 16), (8, 64)].iter().chain(large) {
        let folder = Folder::new("store-bytes");
        let line = format!("-n {ranks} --virtual-nodes {nodes} --for torch --record");
        let run = Run::job(&line).arg(&folder.0).arg(PYTHON).arg(&script).args(["mesh", &VALUE_BYTES.to_string()]);
        run.guard(Duration::from_secs(120)).succeed().expect_all_right(*ranks as usize);
        let bytes = (0..*nodes).map(|agent| {
            let file = Recording::open(&folder.at(&format!("agent-{agent}.rec"))).expect("a recording of each agent");
            let inputs = file.map(|entry| entry.expect("a whole recording"));
            let received = received(AgentId(agent), inputs).expect("whole frames");
            let Frames { frames, bytes } = received["Store"];
            bytes + frames * HEADER_LEN as u64
        });
        let bytes: Vec<u64> = bytes.collect();
        println!("{ranks} ranks on {nodes} nodes: the agents have received {bytes:?} bytes about the store");
        assert!(bytes.iter().all(|bytes| *bytes <= 3 * u64::from(*ranks) * VALUE_BYTES), "{line}: {bytes:?}");
    }
}

/// Runs a client that asks the store for its number of keys, as the oldest clients do, and prints the length of the
/// answer (bytes).
fn answer_bytes(mut shell: Command, port: &str) -> String {
    let ask =
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '\\x06' >&3; timeout 20 head -c 8 <&3 2>/dev/null | wc -c");
    let output = shell.args(["-c", &ask]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Clients that send wrong requests, hang up or send nothing do not affect other clients. Another user, who can connect
/// to the port like every process of the machine, gets no answer.
#[test]
fn clients_that_lie_are_closed_and_others_are_served() {
    let script = format!(
        "echo port=$MASTER_PORT; read go; exec {PYTHON} {}",
        layout::sources().join("python/store_client.py").display()
    );
    let mut job = Run::job("-n 2 --stdin all --for torch").sh(&script).stdin_open().start_until("port=", 2);
    let out = job.out_text();
    let port = out.lines().find_map(|line| line.strip_prefix("port=")).expect("a port").to_owned();
    let bash = Path::new("/bin/bash");
    if can_be_stranger() {
        assert_eq!(answer_bytes(stranger(bash), &port), "0");
    }
    assert_eq!(answer_bytes(Command::new(bash), &port), "8", "the same user is served");
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
            // A request that waits for a key which nobody sets.
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

/// An agent that was killed together with its keeper leaves a folder for error files; the next job removes that folder.
#[test]
fn folders_of_killed_agents_are_removed() {
    let script = "left=$TMPDIR/wireup-job-$(id -u)-left; mkdir -m 700 $left; touch $left/0; \
                  \"$WIREUP\" run -n 1 --pmi none --for torch true; [ ! -e $left ]";
    Run::shell(script).succeed();
}
