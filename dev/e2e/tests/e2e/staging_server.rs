//! Staged files and the file server: which operations ranks and nodes still request from it.

use crate::staging::{mounting, noise, slow};
use crate::staging_by_library::{WITHOUT_RIGHTS, with_libraries};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use wireup_e2e::folders::Folder;
use wireup_e2e::machines;
use wireup_e2e::peers::{mpi4py, program, tool};
use wireup_e2e::programs::testbed;
use wireup_e2e::sessions::Session;
use wireup_e2e::{Outcome, Run};
use wireup_testbed::slowfs::{Line, SlowFs};
use xtask::layout;
use xtask::programs::{Flavour, environment};

/// Runs a job, and returns the operations that its ranks request from a slow file system. After their start the ranks
/// wait until the log is empty and the kernel's cached names have expired.
fn asked(slow: &SlowFs, folder: &Folder, run: Run, program: &Path, arguments: &[&str]) -> (Vec<Line>, Outcome) {
    let gate = folder.at("gate");
    let _ = fs::remove_file(&gate);
    let wait = format!("echo ready; while [ ! -e {} ]; do sleep 0.02; done; exec \"$@\"", gate.display());
    let running = run.args(["sh", "-c", &wait, "sh"]).arg(program).args(arguments).start_until("ready\n", 4);
    thread::sleep(Duration::from_millis(1_200));
    slow.clear();
    fs::write(&gate, b"").expect("a file");
    let outcome = running.succeed();
    // `release` is left out: FUSE sends it at any later time for files that keepers have closed.
    let lines = slow.log().into_iter().filter(|line| !line.operation.starts_with("release"));
    (lines.collect(), outcome)
}

#[test]
fn ranks_ask_the_file_server_for_nothing() {
    let Some(folder) = mounting() else { return };
    let bin = folder.folder("source/bin");
    fs::copy("/bin/cat", bin.join("cat-1.2")).expect("a copy");
    symlink("cat-1.2", bin.join("cat")).expect("a link");
    folder.write("source/lib/module", "module\n");
    folder.write("source/data/input", "input\n");
    let Some(slow) = slow(&folder, |_| ()) else { return };
    let mount = folder.at("mount");
    let cat = mount.join("bin/cat");
    let module = mount.join("lib/module");
    let missing = mount.join("lib/no-such-module");
    let module = module.to_str().expect("UTF-8");
    let script = format!("{} {module}; [ ! -e {} ] && ls {}", cat.display(), missing.display(), mount.display());
    let job = || Run::job("-n 4 --virtual-nodes 2 --pmi simple").cwd(Path::new("/"));
    let (lines, _) = asked(&slow, &folder, job(), Path::new("/bin/sh"), &["-c", &script]);
    assert!(lines.iter().any(|line| line.path.ends_with("no-such-module")), "without staging: {lines:?}");
    let also = [mount.join("bin/cat"), mount.join("lib")].map(|path| path.to_str().expect("UTF-8").to_owned());
    let staged = || job().args([&folder.stage(), "--stage-also", &also[0], "--stage-also", &also[1]]);
    let (lines, outcome) = asked(&slow, &folder, staged(), Path::new("/bin/sh"), &["-c", &script]);
    assert!(lines.is_empty(), "{lines:?}\n{outcome}");
    assert_eq!(outcome.out().matches("module\n").count(), 4, "{outcome}");
    // A file that was not staged can still be read, from the file server.
    let input = mount.join("data/input");
    let (lines, outcome) = asked(&slow, &folder, staged(), &cat, &[input.to_str().expect("UTF-8")]);
    assert!(lines.iter().all(|line| line.path.starts_with("data")) && !lines.is_empty(), "{lines:?}");
    assert_eq!(outcome.out().matches("input\n").count(), 4, "{outcome}");
}

