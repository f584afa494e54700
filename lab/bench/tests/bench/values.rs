//! `wireup bench exchange`, `p2p`, `coll` and `spawn` on tiny jobs: all values are there, and those that can be known
//! are right.

use crate::bench;
use crate::results::{Lines, Results};
use wireup_bench::startup::scheme::SCHEMES;
use wireup_e2e::libraries::folder;
use wireup_e2e::peers::program;
use wireup_e2e::wireup;
use xtask::layout;
use xtask::programs::Flavour;

fn exchange(name: &str, words: &str) -> Lines {
    let results = Results::of(name);
    let library = folder().join(xtask::libraries::file("pmi2"));
    let words = format!("exchange --library {} {words} {}", library.display(), results.json());
    bench(&words).succeed();
    results.lines()
}

#[test]
fn exchange_bench_measures_every_scheme() {
    let lines = exchange("exchange", "--ranks 8,12 --ppn 4 --rounds 1 --repeat 2 --part times");
    for (ranks, nodes) in [(8, 2), (12, 3)] {
        let case = format!("part=times,ranks={ranks},nodes={nodes},ppn=4,value-bytes=18,key-bytes=9");
        lines.expect(&SCHEMES.map(|scheme| scheme.name), &case, &["time", "agent-cpu"]);
        lines.expect(&["at rest"], &case, &["join", "agent-memory", "client-memory"]);
    }
}

#[test]
fn initialisation_has_work_beside_the_exchange() {
    let words = "--ranks 8 --ppn 4 --rounds 1 --part times --work-ms 1 --scheme text-fence,fence-get-2,ifence";
    let lines = exchange("work", words);
    for scheme in ["work", "text-fence", "fence-get-2", "ifence"] {
        assert!(lines.value(scheme, "part=times,ranks=8,work-ms=1", "ready") >= 1e-3, "{scheme}");
    }
}

#[test]
fn calls_of_real_mpis_add_up_under_wireup_and_under_their_own_launchers() {
    for (flavour, mpi, own) in
        [(Flavour::Mpich5, "mpich5", "hydra-5.0.2"), (Flavour::OpenMpi4, "openmpi4", "open-mpi-4.1.4")]
    {
        let Some(_) = program(flavour, "initfin") else { continue };
        let results = Results::of(mpi);
        bench(&format!("launch --case {mpi}-1x4 --rounds 1 {}", results.json())).cwd(&layout::root()).succeed();
        let lines = results.lines();
        for launcher in ["wireup", own] {
            let of = |quantity| lines.value(launcher, &format!("program={mpi},ranks=4"), quantity);
            let parts = ["MPI_Init", "MPI_Barrier", "MPI_Finalize", "other"].map(of);
            assert!((parts.iter().sum::<f64>() - of("wall")).abs() < 1e-6 && parts[0] > 0.0, "{mpi} {launcher}");
            assert!(0.0 < of("mpi-exchange") && of("mpi-exchange") < of("mpi-init"), "{mpi} {launcher}");
        }
    }
}

#[test]
fn the_library_is_timed_beside_what_it_replaces() {
    let Some(mpi) = program(Flavour::Mpich5, "firstuse") else { return };
    let lines = exchange("library", &format!("--part library --rounds 1 --mpi-first-use {}", mpi.display()));
    lines.expect(&["barrier-peers", "bare-8-bytes"], "part=barrier of 2,ranks=2", &["time"]);
    lines.expect(&["barrier-agents", "fence-alone"], "part=barrier of agents,ranks=64", &["time"]);
    lines.expect(&["wu-open", "pmi2-init"], "part=joining,ranks=256", &["join-max"]);
    lines.expect(&["node-instant-on", "node-group", "mpich-split"], "part=from main,ranks=64", &["from-main"]);
    let contestants = ["instant-on", "wu-send", "put-get-connect", "floor", "mpich-send"];
    lines.expect(&contestants, "part=from exec,ranks=16", &["from-exec"]);
}

