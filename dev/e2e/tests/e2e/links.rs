//! The links between agents: addresses, encryption, connections of foreign programs.

use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use wireup_e2e::Running;
use wireup_e2e::faults::send;
use wireup_e2e::machines::{self, Machines};

const PYTHON: &str = "/usr/bin/python3";

/// Every host and the hub have an interface docker0 with the same address, which links must not use.
#[test]
fn link_addresses_are_reported_and_never_a_container_bridge() {
    let Some(machines) = machines::four() else { return };
    for (line, address) in [
        ("--hosts n[0-3] --start ssh-flat", "10.77.0.254"),
        ("--hosts n[0-3]-v6 --start ssh-flat", "fd77::fe"),
        ("--hosts n[0-3] --start ssh-flat --interface 10.77.0.254/24", "10.77.0.254"),
        ("--hosts n[0-3] --fanout 1 --interface 10.77.0.0/16", "10.77.0."),
        ("--hosts n[0-3] --fanout 1 --interface fd77::/64", "fd77::"),
    ] {
        let outcome = machines.job(line).args(["--verbose", "hostname"]).succeed();
        assert_eq!(outcome.sorted_lines(), ["n0", "n1", "n2", "n3"], "{line}: {outcome}");
        outcome.expect_err_line(&["links: ", address]);
        assert!(!outcome.err().contains("172.17"), "{line}: {outcome}");
    }
}

#[test]
fn an_unknown_interface_is_reported_with_the_existing_addresses() {
    let Some(machines) = machines::four() else { return };
    for which in ["ib7", "10.99.0.0/16", "172.17.0.0/16"] {
        let outcome = machines.job(&format!("--hosts n[0-3] --fanout 1 --interface {which} hostname")).finish();
        outcome.expect_code(125).expect_err_line(&[which, "10.77.0."]);
    }
    // Only the hub has the interface `br0`, but both ends of a link need an interface of that name.
    let far = machines.job("--hosts n[0-3] --start ssh-flat --interface br0 hostname").finish().expect_code(125);
    far.expect_err_line(&["--interface br0", "eth0 10.77.0.1"]);
}

/// A program that counts packets on the hub that contain a text, until its standard input ends.
const WATCH: &str = "
import select, socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
text, count = sys.argv[1].encode(), 0
print('ready', flush=True)
while True:
    ready = select.select([packets, sys.stdin], [], [])[0]
    if packets in ready:
        count += text in packets.recv(1 << 17)
    elif sys.stdin in ready:
        break
print(count)
";

/// Number of packets that contain text which a remote rank has written and no command line contains.
fn readable_packets(machines: &Machines, flags: &str) -> usize {
    let mut watch = Command::new(PYTHON);
    machines.enter(watch.args(["-c", WATCH, "NEEDLE-42-"]).stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut watch = watch.spawn().expect("python3");
    let mut said = BufReader::new(watch.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("read a line");
    let script = "for i in $(seq 500); do echo NEEDLE-$((6 * 7))-$i; done; cat";
    let outcome = machines.job(&format!("--hosts n0,n1 --fanout 1 --stdin 1 {flags}")).sh(script);
    let outcome = outcome.stdin(format!("{}\n", "NEEDLE-42-".repeat(500))).succeed();
    assert_eq!(outcome.out().matches("NEEDLE-42-").count(), 1500, "{outcome}");
    drop(watch.stdin.take());
    line.clear();
    said.read_to_string(&mut line).expect("a number");
    watch.wait().expect("wait for the child");
    line.trim().parse().expect("a number")
}

#[test]
fn encrypted_links_hide_the_jobs_data() {
    let Some(machines) = machines::sixteen() else { return };
    assert_ne!(readable_packets(&machines, "--plain-links"), 0, "no packets were captured");
    assert_eq!(readable_packets(&machines, ""), 0);
}

/// A program that opens connections and reports when they are open; on each it behaves in another way of a foreign
/// program.
const STRANGER: &str = "
import os, socket, sys, time
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = []
for i in range(count):
    stranger = socket.create_connection((host, port), 10)
    try:
        if i % 4 == 1:
            stranger.sendall(os.urandom(100))
        elif i % 4 == 2:
            stranger.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n' * 1000)
        elif i % 4 == 3:
            stranger.close()
    except OSError:
        pass
    held.append(stranger)
print('held', flush=True)
time.sleep(1000)
";

/// Starts the program `STRANGER` on host `from` and waits until all of its connections are open.
fn strangers(machines: &Machines, from: u16, host: &str, port: u16) -> Child {
    let mut command = machines.in_node(from, PYTHON);
    command.args(["-c", STRANGER, host, &port.to_string(), "200"]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("read a line");
    assert_eq!(line, "held\n");
    child
}

/// Ports above the reserved ones on which a socket listens in the network name space of the process `pid`.
fn listening(pid: u32) -> Vec<u16> {
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(Path::new("/proc").join(format!("{pid}/net/{table}"))));
    let tables: Vec<String> = tables.into_iter().map(|table| table.expect("a table of sockets")).collect();
    let rows = tables.iter().flat_map(|table| table.lines()).map(|row| row.split_whitespace().collect::<Vec<_>>());
    let ports = rows.filter(|row| row.get(3) == Some(&"0A")).filter_map(|row| {
        let (_, port) = row.get(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    });
    ports.filter(|port| *port >= 1024).collect()
}

/// The first port on which the launcher's own agent listens.
fn port_of(running: &mut Running, pid: u32) -> u16 {
    let mut port = None;
    running.await_that("the agent listens", |_| {
        port = listening(pid).first().copied();
        port.is_some()
    });
    port.expect("just found")
}

#[test]
fn foreign_connections_disturb_neither_start_nor_job() {
    let Some(machines) = machines::own(3, |_| ()) else { return };
    // n1's sshd is stopped, so that its remote shell hangs until the foreign connections are open.
    send(machines.daemons(1)[0], Signal::STOP);
    let run = machines.job("--hosts n0,n1 --start ssh-flat --early-start --stdin all").sh("echo up; wc -c");
    let mut running = run.stdin_open().start_until("up\n", 1);
    let launcher = running.pid().as_raw_nonzero().get().cast_unsigned();
    let port = port_of(&mut running, launcher);
    let mut early = strangers(&machines, 2, "hub", port);
    send(machines.daemons(1)[0], Signal::CONT);
    running.await_out("up\n", 2);
    let mut late = strangers(&machines, 2, "hub", port);
    for _ in 0..100 {
        running.write(&[b'x'; 10_000]);
    }
    running.close_stdin();
    running.await_out("1000000\n", 2);
    for child in [&mut early, &mut late] {
        child.kill().expect("kill the child");
        child.wait().expect("wait for the child");
    }
    running.succeed().expect_quiet();
}
