//! Staged files: ranks read copies in node memory. `staging_server` tests which requests the file server still gets.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wireup_e2e::folders::Folder;
use wireup_e2e::machines;
use wireup_e2e::programs::testbed;
use wireup_e2e::sessions::{Session, status_of};
use wireup_e2e::{Outcome, Run, Running};
use wireup_testbed::slowfs::{SlowFs, Spec};

/// Incompressible bytes.
pub fn noise(len: u32) -> Vec<u8> {
    let mut state = 1u32;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len).map(step).collect()
}

/// A folder with an empty folder `source`, and an empty folder `mount` where a slow file system can be mounted.
pub fn mounting() -> Option<Folder> {
    if !wireup_e2e::may_isolate() || !Path::new("/dev/fuse").exists() {
        println!("not run: it needs CAP_SYS_ADMIN and /dev/fuse");
        return None;
    }
    let folder = Folder::new("staging");
    for name in ["source", "mount"] {
        folder.folder(name);
    }
    Some(folder)
}

/// Mounts a slow file system in a folder of [`mounting`], without delays except those that `change` sets.
pub fn slow(folder: &Folder, change: fn(&mut Spec)) -> Option<SlowFs> {
    let mut spec = Spec { delay: Duration::ZERO, ..Spec::new(testbed(), folder.at("source"), folder.at("mount")) };
    change(&mut spec);
    SlowFs::mount_or_skip(&spec)
}

#[test]
fn ranks_see_the_copy_that_was_staged() {
    let folder = Folder::new("staging");
    let data = folder.write("data", "staged");
    // The original file changes while the job waits.
    let script = format!("echo ready; read word; cat {0}; echo x > {0} || echo refused", data.display());
    let program = folder.program("program", &script);
    for (place, ranks) in [("-n 1", 1), ("-n 2 --virtual-nodes 2 --stdin all", 2)] {
        fs::write(&data, b"staged").expect("a file");
        let run = Run::job(place).args(["--pmi", "simple", &folder.stage(), "--stage-also"]).arg(&data).arg(&program);
        let mut running = run.stdin_open().start_until("ready\n", ranks);
        fs::write(&data, b"changed").expect("a file");
        running.write(b"go\n");
        running.close_stdin();
        let outcome = running.succeed();
        assert_eq!(outcome.out().matches("staged").count(), ranks, "{outcome}");
        assert_eq!(outcome.out().matches("refused").count(), ranks, "{outcome}");
        assert_eq!(fs::read(&data).expect("a file"), b"changed");
    }
}

#[test]
fn a_session_keeps_what_was_staged_and_sends_only_what_has_changed() {
    let folder = Folder::new("staging");
    let program = folder.program("bin/program", "wc -c < \"$1\"");
    let data = folder.write("bin/data", noise(300_000));
    let names = folder.at("bin").join(std::ffi::OsStr::from_bytes(b"not \xff UTF-8"));
    fs::write(&names, b"x").expect("a file");
    let session = Session::up("--virtual-nodes 2");
    let bin = folder.at("bin").to_str().expect("UTF-8").to_owned();
    let stage = |words: &str| session.wireup(&format!("stage {words} {}", folder.stage()));
    let told = stage(&format!("up {bin}")).succeed();
    told.expect_err_line(&["staged on 1 node: 3 files", "KiB sent"]);
    let listed = stage("list").succeed();
    assert!(listed.out().lines().any(|line| line.contains(&bin) && line.contains(" 3 ")), "{listed}");
    // The second time, only the names of the files are sent; the third time, only the changed file.
    let sent = |outcome: Outcome| {
        let line = outcome.expect_err_line(&["sent in"]);
        line.split("; ").nth(1).and_then(|part| part.split(" sent").next()).map(str::to_owned).unwrap_or_default()
    };
    assert!(sent(stage(&format!("up {bin}")).finish()).ends_with("bytes"));
    fs::write(folder.at("bin/other"), [7; 20_000]).expect("a file");
    assert!(sent(stage(&format!("up {bin}")).finish()).ends_with("bytes"), "a repeated byte is packed");
    let job = session.job("-n 2 --pmi simple").args([&folder.stage(), "--stage-also", &bin]).arg(&program).arg(&data);
    assert_eq!(job.succeed().out(), "300000\n300000\n");
    // A set of staged files is not removed while a job uses it.
    let mut running = session
        .job("-n 1 --pmi simple")
        .args([&folder.stage(), "--stage-also", &bin])
        .sh("echo ready; read word")
        .stdin_open()
        .start();
    running.await_out("ready\n", 1);
    stage("drop").finish().expect_code(125).expect_err_line(&["is in use by a job"]);
    running.close_stdin();
    running.finish();
    session.await_that("the keeper lets go", || {
        stage("drop").finish();
        stage("list").finish().out() == "nothing is staged\n"
    });
    session.down("").expect_code(0);
}

