//! Ranks that use our own PMI client: addresses of ranks on other nodes, memory that ranks read, and secondary clients
//! (other PMI libraries) in ranks, next to the conversations over the inherited sockets.

use super::*;
use crate::collective::groups::ASK_AFTER_NS;
use crate::memory::{Content, ShareId};
use wireup_wire::ids::{Client, LocalRank};

fn set(net: &mut Net, rank: u32, value: &str) {
    let reply = net.request(rank, &format!("cmd=wireup-address-set;name=net;value={value};"));
    assert!(reply.contains("rc=0"), "{reply}");
}

fn get(net: &mut Net, rank: u32, of: u32) -> String {
    net.request(rank, &format!("cmd=wireup-address-get;id={of};rank={of};name=net;"))
}

#[test]
fn an_address_is_found_from_every_node() {
    let mut net = Net::own(5, 2);
    set(&mut net, 9, "nine");
    for rank in 0..10 {
        assert!(get(&mut net, rank, 9).contains("id=9;value=nine;"), "rank {rank}");
    }
    // Ranks ask for the address of rank 6 before rank 6 sets it.
    for rank in [0, 1, 7] {
        assert_eq!(get(&mut net, rank, 6), "");
    }
    set(&mut net, 6, "six");
    for rank in [0, 1, 7] {
        assert!(net.replies(rank).contains("id=6;value=six;"), "rank {rank}");
    }
}

#[test]
fn a_rank_that_leaves_without_an_address_is_answered_for() {
    for by_exit in [false, true] {
        let mut net = Net::own(3, 2);
        assert_eq!(get(&mut net, 0, 5), "");
        match by_exit {
            true => net.exit(5, 0),
            false => assert!(net.request(5, "cmd=finalize;").contains("finalize-response;rc=0;")),
        }
        let answer = net.replies(0);
        assert!(answer.contains("rc=0;id=5;") && !answer.contains("value"), "{answer}");
        assert!(get(&mut net, 1, 5).contains("rc=0;id=5;"), "also to one that asks later");
    }
}

#[test]
fn all_ranks_have_the_same_secret() {
    let mut net = Net::own(3, 2);
    let secrets = net.request_all("cmd=wireup-secret;");
    assert!(secrets[0].contains("secret=0707") && secrets.iter().all(|one| *one == secrets[0]), "{secrets:?}");
    assert_eq!(net.request(4, "cmd=wireup-secret;"), secrets[0]);
}

fn allgather(net: &mut Net, id: u32, max_len: u32) -> Vec<Vec<ShareId>> {
    net.request_all(&format!("cmd=wireup-allgather;id={id};maxlen={max_len};value=v;"));
    std::mem::take(&mut net.named_memory)
}

fn slots(output: &Output) -> Option<ShareId> {
    match output {
        Output::Share { share, content: Content::Slots { .. }, .. } => Some(*share),
        _ => None,
    }
}

fn given_up(outputs: &[Output]) -> Vec<ShareId> {
    let given_up = |output: &Output| if let Output::Unshare { share, .. } = output { Some(*share) } else { None };
    outputs.iter().filter_map(given_up).collect()
}

/// Whether `outputs` contain a request to write an array into the shared memory `into`.
fn is_written(outputs: &[Output], into: ShareId) -> bool {
    outputs.iter().any(|output| matches!(output, Output::WriteSlot { share, .. } if *share == into))
}

#[test]
fn an_arena_is_requested_once_and_replaced_by_a_larger_one() {
    let mut net = Net::own(1, 2);
    let handed = allgather(&mut net, 1, 8);
    let small = net.memory.iter().find_map(slots).expect("an arena is requested");
    assert_eq!(handed, [[small], [small]], "both ranks get it");
    assert!(is_written(&net.memory, small));
    net.memory.clear();
    assert_eq!(allgather(&mut net, 2, 8), [[], []], "both ranks have it already");
    assert!(matches!(&net.memory[..], [Output::WriteSlot { .. }]));
    net.memory.clear();
    let handed = allgather(&mut net, 3, 20_000);
    let large = net.memory.iter().find_map(slots).expect("a larger arena is requested");
    assert_eq!((handed, given_up(&net.memory)), (vec![vec![large]; 2], vec![small]));
    assert!(is_written(&net.memory, large));
}

#[test]
fn without_an_arena_each_array_has_memory_of_its_own() {
    let mut net = Net::own(1, 2);
    net.memory_fails = |content| matches!(content, Content::Slots { .. });
    for (id, outputs) in [(1, 3), (2, 2)] {
        let handed = allgather(&mut net, id, 8);
        let own = handed[0][0];
        assert_eq!(handed, [[own], [own]]);
        assert_eq!(net.memory.len(), outputs, "the arena is not requested again: {:?}", net.memory);
        assert!(
            matches!(&net.memory[outputs - 2..], [Output::Share { share, .. }, Output::Unshare { share: last, .. }]
            if *share == own && *last == own)
        );
        net.memory.clear();
    }
    assert!(net.failures().is_empty());
}

