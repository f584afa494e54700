//! `--preload`: Python modules that are imported once for all ranks of a node.

use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use wireup_e2e::folders::Folder;
use wireup_e2e::peers::{mpi4py, tool};
use wireup_e2e::sessions::Session;
use wireup_e2e::tables::reports;
use wireup_e2e::{Outcome, Run};
use xtask::layout;
use xtask::programs::Flavour;

fn python() -> Option<PathBuf> {
    tool("/usr/bin/python3")
}

fn source(name: &str) -> PathBuf {
    layout::sources().join("python").join(name)
}

/// A folder that contains the program `probe.py` as a file, a link, an executable script, a folder and a module.
fn programs() -> Folder {
    let folder = Folder::new("preload");
    let probe = fs::read_to_string(source("probe.py")).expect("a program");
    for name in ["probe.py", "app/__main__.py", "package/inner/__main__.py"] {
        fs::create_dir_all(folder.at(name).parent().expect("a folder")).expect("a folder");
        folder.write(name, &probe);
    }
    for (name, first) in [("direct", "#!/usr/bin/python3 -B"), ("found", "#!/usr/bin/env python3")] {
        let script = folder.write(name, format!("{first}\n{probe}"));
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    symlink("app/__main__.py", folder.at("link.py")).expect("a link");
    folder
}

/// The results of a job with `--preload` and of the same job without it.
fn both(folder: &Path, flags: &str, words: &[&str]) -> [Outcome; 2] {
    ["--preload json,random", ""].map(|preload| {
        let run = Run::job(&format!("--pmi simple {flags} {preload}")).args(words).cwd(folder);
        run.env("PATH", "/usr/bin:/bin").env("PYTHONPATH", layout::sources().join("python")).finish()
    })
}

/// The lines of output that differ between the two jobs, without pids.
fn differences([preloaded, plain]: &[Outcome; 2]) -> Vec<String> {
    let lines = |outcome: &Outcome| -> Vec<String> {
        let text = outcome.out() + &outcome.err();
        let is_own = |line: &&str| line.starts_with("wireup: ");
        text.lines()
            .map(|line| if is_own(&line) { line.split(" (pid").next().unwrap_or(line) } else { line }.to_owned())
            .collect()
    };
    let (preloaded_lines, plain_lines) = (lines(preloaded), lines(plain));
    let mut differences: Vec<String> = preloaded_lines
        .iter()
        .zip(&plain_lines)
        .filter(|(one, other)| one != other)
        .map(|(one, other)| format!("{one}\n  instead of {other}"))
        .collect();
    if preloaded_lines.len() != plain_lines.len() || preloaded.code() != plain.code() {
        differences.push(format!("{preloaded}\n  instead of {plain}"));
    }
    differences
}

#[test]
fn a_program_sees_its_interpreter_and_process_as_without_preload() {
    let Some(_) = python() else { return };
    let folder = programs();
    let mut failed = Vec::new();
    for line in [
        "/usr/bin/python3 probe.py a b", "python3 ./probe.py -c", "python3 -m probe x", "python3 -m package.inner",
        "python3 -Improbe", "python3 -I probe.py", "python3 -u -O -X dev -W ignore probe.py", "python3 app x",
        "python3 -I app", "python3 link.py", "./direct 1", "found",
    ] {
        failed.extend(differences(&both(&folder.at(""), "-n 1", &line.split(' ').collect::<Vec<_>>())));
    }
    let code = "import sys; name = 'probe.py'; exec(open(name).read())";
    failed.extend(differences(&both(&folder.at(""), "-n 1", &["python3", "-c", code, "an argument"])));
    failed.extend(differences(&both(&folder.at(""), "-n 1 --pty", &["python3", "probe.py"])));
    failed.extend(differences(&both(&folder.at(""), "-n 1 --env OMP_NUM_THREADS=2", &["python3", "probe.py"])));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_program_ends_as_without_preload() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    folder.write("wrong.py", "def f(:\n");
    folder.write("coded.py", b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n");
    folder.write("empty.py", "");
    let ends = source("ends.py");
    let ends = ends.to_str().expect("a path in UTF-8");
    let mut failed = Vec::new();
    for way in
        ["return", "exit3", "text", "none", "_exit", "interrupt", "terminate", "abort", "uncaught", "hook", "thread"]
    {
        failed.extend(differences(&both(&folder.at(""), "-n 1", &["python3", ends, way])));
    }
    for script in ["wrong.py", "coded.py", "empty.py"] {
        failed.extend(differences(&both(&folder.at(""), "-n 1", &["python3", script])));
    }
    failed.extend(differences(&both(&folder.at(""), "-n 1", &["python3", "-c", "  1/0"])));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn processes_and_threads_of_ranks_work_after_preload() {
    let Some(_) = python() else { return };
    let children = source("children.py");
    let modules = "multiprocessing.pool,concurrent.futures.process,asyncio,subprocess,threading";
    for preload in ["", modules] {
        let flag = if preload.is_empty() { String::new() } else { format!("--preload {preload}") };
        let outcome = Run::job(&format!("-n 2 --pmi simple {flag}")).arg("/usr/bin/python3").arg(&children).succeed();
        let lines = outcome.sorted_lines();
        let expected = ["7", "['-c', 'word'] 0", "[0, 1, 4, 9]", "fork [0, 1, 4, 9]", "forkserver [0, 1, 4, 9]"];
        let expected = expected.into_iter().chain(["spawn [0, 1, 4, 9]", "thread"]).flat_map(|line| [line; 2]);
        assert!(lines.iter().map(String::as_str).eq(expected), "{outcome}");
    }
}

/// With more ranks than one intermediate process forks, on two nodes.
#[test]
fn modules_are_imported_once_on_each_node_and_random_numbers_differ() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    folder.write(
        "counted.py",
        "import os, random\nopen('log', 'a').write('imported\\n')\nprint('imported', flush=True)\n",
    );
    let code =
        "import counted, os, random; print(random.random(), os.environ['PMI_RANK'], os.getpid() == os.getpgrp())";
    let run = Run::job("-n 80 --virtual-nodes 2 --pmi simple --preload counted").args(["/usr/bin/python3", "-c", code]);
    let outcome = run.cwd(&folder.at("")).env("PYTHONPATH", folder.at("")).succeed().expect_quiet();
    assert_eq!(fs::read_to_string(folder.at("log")).expect("a log"), "imported\n".repeat(2));
    let out = outcome.out();
    let lines: Vec<&str> = out.lines().filter(|line| *line != "imported").collect();
    assert_eq!((out.lines().count(), lines.len()), (82, 80), "{outcome}");
    let mut words = [0, 1].map(|word| lines.iter().filter_map(|line| line.split(' ').nth(word)).collect::<Vec<_>>());
    for words in &mut words {
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 80, "{outcome}");
    }
    assert!(lines.iter().all(|line| line.ends_with(" True")), "{outcome}");
}

#[test]
fn where_no_ranks_can_be_forked_they_start_plainly_and_a_line_says_why() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    folder.write(
        "thread.py",
        "import threading, time\nthreading.Thread(target=time.sleep, args=[1000], daemon=True).start()\n",
    );
    folder.write("killed.py", "import os\nos.kill(os.getpid(), 9)\n");
    folder.write("traced.py", "import sys\nsys.settrace(lambda *_: None)\n");
    folder.write("wrong.py", "1 / 0\n");
    folder.write("hang.py", "import time\ntime.sleep(1000)\n");
    folder.write("fd.py", "import os\nos.closerange(3, 200)\n");
    let shell = |script: &str| {
        let run = Run::shell(script).env("FOLDER", folder.at("")).env("PYTHONPATH", folder.at(""));
        run.env("P", "/usr/bin/python3 -c pass")
    };
    reports(
        shell,
        "job -n 2 --preload thread $P => 0 node | itself | 1 thread
         job -n 2 --preload killed $P => 0 killed by signal 9
         job -n 2 --preload traced $P => 0 tracer
         job -n 2 --preload wrong $P => 0 importing failed: ZeroDivisionError
         job -n 2 --preload wrong $P => 0 wrong.py\", line 1
         job -n 2 --preload no.such $P => 0 ModuleNotFoundError
         job -n 2 --preload fd $P => 0 itself
         job -n 2 --preload mpi4py.MPI $P => 0 MPI
         job -n 2 --preload json true => 0 true is not a Python program
         job -n 2 --preload json sh -c true => 0 sh is not a Python program
         job -n 2 --preload json /usr/bin/python3 none.py => 2 none.py: No such file
         job -n 2 --preload json /usr/bin/python3 none.py => 2 can't open file
         job -n 1 --preload json $P : -n 1 $P => 0 different programs
         job -n 2 --start-timeout 2 --preload hang $P => 0 --start-timeout
         job -n 2 --preload json, $P => 125 --preload json, | separated by commas
         job -n 2 --preload-required --preload thread $P => 125 1 thread | --preload-required
         job -n 2 --preload-required --preload json true => 125 true is not a Python program
         job -n 2 --preload-required $P => 125 needs --preload",
    );
}

