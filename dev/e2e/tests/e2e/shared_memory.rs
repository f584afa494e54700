//! Shared memory held by agents and ranks does not grow: it is the same after two hundred rounds as after twenty.

use wireup_e2e::Run;
use wireup_e2e::peers::program;
use xtask::libraries;
use xtask::programs::Flavour;

#[test]
fn shared_memory_does_not_grow_over_rounds_of_exchanges() {
    let rounds = program(Flavour::Libpmi, "rounds").expect("the C compiler that built this test's own programs");
    let libraries = libraries::build().unwrap_or_else(|why| panic!("{why}")).display().to_string();
    // The program inspects its agent, which it could not see from a PID namespace of its own.
    for (placement, ranks) in [("-n 1", 1), ("-n 6 --virtual-nodes 2", 6), ("-n 16", 16)] {
        Run::job(placement)
            .args(["--contain", "none"])
            .env("LD_LIBRARY_PATH", &libraries)
            .arg(&rounds)
            .succeed()
            .expect_all_right(ranks);
    }
}