#[test]
fn a_job_without_memory_fails_once_with_the_reason() {
    let mut net = Net::own(1, 2);
    net.request(0, "cmd=kvs-put;key=k;value=v;");
    net.request_all("cmd=kvs-fence;");
    net.memory_fails = |_| true;
    for rank in [0, 1] {
        net.request(rank, "cmd=wireup-kvs-map;have=;");
    }
    allgather(&mut net, 1, 8);
    assert_eq!(net.failures(), [Cause::Pmi { problem: "there is no memory".into() }]);
}

#[test]
fn a_segment_is_shared_once_and_released_after_its_merge() {
    let mut net = Net::own(1, 2);
    let round = |net: &mut Net, have: &str| {
        net.request(0, "cmd=kvs-put;key=k;value=v;");
        net.request_all("cmd=kvs-fence;");
        net.request_all(&format!("cmd=wireup-kvs-map;have={have};"));
        std::mem::take(&mut net.named_memory)
    };
    let first = round(&mut net, "");
    let share = first[0][0];
    assert_eq!(first, [[share], [share]]);
    assert!(matches!(&net.memory[..], [Output::Share { share: made, .. }] if *made == share));
    net.memory.clear();
    let second = round(&mut net, "1");
    assert_eq!(second[0], second[1]);
    assert_ne!(second[0], first[0]);
    assert_eq!(given_up(&net.memory), [share]);
}

const WORLD: &str = "cmd=wireup-group;group=0;members=0-3;tag=77;";

/// Two agents with two ranks each. A secondary client in each rank has connected and knows the group of all ranks.
fn bench() -> Net {
    let mut net = Net::running(2, 2, |_| ());
    for rank in 0..4 {
        net.join(rank, 1);
        let init = "cmd=init pmi_version=2 pmi_subversion=0";
        for request in [init, "cmd=fullinit;pmijobid=job-1;pmirank=0;threaded=FALSE;", WORLD] {
            let reply = net.further(rank, 1, request);
            assert!(reply.contains("rc=0"), "{reply}");
        }
    }
    net
}

fn gather(net: &mut Net, rank: u32) -> String {
    net.further(rank, 1, &format!("cmd=wireup-gather;id=5;group=0;value=v{rank};"))
}

#[test]
fn a_further_library_is_answered_on_its_own_socket() {
    let mut net = bench();
    net.greet();
    for rank in [2, 0, 3] {
        assert_eq!(gather(&mut net, rank), "");
    }
    assert!(gather(&mut net, 1).contains("v0v1v2v3"));
    for rank in [0, 2, 3] {
        assert!(net.further_replies(rank, 1).contains("v0v1v2v3"));
        assert_eq!(net.replies(rank), "");
    }
    // On the inherited socket the same request is refused, since no group 0 is defined there.
    assert!(net.request(0, "cmd=wireup-gather;id=5;group=0;value=x;").contains("there_is_no_such_group"));
}

#[test]
fn what_belongs_to_the_whole_rank_is_refused() {
    let mut net = bench();
    for request in [
        "cmd=kvs-put;key=a;value=b;", "cmd=kvs-get;key=a;", "cmd=kvs-fence;", "cmd=wireup-kvs-fence-nb;id=1;",
        "cmd=info-getnodeattr;key=a;wait=TRUE;", "cmd=wireup-endpoints;",
    ] {
        let reply = net.further(0, 1, request);
        assert!(reply.contains("not_offered_to_further_libraries"), "{request}: {reply}");
    }
}

/// The library's groups go on after the rank has finalized, until the library closes its socket.
#[test]
fn a_rank_has_left_when_its_last_library_has() {
    let mut net = bench();
    net.greet();
    net.request_all("cmd=finalize;");
    (0..3).for_each(|rank| assert_eq!(gather(&mut net, rank), ""));
    assert!(gather(&mut net, 3).contains("v0v1v2v3"));
    net.further_replies(0, 1);
    assert_eq!(gather(&mut net, 0), "");
    net.pass_and_settle(ASK_AFTER_NS);
    assert!(net.failures().is_empty());
    net.part(3, 1);
    assert_eq!(net.failures(), [Cause::LeftGroup { group: "ranks 0-3".into(), exit: None }]);
}

#[test]
fn a_library_that_joins_after_its_rank_has_left_is_sent_away() {
    let mut net = bench();
    net.greet();
    net.part(1, 1);
    net.request(1, "cmd=finalize;");
    net.join(1, 2);
    assert_eq!(net.sent_away, [Client { local: LocalRank(1), number: 2 }]);
}