#[test]
fn nodes_do_not_look_into_folders_that_have_nothing_else_in_them() {
    let Some(folder) = mounting() else { return };
    folder.folder("source/bin");
    fs::copy("/bin/cat", folder.at("source/bin/cat")).expect("a copy");
    folder.write("source/lib/module", "module\n");
    let Some(slow) = slow(&folder, |_| ()) else { return };
    let [cat, module] = ["bin/cat", "lib/module"].map(|name| folder.at("mount").join(name));
    let module = module.to_str().expect("UTF-8");
    let nodes = 5;
    let looks = |into: &str| {
        slow.clear();
        let job = Run::job(&format!("-n {nodes} --virtual-nodes {nodes} --pmi simple")).cwd(Path::new("/"));
        let outcome = job.args([&folder.stage(), "--stage-also", module]).arg(&cat).arg(module).succeed();
        assert_eq!(outcome.out().matches("module\n").count(), nodes, "{outcome}");
        let opened = |line: &Line| line.operation == "opendir" && line.path == Path::new(into);
        slow.log().iter().filter(|line| opened(line)).count()
    };
    assert_eq!([looks("bin"), looks("lib"), looks(".")], [1; 3], "the launcher");
    folder.write("source/lib/other", "");
    // The kernel may cache for up to a second that `lib/other` does not exist.
    thread::sleep(Duration::from_millis(1_200));
    assert_eq!([looks("bin"), looks("lib")], [1, 1 + nodes], "and each node, for what else there is");
}

#[test]
fn the_example_that_times_starts_from_a_slow_server_counts_its_operations() {
    let Some(folder) = mounting() else { return };
    let Some(_) = slow(&folder, |_| ()) else { return };
    let script = layout::root().join("docs/examples/slow-server.sh");
    let folders = [testbed(), wireup_e2e::wireup()].map(|program| program.parent().expect("a folder").to_owned());
    let path = format!("{}:{}:{}", folders[0].display(), folders[1].display(), std::env::var("PATH").expect("PATH"));
    let run = Run::tool("sh", [script.display().to_string(), "2".into(), "4".into()]).envs(vec![("PATH", path)]);
    let outcome = run.succeed();
    let operations = |what: &str| -> u64 {
        let out = outcome.out();
        let line = out.lines().find(|line| line.starts_with(&format!("{what}  "))).expect("a line");
        line.split_whitespace().rev().nth(1).expect("a number").parse().expect("a number")
    };
    // 20 libraries are searched for in ten folders, and read; with a job that stages the same again, nothing is read.
    assert!(operations("not staged") > 100, "{outcome}");
    assert!(operations("prefetched") > 100, "{outcome}");
    assert!(operations("staged") > operations("staged, once more"), "{outcome}");
    assert_eq!(operations("from a local disk"), 0, "{outcome}");
}

#[test]
fn each_host_reads_in_order_what_its_ranks_then_find_in_memory() {
    if !wireup_e2e::may_isolate() || !Path::new("/dev/fuse").exists() {
        return println!("not run: it needs CAP_SYS_ADMIN and /dev/fuse");
    }
    let folder = Folder::shared("prefetch");
    folder.folder("mount");
    for name in ["a", "b", "c", "other"] {
        folder.write(&format!("source/{name}"), noise(3_000_000));
    }
    let Some(slow) = slow(&folder, |_| ()) else { return };
    // The hosts begin with the mounts of this machine.
    let Some(machines) = machines::own(2, |_| ()) else { return };
    let mount = folder.at("mount").display().to_string();
    let job = |script: &str| {
        let flags = "--hosts n0,n1 --ppn 1 --pmi none --stdin all --verbose --stage=prefetch --stage-also";
        let also = format!("{mount}/[a-c]");
        machines.job(flags).arg(also).sh(script).stdin_open().start_until("ready\n", 2)
    };
    let mut running = job(&format!("echo ready; read word; cat {mount}/* | wc -c"));
    running.await_that("the files are read", |_| {
        (0..2).all(|host| !machines.ask(host, "cat /proc/[0-9]*/comm 2> /dev/null; :").contains("wireup-prefetch"))
    });
    let log = slow.log();
    let last = |name: &str| log.iter().rposition(|line| line.operation == "read" && line.path == Path::new(name));
    assert!(
        last("a").is_some() && last("a") < last("b") && last("b") < last("c") && last("other").is_none(),
        "{log:?}"
    );
    slow.clear();
    running.write(b"go\n");
    running.close_stdin();
    let outcome = running.succeed();
    outcome.expect_err_line(&["each node prefetches 3 files"]);
    assert_eq!(outcome.out().matches("12000000\n").count(), 2, "{outcome}");
    assert_eq!(machines.ask(0, "ls /dev/shm"), "", "nothing is copied");
    let log = slow.log();
    let reads: Vec<_> = log.iter().filter(|line| line.operation == "read").collect();
    assert!(!reads.is_empty() && reads.iter().all(|line| line.path == Path::new("other")), "{reads:?}");
    // A host that lacks the files says so, and its ranks run.
    machines.ask(1, &format!("umount {mount}"));
    let mut running = job("echo ready; read word; true");
    running.await_that("a note", |running| running.err_text().contains("node n1"));
    running.close_stdin();
    let outcome = running.succeed();
    let lacks = "3 of 3 files could not be read ahead of the ranks, the first";
    outcome.expect_err_line(&["node n1: --stage=prefetch:", lacks, "/a: No such file or directory"]);
    // A job ends while its files are still being read.
    machines
        .job("--hosts n0 --ppn 1 --pmi none --stage=prefetch --stage-also")
        .arg(format!("{mount}/*"))
        .arg("true")
        .succeed();
}

