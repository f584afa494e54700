//! Which rank runs where.

use crate::harness::Run;

/// `rank:node` of every rank.
fn nodes(line: &str) -> Vec<String> {
    let outcome = Run::job(line).sh("echo $WIREUP_RANK:$WIREUP_NODE").succeed();
    outcome.sorted_lines()
}

#[test]
fn mapping_by_slot_fills_one_node_before_the_next() {
    assert_eq!(nodes("-n 4 --virtual-nodes 2 --ppn 2"), ["0:0", "1:0", "2:1", "3:1"]);
    assert_eq!(nodes("-np 3 -ppn 2 --virtual-nodes 2"), ["0:0", "1:0", "2:1"]);
}

#[test]
fn mapping_by_node_goes_round_robin() {
    assert_eq!(nodes("-n 4 --virtual-nodes 2 --map-by node"), ["0:0", "1:1", "2:0", "3:1"]);
}

#[test]
fn without_n_a_job_has_one_rank_per_allowed_cpu() {
    let cpus = Run::shell("nproc").succeed().out();
    let outcome = Run::job("").sh("echo $WIREUP_SIZE").succeed();
    assert_eq!(outcome.out().lines().next().map(str::trim), Some(cpus.trim()), "{outcome}");
}

#[test]
fn ranks_are_placed_on_16_nodes_in_trees_of_any_fanout() {
    for fanout in ["", "--fanout 2", "--fanout 16"] {
        let said = nodes(&format!("-n 32 --virtual-nodes 16 {fanout}"));
        assert_eq!(said.len(), 32);
        assert!(said.contains(&"31:15".to_owned()), "{said:?}");
    }
}

#[test]
fn a_dry_run_starts_nothing() {
    let outcome = Run::job("-n 4 --virtual-nodes 2 --dry-run").sh("echo started").succeed();
    assert!(!outcome.out().contains("started\n"), "{outcome}");
    assert!(!outcome.out().is_empty() || !outcome.stderr.is_empty(), "{outcome}");
}

#[test]
fn display_map_shows_the_placement() {
    let outcome = Run::job("-n 4 --virtual-nodes 2 --display-map true").succeed();
    let said = outcome.out() + &outcome.err();
    assert!(said.contains("node1") && said.contains('3'), "{outcome}");
}

#[test]
fn verbose_prints_the_choices_in_one_line() {
    let outcome = Run::job("-n 4 --virtual-nodes 2 --verbose true").succeed();
    outcome.expect_err_line(&["pmi", "bind", "tree"]);
}
