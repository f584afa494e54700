//! Secondary clients (other PMI libraries) in ranks, next to the conversations over the inherited sockets.

use super::*;
use crate::collective::groups::ASK_AFTER_NS;
use wireup_wire::ids::{Client, LocalRank};

const INIT: &str = "cmd=init pmi_version=2 pmi_subversion=0";
const FULLINIT: &str = "cmd=fullinit;pmijobid=job-1;pmirank=0;threaded=FALSE;";
const WORLD: &str = "cmd=wireup-group;group=0;members=0-3;tag=77;";

/// Two agents with two ranks each. A secondary client in each rank has connected and knows the group of all ranks.
fn bench() -> Net {
    let mut net = Net::running(2, 2, |_| ());
    for rank in 0..4 {
        net.join(rank, 1);
        for request in [INIT, FULLINIT, WORLD] {
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
    net.request_all(INIT);
    net.request_all(FULLINIT);
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
    net.request_all(INIT);
    net.request_all(FULLINIT);
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
    net.request_all(INIT);
    net.request_all(FULLINIT);
    net.part(1, 1);
    net.request(1, "cmd=finalize;");
    net.join(1, 2);
    assert_eq!(net.sent_away, [Client { local: LocalRank(1), number: 2 }]);
}
