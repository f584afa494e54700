//! Which rank runs where.

use wireup_e2e::Run;

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

/// A share of one cpu would make the threads of a rank wait for each other.
#[test]
fn no_rank_is_bound_to_a_single_cpu_by_default() {
    let cpus: usize = Run::shell("nproc").succeed().out().trim().parse().expect("a number");
    for ranks in 1..=cpus.min(8) {
        let outcome = Run::job(&format!("-n {ranks}")).sh("nproc").succeed();
        let counts: Vec<usize> = outcome.out().lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(counts.len(), ranks, "{outcome}");
        assert!(counts.iter().all(|count| *count >= cpus.min(2)), "{outcome}");
    }
    let said = Run::job(&format!("-n {cpus} --verbose true")).succeed();
    said.expect_err_line(&["binding: "]);
    if cpus < 4 {
        said.expect_err_line(&["binding: not bound: less than 2 cores for each rank"]);
    }
}

#[test]
fn verbose_prints_the_choices_in_one_line() {
    let outcome = Run::job("-n 4 --virtual-nodes 2 --verbose true").succeed();
    outcome.expect_err_line(&["pmi", "bind", "tree"]);
}
