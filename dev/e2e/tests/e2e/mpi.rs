//! Unmodified MPI programs on one node and across virtual nodes.

use wireup_e2e::machines::{self, Machines};
use wireup_e2e::peers::{mpi4py, program, tool};
use wireup_e2e::{Outcome, Run};
use xtask::layout;
use xtask::programs::{Flavour, environment};

const MPI: [Flavour; 5] = [Flavour::Mpich4, Flavour::Mpich5, Flavour::Intel, Flavour::OpenMpi4, Flavour::OpenMpi5];

/// `wireup run PLACEMENT PROGRAM`; `None` if the peer is not installed.
fn run(flavour: Flavour, name: &str, placement: &str) -> Option<Outcome> {
    let program = program(flavour, name)?;
    Some(Run::job(placement).arg(program).envs(environment(flavour)).succeed())
}

/// The four programs with `ranks` ranks, placed in each of the ways in `placements`.
fn all_four(flavour: Flavour, ranks: usize, placements: &[&str]) {
    for nodes in placements {
        let placement = format!("-n {ranks} {nodes}");
        let Some(hello) = run(flavour, "hello", &placement) else { return };
        let said: Vec<String> = hello.sorted_lines();
        assert_eq!(said.len(), ranks, "{hello}");
        for (rank, line) in said.iter().enumerate() {
            assert!(line.starts_with(&format!("hello from rank {rank} of {ranks} on ")), "{hello}");
        }
        for (name, expected) in [
            ("initfin", String::new()),
            ("ring", format!("ring of {ranks}: token {0}, expected {0}\n", ranks * (ranks - 1) / 2)),
            ("allreduce", format!("allreduce over {ranks} ranks: 4096 sums are right\n")),
        ] {
            let outcome = run(flavour, name, &placement).expect("this peer was here a moment ago");
            assert_eq!(outcome.out(), expected, "{outcome}");
            outcome.expect_quiet();
        }
    }
}

#[test]
fn mpi_programs_run_on_one_node_and_across_nodes() {
    all_four(Flavour::Mpich4, 4, &[""]);
    all_four(Flavour::Mpich5, 6, &[""]);
    all_four(Flavour::Mpich5, 4, &["--virtual-nodes 2", "--virtual-nodes 4"]);
    all_four(Flavour::Mpich5, 5, &["--virtual-nodes 2 --ppn 3"]);
    all_four(Flavour::Intel, 4, &["", "--virtual-nodes 2"]);
    for flavour in [Flavour::Mpich4, Flavour::Mpich5, Flavour::Intel] {
        let Some(outcome) = run(flavour, "allreduce", "-n 1") else { continue };
        assert_eq!(outcome.out(), "allreduce over 1 ranks: 4096 sums are right\n");
    }
}

/// Fences are answered before all ranks have entered them; a get waits for its value.
#[test]
fn mpi_programs_run_with_lazy_fences() {
    let placements = ["--pmi-fence=lazy", "--pmi-fence=lazy --virtual-nodes 2"];
    for flavour in [Flavour::Mpich4, Flavour::Mpich5, Flavour::Intel] {
        all_four(flavour, 4, &placements);
    }
}

#[test]
fn a_program_begins_sessions_one_after_the_other() {
    for placement in ["-n 4", "-n 4 --virtual-nodes 2"] {
        let Some(outcome) = run(Flavour::Mpich5, "resession", placement) else { return };
        assert_eq!(outcome.out(), "three sessions\n".repeat(4));
    }
}

/// With PMI 1.2 MPICH sends all requests under a lock of its own; one thread may read the answers for others.
#[test]
fn mpich_5_runs_with_pmi_1_2() {
    let placements = ["--pmi-version=1.2", "--pmi-version=1.2 --virtual-nodes 2"];
    all_four(Flavour::Mpich5, 4, &placements);
    for placement in ["-n 5 --pmi-version=1.2", "-n 5 --pmi-version=1.2 --virtual-nodes 3", "-n 5 --virtual-nodes 2"] {
        let Some(outcome) = run(Flavour::Mpich5, "sessions", placement) else { return };
        let wanted = ["all: 5 ranks", "even: 3 ranks", "even: 3 ranks", "odd: 2 ranks", "odd: 2 ranks"];
        assert_eq!(outcome.sorted_lines(), wanted, "{outcome}");
    }
}