/// Modules may print more than a pipe holds while they are imported, because the output is read during the imports.
#[test]
fn output_of_any_length_during_imports_is_shown() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    folder.write(
        "wordy.py",
        "import sys\nfor stream in sys.stdout, sys.stderr:\n    print('x' * 999_999, file=stream)\n",
    );
    let words = ["/usr/bin/python3", "-c", "print('done')"];
    for (preload, lines) in [("wordy", 3), ("wordy,none_such", 3)] {
        let run = Run::job(&format!("-n 2 --pmi simple --start-timeout 30 --preload {preload}")).args(words);
        let outcome = run.cwd(&folder.at("")).env("PYTHONPATH", folder.at("")).succeed();
        assert_eq!((outcome.out().lines().count(), outcome.out().len()), (lines, 1_000_000 + 2 * "done\n".len()));
        assert!(outcome.err().lines().any(|line| line.len() == 999_999));
        assert!(!outcome.err().contains("--start-timeout"), "{}", outcome.err().replace('x', ""));
    }
}

/// A folder with the program `main.py`, a folder of packages that the program imports, and a home directory.
struct Recorded(Folder);

impl Recorded {
    fn new() -> Recorded {
        let folder = Folder::new("preload");
        folder.folder("site-packages");
        folder.folder("home");
        let recorded = Recorded(folder);
        recorded.write("site-packages/first.py", "print('first', flush=True)\n");
        recorded.write("own.py", "import os\nprint('own', os.environ['PMI_RANK'], flush=True)\n");
        recorded.write("main.py", "import first, own, sys\nsys.exit(0)\n");
        recorded
    }

