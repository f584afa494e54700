//! Fences, from a rank's request to its reply; most of them lazy: answered before all ranks have entered.

use super::*;
use wireup_wire::ids::Epoch;
use wireup_wire::job::PmiFence;

const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1";
const OUT: &str = "cmd=barrier_out rc=0\n";

/// A net with `ppn` ranks per node, using PMI-1.
fn pmi1(nodes: u32, ppn: u32) -> Net {
    let mut net = Net::running(nodes, ppn, |options| options.pmi.fence = PmiFence::Lazy);
    net.request_all(INIT);
    net
}

fn put(net: &mut Net, rank: u32, key: &str) {
    let reply = net.request(rank, &format!("cmd=put kvsname= key={key} value=of-{rank}"));
    assert_eq!(reply, "cmd=put_result rc=0\n");
}

fn get(key: &str) -> String {
    format!("cmd=get kvsname= key={key}")
}

fn found(rank: u32) -> String {
    format!("cmd=get_result rc=0 value=of-{rank}\n")
}

const NOT_FOUND: &str = "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";

#[test]
fn a_get_during_a_lazy_fence_waits_and_delays_later_requests() {
    let mut net = pmi1(2, 1);
    put(&mut net, 0, "a");
    assert_eq!(net.request(0, "cmd=barrier_in"), OUT, "answered at once");
    assert_eq!(net.request(0, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0\n", "no request waits yet");
    assert!(net.request(0, &get("PMI_process_mapping")).contains("value=(vector,(0,2,1))"), "a server key never waits");
    assert_eq!(net.request(0, &get("b")), "");
    assert_eq!(net.request(0, "cmd=get_appnum"), "", "it waits after the get");
    assert_eq!(net.request(0, &get("a")), "");
    assert_eq!(net.request(0, &get("c")), "");
    put(&mut net, 1, "b");
    assert_eq!(net.request(1, "cmd=barrier_in"), OUT);
    let wanted = found(1) + "cmd=appnum rc=0 appnum=0\n" + &found(0) + NOT_FOUND;
    assert_eq!(net.replies(0), wanted);
    assert_eq!(net.request(1, &get("a")), found(0));
    assert!(net.failures().is_empty());
}

#[test]
fn a_fence_without_puts_is_a_barrier() {
    let mut net = pmi1(1, 2);
    assert_eq!(net.request(0, "cmd=barrier_in"), "");
    assert_eq!(net.request(1, "cmd=barrier_in"), OUT);
    assert_eq!(net.replies(0), OUT);
    put(&mut net, 0, "a");
    assert_eq!(net.request(0, "cmd=barrier_in"), OUT);
    assert_eq!(net.request(0, "cmd=barrier_in"), "", "no put since the last fence");
    assert_eq!(net.request(1, "cmd=barrier_in"), OUT, "it completes the earlier fence");
    assert_eq!(net.replies(0), "");
    assert_eq!(net.request(1, "cmd=barrier_in"), OUT);
    assert_eq!(net.replies(0), OUT);
}

#[test]
fn several_lazy_fences_are_all_waited_for() {
    let mut net = pmi1(2, 1);
    for round in 0..3 {
        put(&mut net, 0, &format!("a{round}"));
        assert_eq!(net.request(0, "cmd=barrier_in"), OUT);
    }
    assert_eq!(net.request(0, &get("b0")), "");
    for round in 0..3 {
        assert_eq!(net.replies(0), "", "round {round}");
        put(&mut net, 1, &format!("b{round}"));
        assert_eq!(net.request(1, "cmd=barrier_in"), OUT);
    }
    assert_eq!(net.replies(0), found(1));
    assert_eq!(net.request(1, &get("a2")), found(0));
}

/// The iteration returns a pair only after the fence that publishes it has completed everywhere.
#[test]
fn an_iteration_over_pairs_waits_for_lazy_fences() {
    let mut net = pmi1(2, 1);
    put(&mut net, 0, "a");
    net.request(0, "cmd=barrier_in");
    assert_eq!(net.request(0, "cmd=getbyidx kvsname= idx=0"), "");
    net.request(1, "cmd=barrier_in");
    let first = net.replies(0);
    assert!(first.contains("rc=0") && first.contains("key=a val=of-0"), "{first}");
    let next: u32 = first.split("nextidx=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let end = net.request(0, &format!("cmd=getbyidx kvsname= idx={next}"));
    assert_eq!(end, "cmd=getbyidx_results rc=-2 reason=no_more_keyvals\n");
}

#[test]
fn gets_of_several_ranks_wait_for_the_same_fence() {
    let mut net = pmi1(2, 3);
    for rank in 0..5 {
        put(&mut net, rank, &format!("k{rank}"));
        assert_eq!(net.request(rank, "cmd=barrier_in"), OUT);
        assert_eq!(net.request(rank, &get("k5")), "");
    }
    put(&mut net, 5, "k5");
    net.request(5, "cmd=barrier_in");
    for rank in 0..5 {
        assert_eq!(net.replies(rank), found(5), "rank {rank}");
    }
}

#[test]
fn finalize_does_not_wait_for_a_lazy_fence() {
    let mut net = pmi1(2, 1);
    put(&mut net, 0, "a");
    net.request(0, "cmd=barrier_in");
    assert_eq!(net.request(0, "cmd=finalize"), "cmd=finalize_ack rc=0\n");
    net.exit(0, 0);
    put(&mut net, 1, "b");
    assert_eq!(net.request(1, "cmd=barrier_in"), OUT);
    assert_eq!(net.request(1, &get("a")), found(0), "the other rank entered before it left");
    assert!(net.failures().is_empty());
    net.request(1, "cmd=barrier_in");
    assert!(
        matches!(net.failures()[..], [Cause::LeftFence { epoch: Epoch(1), finalized: true, .. }]),
        "{:?}",
        net.failures()
    );
}

#[test]
fn a_rank_that_fails_after_finalize_ends_no_other() {
    let mut net = pmi1(2, 2);
    net.request(0, "cmd=finalize");
    net.exit(0, 3);
    net.pass_and_settle(2_000_000_000);
    assert_eq!(net.failures(), [Cause::ExitedLate(3)]);
    assert_eq!(net.request(1, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0\n", "it continues");
    net.exit(1, 4);
    assert_eq!(net.failures(), [Cause::ExitedLate(3), Cause::Exited(4)]);
}

/// A request that follows a waiting get is not processed before the get is answered; this includes finalize.
#[test]
fn a_rank_may_die_while_its_get_waits() {
    for code in [0, 3] {
        let mut net = pmi1(2, 1);
        put(&mut net, 0, "a");
        net.request(0, "cmd=barrier_in");
        assert_eq!(net.request(0, &get("b")) + &net.request(0, "cmd=finalize"), "");
        net.exit(0, code);
        put(&mut net, 1, "b");
        assert_eq!(net.request(1, "cmd=barrier_in"), OUT);
        assert_eq!(net.request(1, &get("a")), found(0), "with code {code}");
        assert_eq!(net.replies(0), "");
        net.pass_and_settle(2_000_000_000);
        let wanted = if code == 0 { Cause::NotFinalized { initialised: true } } else { Cause::Exited(code) };
        assert_eq!(net.failures(), [wanted]);
    }
}

#[test]
fn a_get_whose_fence_a_departed_rank_has_not_entered_fails() {
    for departed_first in [false, true] {
        let mut net = pmi1(4, 1);
        let wait = |net: &mut Net| {
            put(net, 0, "a");
            assert_eq!(net.request(0, "cmd=barrier_in"), OUT);
            assert_eq!(net.request(0, &get("b")), "");
        };
        if !departed_first {
            wait(&mut net);
            assert!(net.failures().is_empty());
        }
        net.request(3, "cmd=finalize");
        if departed_first {
            assert!(net.failures().is_empty(), "no rank waits");
            wait(&mut net);
        }
        assert!(matches!(net.failures()[..], [Cause::LeftFence { finalized: true, .. }]), "{:?}", net.failures());
        assert_eq!(net.replies(0), "");
    }
}

#[test]
fn a_rank_that_has_exited_without_init_is_reported_as_such() {
    for (ranks_of_node, init_before) in [(2, false), (2, true), (1, false)] {
        let mut net = Net::running(2 / ranks_of_node, ranks_of_node, |_| {});
        let enter = |net: &mut Net| [INIT, "cmd=barrier_in"].map(|line| net.request(0, line));
        if init_before {
            enter(&mut net);
        }
        net.exit(1, 0);
        if !init_before {
            enter(&mut net);
        }
        assert_eq!(net.failures(), [Cause::NotFinalized { initialised: false }], "{ranks_of_node} {init_before}");
    }
}

#[test]
fn pmi_2_has_lazy_fences() {
    let mut net = Net::running(2, 1, |options| options.pmi.fence = PmiFence::Lazy);
    net.request_all("cmd=init pmi_version=2 pmi_subversion=0");
    (0..2).for_each(|rank| {
        net.request(rank, &format!("cmd=fullinit;pmijobid=;pmirank={rank};threaded=FALSE;"));
    });
    net.request(0, "cmd=kvs-put;key=a;value=x;");
    assert!(net.request(0, "cmd=kvs-fence;").contains("cmd=kvs-fence-response;rc=0;"));
    assert!(net.request(0, "cmd=info-getjobattr;key=PMI_process_mapping;").contains("found=TRUE"), "it never waits");
    // MPICH's barrier: a key that no rank puts is reported as not found once all ranks have entered.
    assert_eq!(net.request(0, "cmd=kvs-get;thrid=0x7;jobid=;srcid=-1;key=-NONEXIST-KEY;"), "");
    assert_eq!(net.request(0, "cmd=info-putnodeattr;key=n;value=1;"), "", "it waits after the get");
    net.request(1, "cmd=kvs-put;key=b;value=y;");
    assert!(net.request(1, "cmd=kvs-fence;").contains("rc=0;"));
    let replies = net.replies(0);
    assert!(replies.contains("cmd=kvs-get-response;thrid=0x7;rc=0;found=FALSE;"), "{replies}");
    assert!(replies.ends_with("cmd=info-putnodeattr-response;rc=0;"), "{replies}");
    assert!(net.request(1, "cmd=kvs-get;jobid=;srcid=-1;key=a;").contains("value=x;"));
}

/// With strict fences, for comparison with lazy ones.
#[test]
fn without_lazy_fences_nothing_is_answered_early() {
    let mut net = Net::running(2, 1, |_| ());
    net.request_all(INIT);
    put(&mut net, 0, "a");
    assert_eq!(net.request(0, "cmd=barrier_in"), "");
    assert_eq!(net.request(0, &get("a")), NOT_FOUND, "the answer is immediate");
    assert_eq!(net.request(1, "cmd=barrier_in"), OUT);
    assert_eq!(net.replies(0), OUT);
}

/// Compressible pairs travel compressed, through the tree or over direct links, and read back unchanged.
#[test]
fn compressed_pairs_are_read_as_they_were_put() {
    for compress_min in [0, 1, 100, 1 << 20] {
        let mut net = Net::running(3, 2, |options| options.exchange.compress_bytes_min = compress_min);
        net.request_all("cmd=init pmi_version=1 pmi_subversion=1");
        let value = |rank: u32| format!("[{rank}]").repeat(300);
        (0..6).for_each(|rank| {
            net.request(rank, &format!("cmd=put kvsname= key=k{rank} value={}", value(rank)));
        });
        net.request_all("cmd=barrier_in");
        for (reader, rank) in [(0, 5), (5, 0), (3, 2), (2, 2)] {
            let reply = net.request(reader, &format!("cmd=get kvsname= key=k{rank}"));
            assert_eq!(reply, format!("cmd=get_result rc=0 value={}\n", value(rank)));
        }
        assert!(net.failures().is_empty());
        let sent = net.exchange_bytes > 6 * 900;
        assert_eq!(sent, compress_min == 0 || compress_min > 2000, "{} bytes", net.exchange_bytes);
    }
}
