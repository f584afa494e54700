//! Which rank runs where. Most of the placement is arithmetic, tested by unit tests in `flags/placement.rs`.

use wireup_e2e::Run;
use wireup_e2e::tables::prints;

#[test]
fn ranks_run_on_the_nodes_of_the_mapping() {
    let shell = |script: &str| Run::shell(script).env("WHERE", "echo $WIREUP_RANK:$WIREUP_NODE");
    prints(
        shell,
        "job -n 4 --virtual-nodes 2 --ppn 2 sh -c \"$WHERE\" => 0:0, 1:0, 2:1, 3:1
         job -np 3 -ppn 2 --virtual-nodes 2 sh -c \"$WHERE\" => 0:0, 1:0, 2:1
         job -n 4 --virtual-nodes 2 --map-by node sh -c \"$WHERE\" => 0:0, 1:1, 2:0, 3:1
         job -n 32 --virtual-nodes 16 sh -c \"$WHERE\" | grep -c -e 31:15 -e 0:0 => 2
         job -n 32 --virtual-nodes 16 --fanout 2 sh -c \"$WHERE\" | grep -c -e 31:15 -e 0:0 => 2
         job -n 32 --virtual-nodes 16 --fanout 16 sh -c \"$WHERE\" | grep -c : => 32
         test $(job echo x | wc -l) = $(nproc) && echo same => same
         job -n 4 --virtual-nodes 2 --dry-run sh -c 'touch started' >/dev/null; ls =>
         job -n 4 --virtual-nodes 2 --dry-run true | grep -c node1 => 1
         job -n 4 --virtual-nodes 2 --display-map true 2>&1 | grep -c 'node1.*3' => 1
         job -n 4 --virtual-nodes 2 --verbose true 2>&1 | grep -c -e ' pmi: ' -e ' binding: ' -e ' tree: ' => 3",
    );
}

/// If each rank were bound to a single cpu, the threads of a rank would wait for each other.
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
        said.expect_err_line(&["binding: not bound (fewer than 2 cores for each rank)"]);
    }
}