/// With the right to mount file systems, contents are stored in packs that are mounted; in a user namespace, without
/// that right, as files.
#[test]
fn ranks_see_copies_of_all_files_with_and_without_the_right_to_mount_images() {
    let with_image = wireup_e2e::may_isolate();
    for (without, kept, not_kept) in [("", "packs", "objects"), ("unshare -Ur ", "objects", "packs")] {
        if without.is_empty() && !with_image {
            println!("not run with images: it needs CAP_SYS_ADMIN");
            continue;
        }
        let folder = Folder::new("staging");
        for number in 0..300 {
            folder.write(&format!("env/{}/{number}", number % 7), number.to_string().as_bytes());
        }
        folder.write("env/long", noise(700_000));
        folder.write("env/empty", "");
        symlink("long", folder.at("env/link")).expect("a link");
        let program = folder.program("env/program", "echo as staged");
        let privileged = folder.program("env/privileged", "echo original");
        fs::set_permissions(&privileged, fs::Permissions::from_mode(0o4755)).expect("its bits");
        let env = folder.at("env").display().to_string();
        // A checksum of names, permission bits, times and contents of all files but the privileged one.
        let sum = "(cd $env; find . -type f ! -name privileged | sort | xargs cat; find . -type l -printf \"%P %l;\"; \
                   find . -type f ! -name privileged -printf \"%P %m %s %T@;\" -o -type d -printf \"%P %m %T@;\" | tr \
                   \";\" \"\\n\" | sort) | cksum";
        let script = format!(
            "env={env}; {sum} > {store}.before; \
             {without}\"$WIREUP\" run -n 2 --virtual-nodes 2 --pmi simple --wdir / --stage={store} --stage-also $env \
             sh -c 'env={env}; {sum}; \
             {program}; {privileged}; echo x > {env}/empty || echo refused' > {store}.out; code=$?; \
             cat {store}.before {store}.before {store}.out; ls {store}/{not_kept}; [ -n \"$(ls {store}/{kept})\" ] || \
             echo nothing kept; exit $code",
            store = folder.at("store").display(),
            program = program.display(),
            privileged = privileged.display(),
        );
        let outcome = Run::shell(&script).succeed();
        outcome.expect_err_line(&["privileged is not staged (set-user-ID", "ranks use the original"]);
        let mut counts = std::collections::BTreeMap::new();
        outcome.out().lines().for_each(|line| *counts.entry(line.to_owned()).or_insert(0) += 1);
        let words = ["as staged", "original", "refused"];
        assert!(words.iter().all(|word| counts.remove(*word) == Some(2)), "{without}{outcome}");
        // The checksum of the originals, which was printed twice, and that of each rank are equal.
        assert!(counts.len() == 1 && counts.values().all(|count| *count == 4), "{without}{outcome}");
        let required = format!("{without}\"$WIREUP\" run -n 1 --pmi simple --stage=require --stage-also {env} true");
        Run::shell(&required).finish().expect_code(125).expect_err_line(&["privileged is not staged", "forbids that"]);
    }
}

#[test]
fn a_store_without_room_leaves_the_ranks_the_originals() {
    let folder = Folder::new("staging");
    let data = folder.write("data", noise(3_000_000));
    let job = |how: &str| {
        Run::job("-n 2 --virtual-nodes 2 --pmi simple --stage-room 1")
            .args([&folder.stage(), how, "--stage-also"])
            .arg(&data)
            .args(["wc", "-c"])
            .arg(&data)
    };
    let outcome = job("--stage").succeed();
    outcome.expect_err_line(&["staging failed", "do not fit", "--stage-room"]);
    outcome.expect_err_line(&["its ranks use the original files"]);
    assert_eq!(outcome.out().matches("3000000").count(), 2, "{outcome}");
    let outcome = job("--stage=require").finish().expect_code(125);
    outcome.expect_err_line(&["not all nodes have the staged files", "--stage=require"]);
    assert_eq!(outcome.out(), "");
}

