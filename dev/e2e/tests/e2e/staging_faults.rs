//! Staging in case of problems: full and read-only stores, lost agents, slow links, odd files, impatient users.

use crate::staging::{mounting, noise};
use rustix::process::Signal;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use wireup_e2e::faults::send;
use wireup_e2e::folders::Folder;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::sessions::Session;
use wireup_e2e::{Run, Running};

/// Removes everything that hosts have stored.
fn clear(machines: &Machines) {
    for node in 0..machines.node_count() {
        machines.ask(node, "rm -rf /dev/shm/wireup-stage-* /run/apps");
    }
}

fn await_receiver(running: &mut Running, machines: &Machines, node: u16) {
    running.await_that("a receiver runs", |_| machines.process(node, "stage-node").is_some());
}

#[test]
fn a_node_without_room_or_with_a_read_only_store_uses_the_originals_and_stops_nobody() {
    let Some(machines) = machines::own(3, |_| ()) else { return };
    let folder = Folder::shared("staging");
    // A folder for a store on each of three hosts; on host `small`, it is a small file system.
    let store = |name: &str, small: u16| {
        let store = format!("/run/{name}");
        (0..3).for_each(|node| drop(machines.ask(node, &format!("mkdir -p {store}"))));
        machines.small_disk(small, &store, 1 << 20).expect("a small disk");
        store
    };
    // The command for a job whose ranks count the bytes of a folder that is staged from the hub.
    let job = |store: &str, how: &str, name: &str| {
        let (folder, store) = (folder.at(name), format!("--stage={store}/here"));
        let job = machines.job("--hosts n[0-2] --ppn 1 --fanout 1");
        let words = format!("cat {}/* | wc -c", folder.display());
        job.args([&store, how, "--stage-room", "100", "--stage-also"]).arg(folder).sh(&words)
    };

    // The receiver on n1 stops reading, while the others still need far more bytes than fit into a window.
    folder.write("large/one", noise(4_000_000).repeat(2));
    let outcome = job(&store("small", 1), "--stage", "large").succeed();
    outcome.expect_err_line(&["node n1: staging failed: ", "do not fit"]);
    assert_eq!(outcome.out(), "8000000\n".repeat(3), "{outcome}");

    // The bytes fit, but not the number of files: this is noticed only when the files are created.
    for number in 0..600 {
        folder.write(&format!("many/{number}"), noise(1_000));
    }
    let few_files = store("few-files", 1);
    machines.ask(1, &format!("mount -o remount,nr_inodes=10 {few_files}"));
    let outcome = job(&few_files, "--stage", "many").succeed();
    outcome.expect_err_line(&["node n1: staging failed: ", "No space left on device"]);
    outcome.expect_err_line(&["node n1: its ranks use the original files"]);
    assert_eq!(outcome.out(), "600000\n".repeat(3), "{outcome}");
    let outcome = job(&few_files, "--stage=require", "many").finish().expect_code(125);
    outcome.expect_err_line(&["not all nodes have the staged files"]);
    assert_eq!(outcome.out(), "");

    let read_only = store("read-only", 2);
    folder.write("data/one", "12345");
    assert_eq!(job(&read_only, "--stage", "data").succeed().expect_quiet().out(), "5\n".repeat(3));
    machines.ask(2, &format!("mount -o remount,ro {read_only}"));
    // Not even a file that is already there can be marked as used.
    for content in ["12345", "123"] {
        folder.write("data/one", content);
        let outcome = job(&read_only, "--stage", "data").succeed();
        outcome.expect_err_line(&["node n2: staging failed: ", "/run/read-only/here", "Read-only file system"]);
        assert_eq!(outcome.out(), format!("{}\n", content.len()).repeat(3), "{outcome}");
    }
}

#[test]
fn an_agent_that_is_killed_while_files_travel_is_named() {
    let Some(machines) = machines::four() else { return };
    let folder = Folder::shared("staging");
    let data = folder.write("data", noise(4_000_000).repeat(15));
    let session = Session::on(&machines, "--hosts n[0-2] --fanout 1");
    let run = || {
        let job = session.job("--ppn 1 --pmi none --stage --stage-also").arg(&data);
        job.args(["sh", "-c", "wc -c < \"$0\""]).arg(&data)
    };
    let mut running = run().start();
    await_receiver(&mut running, &machines, 2);
    running.signal(Signal::STOP);
    send(machines.agent(2), Signal::KILL);
    running.signal(Signal::CONT);
    let outcome = running.finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
    outcome.expect_err_line(&["n2"]);
    // The other nodes of the session continue, and the next job is not affected.
    let outcome = run().succeed();
    outcome.expect_err_line(&["has lost these nodes, which are not used: n2"]);
    assert_eq!(outcome.out(), "60000000\n".repeat(2), "{outcome}");
    clear(&machines);
    session.down("--kill");
}

