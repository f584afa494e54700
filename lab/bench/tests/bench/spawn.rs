//! `wireup bench spawn` with few calls: every quantity of both launchers is there.

use crate::bench;
use crate::results::Results;
use wireup_e2e::peers::program;
use xtask::layout;
use xtask::programs::Flavour;

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