#[test]
fn what_cannot_be_staged_is_named() {
    let folder = Folder::new("staging");
    let stage = folder.stage();
    let refused = |words: &[&str]| Run::job("-n 1 --pmi simple").args([&stage]).args(words).finish().expect_code(125);
    refused(&["--stage-also", "/no/such/file", "true"]).expect_err_line(&["/no/such/file", "no such file"]);
    refused(&["--stage=here", "true"]).expect_err_line(&["--stage here", "give an absolute folder"]);
    let work = folder.folder("work");
    let here = Run::job("-n 1 --pmi simple").args([&stage, "--stage-also", "."]).arg("true").cwd(&work).finish();
    here.expect_code(125).expect_err_line(&["the ranks work in", "--wdir"]);
    // A copy would not have the set-user-ID rights of the original, so the ranks execute the original.
    let privileged = folder.program("privileged", "echo ran");
    fs::set_permissions(&privileged, fs::Permissions::from_mode(0o4755)).expect("its bits");
    let run = |how: &str| Run::job("-n 1 --pmi simple").args([&stage, how]).arg(&privileged).finish();
    let outcome = run("--stage").expect_code(0).expect_out("ran\n");
    outcome.expect_err_line(&["privileged is not staged (set-user-ID", "ranks use the original"]);
    run("--stage=require")
        .expect_code(125)
        .expect_err_line(&["privileged is not staged", "--stage=require forbids that"]);
    // Other users may write into the store's folder, so the store is refused.
    let open = folder.folder("open");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("its bits");
    let data = folder.write("data", "x");
    let outcome = Run::job("-n 1 --pmi simple")
        .arg(format!("--stage={}", open.display()))
        .args(["--stage=require", "--stage-also"])
        .arg(&data)
        .arg("true")
        .finish();
    outcome.expect_code(125).expect_err_line(&["is open to others"]);
}

#[test]
fn a_dry_run_lists_what_would_travel_and_why() {
    let folder = Folder::new("staging");
    let program = folder.program("program", "true");
    let data = folder.write("plugins/one", "12345");
    let outcome = Run::job("-n 1 --dry-run --stage-also").arg(data.parent().expect("a folder")).arg(&program).succeed();
    let out = outcome.out();
    for words in ["staged on each node: 2 files", "(the program;", "(named by --stage-also; 1 files, 5 bytes)"] {
        assert!(out.contains(words), "{words}: {outcome}");
    }
}

/// The program and its folder exist on no node but the launcher's.
#[test]
fn a_program_that_nodes_do_not_have_is_brought_to_them() {
    let Some(machines) = machines::sixteen() else { return };
    let run = "--ppn 2 --pmi simple -verbose --stage --stage-also /run/apps/app/data ./program";
    let hosts = "--hosts n0,n1,n2";
    let alone = format!("\"$WIREUP\" run {hosts} {run}");
    let in_session = format!(
        "\"$WIREUP\" up {hosts} --session places && \"$WIREUP\" run --session places {run} && \"$WIREUP\" down \
         --session places"
    );
    for line in [alone, in_session] {
        let script = format!(
            "mkdir -p /run/apps/app; cd /run/apps/app; printf '#!/bin/sh\ncat data\n: >$WIREUP_RANK && rm \
             $WIREUP_RANK\n' > program; echo data > data; \
             chmod +x program; {line}; code=$?; rm -rf /run/apps /dev/shm/wireup-stage-*; exit $code"
        );
        let outcome = machines.shell(&script).succeed();
        assert_eq!(outcome.out(), "data\n".repeat(6), "{outcome}");
        outcome.expect_err_line(&["staged on 3 nodes: 2 files"]);
        for node in 0..3 {
            machines.ask(node, "rm -rf /dev/shm/wireup-stage-*; test ! -e /run/apps");
        }
    }
}

/// A file on a slow file system that takes a second to be read, and again a second when it is sent.
fn slow_file(folder: &Folder) -> Option<(SlowFs, PathBuf)> {
    folder.write("source/data", noise(10_000_000));
    let slow = slow(folder, |spec| (spec.bandwidth_mb, spec.cold) = (10, true))?;
    Some((slow, folder.at("mount/data")))
}

fn slow_job(folder: &Folder, data: &Path, how: &str) -> Run {
    Run::job("-n 2 --virtual-nodes 2 --pmi simple")
        .cwd(Path::new("/"))
        .args([&folder.stage(), how, "--stage-also"])
        .arg(data)
        .args(["wc", "-c"])
        .arg(data)
}

/// Waits for the receiver, which is the rank of the staging job; returns its pid.
fn await_receiver(running: &mut Running) -> Pid {
    let find = |running: &Running| running.processes().into_iter().find(|process| process.name == "wireup-stage");
    running.await_that("a receiver runs", |running| find(running).is_some());
    find(running).expect("it runs").pid
}

