//! Barriers of groups, from a rank's request to its answer.

use super::*;
use crate::collective::groups::ASK_AFTER_NS;
use wireup_wire::job::{JobOptions, PmiVersion};
use wireup_wire::limits::GROUP_BARRIERS_PER_RANK_MAX;

const OUT: &str = "cmd=barrier_out rc=0 tag=7\n";

/// Ranks 0 and 1 on the first node, and so on; all use PMI 1.2.
fn bench(nodes: u32, change: impl FnOnce(&mut JobOptions)) -> Net {
    let mut net = Net::running(nodes, 2, change);
    let answers = net.request_all("cmd=init pmi_version=1 pmi_subversion=2");
    assert!(answers.iter().all(|answer| answer == "cmd=response_to_init pmi_version=1 pmi_subversion=2 rc=0\n"));
    net
}

fn put(net: &mut Net, rank: u32) {
    assert!(net.request(rank, &format!("cmd=put kvsname= key=k{rank} value=of-{rank}")).contains("rc=0"));
}

fn get(net: &mut Net, rank: u32, of: u32) -> bool {
    net.request(rank, &format!("cmd=get kvsname= key=k{of}")).contains(&format!("value=of-{of}\n"))
}

#[test]
fn members_of_a_group_see_each_others_pairs() {
    let mut net = bench(7, |_| ());
    (0..14).for_each(|rank| put(&mut net, rank));
    for rank in [13, 2, 5] {
        let last = rank == 5;
        assert_eq!(net.request(rank, "cmd=barrier_in group=5,13,2:7"), if last { OUT } else { "" });
    }
    for rank in [13, 2] {
        assert_eq!(net.replies(rank), OUT);
        assert!([2, 5, 13].iter().all(|of| get(&mut net, rank, *of)));
    }
    assert!(!get(&mut net, 13, 10), "not on a member's node");
    assert!(!get(&mut net, 0, 13), "rank 0 is not on a member's node");
    // The fence publishes the same pairs.
    assert_eq!(net.request_all("cmd=barrier_in").concat(), "cmd=barrier_out rc=0 tag=0\n".repeat(14));
    assert!((0..14).all(|of| get(&mut net, 0, of) && get(&mut net, 13, of)));
}

#[test]
fn node_and_world_are_groups() {
    let mut net = bench(3, |_| ());
    put(&mut net, 2);
    assert_eq!(net.request(2, "cmd=barrier_in group=NODE:7"), "");
    assert_eq!(net.request(1, "cmd=barrier_in group=NODE:7"), "", "it is on another node");
    assert_eq!(net.request(3, "cmd=barrier_in group=NODE:7"), OUT);
    assert_eq!(net.replies(2), OUT);
    assert!(get(&mut net, 3, 2));
    assert_eq!(net.request(0, "cmd=barrier_in group=NODE:7"), OUT);
    assert!(!get(&mut net, 0, 2));
    net.replies(1);
    let replies = net.request_all("cmd=barrier_in group=WORLD:7");
    assert_eq!(replies[5], OUT);
    assert!((0..5).all(|rank| net.replies(rank) == OUT || replies[rank as usize] == OUT));
    assert!(get(&mut net, 0, 2));
}

