//! Ranks whose hosts cannot connect to each other: their agents forward the bytes of the connections.

use wireup_e2e::libraries::own;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::partitions::{drop_silently, wall};

/// Reserves hosts on which the ranks of n1 and n2 cannot connect to each other, but their agents are both linked to the
/// agent of n0.
fn separated(by: fn(&Machines, u16, u16)) -> Option<Machines> {
    let machines = machines::own(3, |_| ())?;
    for (from, to) in [(1, 2), (2, 1)] {
        by(&machines, from, to);
    }
    Some(machines)
}

fn works(machines: &Machines, flags: &str, engine: &str) {
    let job = machines.job(&format!("--hosts n[0-2] --ppn 2 {flags}")).linked();
    job.arg(own("bootstrap")).arg(engine).succeed().expect_all_right(6);
}

#[test]
fn ranks_without_a_route_to_each_other_reach_each_other() {
    let Some(machines) = separated(wall) else { return };
    for engine in ["auto", "peers", "few", "thread"] {
        works(&machines, "", engine);
    }
    works(&machines, "--instant-on", "peers");
}

#[test]
fn ranks_that_a_silent_firewall_separates_reach_each_other() {
    let Some(machines) = separated(drop_silently) else { return };
    works(&machines, "", "peers");
}

#[test]
fn datagrams_that_hosts_lose_in_both_directions_are_carried_by_the_agents() {
    for by in [wall, drop_silently] {
        let Some(machines) = separated(by) else { return };
        works(&machines, "", "udp");
    }
}

/// A rank that other ranks reach only through the agents exits without a goodbye.
#[test]
fn a_lost_rank_behind_a_firewall_is_named_to_the_others() {
    let Some(machines) = separated(wall) else { return };
    for transport in ["1", "2"] {
        let job = machines.job("--hosts n[0-2] --ppn 2").linked();
        let outcome = job.arg(own("lost")).arg(transport).succeed();
        assert_eq!(outcome.out().matches("lost rank 3").count(), 5, "{transport}: {outcome}");
    }
}