/// The receiver uses Landlock together with `no_new_privs`. Without Landlock the kernel refuses the receiver's request.
#[test]
fn a_receiver_has_no_more_rights_than_it_needs_and_costs_the_copies_only_when_it_is_killed() {
    let Some(folder) = mounting() else { return };
    let Some((_slow, data)) = slow_file(&folder) else { return };
    for (how, code) in [("--stage", 0), ("--stage=require", 125)] {
        let mut running = slow_job(&folder, &data, how).start();
        let receiver = await_receiver(&mut running);
        running.await_that("the receiver is confined", |_| status_of(receiver, "status", "NoNewPrivs:") == 1);
        kill_process(receiver, Signal::KILL).expect("it runs");
        let outcome = running.finish().expect_code(code);
        outcome.expect_err_line(&["staging failed"]);
        let read = if code == 0 { 2 } else { 0 };
        assert_eq!(outcome.out().matches("10000000").count(), read, "{outcome}");
    }
}

#[test]
fn an_interrupt_or_a_file_that_changes_ends_a_run_whose_files_travel() {
    let Some(folder) = mounting() else { return };
    let Some((_slow, data)) = slow_file(&folder) else { return };
    let ends = |code: i32, by: &dyn Fn(&Running)| {
        let mut running = slow_job(&folder, &data, "--stage").start();
        await_receiver(&mut running);
        by(&running);
        let outcome = running.finish().expect_code(code);
        assert_eq!(outcome.out(), "", "{outcome}");
        outcome
    };
    ends(130, &|running| running.signal(Signal::INT));
    let outcome = ends(125, &|_| fs::write(folder.at("source/data"), noise(9_000_000)).expect("a file"));
    outcome.expect_err_line(&["cannot stage", "it changes while it is read"]);
}

#[test]
fn two_runs_may_stage_the_same_at_once() {
    let folder = Folder::new("staging");
    let data = folder.write("data", noise(5_000_000));
    let job = || {
        Run::job("-n 1 --pmi simple").args([&folder.stage(), "--stage-also"]).arg(&data).args(["wc", "-c"]).arg(&data)
    };
    let running: Vec<_> = (0..4).map(|_| job().start()).collect();
    for running in running {
        let outcome = running.succeed().expect_quiet();
        assert!(outcome.out().starts_with("5000000"), "{outcome}");
    }
    let count = |name: &str| fs::read_dir(folder.at("store").join(name)).expect("a store").count();
    let kept = count("objects") + count("packs");
    assert!(kept >= 1 && count("new") == 0, "{kept}");
}

/// With `--stage=auto`, files on a network file system are staged if there are so many ranks that staging saves time.
#[test]
fn many_ranks_get_copies_of_files_on_the_network_and_few_ranks_do_not() {
    let Some(folder) = mounting() else { return };
    for number in 0..400 {
        folder.write(&format!("source/{number}"), b"x");
    }
    // The files are on a local disk, and also in a slow file system.
    let Some(_slow) = slow(&folder, |_| ()) else { return };
    let (mount, source) = (folder.at("mount"), folder.at("source"));
    let job = |ranks: u32, files: &Path, more: &str| {
        Run::job(&format!("-n {ranks} --virtual-nodes 2 --pmi none --verbose {more} --stage=auto --stage-also"))
            .cwd(Path::new("/"))
            .args([files.join("*"), folder.stage().into(), "cat".into(), files.join("7")])
            .succeed()
    };
    let outcome = job(2, &mount, "--dry-run");
    assert!(outcome.out().contains("--stage=auto: not staging: 400 files on FUSE"), "{outcome}");
    assert!(!outcome.out().contains("staged on each node"), "{outcome}");
    let outcome = job(16, &mount, "--dry-run");
    assert!(outcome.out().contains("--stage=auto: staging: 400 files on FUSE"), "{outcome}");
    assert!(outcome.out().contains("staged on each node: 400 files"), "{outcome}");
    let outcome = job(2, &mount, "");
    outcome
        .expect_err_line(&["--stage=auto: not staging: 400 files on FUSE", "by 2 ranks", "no more than staging them"]);
    assert!(!folder.at("store").exists() && outcome.out().matches('x').count() == 2, "{outcome}");
    let outcome = job(16, &mount, "");
    outcome.expect_err_line(&["--stage=auto: staging: 400 files on FUSE", "by 16 ranks", "more than staging them"]);
    outcome.expect_err_line(&["staged on 1 node: 400 files"]);
    assert!(folder.at("store").exists() && outcome.out().matches('x').count() == 16, "{outcome}");
    let outcome = job(16, &source, "");
    outcome.expect_err_line(&["--stage=auto: not staging: nothing that the ranks need lies on a network file system"]);
}
