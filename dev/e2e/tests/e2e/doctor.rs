//! `wireup doctor` on healthy hosts and on hosts with problems.

use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use wireup_e2e::faults::send;
use wireup_e2e::machines::{self, HiddenCopy, Machines};
use wireup_e2e::wireup;

fn hosts() -> Option<Machines> {
    machines::own(5, |_| ())
}

/// Runs `wireup doctor LINE` on the hub; its exit code must be `code`, and its output must contain all `parts`. Returns
/// the output.
fn doctor_of(program: &Path, hosts: &Machines, line: &str, code: i32, parts: &[&str]) -> String {
    let outcome = hosts.shell(&format!("exec {} doctor {line}", program.display())).finish().expect_code(code);
    let said = format!("{}{}", outcome.out(), outcome.err());
    for part in parts {
        assert!(said.contains(part), "{line}: {part:?} is missing in\n{said}");
    }
    said
}

fn doctor(hosts: &Machines, line: &str, code: i32, parts: &[&str]) -> String {
    doctor_of(&wireup(), hosts, line, code, parts)
}

#[test]
fn doctor_reports_healthy_hosts_and_hosts_with_problems() {
    let Some(testbed) = hosts() else { return };
    let said = doctor(&testbed, "--hosts n[0-3]", 0, &["n0  ok ", "eth0 10.77.0.4", "ms back", "4 hosts: 4 ok\n"]);
    assert_eq!(said.lines().count(), 5, "{said}");
    doctor(&testbed, "--hosts hub,n0", 0, &["br0 10.77.0.254, this machine", "2 hosts: 2 ok"]);
    doctor(&testbed, "--hosts n0,n1 --interface 10.77.0.0/16", 0, &["eth0 10.77.0.2", "2 hosts: 2 ok"]);
    doctor(&testbed, "--hosts n0 --interface no-such-if", 125, &["matches --interface no-such-if", "br0 10.77.0.254"]);
    // The interface exists on the hub, but not on the hosts: the message about each host lists the host's own networks.
    let named = [
        "problem  n0: wireup agent: cannot connect to the parent agent: ",
        "eth0 10.77.0.2/16",
        "no address of this machine matches --interface br0; it has ",
        "name an interface that all hosts have",
        "2 with problems",
    ];
    doctor(&testbed, "--hosts n[0-1] --interface br0", 1, &named);
    let directory = ["n[0-1]: working directory /no/such: does not exist", "fix: run with --wdir"];
    doctor(&testbed, "--hosts n[0-1] --wdir /no/such", 1, &directory);

    // Without ssh the host cannot start agents on other hosts, but a run works nevertheless.
    testbed.shadow(1, "/usr/bin/ssh", "#!/bin/sh\necho forbidden here >&2\nexit 255\n", 0o755).expect("replace a file");
    let onward = ["remark   n1: it cannot reach n2 by ssh (forbidden here)", "3 hosts: 2 ok, 1 with remarks"];
    doctor(&testbed, "--hosts n[0-2]", 0, &onward);

    testbed.shadow(1, "/usr/bin/ssh", "#!/bin/sh\nsleep 1000\n", 0o755).expect("replace a file");
    let hangs = ["remark   n1: it cannot reach n2 by ssh (it did not answer within 1.5 s)", "2 ok, 1 with remarks"];
    doctor(&testbed, "--hosts n[0-2] --start-timeout 3", 0, &hangs);

    let sshd = testbed.daemons(2)[0].to_string();
    let limited = Command::new("prlimit").args(["--pid", &sshd, "--nofile=300:300"]).status();
    assert!(limited.expect("util-linux has prlimit").success());
    let limit =
        ["problem  n2: at most 300 open files", "fix: raise nofile", "open files: at most 300; most hosts have"];
    doctor(&testbed, "--hosts n0,n2,n3", 1, &limit);
}

#[test]
fn hosts_that_do_not_answer_are_all_named_in_one_run() {
    let Some(testbed) = hosts() else { return };
    testbed.cut(3).expect("cut a node off");
    send(testbed.daemons(4)[0], Signal::KILL);
    let parts = [
        "n0  ok ",
        "n2  ok ",
        "problem  n3: its remote shell did not start an agent within 3 s\n         fix: is the node up?",
        "problem  n4: ssh: connect to host n4 port 22: Connection refused\n         fix: is sshd running there",
        "problem  n9: ssh: Could not resolve hostname n9",
        "6 hosts: 3 ok, 3 with problems\n",
    ];
    let said = doctor(&testbed, "--hosts n[0-4],n9 --start-timeout 3", 1, &parts);
    assert!(!said.contains("cannot reach"), "another host is blamed as well: {said}");
}

/// A firewall drops the packets by which n1 would open connections to the hub.
#[test]
fn a_host_behind_a_firewall_is_reported_with_the_address_that_did_not_answer() {
    let Some(testbed) = hosts() else { return };
    let rules = "add table inet firewall; add chain inet firewall in { type filter hook input priority 0; }; \
        add rule inet firewall in ip saddr 10.77.0.2 tcp flags & (syn | ack) == syn drop; \
        add rule inet firewall in ip6 saddr fd77::2 tcp flags & (syn | ack) == syn drop";
    let mut nft = Command::new("/usr/sbin/nft");
    assert!(testbed.enter(nft.arg(rules)).status().expect("nftables is installed").success());
    let parts = [
        "n0  ok ",
        "n2  ok ",
        "problem  n1: wireup agent: cannot connect to the parent agent: ",
        "10.77.0.254:",
        "no answer within",
        " s; check for a firewall between it and its parent; --interface chooses another network",
        "3 hosts: 2 ok, 1 with problems\n",
    ];
    doctor(&testbed, "--hosts n[0-2] --start-timeout 10", 1, &parts);
}

#[test]
fn a_signal_ends_the_doctor_and_all_its_remote_processes() {
    let Some(testbed) = hosts() else { return };
    testbed.shadow(2, "/usr/bin/ssh", "#!/bin/sh\nsleep 1000\n", 0o755).expect("replace a file");
    let mut running = testbed.shell("exec $WIREUP doctor --hosts n[0-3] --start-timeout 60").start();
    running.await_that("the remote shell from n2 to n3, which hangs", |_| {
        testbed.processes(2).iter().any(|process| process.command.contains("sleep"))
    });
    running.signal(Signal::TERM);
    running.finish();
}

#[test]
fn a_missing_wireup_is_reported_and_sent_with_the_send_flag() {
    let Some(testbed) = hosts() else { return };
    let copy = HiddenCopy::new();
    let hidden = copy.program();
    let missing = ["n[0-1]: wireup is missing or has another version; a run would send it", "2 with remarks"];
    doctor_of(&hidden, &testbed, "--hosts n[0-1]", 0, &missing);
    let sent = ["note     n[0-1]: wireup was sent there", "2 hosts: 2 ok"];
    doctor_of(&hidden, &testbed, "--hosts n[0-1] --send --start-timeout 60", 0, &sent);
    let said = doctor_of(&hidden, &testbed, "--hosts n[0-1]", 0, &["2 hosts: 2 ok"]);
    assert!(!said.contains("sent"), "{said}");
}
