//! The extensions of libpmi2 for startup: as requests to wireup's own server, and emulated by requests that other
//! servers know.

use wireup_e2e::libraries::{
    ALL_RIGHT, PLACEMENTS, all_right, all_right_everywhere, hydras, no_memory_errors, own, under,
};
use wireup_e2e::peers::program;
use wireup_e2e::{Run, is_night};
use xtask::programs::Flavour;

/// Programs in which every rank reports whether it found errors: many collectives in progress, many fences, all
/// lengths, all calls.
const PROGRAMS: [&str; 4] = ["outstanding", "store", "lengths", "extensions"];

/// Runs every program on nodes with equal numbers of ranks, and on nodes with different numbers: 7 ranks with 3 per
/// node leave a single rank on the last node.
#[test]
fn extensions_work_on_every_placement_and_with_every_exchange_scheme() {
    for name in PROGRAMS {
        all_right_everywhere(name);
        all_right("-n 7 --virtual-nodes 3 --ppn 3", name, 7);
        all_right("-n 10 --virtual-nodes 4 --ppn 3", name, 10);
        for scheme in ["tree", "ring", "log"] {
            all_right(&format!("-n 13 --virtual-nodes 5 --exchange={scheme}"), name, 13);
        }
    }
    // The program `sealed` tries to write a shared array, which must fail.
    all_right("-n 6 --virtual-nodes 2", "sealed", 6);
}

#[test]
fn extensions_are_emulated_under_hydra() {
    for (hydra, _) in hydras() {
        for name in PROGRAMS {
            for ranks in [1, 5] {
                let said = under(&hydra, ranks, &[], &own(name), "");
                assert_eq!(said.matches(ALL_RIGHT).count(), ranks, "{hydra:?} {name}: {said}");
            }
        }
    }
}

/// The example programs in docs/guides/middleware.md.
#[test]
fn the_documented_examples_work() {
    let example = |name| program(Flavour::Example, name).expect("the C compiler that built this test's own programs");
    let (startup, anywhere) = (example("startup"), example("anywhere"));
    for (placement, ranks) in PLACEMENTS {
        let run = |program| Run::job(placement).linked().arg(program).succeed();
        assert_eq!(run(&startup).out(), format!("the token was with {ranks} of {ranks} processes\n"));
        let line = format!("{ranks} of {ranks} addresses, by an allgather\n");
        assert_eq!(run(&anywhere).out(), line.repeat(ranks));
    }
    for (hydra, _) in hydras() {
        assert_eq!(under(&hydra, 5, &[], &startup, ""), "the token was with 5 of 5 processes\n");
        assert_eq!(under(&hydra, 5, &[], &anywhere, ""), "5 of 5 addresses, by an allgather\n".repeat(5));
    }
    // Slurm's libpmi has no allgather, so the program `anywhere` uses put, fence and get with it.
    if Flavour::LibpmiSlurm.missing().is_none() {
        let outcome = Run::job("-n 4 --virtual-nodes 2").env("LD_LIBRARY_PATH", "").arg(&anywhere).succeed();
        assert_eq!(outcome.out(), "4 of 4 addresses, by put, fence and get\n".repeat(4));
    }
}

/// Under valgrind, threads that poll keep all cpus busy, so that tests that run next to them starve: these tests run
/// only at night.
#[test]
fn valgrind_finds_no_memory_errors_in_libpmi_and_libpmi2() {
    let threads = if is_night() { ",threads pmi,threads pmi2" } else { "" };
    let programs = format!("outstanding,store,extensions,groups,pmi1 plain,again pmi,again pmi2{threads}");
    programs.split(',').for_each(no_memory_errors);
}

/// Shared memory held by agents and ranks is the same after two hundred rounds of exchanges as after twenty. The
/// program inspects its agent, which it could not see from a PID namespace of its own.
#[test]
fn shared_memory_does_not_grow_over_rounds_of_exchanges() {
    for (placement, ranks) in [("-n 1", 1), ("-n 6 --virtual-nodes 2", 6), ("-n 16", 16)] {
        all_right(&format!("{placement} --contain none"), "rounds", ranks);
    }
}
