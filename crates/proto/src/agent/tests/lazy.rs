//! Fences that are answered before all ranks have entered.

use super::pmi_bench::PmiBench;
use super::*;
use wireup_wire::ids::Epoch;
use wireup_wire::job::PmiFence;

const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1";
const OUT: &str = "cmd=barrier_out rc=0\n";

/// A bench with `ppn` ranks per node, using PMI-1.
fn pmi1(nodes: u32, ppn: u32) -> PmiBench {
    let mut bench = PmiBench::new(nodes, ppn, |options| options.pmi_fence = PmiFence::Lazy);
    bench.all(INIT);
    bench
}

fn put(bench: &mut PmiBench, rank: u32, key: &str) {
    let said = bench.say(rank, &format!("cmd=put kvsname= key={key} value=of-{rank}"));
    assert_eq!(said, "cmd=put_result rc=0\n");
}

fn get(key: &str) -> String {
    format!("cmd=get kvsname= key={key}")
}

fn found(rank: u32) -> String {
    format!("cmd=get_result rc=0 value=of-{rank}\n")
}

const NOT_FOUND: &str = "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";

#[test]
fn a_get_waits_and_holds_up_what_is_behind_it() {
    let mut bench = pmi1(2, 1);
    put(&mut bench, 0, "a");
    assert_eq!(bench.say(0, "cmd=barrier_in"), OUT, "answered at once");
    assert_eq!(bench.say(0, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0\n", "no request waits yet");
    assert!(bench.say(0, &get("PMI_process_mapping")).contains("value=(vector,(0,2,1))"), "a server key never waits");
    assert_eq!(bench.say(0, &get("b")), "");
    assert_eq!(bench.say(0, "cmd=get_appnum"), "", "it waits after the get");
    assert_eq!(bench.say(0, &get("a")), "");
    assert_eq!(bench.say(0, &get("c")), "");
    put(&mut bench, 1, "b");
    assert_eq!(bench.say(1, "cmd=barrier_in"), OUT);
    let wanted = found(1) + "cmd=appnum rc=0 appnum=0\n" + &found(0) + NOT_FOUND;
    assert_eq!(bench.hear(0), wanted);
    assert_eq!(bench.say(1, &get("a")), found(0));
    assert!(bench.failed.is_empty());
}

#[test]
fn a_fence_without_puts_is_a_barrier() {
    let mut bench = pmi1(1, 2);
    assert_eq!(bench.say(0, "cmd=barrier_in"), "");
    assert_eq!(bench.say(1, "cmd=barrier_in"), OUT);
    assert_eq!(bench.hear(0), OUT);
    put(&mut bench, 0, "a");
    assert_eq!(bench.say(0, "cmd=barrier_in"), OUT);
    assert_eq!(bench.say(0, "cmd=barrier_in"), "", "no put since the last fence");
    assert_eq!(bench.say(1, "cmd=barrier_in"), OUT, "it completes the earlier fence");
    assert_eq!(bench.hear(0), "");
    assert_eq!(bench.say(1, "cmd=barrier_in"), OUT);
    assert_eq!(bench.hear(0), OUT);
}

#[test]
fn several_lazy_fences_are_all_waited_for() {
    let mut bench = pmi1(2, 1);
    for round in 0..3 {
        put(&mut bench, 0, &format!("a{round}"));
        assert_eq!(bench.say(0, "cmd=barrier_in"), OUT);
    }
    assert_eq!(bench.say(0, &get("b0")), "");
    for round in 0..3 {
        assert_eq!(bench.hear(0), "", "round {round}");
        put(&mut bench, 1, &format!("b{round}"));
        assert_eq!(bench.say(1, "cmd=barrier_in"), OUT);
    }
    assert_eq!(bench.hear(0), found(1));
    assert_eq!(bench.say(1, &get("a2")), found(0));
}

/// Fences complete in order, so the newest value is found.
#[test]
fn a_walk_waits_too() {
    let mut bench = pmi1(2, 1);
    put(&mut bench, 0, "a");
    bench.say(0, "cmd=barrier_in");
    assert_eq!(bench.say(0, "cmd=getbyidx kvsname= idx=0"), "");
    bench.say(1, "cmd=barrier_in");
    let first = bench.hear(0);
    assert!(first.contains("rc=0") && first.contains("key=a val=of-0"), "{first}");
    let next: u32 = first.split("nextidx=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let end = bench.say(0, &format!("cmd=getbyidx kvsname= idx={next}"));
    assert_eq!(end, "cmd=getbyidx_results rc=-2 reason=no_more_keyvals\n");
}

#[test]
fn gets_of_several_ranks_wait_for_the_same_fence() {
    let mut bench = pmi1(2, 3);
    for rank in 0..5 {
        put(&mut bench, rank, &format!("k{rank}"));
        assert_eq!(bench.say(rank, "cmd=barrier_in"), OUT);
        assert_eq!(bench.say(rank, &get("k5")), "");
    }
    put(&mut bench, 5, "k5");
    bench.say(5, "cmd=barrier_in");
    for rank in 0..5 {
        assert_eq!(bench.hear(rank), found(5), "rank {rank}");
    }
}

#[test]
fn finalize_need_not_wait() {
    let mut bench = pmi1(2, 1);
    put(&mut bench, 0, "a");
    bench.say(0, "cmd=barrier_in");
    assert_eq!(bench.say(0, "cmd=finalize"), "cmd=finalize_ack rc=0\n");
    bench.exit(0, 0);
    put(&mut bench, 1, "b");
    assert_eq!(bench.say(1, "cmd=barrier_in"), OUT);
    assert_eq!(bench.say(1, &get("a")), found(0), "the other rank entered before it left");
    assert!(bench.failed.is_empty());
    bench.say(1, "cmd=barrier_in");
    assert!(
        matches!(bench.failed[..], [Cause::LeftFence { epoch: Epoch(1), finalized: true, .. }]),
        "{:?}",
        bench.failed
    );
}

/// A request that follows a waiting get is not processed before the get is answered; this includes finalize.
#[test]
fn a_rank_may_die_while_its_get_waits() {
    for code in [0, 3] {
        let mut bench = pmi1(2, 1);
        put(&mut bench, 0, "a");
        bench.say(0, "cmd=barrier_in");
        assert_eq!(bench.say(0, &get("b")) + &bench.say(0, "cmd=finalize"), "");
        bench.exit(0, code);
        put(&mut bench, 1, "b");
        assert_eq!(bench.say(1, "cmd=barrier_in"), OUT);
        assert_eq!(bench.say(1, &get("a")), found(0), "with code {code}");
        assert_eq!(bench.hear(0), "");
        bench.pass(2_000_000_000);
        let wanted = if code == 0 { Cause::NotFinalized } else { Cause::Exited(code) };
        assert_eq!(bench.failed, [wanted]);
    }
}

#[test]
fn a_get_whose_fence_a_departed_rank_has_not_entered_fails() {
    for departed_first in [false, true] {
        let mut bench = pmi1(4, 1);
        let wait = |bench: &mut PmiBench| {
            put(bench, 0, "a");
            assert_eq!(bench.say(0, "cmd=barrier_in"), OUT);
            assert_eq!(bench.say(0, &get("b")), "");
        };
        if !departed_first {
            wait(&mut bench);
            assert!(bench.failed.is_empty());
        }
        bench.say(3, "cmd=finalize");
        if departed_first {
            assert!(bench.failed.is_empty(), "no rank waits");
            wait(&mut bench);
        }
        assert!(matches!(bench.failed[..], [Cause::LeftFence { finalized: true, .. }]), "{:?}", bench.failed);
        assert_eq!(bench.hear(0), "");
    }
}

#[test]
fn pmi_2_alike() {
    let mut bench = PmiBench::new(2, 1, |options| options.pmi_fence = PmiFence::Lazy);
    bench.all("cmd=init pmi_version=2 pmi_subversion=0");
    (0..2).for_each(|rank| {
        bench.say(rank, &format!("cmd=fullinit;pmijobid=;pmirank={rank};threaded=FALSE;"));
    });
    bench.say(0, "cmd=kvs-put;key=a;value=x;");
    assert!(bench.say(0, "cmd=kvs-fence;").contains("cmd=kvs-fence-response;rc=0;"));
    assert!(bench.say(0, "cmd=info-getjobattr;key=PMI_process_mapping;").contains("found=TRUE"), "it never waits");
    // MPICH's barrier: a key that no rank puts is reported as not found once all ranks have entered.
    assert_eq!(bench.say(0, "cmd=kvs-get;thrid=0x7;jobid=;srcid=-1;key=-NONEXIST-KEY;"), "");
    assert_eq!(bench.say(0, "cmd=info-putnodeattr;key=n;value=1;"), "", "it waits after the get");
    bench.say(1, "cmd=kvs-put;key=b;value=y;");
    assert!(bench.say(1, "cmd=kvs-fence;").contains("rc=0;"));
    let heard = bench.hear(0);
    assert!(heard.contains("cmd=kvs-get-response;thrid=0x7;rc=0;found=FALSE;"), "{heard}");
    assert!(heard.ends_with("cmd=info-putnodeattr-response;rc=0;"), "{heard}");
    assert!(bench.say(1, "cmd=kvs-get;jobid=;srcid=-1;key=a;").contains("value=x;"));
}

/// Strict fences, for comparison.
#[test]
fn without_the_option_nothing_is_answered_early() {
    let mut bench = PmiBench::new(2, 1, |_| ());
    bench.all(INIT);
    put(&mut bench, 0, "a");
    assert_eq!(bench.say(0, "cmd=barrier_in"), "");
    assert_eq!(bench.say(0, &get("a")), NOT_FOUND, "the answer is immediate");
    assert_eq!(bench.say(1, "cmd=barrier_in"), OUT);
    assert_eq!(bench.hear(0), OUT);
}
