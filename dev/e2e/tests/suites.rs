//! A selection of other projects' test suites, compared with their reference files; `cargo xtask night suites` runs all
//! of them.
//!
//! The selected entries take seconds and use different parts of PMI. Some have more threads than there are processors.

use std::sync::{Mutex, PoisonError};
use wireup_e2e::peers::skip;
use wireup_e2e::wireup;
use xtask::suites::Suite;
use xtask::suites::reference::Reference;

/// Runs the entries whose names begin with one of `selected` and none of `left_out`, on each number of nodes, and
/// reports all differences at once.
fn compare(suite: &str, selected: &[&str], left_out: &[&str]) {
    // Entries have time limits that were chosen for an otherwise idle machine, so they do not run at the same time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let suite = Suite::named(suite).unwrap();
    if let Some(why) = suite.missing() {
        return skip(&why).unwrap_or_default();
    }
    let reference = Reference::read(suite.name).unwrap();
    let mut entries = suite.entries().unwrap();
    for begin in selected {
        assert!(entries.iter().any(|entry| entry.name.starts_with(begin)), "{}: no entry {begin}", suite.name);
    }
    let is_one_of = |name: &str, begins: &[&str]| begins.iter().any(|begin| name.starts_with(begin));
    entries.retain(|entry| is_one_of(&entry.name, selected) && !is_one_of(&entry.name, left_out));
    let runs = suite.nodes.iter().flat_map(|nodes| entries.iter().map(move |entry| (*nodes, entry)));
    let compared = runs.map(|(nodes, entry)| entry.compare(&wireup(), nodes, reference.line(&entry.name, nodes)));
    let problems: Vec<String> = compared.filter_map(Result::err).collect();
    assert!(problems.is_empty(), "{} differences:\n{}", problems.len(), problems.join("\n"));
}

/// All entries run but two, which end only at their time limits.
#[test]
fn clients_of_openpmix_end_as_their_sources_say() {
    compare("openpmix", &["examples/", "test/simple/"], &["examples/alloc ", "test/simple/simpdyn "]);
}

/// `test_spawn` is left out: it keeps all processors busy for minutes; `cargo xtask night suites` runs it. Tests
/// further below use MPICH's own tests of spawn.
#[test]
fn the_tests_of_mpi4py_end_as_under_hydra() {
    compare("mpi4py", &["all others", "test_dynproc", "test_util_sync"], &[]);
}

#[test]
fn the_tests_of_mpi4py_that_connect_end_as_under_open_mpi() {
    compare("mpi4py-open-mpi", &["test_dynproc"], &[]);
}

/// Some of these tests have more ranks than there are processors, and spawn their program by a name without a folder.
#[test]
fn tests_of_mpich_that_start_processes_end_as_under_open_mpi() {
    let selected =
        ["spawn_rootargs", "spaconacc", "spawnmult2", "disconnect_reconnect2", "concurrent", "pgroup", "spawninfo"];
    compare("spawn-open-mpi", &selected.map(|name| format!("spawn/{name}")).each_ref().map(String::as_str), &[]);
}

#[test]
fn tests_of_mpich_that_start_processes_end_as_under_hydra() {
    compare("spawn", &["spawn/spawn", "spawn/spaic", "spawn/join", "spawn/pgroup_intercomm"], &[]);
}

#[test]
fn applications_give_the_answers_that_they_give_under_mpirun() {
    compare("applications", &["lammps", "hpcc", "scalapack xdlu", "scalapack xzhrd", "scalapack xcsep"], &[]);
}

#[test]
fn tests_of_mpich_end_as_under_hydra() {
    let mut selected = vec!["attr/", "comm/dup", "group/", "info/", "topo/cart", "errhan/adderr", "errhan/commcall"];
    selected.extend(["init/exitst", "init/initstat", "init/session", "init/timeout", "init/finalized"]);
    selected.extend(["threads/pt2pt/mt_probe_isendrecv", "threads/pt2pt/mt_mprobe_isendrecv"]);
    selected.extend([
        "threads/pt2pt/mt_improbe_isendrecv", "threads/init/", "spawn/namepub", "spawn/spawn1", "rma/winname",
    ]);
    selected.extend(["coll/allred2", "coll/bcasttest", "io/rdwrord"]);
    compare("mpich", &selected, &[]);
}