    fn write(&self, name: &str, text: &str) {
        self.0.write(name, text);
    }

    /// Runs `main.py` on two ranks with `--preload auto`; returns the line of standard error about `--preload auto`,
    /// and the outcome.
    fn run(&self) -> (String, Outcome) {
        let run = Run::job("-n 2 --pmi simple --preload auto").args(["/usr/bin/python3", "main.py"]);
        let run = run.cwd(&self.0.at("")).env("PYTHONPATH", self.0.at("site-packages")).env("HOME", self.0.at("home"));
        let outcome = run.env("XDG_CACHE_HOME", "").succeed();
        (outcome.expect_err_line(&["--preload auto"]), outcome)
    }
}

#[test]
fn imports_of_an_earlier_run_are_preloaded_until_the_program_changes() {
    let Some(_) = python() else { return };
    let program = Recorded::new();
    let plain = ["first", "first", "own 0", "own 1"];
    let preloaded = ["first", "own 0", "own 1"];
    for (line, lines) in
        [("nothing is imported ahead", &plain[..]), (": first", &preloaded[..]), (": first", &preloaded[..])]
    {
        let (told, outcome) = program.run();
        assert!(told.contains(line) && told.contains("home/.cache/wireup/preload/"), "{outcome}");
        assert_eq!(outcome.sorted_lines(), lines, "{outcome}");
    }
    program.write("main.py", "import own, first, sys\nprint(sys.argv)\n");
    assert!(program.run().0.contains("nothing is imported ahead"));
    assert!(program.run().0.contains(": first"));
    fs::set_permissions(program.0.at("home/.cache/wireup"), fs::Permissions::from_mode(0o777)).expect("a mode");
    assert!(program.run().0.contains("only you can write to"));
}