#[test]
fn several_barriers_of_one_rank_are_told_apart_by_tag() {
    let mut net = bench(2, |_| ());
    for request in ["WORLD:1", "0,2:2", "NODE:3", "0,2:2"] {
        assert_eq!(net.request(0, &format!("cmd=barrier_in group={request}")), "");
    }
    // A fence may be in progress as well, and other requests are answered.
    assert_eq!(net.request(0, "cmd=barrier_in"), "");
    assert_eq!(net.request(0, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0\n");
    assert!(net.request(0, "cmd=finalize").contains("rc=-1"), "barriers are still open");
    assert_eq!(net.request(2, "cmd=barrier_in group=0,2:2"), "cmd=barrier_out rc=0 tag=2\n");
    assert_eq!(net.replies(0), "cmd=barrier_out rc=0 tag=2\n");
    net.request(1, "cmd=barrier_in group=NODE:3");
    assert_eq!(net.replies(0), "cmd=barrier_out rc=0 tag=3\n");
    net.request(2, "cmd=barrier_in group=2,0:2");
    assert_eq!(net.replies(0), "cmd=barrier_out rc=0 tag=2\n", "the second round");
    (1..4).for_each(|rank| {
        net.request(rank, "cmd=barrier_in group=WORLD:1");
        net.request(rank, "cmd=barrier_in");
    });
    assert_eq!(net.replies(0), "cmd=barrier_out rc=0 tag=1\ncmd=barrier_out rc=0 tag=0\n");
    assert!(net.request(0, "cmd=finalize").contains("rc=0"));
    assert!(net.failures().is_empty());
}

#[test]
fn invalid_groups_are_refused() {
    let mut net = bench(2, |_| ());
    for (group, words) in [
        ("1,2:7", "the_caller_is_not_in_the_group tag=7"),
        ("0,4:7", "a_rank_of_the_group_is_not_in_the_job tag=7"),
        ("0,1,0:7", "a_rank_is_in_the_group_twice tag=7"),
        ("0,x:7", "a_rank_of_the_group_is_no_number tag=7"),
        ("0,1:y", "the_group's_tag_is_no_number tag=0"),
    ] {
        let reply = net.request(0, &format!("cmd=barrier_in group={group}"));
        assert_eq!(reply, format!("cmd=barrier_out rc=-1 msg={words}\n"), "{group}");
    }
    for _ in 0..GROUP_BARRIERS_PER_RANK_MAX {
        assert_eq!(net.request(0, "cmd=barrier_in group=0,1:7"), "");
    }
    assert!(net.request(0, "cmd=barrier_in group=0,3:7").contains("rc=-1 msg=too_many"));
    assert_eq!(net.request(1, "cmd=barrier_in group=0,1:7"), OUT);
    assert_eq!(net.replies(0), OUT);
    assert_eq!(net.request(0, "cmd=barrier_in group=0,3:7"), "", "the limit is no longer reached");
}

#[test]
fn clients_of_pmi_1_1_have_no_groups() {
    let greet = |version, line: &str| {
        let mut net = Net::running(1, 1, |options| options.pmi_version = version);
        let reply = net.request(0, line);
        let subversion = if reply.contains("pmi_subversion=2") { 2 } else { 1 };
        let group = net.request(0, "cmd=barrier_in group=WORLD:0");
        assert_eq!(group.contains("rc=0 tag=0"), subversion == 2, "{group}");
        subversion
    };
    let [plain, groups, own] =
        ["1", "2", "1 wireup=1"].map(|end| format!("cmd=init pmi_version=1 pmi_subversion={end}"));
    let asked = [&plain, &groups, &own].map(|line| greet(PmiVersion::Asked, line));
    assert_eq!(asked, [1, 2, 2]);
    assert_eq!([&plain, &groups, &own].map(|line| greet(PmiVersion::Plain, line)), [1, 1, 1]);
    assert_eq!([&plain, &groups, &own].map(|line| greet(PmiVersion::Groups, line)), [2, 2, 2]);
}

/// Members on nodes 0, 3 and 5 of seven; another rank has left before, which does not matter.
#[test]
fn a_member_that_leaves_fails_the_job() {
    for early in [true, false] {
        let mut net = bench(7, |_| ());
        net.request(13, "cmd=finalize");
        if early {
            net.request(10, "cmd=finalize");
        }
        for rank in [1, 6] {
            assert_eq!(net.request(rank, "cmd=barrier_in group=1,6,10:7"), "");
        }
        net.pass_and_settle(ASK_AFTER_NS);
        assert_eq!(net.failures().is_empty(), !early);
        if !early {
            net.request(10, "cmd=finalize");
        }
        let wanted = Cause::LeftGroup { group: "ranks 1,6,10 (tag 7)".into(), exit: None };
        assert_eq!(net.failures(), [wanted]);
    }
}

/// By the time of the question the subtree's agents have forgotten the job.
#[test]
fn a_whole_subtree_that_leaves_fails_the_job() {
    for early in [true, false] {
        // The subtree of agent 2 contains 5 and 6.
        let mut net = bench(7, |_| ());
        if !early {
            assert_eq!(net.request(0, "cmd=barrier_in group=0,13,11:7"), "");
        }
        for rank in [4, 5, 10, 11, 12, 13] {
            net.request(rank, "cmd=finalize");
            net.exit(rank, 0);
        }
        if early {
            assert!(net.failures().is_empty());
            assert_eq!(net.request(0, "cmd=barrier_in group=0,13,11:7"), "");
        }
        assert_eq!(net.failures(), [Cause::LeftGroup { group: "ranks 0,11,13 (tag 7)".into(), exit: Some(0) }]);
    }
}

/// The agent detects it immediately.
#[test]
fn a_neighbour_that_leaves_fails_the_job() {
    let mut net = bench(1, |_| ());
    net.request(0, "cmd=barrier_in group=NODE:7");
    net.request(1, "cmd=finalize");
    assert!(matches!(net.failures()[..], [Cause::LeftGroup { .. }]), "{:?}", net.failures());
}

#[test]
fn stall_reports_name_the_missing_members() {
    let mut net = bench(3, |options| options.stall_report_ns = 2 * ASK_AFTER_NS);
    assert_eq!(net.request(0, "cmd=barrier_in group=0,5:7"), "");
    net.pass_and_settle(ASK_AFTER_NS);
    assert!(net.stalls().is_empty());
    net.pass_and_settle(ASK_AFTER_NS);
    let groups: Vec<_> = net.stalls().iter().flat_map(|report| &report.groups).collect();
    let wanted = [(1, vec![], 0), (0, vec![(wireup_wire::ids::Rank(5), 105)], 1)];
    assert_eq!(groups.len(), 2, "{:?}", net.stalls());
    for (group, (arrived, missing, count)) in groups.into_iter().zip(wanted) {
        assert_eq!(group.group, "ranks 0,5 (tag 7)");
        assert_eq!((group.arrived, &group.missing, group.missing_count), (arrived, &missing, count));
    }
    net.pass_and_settle(10 * ASK_AFTER_NS);
    assert_eq!(net.stalls().len(), 3, "each of three nodes reports once");
}