/// MPICH asks its launcher for them, as under Hydra.
#[test]
fn mpich_5_has_the_kinds_of_memory_that_the_user_requests() {
    let Some(program) = program(Flavour::Mpich5, "kinds") else { return };
    let of_job = Run::job("-n 2 --virtual-nodes 2 --memory-alloc-kinds mpi:alloc_mem").arg(&program);
    let of_front = Run::wireup(["mpiexec", "-memory-alloc-kinds", "mpi:alloc_mem", "-n", "2"]).arg(&program);
    for run in [of_job, of_front] {
        assert_eq!(run.succeed().expect_quiet().out(), "kinds mpi,system,mpi:alloc_mem\n".repeat(2));
    }
    Run::job("-n 1").arg(program).succeed().expect_out("kinds mpi,system\n");
}

#[test]
fn an_mpi_program_runs_under_a_shell() {
    let Some(program) = program(Flavour::Mpich5, "allreduce") else { return };
    let script = format!("echo before; {}; echo after", program.display());
    let outcome = Run::job("-n 3").args(["bash", "-c", &script]).succeed();
    outcome.expect_out("allreduce over 3 ranks: 4096 sums are right\n");
}

#[test]
fn an_mpi_program_runs_under_valgrind() {
    let (Some(program), Some(valgrind)) = (program(Flavour::Mpich4, "initfin"), tool("/usr/bin/valgrind")) else {
        return;
    };
    Run::job("-n 2").arg(valgrind).arg("-q").arg(program).succeed();
}

#[test]
fn an_mpi_program_runs_under_python() {
    let Some(program) = program(Flavour::Mpich5, "ring") else { return };
    let script = format!("import subprocess, sys; sys.exit(subprocess.call([{program:?}], close_fds=False))");
    let outcome = Run::job("-n 2").args(["/usr/bin/python3", "-c", &script]).succeed();
    outcome.expect_out("ring of 2: token 1, expected 1\n");
}

/// Runs a whole job inside one rank of another job: the inner ranks must not see what the outer job offers its ranks.
#[test]
fn a_job_runs_inside_a_rank_of_another_job() {
    let Some(program) = program(Flavour::Mpich5, "allreduce") else { return };
    let inner = format!("$WIREUP run -n 3 {}", program.display());
    let outcome = Run::job("-n 2").env("WIREUP", wireup_e2e::wireup()).sh(&inner).succeed();
    assert_eq!(outcome.out(), "allreduce over 3 ranks: 4096 sums are right\n".repeat(2), "{outcome}");
}

