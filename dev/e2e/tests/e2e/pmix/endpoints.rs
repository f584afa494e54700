//! With `--instant-on`, the addresses where ranks listen are in the PMIx data of their job.

use super::{BOTH, CLIENTS, run};
use std::net::TcpListener;
use wireup_e2e::folders::Folder;
use wireup_e2e::machines;
use wireup_e2e::peers::program;
use wireup_e2e::{Outcome, Run};
use xtask::programs::Flavour;

fn all_connected(outcome: Outcome, ranks: usize) {
    let wanted: Vec<String> = (0..ranks).map(|rank| format!("rank {rank}: {ranks} ranks have connected")).collect();
    assert_eq!(outcome.sorted_lines(), wanted, "{outcome}");
    outcome.expect_quiet();
}

#[test]
fn each_rank_finds_where_all_ranks_listen() {
    for flavour in CLIENTS {
        for (line, ranks) in [
            ("-n 1 --instant-on", 1),
            ("-n 4 --instant-on", 4),
            ("-n 5 --virtual-nodes 2 --map-by node --instant-on", 5),
            ("-n 7 --virtual-nodes 3 --ppn 3 --rank-ports 23000-23999", 7),
        ] {
            let Some(run) = run(flavour, "endpoints", line, "") else { continue };
            all_connected(run.succeed(), ranks);
        }
        let Some(run) = run(flavour, "endpoints", "-n 2", "none") else { continue };
        run.succeed().expect_quiet();
    }
}

#[test]
fn the_addresses_are_those_of_the_hosts() {
    let Some(machines) = machines::four() else { return };
    let Some(program) = program(Flavour::Pmix, "endpoints") else { return };
    let outcome = machines.job("--hosts n[0-2] --ppn 2 --instant-on").arg(program).succeed();
    all_connected(outcome, 6);
}

/// Rank 0 creates a file after it has read the addresses; all other ranks wait for that file before they execute the
/// program.
#[test]
fn an_address_is_known_before_its_rank_has_executed_its_program() {
    let Some(program) = program(Flavour::Pmix, "endpoints") else { return };
    let folder = Folder::new("connected");
    let file = folder.at("connected");
    let file = file.display();
    let script =
        format!("[ $PMIX_RANK = 0 ] || while [ ! -e {file} ]; do sleep 0.01; done; exec {} {file}", program.display());
    let outcome = Run::job("-n 5 --virtual-nodes 2 --instant-on --pmi pmix").args(["sh", "-c", &script]).succeed();
    all_connected(outcome, 5);
}

#[test]
fn too_few_free_ports_end_a_job_with_pmix() {
    let _held = TcpListener::bind("0.0.0.0:22011").expect("a free port");
    let Some(run) = run(Flavour::Pmix, "endpoints", "-n 3 --rank-ports 22010-22012", "") else { return };
    let outcome = run.finish().expect_code(125);
    outcome.expect_err_line(&["3 listening sockets on consecutive ports of 22010-22012"]);
}

/// MPI libraries ignore the addresses in the data of the job.
#[test]
fn open_mpi_runs_with_sockets_for_its_ranks() {
    for flavour in BOTH {
        let Some(run) = run(flavour, "ring", "-n 4 --virtual-nodes 2 --instant-on", "") else { continue };
        run.succeed().expect_out("ring of 4: token 6, expected 6\n");
    }
}