#[test]
fn a_recorded_module_that_starts_a_thread_is_left_out_by_further_runs() {
    let Some(_) = python() else { return };
    let program = Recorded::new();
    let thread = "import threading, time\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()\n";
    program.write("site-packages/threaded.py", thread);
    program.write("main.py", "import first, threaded\n");
    program.run();
    let (_, outcome) = program.run();
    outcome.expect_err_line(&["threaded cannot be imported ahead", "1 thread", "further runs leave it out"]);
    let (_, outcome) = program.run();
    assert_eq!((outcome.sorted_lines(), outcome.err().lines().count()), (vec!["first".to_owned()], 1), "{outcome}");
}

/// Jobs with the same interpreter, environment and folder are forked from one process, until a file of a module
/// changes.
#[test]
fn a_session_keeps_an_interpreter_for_jobs_that_are_alike() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    folder.write("counted.py", "import os\nopen('log', 'a').write('imported\\n')\n");
    folder.write("main.py", "import counted, os, sys\nprint(os.getppid() and sys.argv[1:], flush=True)\n");
    let session = Session::up("--virtual-nodes 2 --preload counted");
    let job = |flags: &str, words: &[&str]| {
        let run = session.job_leaving(&format!("-n 4 {flags}")).args(words);
        run.cwd(&folder.at("")).env("PYTHONPATH", folder.at("")).env("PYTHONDONTWRITEBYTECODE", "1").succeed()
    };
    let imports = || fs::read_to_string(folder.at("log")).expect("a log").lines().count();
    for argument in ["a", "a longer one", "b"] {
        let outcome = job("", &["/usr/bin/python3", "main.py", argument]).expect_quiet();
        assert_eq!(outcome.sorted_lines(), vec![format!("['{argument}']"); 4], "{outcome}");
        assert_eq!(imports(), 2, "once on each node");
    }
    let missing = session.job_leaving("-n 4").args(["/usr/bin/python3", "none.py"]);
    let missing = missing.cwd(&folder.at("")).env("PYTHONPATH", folder.at("")).env("PYTHONDONTWRITEBYTECODE", "1");
    missing.finish().expect_code(2).expect_err_line(&["none.py: No such file"]);
    for flags in ["", "--bind-to core", "--env OPENBLAS_NUM_THREADS=1"] {
        job(flags, &["/usr/bin/python3", "main.py"]).expect_quiet();
        assert_eq!(imports(), 2, "the interpreter outlives a job without a program, and serves any number of threads");
    }
    job("", &["/bin/true"]).expect_quiet();
    job("--preload counted", &["/bin/true"]).expect_err_line(&["true is not a Python program"]);
    assert_eq!(job("", &["/usr/bin/python3", "-c", "import main"]).expect_quiet().out(), "[]\n".repeat(4));
    assert_eq!(imports(), 4, "another folder in sys.path");
    job("", &["/usr/bin/python3", "-c", "import counted"]).expect_quiet();
    assert_eq!(imports(), 4);
    folder.write("counted.py", "import os\nopen('log', 'a').write('again\\n')\n# changed\n");
    job("", &["/usr/bin/python3", "-c", "import counted"]).expect_quiet();
    assert_eq!(imports(), 6, "a file has changed");
    job("--preload none", &["/usr/bin/python3", "-c", "import counted"]).expect_quiet();
    assert_eq!(imports(), 10, "each rank imports it");
    session.wireup("down").succeed();
}

/// Processes that a job leaves behind are killed, which takes longer than the time until the next job is requested.
#[test]
fn jobs_that_follow_each_other_at_once_are_forked_from_one_interpreter() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    folder.write("counted.py", "open('log', 'a').write('imported\\n')\n");
    let leftovers = "import counted, subprocess as s\nfor _ in range(20): s.Popen(['sleep', '60'], \
                     start_new_session=True, stdin=s.DEVNULL, stdout=s.DEVNULL, stderr=s.DEVNULL)";
    let session = Session::up("--virtual-nodes 2 --preload counted");
    for _ in 0..10 {
        let job = session.job_leaving("-n 2").args(["/usr/bin/python3", "-c", leftovers]);
        job.cwd(&folder.at("")).env("PYTHONPATH", folder.at("")).succeed().expect_quiet();
    }
    assert_eq!(fs::read_to_string(folder.at("log")).expect("a log"), "imported\n".repeat(2), "once on each node");
    session.wireup("down").succeed();
}

