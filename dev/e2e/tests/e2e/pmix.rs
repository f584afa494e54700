//! Unmodified Open MPI, OpenSHMEM and PMIx programs; which programs are offered PMIx, and how that is reported.
//!
//! Their ranks poll continuously, so the tests use few of them.

mod endpoints;
mod faults;
mod offered;
mod spawned_jobs;

use wireup_e2e::Run;
use wireup_e2e::peers::program;
use xtask::programs::Flavour;

const BOTH: [Flavour; 2] = [Flavour::OpenMpi4, Flavour::OpenMpi5];
/// Test programs that use Debian's libpmix, and the same with the libpmix in Open MPI 5.
const CLIENTS: [Flavour; 2] = [Flavour::Pmix, Flavour::Pmix5];
const PLACEMENTS: [&str; 2] = ["-n 4", "-n 4 --virtual-nodes 2"];

/// The command `wireup run LINE PROGRAM ARGS`; `None` if the library that the program needs is not installed.
fn run(flavour: Flavour, name: &str, line: &str, args: &str) -> Option<Run> {
    let program = program(flavour, name)?;
    Some(Run::job(line).arg(program).args(args.split_whitespace()))
}

/// Runs a program, and checks its output and that it prints nothing on stderr.
fn says(flavour: Flavour, name: &str, line: &str, args: &str, expected: &str) {
    let Some(run) = run(flavour, name, line, args) else { return };
    let outcome = run.succeed();
    assert_eq!(outcome.out(), expected, "{outcome}");
    outcome.expect_quiet();
}

/// Left out: Debian's Open MPI 4 is built without one-sided communication between nodes.
#[test]
fn one_sided_communication_works() {
    says(Flavour::OpenMpi4, "onesided", "-n 3", "", "one-sided over 3 ranks: right\n");
    for placement in PLACEMENTS {
        let Some(run) = run(Flavour::OpenMpi5, "onesided", placement, "") else { return };
        // stderr is not checked: Open MPI 5 warns about one of its own components, even under its own launcher.
        run.succeed().expect_out("one-sided over 4 ranks: right\n");
    }
}

#[test]
fn ranks_know_which_ranks_share_their_node() {
    let expected = ["rank 0 of 4: local 0 of 0 2", "rank 1 of 4: local 0 of 1 3", "rank 2 of 4: local 1 of 0 2"];
    for flavour in BOTH {
        let Some(run) = run(flavour, "locality", "-n 4 --virtual-nodes 2 --map-by node", "") else { continue };
        let outcome = run.succeed();
        assert_eq!(outcome.sorted_lines()[..3], expected, "{outcome}");
    }
}

#[test]
fn mpi_sessions_split_ranks_into_groups() {
    for placement in ["-n 5", "-n 5 --virtual-nodes 2"] {
        let Some(run) = run(Flavour::OpenMpi5, "sessions", placement, "") else { return };
        let wanted = ["all: 5 ranks", "even: 3 ranks", "even: 3 ranks", "odd: 2 ranks", "odd: 2 ranks"];
        let outcome = run.succeed();
        assert_eq!(outcome.sorted_lines(), wanted, "{outcome}");
    }
}

/// Under `mpirun` the standard output of ranks is a pseudo-terminal, so that the C library writes each line at once; so
/// it is here.
#[test]
fn what_ranks_have_printed_is_shown_when_one_aborts_or_is_killed() {
    let lines: Vec<String> = (0..4).map(|rank| format!("rank {rank} was here")).collect();
    for flavour in [Flavour::OpenMpi4, Flavour::OpenMpi5] {
        for (placement, end, code) in
            [("-n 4", "abort", 7), ("-n 4 --virtual-nodes 2", "abort", 7), ("-n 4", "kill", 137), ("-n 4", "", 0)]
        {
            let Some(run) = run(flavour, "lastwords", placement, end) else { continue };
            let outcome = run.finish().expect_code(code);
            assert_eq!(outcome.sorted_lines(), lines, "{flavour:?} {placement} {end}: {outcome}");
        }
        // With `--stdout pipe`, standard output is a pipe: the C library buffers the lines, which are lost if the rank
        // is killed.
        let Some(run) = run(flavour, "lastwords", "-n 4 --stdout pipe", "kill") else { continue };
        assert_eq!(run.finish().expect_code(137).out(), "");
    }
}

#[test]
fn openshmem_programs_run() {
    for placement in PLACEMENTS {
        let Some(run) = run(Flavour::Oshmem, "hello", placement, "") else { return };
        let outcome = run.succeed();
        let wanted = (0..4).map(|element| format!("hello from element {element} of 4")).collect::<Vec<_>>();
        assert_eq!(outcome.sorted_lines(), wanted, "{outcome}");
        says(Flavour::Oshmem, "ring", placement, "", "ring of 4 elements: right\n");
    }
}

