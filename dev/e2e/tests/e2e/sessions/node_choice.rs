//! Which nodes of a session a job gets if its user does not say which.

use std::collections::BTreeMap;
use wireup_e2e::sessions::Session;

const ONE_BY_ONE: &str = "for i in $(seq 100); do $WIREUP run --detach -n 1 sleep 1000 || exit; done";
const AT_ONCE: &str = "for i in $(seq 100); do $WIREUP run --detach -n 1 sleep 1000 & done; wait";

/// Number of ranks on each node.
fn loads(session: &Session) -> Vec<u64> {
    let listed = session.wireup("jobs --json").succeed();
    let jobs: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).expect("a list of jobs");
    let mut loads = BTreeMap::new();
    // Jobs that have ended are in the list without nodes.
    for (job, nodes) in jobs.iter().filter_map(|job| Some((job, job["nodes"].as_array()?))) {
        for node in nodes {
            let ranks = job["ranks"].as_u64().expect("its ranks");
            *loads.entry(node.to_string()).or_default() += ranks / nodes.len() as u64;
        }
    }
    loads.into_values().collect()
}

#[test]
fn a_hundred_jobs_are_spread_over_four_nodes() {
    for script in [ONE_BY_ONE, AT_ONCE] {
        let session = Session::up("--virtual-nodes 4");
        session.shell_leaving(script).expect_code(0);
        assert_eq!(loads(&session), [25; 4], "{script}");
        session.down("--kill");
    }
}

#[test]
fn a_job_gets_the_emptiest_nodes_or_the_first_with_free_slots() {
    let session = Session::up("--virtual-nodes 4");
    let nodes = |line: &str| session.job(line).sh("echo $WIREUP_NODE").succeed().sorted_lines();
    let first = session.detach("-n 1", "sleep 1000");
    session.detach("-n 2", "sleep 1000");
    assert_eq!(loads(&session), [1, 1, 1]);
    let planned = session.job("-n 1 --dry-run true").succeed();
    assert!(planned.out().starts_with("node3  rank 0  true"), "{planned}");
    assert!(planned.out().contains("on nodes with the fewest ranks per slot: --place spread"), "{planned}");
    session.detach("-n 2", "sleep 1000");
    session.wireup(&format!("kill {first}")).succeed();
    session.await_that("its end", || loads(&session) == [1; 4]);
    let packed = session.job("-n 1 --place pack --dry-run true").succeed();
    assert!(packed.out().starts_with("node0  rank 0  true"), "{packed}");
    // If all nodes get the same number of ranks, ranks are numbered in the session's order of nodes; and the user may
    // choose the nodes.
    assert_eq!(nodes("-n 4 --map-by node"), ["0", "1", "2", "3"]);
    let said = session.job("-n 1 --virtual-nodes 2 --dry-run true").succeed();
    assert!(!said.out().contains("--place"), "{said}");
    let table = session.wireup("jobs").succeed();
    assert!(table.out().contains("spread"), "{table}");
    session.down("--kill");
}
