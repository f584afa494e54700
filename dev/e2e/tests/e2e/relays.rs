//! Ranks whose hosts cannot connect to each other: their agents forward the bytes of the connections.

use wireup_e2e::libraries::own;
use wireup_e2e::machines::{self, drop_silently, wall};

/// The ranks of n1 and n2 cannot connect to each other, but their agents are both linked to the agent of n0.
#[test]
fn ranks_that_cannot_connect_reach_each_other_through_their_agents() {
    let Some(machines) = machines::own(3, |_| ()) else { return };
    let job = |flags: &str| machines.job(&format!("--hosts n[0-2] --ppn 2 {flags}")).linked();
    let works = |flags: &str, engine: &str| job(flags).arg(own("bootstrap")).arg(engine).succeed().expect_all_right(6);
    let both_ways = [(1, 2), (2, 1)];
    both_ways.into_iter().for_each(|(from, to)| drop_silently(&machines, from, to));
    for engine in ["peers", "udp"] {
        works("", engine);
    }
    // Now each of the two hosts knows at once that it has no route to the other.
    both_ways.into_iter().for_each(|(from, to)| wall(&machines, from, to));
    for engine in ["auto", "peers", "few", "thread", "udp"] {
        works("", engine);
    }
    works("--instant-on", "peers");
    // A rank that other ranks reach only through the agents exits without a goodbye.
    for transport in ["1", "2"] {
        let outcome = job("").arg(own("lost")).arg(transport).succeed();
        assert_eq!(outcome.out().matches("lost rank 3").count(), 5, "{transport}: {outcome}");
    }
}
