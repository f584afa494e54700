//! Barriers of groups, from a rank's request to its answer.

use super::*;
use crate::collective::groups::ASK_AFTER_NS;
use wireup_wire::job::{JobOptions, PmiVersion};
use wireup_wire::limits::GROUP_BARRIERS_PER_RANK_MAX;

const OUT: &str = "cmd=barrier_out rc=0 tag=7\n";

/// Agents with two ranks each (0 and 1 on the first node), which use PMI 1.2.
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
    // A fence afterwards publishes the pairs to all ranks.
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
        let mut net = Net::running(1, 1, |options| options.pmi.version = version);
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

/// The members run on nodes 0, 3 and 5 of seven. A rank that is no member has left before, which does not matter.
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

/// When the waiting agent asks for the missing members, the agents of the subtree have already forgotten the job.
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

/// The member that leaves is on the same node as the one that waits: their agent fails the job immediately.
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

/// Agents whose ranks use our own PMI client. Each of `ranks` defines the group of `members` as its group number 5.
fn own(nodes: u32, members: &str, ranks: &[u32]) -> Net {
    let mut net = Net::own(nodes, 2);
    for rank in ranks {
        let answer = net.request(*rank, &format!("cmd=wireup-group;group=5;members={members};tag=77;"));
        assert!(answer.contains("rc=0"), "{answer}");
    }
    net
}

/// The values in an answer that has the array of request `id`.
fn values(answer: &str, id: u32) -> Vec<String> {
    let head = format!("cmd=wireup-gather-response;rc=0;id={id};value=");
    let array = answer.split_once(&head).map(|(_, rest)| rest.as_bytes()[..rest.len() - 1].to_vec());
    let array = array.unwrap_or_else(|| panic!("{answer}"));
    let rows = wireup_wire::shared::rows::Rows::read(&array).unwrap();
    rows.values().map(|value| String::from_utf8(value.unwrap().to_vec()).unwrap()).collect()
}

#[test]
fn members_of_a_group_get_the_values_of_all_in_the_order_of_ranks() {
    let mut net = own(7, "2,5,12-13", &[13, 2, 5, 12]);
    for id in [1, 2] {
        for rank in [13, 2, 5] {
            assert_eq!(net.request(rank, &format!("cmd=wireup-gather;id={id};group=5;value=v{rank}.{id};")), "");
        }
    }
    // The last member enters both operations, which end in order.
    for id in [1, 2] {
        let wanted: Vec<String> = [2, 5, 12, 13].map(|rank| format!("v{rank}.{id}")).into();
        assert_eq!(values(&net.request(12, &format!("cmd=wireup-gather;id={id};group=5;value=v12.{id};")), id), wanted);
        for rank in [2, 5, 13] {
            assert_eq!(values(&net.replies(rank), id), wanted, "rank {rank}");
        }
    }
}

#[test]
fn values_that_are_empty_or_long_are_not_sent_in_the_answer() {
    let mut net = own(2, "1-2", &[1, 2]);
    for rank in [1, 2] {
        net.request(rank, "cmd=wireup-gather;id=1;group=5;");
    }
    assert!(net.replies(1).ends_with("cmd=wireup-gather-response;rc=0;id=1;"));
    net.named_memory.clear();
    let long = "x".repeat(wireup_wire::limits::GATHER_INLINE_MAX);
    for rank in [1, 2] {
        net.request(rank, &format!("cmd=wireup-gather;id=2;group=5;value={long};"));
    }
    assert!(net.replies(1).ends_with("cmd=wireup-gather-response;rc=0;id=2;memory=1;"));
    assert!(net.named_memory.iter().filter(|shares| shares.len() == 1).count() == 2, "{:?}", net.named_memory);
}

#[test]
fn a_member_that_leaves_while_others_wait_in_a_collective_ends_the_job() {
    let mut net = own(3, "0,5", &[0, 5]);
    net.request(0, "cmd=wireup-gather;id=1;group=5;value=v;");
    net.request(5, "cmd=finalize;");
    net.pass_and_settle(ASK_AFTER_NS);
    assert!(
        matches!(&net.failures()[..], [Cause::LeftGroup { group, .. }] if group == "ranks 0,5"),
        "{:?}",
        net.failures()
    );
}

#[test]
fn groups_of_our_client_are_checked() {
    let mut net = own(1, "0-1", &[0]);
    for (request, problem) in [
        ("cmd=wireup-group;group=6;members=1;tag=1;", "the_caller_is_not_in_the_group"),
        ("cmd=wireup-group;group=6;members=0-2;tag=1;", "not_in_the_job"),
        ("cmd=wireup-group;group=6;members=0;tag=x;", "the_tag_is_no_number"),
        ("cmd=wireup-gather;id=1;group=6;value=v;", "there_is_no_such_group"),
        ("cmd=wireup-group-free;group=6;", "there_is_no_such_group"),
    ] {
        let answer = net.request(0, request);
        assert!(answer.contains("rc=-1") && answer.contains(problem), "{answer}");
    }
    assert!(net.request(0, "cmd=wireup-group-free;group=5;").contains("rc=0"));
}
