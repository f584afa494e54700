//! Sessions over other machines.

use crate::harness::machines;
use crate::harness::peers::program;
use crate::harness::sessions::Session;
use xtask::programs::Flavour;

#[test]
fn by_ssh_once_for_many_runs() {
    let Some(machines) = machines::by_ssh() else { return };
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
fn slots_are_those_of_the_session() {
    let Some(machines) = machines::plain() else { return };
    let session = Session::on(&machines, "--hosts n0:2,n1:3");
    let outcome = session.job("").sh("hostname").succeed();
    assert_eq!(outcome.sorted_lines(), ["n0", "n0", "n1", "n1", "n1"]);
    session.job("-n 6 true").finish().expect_code(125).expect_err_line(&["5 slots"]);
    let outcome = session.job("--hosts n5 --remote-shell plainsh").sh("hostname").succeed();
    assert_eq!(outcome.out(), "n5\n");
    session.down("");
}

#[test]
fn a_host_that_is_not_there_is_named_and_the_session_stands_without_it() {
    let Some(machines) = machines::own(4, |_| ()) else { return };
    machines.cut(2).expect("cut a node off");
    let session = Session::on_some(&machines, "--start-timeout 3 --hosts n[0-3]", 1);
    let outcome = session.job("").sh("hostname").succeed();
    assert_eq!(outcome.sorted_lines(), ["n0", "n1", "n3"]);
    outcome.expect_err_line(&["left out", "n2"]);
    let outcome = session.job("--hosts n2 true").finish().expect_code(125);
    outcome.expect_err_line(&["n2 is lost to session default"]);
    machines.heal(2).expect("mend the node");
    // The network remembers for a moment that the node was not there.
    session.await_that("the node's return", || session.again("").code() == 0);
    let outcome = session.job("").sh("hostname").succeed();
    assert_eq!(outcome.sorted_lines(), ["n0", "n1", "n2", "n3"]);
    session.down("");
}