#[test]
fn prefetching_copies_nothing() {
    let folder = Folder::new("staging");
    let program = folder.program("bin/program", "echo original; touch bin/new");
    let job = |flags: &str| Run::job(&format!("-n 1 --pmi none --stage=prefetch {flags}")).cwd(&folder.at("."));
    // The working directory may be prefetched, since it does not become read-only.
    job("--stage-also .").arg(&program).succeed().expect_out("original\n");
    let listed = job("--dry-run").arg(&program).succeed();
    assert!(listed.out().ends_with(&format!("prefetched on each node:\n  {}\n", program.display())), "{listed}");
    for flag in ["--stage=auto", "--stage=/tmp", "--stage-room=5", "--stage-library", "--stage=require"] {
        job(flag).arg(&program).finish().expect_code(125).expect_err_line(&["--stage=prefetch copies nothing"]);
    }
    let session = Session::up("--virtual-nodes 2");
    let told = session.job("-n 2 --pmi none --verbose --stage=prefetch").cwd(&folder.at(".")).arg(&program).succeed();
    told.expect_err_line(&["each node prefetches 1 file"]);
    session.down("").expect_code(0);
}

/// How a job shows the staged files to its ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    ByMounts,
    /// By a library, because the job has no right to mount.
    ByLibrary,
}

