//! Sessions on several hosts.

use wireup_e2e::machines;
use wireup_e2e::peers::program;
use wireup_e2e::sessions::Session;
use xtask::programs::Flavour;

#[test]
fn a_session_on_ssh_hosts_runs_many_jobs() {
    let Some(machines) = machines::four() else { return };
    let session = Session::on(&machines, "--hosts n[0-3]");
    for _ in 0..5 {
        let outcome = session.job("-n 8").sh("hostname").succeed();
        assert_eq!(outcome.sorted_lines(), ["n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"]);
        outcome.expect_quiet();
    }
    let outcome = session.job("--hosts n3,n1 -n 2").sh("echo $WIREUP_RANK $(hostname)").succeed();
    assert_eq!(outcome.sorted_lines(), ["0 n3", "1 n1"]);
    for flavour in [Flavour::Mpich5, Flavour::OpenMpi5] {
        let Some(program) = program(flavour, "hello") else { continue };
        let outcome = session.job("-n 8").arg(&program).succeed();
        assert_eq!(outcome.out().matches("of 8").count(), 8, "{outcome}");
    }
    session.down("");
}

#[test]
fn jobs_use_the_slots_of_the_session() {
    let Some(machines) = machines::sixteen() else { return };
    let session = Session::on(&machines, "--hosts n0:2,n1:3");
    let outcome = session.job("").sh("hostname").succeed();
    assert_eq!(outcome.sorted_lines(), ["n0", "n0", "n1", "n1", "n1"]);
    session.job("-n 6 true").finish().expect_code(125).expect_err_line(&["5 slots"]);
    let outcome = session.job("--hosts n5").sh("hostname").succeed();
    assert_eq!(outcome.out(), "n5\n");
    session.down("");
}

#[test]
fn a_session_starts_without_an_unreachable_host_and_names_it() {
    let Some(machines) = machines::own(4, |_| ()) else { return };
    machines.cut(2).expect("cut a node off");
    let session = Session::on_some(&machines, "--start-timeout 3 --hosts n[0-3]", 1);
    let outcome = session.job("").sh("hostname").succeed();
    assert_eq!(outcome.sorted_lines(), ["n0", "n1", "n3"]);
    outcome.expect_err_line(&["has lost these nodes", "n2"]);
    let outcome = session.job("--hosts n2 true").finish().expect_code(125);
    outcome.expect_err_line(&["node n2 of session default is lost"]);
    machines.heal(2).expect("mend the node");
    // For a moment after its return, the node is still unreachable for the network.
    session.await_that("the node's return", || session.again("").code() == 0);
    let outcome = session.job("").sh("hostname").succeed();
    assert_eq!(outcome.sorted_lines(), ["n0", "n1", "n2", "n3"]);
    session.down("");
}

/// Three hosts in a chain lose power at the same moment; the hosts below them are healthy.
#[test]
fn hosts_below_powered_off_hosts_keep_running() {
    let Some(machines) = machines::own(6, |_| ()) else { return };
    let session = Session::on(&machines, "--fanout 1 --node-timeout 1 --hosts n[0-5]");
    let mut healthy = session.job("--hosts n0,n4,n5 -n 3").sh("echo ready; read line; echo $line").stdin_open().start();
    let mut hit = session.job("--hosts n0,n2,n5 -n 3").sh("echo ready; exec sleep 1000").start();
    healthy.await_out("ready\n", 3);
    hit.await_out("ready\n", 3);
    for host in [1, 2, 3] {
        machines.power_off(host).expect("switch a node off");
    }
    hit.finish().expect_code(125);
    session.await_that("the status of all nodes", || {
        let status = session.wireup("status").finish();
        ["n1", "n2", "n3"].iter().all(|host| status.out().contains(&format!("lost      {host}")))
    });
    healthy.write(b"goes on\n");
    assert!(healthy.succeed().out().contains("goes on"));
    let outcome = session.job("").sh("hostname").succeed();
    assert_eq!(outcome.sorted_lines(), ["n0", "n4", "n5"]);
    outcome.expect_err_line(&["has lost these nodes", "n[1-3]"]);
    session.down("");
}

/// The root adopts an agent whose parent is lost. The root's first frame to it goes over a direct link.
#[test]
fn input_from_the_root_reaches_an_adopted_agent() {
    let Some(machines) = machines::own(3, |_| ()) else { return };
    let session = Session::on(&machines, "--fanout 1 --node-timeout 1 --hosts n[0-2]");
    machines.power_off(1).expect("switch a node off");
    session.await_that("the status of all nodes", || {
        let status = session.wireup("status").finish();
        status.out().contains("lost      n1") && !status.out().contains("starting")
    });
    for _ in 0..2 {
        let mut reads = session.job("--hosts n2").sh("read line; echo $line").stdin_open().start();
        reads.write(b"heard\n");
        assert_eq!(reads.succeed().out(), "heard\n");
    }
    session.down("");
}