/// Variables as another launcher would leave them.
#[test]
fn variables_of_an_outer_launcher_are_removed() {
    let names = ["PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "PMI_ID", "PMI_CONTROL_FD", "PMIX_NAMESPACE"];
    let others = ["PMIX_RANK", "PMIX_SERVER_URI21", "HYDI_CONTROL_FD", "OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess"];
    let all = names.iter().chain(&others);
    let run = all.clone().fold(Run::job("-n 1 env"), |run, name| run.env(name, "outer"));
    let outcome = run.succeed();
    assert!(!outcome.out().contains("=outer"), "{outcome}");
    let Some(program) = program(Flavour::Mpich5, "allreduce") else { return };
    let run = all.fold(Run::job("-n 2").arg(program), |run, name| run.env(name, "outer"));
    run.succeed().expect_out("allreduce over 2 ranks: 4096 sums are right\n");
}

#[test]
fn two_programs_form_one_job() {
    let (Some(first), Some(second)) = (program(Flavour::Mpich5, "hello"), program(Flavour::Mpich5, "hello")) else {
        return;
    };
    let outcome = Run::job("-n 2 --virtual-nodes 2").arg(first).args([":", "-n", "3"]).arg(second).succeed();
    assert_eq!(outcome.out().lines().filter(|line| line.contains(" of 5 on ")).count(), 5, "{outcome}");
}

#[test]
fn mpi_abort_gives_its_exit_code() {
    for placement in ["-n 3", "-n 4 --virtual-nodes 2"] {
        let Some(program) = program(Flavour::Mpich5, "abort") else { return };
        let outcome = Run::job(placement).arg(program).finish().expect_code(7);
        outcome.expect_err_line(&["rank 1", "7"]);
    }
}

/// Rank 1 exits with 0 without calling MPI_Finalize while the others wait for it.
#[test]
fn leaving_without_finalize_ends_the_job() {
    let Some(program) = program(Flavour::Mpich5, "earlyexit") else { return };
    let outcome = Run::job("-n 4 --virtual-nodes 2").arg(program).finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
    outcome.expect_err_line(&["rank 1", "MPI_Finalize"]);
}

/// `wireup run PLACEMENT PROGRAM` on hosts reached by ssh; `None` if the peer is not installed.
fn on_hosts(machines: &Machines, flavour: Flavour, name: &str, placement: &str) -> Option<Outcome> {
    let program = program(flavour, name)?;
    Some(machines.job(placement).arg(program).envs(environment(flavour)).succeed())
}

#[test]
fn mpich_5_runs_on_hosts() {
    let Some(machines) = machines::four() else { return };
    for (placement, name, expected) in [
        ("--hosts n[0-3] --ppn 2 --fanout 1", "ring", "ring of 8: token 28, expected 28\n"),
        ("--hosts n[0-3] --ppn 2 --plain-links", "allreduce", "allreduce over 8 ranks: 4096 sums are right\n"),
    ] {
        let Some(outcome) = on_hosts(&machines, Flavour::Mpich5, name, placement) else { return };
        assert_eq!(outcome.out(), expected, "{outcome}");
        outcome.expect_quiet();
    }
    let Some(hello) = on_hosts(&machines, Flavour::Mpich5, "hello", "--hosts n[0-3] --fanout 2") else { return };
    for (rank, host) in ["n0", "n1", "n2", "n3"].iter().enumerate() {
        assert!(hello.out().contains(&format!("hello from rank {rank} of 4 on {host}, MPICH Version:")), "{hello}");
    }
}

/// Each library with each placement, on hosts and on virtual nodes: nodes that get ranks in several rounds have their
/// own rank order.
#[test]
fn every_mpi_runs_with_every_mapping() {
    let Some(machines) = machines::four() else { return };
    for flavour in MPI {
        for (ranks, mapping) in [(4, ""), (4, "--ppn 1"), (5, "--map-by node"), (8, "--ppn 2"), (4, "--rank-map 1,0")] {
            let Some(program) = program(flavour, "allreduce") else { continue };
            let placement = |nodes: &str| format!("-n {ranks} {mapping} {nodes}");
            // Debian's MPICH 4 hangs across hosts in MPI_Finalize, under every launcher.
            let on_hosts =
                || machines.job(&placement("--hosts n[0-1]")).env("OMPI_MCA_btl_tcp_if_include", "10.77.0.0/16");
            let on_hosts = (flavour != Flavour::Mpich4).then(on_hosts);
            for run in on_hosts.into_iter().chain([Run::job(&placement("--virtual-nodes 2"))]) {
                let outcome = run.arg(&program).envs(environment(flavour)).succeed();
                assert_eq!(outcome.out(), format!("allreduce over {ranks} ranks: 4096 sums are right\n"), "{outcome}");
            }
        }
    }
}

#[test]
fn mpi4py_runs_on_hosts() {
    let Some(python) = mpi4py(Flavour::Mpich5) else { return };
    let Some(machines) = machines::four() else { return };
    let script = layout::sources().join("python/allreduce.py");
    let sum = machines.job("--hosts n[0-1] --ppn 2").arg(&python).arg(script).succeed();
    assert_eq!(sum.out(), "allreduce over 4 ranks: right\n");
}