/// Runs programs of real MPI libraries, which load plugins by themselves, and expects no request to the file server.
fn mpi_programs_ask_for_nothing(
    shown: Shown,
    flavour: Flavour,
    also: &[&Path],
    program: &Path,
    arguments: &[&str],
    libraries: &Path,
    variables: &[(&'static str, String)],
) {
    let Some(folder) = mounting() else { return };
    // The libraries keep their paths: the slow file system is mounted over its own source, in a mount namespace of this
    // test.
    let folder_at = |name: &str| folder.at(name).to_str().expect("UTF-8").to_owned();
    let (log, gate, before) = (folder_at("log"), folder_at("gate"), folder_at("before"));
    let wireup = with_libraries(&folder);
    let (rights, switch) = match shown {
        Shown::ByMounts => (String::new(), ""),
        Shown::ByLibrary => (format!("setpriv {WITHOUT_RIGHTS}"), " --stage-library"),
    };
    let mut also_flags = String::new();
    for path in also {
        also_flags += &format!(" --stage-also {}", path.display());
    }
    let wait = format!("echo ready; while [ ! -e {gate} ]; do sleep 0.02; done; exec \"$@\"");
    let script = format!(
        "cd /; (while [ \"$(grep -c ready {out} 2>/dev/null)\" != 4 ]; do sleep 0.05; done; sleep 1.2; \
         wc -l < {log} > {before}; : > {gate}) & \
         {rights} {wireup} run -n 4 --virtual-nodes 2 {stage}{switch}{also_flags} sh -c '{wait}' sh \"$@\" > {out} 2> \
         {err}; \
         code=$?; wait; cat {out} {err}; tail -n +$(($(cat {before}) + 1)) {log} | grep -v '^release' >&2; exit $code",
        out = folder_at("out"),
        err = folder_at("err"),
        wireup = wireup.display(),
        stage = folder.stage(),
    );
    let shares = ["-m", "--propagation", "private"].map(str::to_owned);
    let mut run = Run::tool("unshare", shares)
        .arg(testbed())
        .args(["slowfs", "--delay-us", "0", "--log", &log, "--source"])
        .arg(libraries)
        .arg("--mount")
        .arg(libraries)
        .args(["--", "sh", "-c", &script, "sh"])
        .arg(program)
        .args(arguments);
    run = run.envs(environment(flavour)).envs(variables.to_vec());
    let outcome = run.succeed();
    assert_eq!(outcome.err(), "", "operations of ranks at the file server: {outcome}");
    assert!(fs::metadata(&log).expect("a log").len() > 0, "the launcher has read the files from there");
    let greetings = outcome.out().lines().filter(|line| line.contains("rank") && !line.starts_with("wireup:")).count();
    assert_eq!(greetings, 4, "{outcome}");
    let told = outcome.out().matches("its ranks see the staged files through a library").count();
    assert_eq!(told, if shown == Shown::ByLibrary { 2 } else { 0 }, "{outcome}");
}

#[test]
fn mpich_and_open_mpi_with_its_plugins_ask_the_file_server_for_nothing() {
    for (flavour, peer) in [(Flavour::Mpich5, "mpich"), (Flavour::OpenMpi5, "openmpi")] {
        let Some(hello) = program(flavour, "hello") else { continue };
        for shown in [Shown::ByMounts, Shown::ByLibrary] {
            mpi_programs_ask_for_nothing(shown, flavour, &[&hello], &hello, &[], &layout::peer(peer), &[]);
        }
    }
}

#[test]
fn python_with_mpi4py_and_numpy_asks_the_file_server_for_nothing() {
    let Some(python) = mpi4py(Flavour::Mpich5) else { return };
    // Two Python environments: the second one is reached by PYTHONPATH, whose folders are staged too.
    let environment = layout::peer("mpich");
    let mut pythons = fs::read_dir(layout::peer("numpy").join("lib")).expect("an environment").flatten();
    let numpy = pythons.next().expect("its Python").path().join("site-packages");
    let script = "from mpi4py import MPI\nimport numpy\nprint('rank', MPI.COMM_WORLD.rank, numpy.arange(3).sum())";
    let peers = environment.parent().expect("a folder of environments");
    let variables = [("PYTHONPATH", numpy.to_str().expect("UTF-8").to_owned())];
    for shown in [Shown::ByMounts, Shown::ByLibrary] {
        let also = [environment.as_path(), numpy.as_path()];
        mpi_programs_ask_for_nothing(shown, Flavour::Mpich5, &also, &python, &["-c", script], peers, &variables);
    }
}

/// PyPy, which resembles Julia: an executable, a large library, a folder of modules next to them, and code that is
/// compiled at run time.
#[test]
fn a_language_that_compiles_at_run_time_asks_the_file_server_for_nothing() {
    let Some(pypy) = tool("/usr/bin/pypy3.9") else { return };
    let folder = Folder::new("staging");
    let home = folder.at("pypy");
    for name in ["pypy/bin", "pypy/lib"] {
        folder.folder(name);
    }
    fs::copy(pypy, home.join("bin/pypy3")).expect("a copy");
    fs::copy("/lib/x86_64-linux-gnu/libpypy3.9-c.so", home.join("bin/libpypy3.9-c.so")).expect("a copy");
    let copied = Command::new("cp").args(["-rL", "/usr/lib/pypy3.9"]).arg(home.join("lib")).status();
    assert!(copied.expect("cp").success());
    let script = "import json, sqlite3, os\ns = 0\nfor i in range(3000000): s += i & 7\n\
                  print('rank', os.environ['WIREUP_RANK'], json.dumps(s))";
    // Set only for the ranks: other programs of the test would look there for their libraries, too.
    let path = format!("LD_LIBRARY_PATH={}", home.join("bin").display());
    let program = home.join("bin/pypy3").display().to_string();
    mpi_programs_ask_for_nothing(
        Shown::ByMounts,
        Flavour::Mpich5,
        &[&home],
        Path::new("env"),
        &[&path, &program, "-c", script],
        &home,
        &[],
    );
}