#[test]
fn a_slow_link_delays_staging_and_breaks_nothing() {
    let Some(machines) = machines::own(3, |_| ()) else { return };
    let folder = Folder::shared("staging");
    let data = folder.write("data", noise(2_000_000));
    // From now on, n0 needs a second to send a megabyte.
    machines.ask(0, "PATH=$PATH:/usr/sbin tc qdisc add dev eth0 root tbf rate 8mbit burst 64kb latency 400ms");
    let outcome = machines
        .job("--hosts n[0-2] --ppn 2 --fanout 1 --pmi none --verbose --stage --stage-also")
        .arg(&data)
        .args(["sh", "-c", "wc -c < \"$0\""])
        .arg(&data)
        .succeed();
    outcome.expect_err_line(&["staged on 3 nodes: 1 file"]);
    assert_eq!(outcome.out(), "2000000\n".repeat(6), "{outcome}");
    clear(&machines);
}

#[test]
fn links_out_of_a_folder_holes_and_names_arrive() {
    let (Some(_), Some(machines)) = (mounting(), machines::four()) else { return };
    let folder = Folder::shared("staging");
    folder.write("tree/inside", "inside");
    folder.write("elsewhere/file", "elsewhere");
    let tree = folder.at("tree");
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"not \xff UTF-8")), b"odd").expect("a file");
    symlink("../elsewhere/file", tree.join("relative")).expect("a link");
    symlink(folder.at("elsewhere/file"), tree.join("absolute")).expect("a link");
    symlink("/etc/hostname", tree.join("system")).expect("a link");
    symlink("nowhere", tree.join("broken")).expect("a link");
    let sparse = fs::File::create(tree.join("sparse")).expect("a file");
    sparse.write_all_at(b"end", 40 << 20).expect("its end");
    let script = "cd \"$0\"; cat inside not*; echo; readlink relative absolute system broken; cat system >/dev/null && \
        echo system; \
                  cat relative 2>&1 | head -c 100; tail -c 3 sparse; echo; find . -name sparse -size -100k -printf \
                  'blocks %b\\n'";
    let outcome = machines
        .job("--hosts n0 --ppn 1 --pmi none --stage --stage-also")
        .arg(&tree)
        .args(["sh", "-c", script])
        .arg(&tree)
        .succeed();
    let out = outcome.out();
    let elsewhere = folder.at("elsewhere/file").display().to_string();
    for line in ["../elsewhere/file", &elsewhere, "/etc/hostname", "nowhere", "system"] {
        assert!(out.lines().any(|one| one == line), "{line}: {outcome}");
    }
    assert!(out.contains("inside") && out.contains("odd") && out.contains("end\n"), "{outcome}");
    let blocks = machines.ask(0, "du -sk /dev/shm/wireup-stage-*/ | cut -f1");
    assert!(blocks.trim().parse::<u32>().expect("a number") < 1_000, "holes were filled: {blocks}");
    clear(&machines);
}

#[test]
fn a_library_that_is_missing_is_named_by_the_run() {
    let folder = Folder::shared("staging");
    let (library, program) = (folder.at("libgone.so"), folder.at("program"));
    let make = format!(
        "cd {0}; echo 'int gone(void) {{ return 0; }}' > gone.c; echo 'int gone(void); int main(void) {{ return \
         gone(); }}' > main.c; \
         gcc -shared -fPIC -o libgone.so gone.c && gcc -o program main.c ./libgone.so -Wl,-rpath,{0}",
        folder.0.display()
    );
    Run::shell(&make).succeed();
    fs::remove_file(&library).expect("it was there");
    let outcome = Run::job("-n 1 --pmi none").args([&folder.stage()]).arg(&program).finish().expect_code(127);
    outcome.expect_err_line(&["wireup: ", "libgone.so", "needs, was not found"]);
}

/// A run with `--stage` ends the session that it has started for itself; an interrupt does not wait for that end.
#[test]
fn an_interrupt_ends_a_run_whose_session_does_not_end() {
    let Some(machines) = machines::four() else { return };
    let folder = Folder::shared("staging");
    let data = folder.write("data", "x");
    let mut running = machines
        .job("--hosts n[0-1] -n 1 --ppn 1 --pmi none --stage --stage-also")
        .arg(&data)
        .args(["sh", "-c", "echo ready; read word; exit 3"])
        .stdin_open()
        .start();
    running.await_out("ready\n", 1);
    // Agent 1 has no rank, so the job can end while that agent is stopped, but the session cannot.
    let agent = machines.agent(1);
    send(agent, Signal::STOP);
    running.close_stdin();
    running.await_that("the rank has ended", |_| machines.process(0, "read word").is_none());
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!running.has_ended(), "the session has ended although an agent is stopped");
    running.signal(Signal::INT);
    running.await_that("the end", Running::has_ended);
    send(agent, Signal::CONT);
    // The end of the session was interrupted: exit code 130, and not the exit code 3 of the rank.
    running.finish().expect_code(130);
    clear(&machines);
}