#[test]
fn a_kept_interpreter_does_not_run_programs_in_a_folder_that_was_replaced() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    let session = Session::up("--preload json");
    let run = || {
        fs::create_dir(folder.at("run")).expect("a folder");
        let job = session.job_leaving("-n 1").args(["/usr/bin/python3", "-c", "open('here', 'w')"]);
        job.cwd(&folder.at("run")).succeed().expect_quiet();
        assert!(folder.at("run/here").exists());
    };
    run();
    fs::rename(folder.at("run"), folder.at("old")).expect("another name");
    fs::remove_file(folder.at("old/here")).expect("a file");
    run();
    assert!(!folder.at("old/here").exists());
    session.wireup("down").succeed();
}

#[test]
fn a_run_limits_the_time_of_imports_in_its_session() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    folder.write("hang.py", "import time\ntime.sleep(1000)\n");
    let session = Session::up("--virtual-nodes 2 --preload hang");
    let job = session.job_leaving("--session default -n 2 --start-timeout 1").args(["/usr/bin/python3", "-c", "pass"]);
    let outcome = job.cwd(&folder.at("")).env("PYTHONPATH", folder.at("")).succeed();
    outcome.expect_err_line(&["the imports took too long; --start-timeout"]);
    session.wireup("down").succeed();
}

/// A job that is interrupted while modules are imported leaves nothing behind, and no rank is said to have been killed.
#[test]
fn a_job_can_be_interrupted_during_imports() {
    let Some(_) = python() else { return };
    let folder = Folder::new("preload");
    folder.write("slow.py", "import time\nprint('slow', flush=True)\nopen('begun', 'w')\ntime.sleep(1000)\n");
    let run = Run::job("-n 2 --pmi simple --preload slow").args(["/usr/bin/python3", "-c", "pass"]);
    let mut running = run.cwd(&folder.at("")).env("PYTHONPATH", folder.at("")).start();
    running.await_that("the import has begun", |_| folder.at("begun").exists());
    running.signal(Signal::TERM);
    let outcome = running.finish().expect_code(143);
    outcome.expect_err_line(&["the job was terminated by SIGTERM"]);
    assert!(!outcome.err().contains("rank 0"), "{outcome}");
}

#[test]
fn ranks_of_mpi_are_forked_from_an_interpreter_with_numpy() {
    for flavour in [Flavour::Mpich5, Flavour::OpenMpi5] {
        let Some(python) = mpi4py(flavour) else { return };
        let allreduce = source("allreduce.py");
        let run = Run::job("-n 4 --preload mpi4py,random").arg(python).arg(allreduce);
        run.succeed().expect_quiet();
    }
}

/// OpenBLAS, which numpy loads, has as many threads as without `--preload`.
#[test]
fn libraries_have_as_many_threads_as_without_preload() {
    let Some(python) = tool(&layout::peer("numpy").join("bin/python").to_string_lossy()) else { return };
    let product = "import numpy, os; numpy.ones((500, 500)) @ numpy.ones((500, 500)); \
                   print(len(os.listdir('/proc/self/task')))";
    for flags in ["--bind-to none", "--bind-to core", "--bind-to core --env OPENBLAS_NUM_THREADS=2"] {
        for threads in ["", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"] {
            let [preloaded, plain] = ["--preload numpy", ""].map(|preload| {
                let run = Run::job(&format!("-n 2 --pmi simple {flags} {preload}")).arg(&python).args(["-c", product]);
                if threads.is_empty() { run } else { run.env(threads, "1") }.succeed()
            });
            assert_eq!(preloaded.out(), plain.out(), "{flags} {threads}: {preloaded}");
        }
    }
}