#[test]
fn pmix_clients_exchange_values() {
    // Version 5 of the library passes longer texts to local ranks in compressed form, even under its own launcher.
    for client in CLIENTS {
        for line in ["-n 5", "-n 6 --virtual-nodes 3", "-n 5 --virtual-nodes 2 --map-by node"] {
            let Some(many) = run(client, "exchange", line, "4 2000") else { return };
            let ranks = &line[3..4];
            let outcome = many.succeed();
            assert_eq!(outcome.out(), format!("exchange over {ranks} ranks: 4 rounds of 2000 bytes are right\n"));
            for how in ["32", "3500", "late"] {
                says(client, "modex", line, how, &format!("modex over {ranks} ranks: right\n"));
            }
        }
        says(client, "modex", "-n 4 --virtual-nodes 2", "missing", "modex over 4 ranks: right\n");
    }
}

/// Tests groups, names, connections between ranks, and keys that are committed after other ranks wait for them.
#[test]
fn clients_agree_on_every_placement_and_with_every_scheme() {
    for client in CLIENTS {
        for placement in PLACEMENTS {
            for (name, said) in
                [("late", "late keys"), ("connect", "connections"), ("names", "names"), ("groups", "groups")]
            {
                says(client, name, placement, "", &format!("{said} over 4 ranks: right\n"));
            }
        }
        says(client, "late", "-n 4 --virtual-nodes 2 --modex full", "", "late keys over 4 ranks: right\n");
    }
    for flags in ["--modex full", "--modex direct", "--modex auto", "--exchange ring", "--exchange log", "--fanout 1"] {
        let line = format!("-n 6 --virtual-nodes 3 {flags}");
        says(Flavour::Pmix, "exchange", &line, "3 5000", "exchange over 6 ranks: 3 rounds of 5000 bytes are right\n");
    }
}

#[test]
fn many_fences_complete_back_to_back() {
    let routes = ["--exchange tree", "--exchange ring", "--exchange log", "--agent-transport tcp", ""];
    for flags in routes {
        let line = format!("-n 6 --virtual-nodes 3 {flags}");
        says(Flavour::Pmix, "fences", &line, "1000 200", "1000 fences over 6 ranks\n");
    }
    says(Flavour::Pmix5, "fences", "-n 4 --virtual-nodes 2", "500 200", "500 fences over 4 ranks\n");
}

#[test]
fn job_data_matches_the_placement() {
    for client in CLIENTS {
        let Some(run) = run(client, "jobdata", "-n 5 --virtual-nodes 2 --map-by node", "") else { return };
        let outcome = run.succeed();
        let wanted = [
            "rank 0 of 5: node 0, local 0 of 3: 0,2,4", "rank 1 of 5: node 1, local 0 of 2: 1,3",
            "rank 2 of 5: node 0, local 1 of 3: 0,2,4", "rank 3 of 5: node 1, local 1 of 2: 1,3",
            "rank 4 of 5: node 0, local 2 of 3: 0,2,4",
        ];
        assert_eq!(outcome.sorted_lines(), wanted, "{outcome}");
    }
}

#[test]
fn events_and_queries_work() {
    for client in CLIENTS {
        for placement in PLACEMENTS {
            let Some(events) = run(client, "events", placement, "") else { return };
            let told: Vec<String> = (1..4).map(|rank| format!("rank {rank} was told of rank 0")).collect();
            let outcome = events.succeed();
            assert_eq!(outcome.sorted_lines(), told, "{outcome}");
            // The program compares the pids in the answer, which are those outside of a PID namespace, with the result
            // of `getpid`, so it runs without one.
            let Some(ask) = run(client, "ask", &format!("{placement} --contain none"), "") else { return };
            let outcome = ask.succeed();
            assert_eq!(outcome.sorted_lines(), ["answers over 4 ranks: right", "logged by rank 0"], "{outcome}");
        }
    }
}

/// Under Open MPI's own launchers, such ranks occasionally hang.
#[test]
fn short_lived_ranks_end_cleanly() {
    for client in CLIENTS {
        for how in ["", "fence", "exit"] {
            says(client, "brief", "-n 12 --virtual-nodes 2", how, "");
        }
    }
    for _ in 0..5 {
        Run::job("-n 16 --virtual-nodes 2 --pmi pmix /bin/true").succeed().expect_quiet();
    }
}

/// The harness checks that nothing is left of any of the jobs.
#[test]
fn consecutive_jobs_leave_nothing_behind() {
    let count = if std::env::var_os("WIREUP_LARGE").is_some() { 1000 } else { 25 };
    for _ in 0..count {
        says(Flavour::Pmix, "brief", "-n 3 --virtual-nodes 2", "fence", "");
    }
}