fn links(name: &str, words: &str, contestants: &[&str], sizes: &[u32]) {
    let results = Results::of(name);
    let words = format!("{words} --rounds 1 --iterations-small 5 --iterations-large 2 {}", results.json());
    bench(&words).succeed();
    for size in sizes {
        results.lines().expect(contestants, &format!("bytes={size},fanout=2"), &["latency", "mean", "bandwidth"]);
    }
}

#[test]
fn p2p_bench_measures_every_transport_and_size() {
    let words = "p2p --nodes 3 --fanout 2 --sizes 8,100000 --only bare,tcp,tree";
    links("p2p", words, &["bare TCP", "tcp", "tree"], &[8, 100_000]);
}

#[test]
fn coll_bench_measures_every_scheme_and_size() {
    let words = "coll --nodes 5 --fanout 2 --sizes 8,60000 --only tree,ring/tcp,ring/tree,log/tcp,log/tree";
    links("coll", words, &["tree", "ring/tcp", "ring/tree", "log/tcp", "log/tree"], &[8, 60_000]);
}

#[test]
fn coll_bench_accepts_only_pmix_fences_that_deliver() {
    if program(Flavour::Pmix, "exchange").is_none() {
        return;
    }
    links("coll-pmix", "coll --nodes 3 --fanout 2 --sizes 8,2000 --only wireup-pmix", &["wireup-pmix"], &[8, 2000]);
    // By direct modex no fence carries values, so only a get that asks the other node finds them.
    let peer = format!("direct={} run --pmi=pmix --modex=direct -n 3 --virtual-nodes=3 {{pmix}}", wireup().display());
    let words = "coll --nodes 3 --sizes 8 --rounds 1 --iterations-small 2 --only direct";
    let outcome = bench(words).args(["--peer", &peer]).finish();
    assert_eq!(outcome.code(), 125, "{outcome}");
    assert!(outcome.out().contains("has no value by the fence (full modex), and gets the value (direct"), "{outcome}");
}

#[test]
fn modex_bench_measures_shmem_init_by_every_transport_and_beside_others() {
    let Some(oshmem) = program(Flavour::Oshmem, "initfin") else { return };
    let results = Results::of("modex");
    let words = "modex --part shmem,fence --nodes 2 --ppn 1 --shmem-nodes 1,2 --ppns 2 --rounds 1";
    let peer = format!(
        "other={} run --pmi=pmix -n {{ranks}} --ppn {{ppn}} --virtual-nodes {{nodes}} {{program}}",
        wireup().display()
    );
    let run = bench(&format!("{words} --oshmem {} {}", oshmem.display(), results.json()));
    run.args(["--peer", &peer]).succeed();
    let lines = results.lines();
    lines.expect(&["shmem_init", "other"], "part=shmem,nodes=1,ranks=2", &["join", "join-max"]);
    let contestants = ["tree, full modex", "tcp, direct modex", "ucx, full modex", "other"];
    lines.expect(&contestants, "part=shmem,nodes=2,ranks=4", &["join", "join-max"]);
    let quantities = ["fence-max", "skew", "imbalance-before", "imbalance-after"];
    lines.expect(&["through the tree"], "part=fence,nodes=2,ranks=2", &quantities);
}

#[test]
fn spawn_bench_measures_every_quantity_under_both_launchers() {
    let Some(program) = program(Flavour::Mpich5, "spawning") else { return };
    let results = Results::of("spawn");
    let words = format!(
        "spawn --mpi mpich --mpich-program {} --parents 2 --children 2 --calls 2 --pause 20 --rounds 1 \
         --times 30 {}",
        program.display(),
        results.json()
    );
    bench(&words).cwd(&layout::root()).succeed();
    let lines = results.lines();
    let hydra = "hydra-5.0.2";
    lines.expect(&["wireup", hydra], "part=call,mpi=mpich", &["call", "first-runs", "last-runs", "children", "rest"]);
    lines.expect(&["vfork"], "part=call,mpi=mpich", &["first-runs", "last-runs"]);
    for launcher in ["wireup", hydra] {
        // There is one value for each tenth of the calls.
        assert_eq!(lines.values(launcher, "part=many,mpi=mpich", "call").len(), 10);
        assert!(!lines.values(launcher, "part=many,mpi=mpich", "memory").is_empty());
    }
}
