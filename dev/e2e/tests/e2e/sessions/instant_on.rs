//! Ports that a session has reserved for the ranks of its jobs.

use std::collections::BTreeSet;
use wireup_e2e::libraries::{ALL_RIGHT, own};
use wireup_e2e::peers::program;
use wireup_e2e::sessions::Session;
use wireup_e2e::{Outcome, Run};
use xtask::programs::Flavour;

/// A script that prints the port of the rank's socket.
const PORT: &str = "inode=$(readlink /proc/self/fd/$WIREUP_LISTEN_FD | tr -dc 0-9); \
    port=$(awk -v inode=$inode '$10 == inode { split($2, at, \":\"); print at[2] }' /proc/net/tcp6 /proc/net/tcp); \
    echo $((0x$port));";

fn ports(outcome: &Outcome) -> BTreeSet<u16> {
    outcome.out().lines().map(|line| line.parse().unwrap_or_else(|_| panic!("{outcome}"))).collect()
}

/// The ports that the ranks of a job print.
fn ports_of(job: Run) -> BTreeSet<u16> {
    ports(&job.sh(PORT).succeed())
}

fn all_right(session: &Session, line: &str, name: &str, arg: &str, ranks: usize) {
    session.job(line).linked().arg(own(name)).arg(arg).succeed().expect_all_right(ranks);
}

#[test]
fn jobs_get_shares_of_a_sessions_ports_and_find_others_when_there_are_too_few() {
    let session = Session::up("--virtual-nodes 3 --instant-on 8 --rank-ports 24000-24099");
    let own = 24_000..=24_099;
    let first = ports_of(session.job("-n 6 --instant-on"));
    assert!(first.len() == 6 && first.iter().all(|port| own.contains(port)), "{first:?}");
    session.await_that("the ports of the first job", || ports_of(session.job("-n 6 --instant-on")) == first);
    // Two jobs run at the same time; then a third one is started, for which too few ports are left on each node.
    let job = session.detach("-n 9 --instant-on", &format!("{PORT} exec sleep 1000"));
    let second = ports_of(session.job("-n 9 --instant-on"));
    assert!(second.len() == 9 && second.iter().all(|port| own.contains(port)), "{second:?}");
    assert!(second.iter().filter(|port| first.contains(port)).count() == 0, "{first:?} {second:?}");
    let third = ports_of(session.job("-n 18 --instant-on"));
    assert!(third.len() == 18 && third.is_disjoint(&second), "{third:?}");
    let elsewhere = ports_of(session.job("-n 6 --rank-ports 24500-24599"));
    assert!(elsewhere.iter().all(|port| (24_500..=24_599).contains(port)), "{elsewhere:?}");
    session.wireup(&format!("kill {job}")).succeed();
    session.wireup(&format!("attach {job}")).finish();
    session.await_that("the ports of the first job", || ports_of(session.job("-n 6 --instant-on")) == first);
    assert!(session.job("-n 3").sh("echo $WIREUP_LISTEN_FD").succeed().out().trim().is_empty());
    session.down("");
}

#[test]
fn programs_find_each_other_on_a_sessions_ports() {
    let session = Session::up("--virtual-nodes 3 --instant-on");
    for _ in 0..2 {
        all_right(&session, "-n 9 --instant-on", "bootstrap", "auto", 9);
        all_right(&session, "-n 7 --ppn 3 --instant-on", "bootstrap", "peers", 7);
        let Some(program) = program(Flavour::Pmix, "endpoints") else { continue };
        let outcome = session.job("-n 6 --instant-on").arg(program).succeed();
        assert_eq!(outcome.out().matches("6 ranks have connected").count(), 6, "{outcome}");
    }
    session.down("");
}

/// The agents keep the sockets of reserved ports for the next job; connections that the kernel keeps for a socket must
/// end with the rank.
#[test]
fn connections_that_a_rank_leaves_do_not_reach_the_next_job() {
    let session = Session::up("--virtual-nodes 2 --instant-on 2");
    let script = |arg: &str| format!("{PORT} exec {} {arg} >&2", own("unaccepted").display());
    let run = |arg: &str| {
        let job = session.job("-n 4 --instant-on").linked().sh(&script(arg));
        let outcome = job.succeed();
        assert_eq!(outcome.err().matches(ALL_RIGHT).count(), 4, "{arg}: {outcome}");
        ports(&outcome)
    };
    let first = run("leave");
    for arg in ["find", "leave", "gone", "leave", "find"] {
        session.await_that("the ports of the first job", || run(arg) == first);
    }
    session.down("");
    // Here ranks have bound the sockets themselves, within one job.
    for arg in ["leave", "find", "gone"] {
        let job = Run::job("-n 4 --virtual-nodes 2 --instant-on").linked();
        job.arg(own("unaccepted")).arg(arg).succeed().expect_all_right(4);
    }
}

#[test]
fn a_node_that_is_started_again_has_other_ports() {
    let session = Session::up("--virtual-nodes 3 --instant-on 4 --rank-ports 24100-24199");
    let before = ports_of(session.job("-n 6 --instant-on"));
    let agent = session.agents().first().expect("an agent").pid;
    session.kill(agent);
    session.await_that("a node is lost", || session.wireup("status").finish().out().contains("lost"));
    session.again("");
    for _ in 0..2 {
        let after = ports_of(session.job("-n 6 --instant-on"));
        assert!(after.len() == 6 && after.iter().all(|port| (24_100..=24_199).contains(port)), "{before:?} {after:?}");
        all_right(&session, "-n 6 --instant-on", "bootstrap", "auto", 6);
    }
    session.down("");
}
