//! `--stage-out`: files that are gathered from the nodes after a job; with real processes on hosts that have folders of
//! their own.

use crate::staging::noise;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use wireup_e2e::faults::send;
use wireup_e2e::folders::Folder;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::sessions::Session;
use wireup_e2e::{Outcome, Run, Running};

/// A script: each rank writes one file into a folder that is private to its host.
const WRITE: &str = "mkdir -p /run/made; echo $WIREUP_RANK > /run/made/out.$WIREUP_RANK";

/// All files below a folder, by path, each with its contents.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path: PathBuf = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below").display().to_string();
                all.insert(name, String::from_utf8_lossy(&fs::read(&path).expect("a file")).trim().to_owned());
            }
        }
    }
    all
}

/// The expected files: `nI/R/out.R` with the number R of the rank in it.
fn one_each(ranks: u32, ppn: u32) -> BTreeMap<String, String> {
    (0..ranks).map(|rank| (format!("n{}/{rank}/out.{rank}", rank / ppn), rank.to_string())).collect()
}

fn rule(pattern: &str, folder: &Folder, name: &str) -> String {
    format!("{pattern}=>{}", folder.at(name).display())
}

/// Removes the files that the ranks have written on the hosts.
fn clear(machines: &Machines) {
    for node in 0..machines.node_count() {
        machines.ask(node, "rm -rf /run/made");
    }
}

/// After the time limit, the files are gathered by ssh.
#[test]
fn files_of_all_hosts_are_gathered_also_when_a_rank_fails_or_time_is_over() {
    let Some(machines) = machines::sixteen() else { return };
    for (flags, line, code) in
        [("", "exit 0", 0), ("", "test $WIREUP_RANK = 5 && exit 3; sleep 100", 3), ("--timeout 3", "sleep 100", 124)]
    {
        let folder = Folder::new("staging");
        (0..4).for_each(|node| drop(machines.ask(node, "mkdir -p /run/made")));
        let script =
            format!("{WRITE}; touch $WIREUP_RANK; until [ -e $((WIREUP_RANK ^ 1)) ]; do sleep 0.02; done; {line}");
        let outcome = machines
            .job(&format!("--hosts n[0-3] --ppn 2 --verbose {flags} --wdir /run/made --stage-out"))
            .arg(rule("out.{rank}", &folder, "{node}/{rank}"))
            .sh(&script)
            .finish()
            .expect_code(code);
        let (got, mut expected) = (files(&folder.0), one_each(8, 2));
        if code == 3 {
            // Ranks on other nodes than the rank that failed may not have begun yet and have no files.
            expected.retain(|name, _| got.contains_key(name));
        }
        assert_eq!(got, expected, "{outcome}");
        assert!(got.contains_key("n2/5/out.5"), "{outcome}");
        outcome.expect_err_line(&["gathered ", " files, "]);
        clear(&machines);
    }
}

#[test]
fn virtual_nodes_share_their_files_and_an_interrupt_does_not_keep_them() {
    let folder = Folder::new("staging");
    let work = folder.folder("work");
    let mut running = Run::job("-n 4 --virtual-nodes 2 --verbose")
        .cwd(&work)
        .args([
            "--stage-out", "out.{rank}=>../got", "--stage-out", "same=>../got/{node}", "--stage-out", "none*=>../got",
        ])
        .sh("echo $WIREUP_RANK > out.$WIREUP_RANK; echo x > same; echo ready; exec sleep 100")
        .start();
    running.await_out("ready\n", 4);
    running.signal(Signal::INT);
    let outcome = running.finish().expect_code(130);
    let mut expected: BTreeMap<_, _> = (0..4).map(|rank| (format!("out.{rank}"), rank.to_string())).collect();
    expected.extend((0..2).map(|node| (format!("node{node}/same"), "x".to_owned())));
    assert_eq!(files(&folder.at("got")), expected, "{outcome}");
    outcome.expect_err_line(&["gathered 6 files"]);
    outcome.expect_err_line(&["nothing matches none* on any node"]);
}

#[test]
fn files_are_gathered_inside_an_allocation() {
    let Some(machines) = machines::with_slurm() else { return };
    let folder = Folder::new("staging");
    let script = format!("{WRITE}; cp /run/made/out.$WIREUP_RANK /run/made/copy.$WIREUP_RANK");
    let words = rule("/run/made/out.{rank}", &folder, "{node}/{rank}");
    let outcome = machines.allocated("-N 4 -n 8", "--stage-out").arg(words).sh(&script).succeed();
    assert_eq!(files(&folder.0), one_each(8, 2), "{outcome}");
    clear(&machines);
}

#[test]
fn a_session_gathers_from_the_nodes_that_are_left() {
    let Some(machines) = machines::four() else { return };
    let session = Session::on(&machines, "--hosts n[0-3]");
    let folder = Folder::new("staging");
    let job = |name: &str, script: &str| {
        let words = rule("/run/made/out.{rank}", &folder, name);
        session.job("--ppn 2 --stage-out").arg(words).sh(script)
    };
    let outcome = job("all/{node}/{rank}", WRITE).succeed().expect_quiet();
    assert_eq!(files(&folder.at("all")), one_each(8, 2), "{outcome}");
    // This node is lost while the job runs.
    let mut running = job("left/{node}/{rank}", &format!("{WRITE}; echo ready; exec sleep 100")).start();
    running.await_out("ready\n", 8);
    send(machines.agent(1), Signal::KILL);
    let outcome = running.finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
    outcome.expect_err_line(&["--stage-out: node n1 is lost"]);
    let left: BTreeMap<_, _> = one_each(8, 2).into_iter().filter(|(name, _)| !name.starts_with("n1/")).collect();
    assert_eq!(files(&folder.at("left")), left, "{outcome}");
    clear(&machines);
    session.down("--kill");
}

/// Waits for the process that sends the files of a node; returns its pid.
fn await_gatherer(running: &mut Running, machines: &Machines, node: u16) -> u32 {
    running.await_that("files are sent", |_| machines.process(node, "stage-node").is_some());
    machines.process(node, "stage-node").expect("it runs").pid
}

#[test]
fn a_node_that_is_lost_while_files_travel_is_named_and_the_others_go_on() {
    let Some(machines) = machines::four() else { return };
    let session = Session::on(&machines, "--hosts n[0-2]");
    let folder = Folder::new("staging");
    // Incompressible files, far larger than windows and pipes can hold.
    let script = "mkdir -p /run/made; head -c 60000000 /dev/urandom > /run/made/out.$WIREUP_RANK; echo ready";
    let words = rule("/run/made/out.{rank}", &folder, "got");
    let mut running = session.job("--ppn 1 --stage-out").arg(words).sh(script).start_until("ready\n", 3);
    let _ = await_gatherer(&mut running, &machines, 1);
    running.signal(Signal::STOP);
    send(machines.agent(1), Signal::KILL);
    running.signal(Signal::CONT);
    let outcome = running.finish().expect_code(125);
    outcome.expect_err_line(&["--stage-out: node n1 is lost"]);
    for rank in [0, 2] {
        let source = fs::read(machines.path_in_node(rank, format!("/run/made/out.{rank}"))).expect("a file");
        let arrived = fs::read(folder.at(&format!("got/out.{rank}"))).expect("a file");
        assert!(source == arrived, "{outcome}");
    }
    assert!(!folder.at("got/out.1").exists(), "half a file: {outcome}");
    clear(&machines);
    session.down("--kill");
}

#[test]
fn a_gatherer_that_is_killed_and_an_interrupt_leave_no_half_files() {
    let Some(machines) = machines::four() else { return };
    let script = "mkdir -p /run/made; head -c 60000000 /dev/urandom > /run/made/out.$WIREUP_RANK; echo ready";
    for (is_killed, code) in [(true, 125), (false, 130)] {
        let folder = Folder::new("staging");
        let words = rule("/run/made/out.{rank}", &folder, "got");
        let mut running =
            machines.job("--hosts n[0-1] --ppn 1 --stage-out").arg(words).sh(script).start_until("ready\n", 2);
        let gatherer = await_gatherer(&mut running, &machines, 1);
        if is_killed {
            send(gatherer, Signal::KILL);
        } else {
            running.signal(Signal::INT);
        }
        let outcome = running.finish().expect_code(code);
        let words = if is_killed { "node n1: its files did not all arrive" } else { "interrupted; not everything" };
        outcome.expect_err_line(&["--stage-out: ", words]);
        assert!(!is_killed || folder.at("got/out.0").exists(), "the other node goes on: {outcome}");
        for (name, content) in files(&folder.at("got")) {
            assert_eq!(content.len() > 50_000_000, name.starts_with("out."), "{name}: {outcome}");
        }
        clear(&machines);
    }
}

#[test]
fn nothing_is_overwritten_and_a_full_disk_is_named() {
    let Some(machines) = machines::own(2, |_| ()) else { return };
    machines.small_disk(0, "/run/small", 1 << 20).expect("a small disk");
    let job = |pattern: &str| {
        machines
            .job_from(0, "--hosts n[0-1] --ppn 1 --stage-out")
            .arg(format!("{pattern}=>/run/small"))
            // The usual runtime directory is on another machine than the launcher.
            .env("WIREUP_RUNTIME_DIR", "/run/sessions")
            .sh("mkdir -p /run/made; echo x > /run/made/same; head -c 3000000 /dev/urandom > \
                /run/made/large.$WIREUP_RANK; echo y > /run/made/z.$WIREUP_RANK")
            .finish()
    };
    let outcome = job("/run/made/same").expect_code(125);
    outcome.expect_err_line(&["/run/small/same has two sources: ", "n0:/run/made/same", "n1:/run/made/same", "{node}"]);
    let outcome = job("/run/made/same").expect_code(125);
    assert_eq!(outcome.err().matches("/run/small/same exists already").count(), 2, "{outcome}");
    let outcome = job("/run/made/[lz]*.[01]").expect_code(125);
    for node in ["n0", "n1"] {
        outcome.expect_err_line(&["/run/small/large", "No space left on device", &format!("{node}:/run/made/large")]);
    }
    let there = machines.ask(0, "ls -A /run/small");
    assert_eq!(there, "same\nz.0\nz.1\n", "{outcome}");
    clear(&machines);
}

#[test]
fn names_that_are_not_utf8_links_and_bits_arrive() {
    let folder = Folder::new("staging");
    let work = folder.folder("work");
    let script = "mkdir -p out/inner; printf x > \"$(printf 'out/\\377')\"; ln -s inner out/link; ln -s out way; echo \
        p > out/inner/p; \
                  chmod 751 out/inner; chmod 640 out/inner/p; truncate -s 30M out/sparse; mkfifo out/pipe";
    let job = Run::job("-n 1").cwd(&work).args(["--stage-out", "way=>../got"]).sh(script);
    let outcome = job.succeed().expect_quiet();
    let listed = Run::shell("cd \"$0\" && find . -printf '%p %y %m %s %l\\n' | sort | cat -v")
        .arg(folder.at("got/way"))
        .succeed();
    let listed = listed.out();
    for line in ["./M-^? f ", "./inner d 751", "./inner/p f 640 2", "./link l 777 5 inner", "./sparse f "] {
        assert!(listed.lines().any(|one| one.starts_with(line)), "{line}: {listed}\n{outcome}");
    }
    assert!(!listed.contains("pipe"), "{listed}");
    use std::os::unix::fs::MetadataExt;
    let sparse = fs::metadata(folder.at("got/way/sparse")).expect("a file");
    assert!(sparse.len() == 30 << 20 && sparse.blocks() < 100, "{sparse:?}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let folder = Folder::new("staging");
    let work = folder.folder("work");
    fs::write(work.join("large"), noise(4_000_000).repeat(10)).expect("a file");
    // A process outside of the job continues to write to the file.
    let stop = folder.at("stop");
    let script = format!(
        "(while [ ! -e {stop} ]; do echo x >> large; done) & \"$WIREUP\" run -n 1 --pmi none --stage-out \
         'large=>../got' true; code=$?; \
         touch {stop}; wait; exit $code",
        stop = stop.display()
    );
    let outcome = Run::shell(&script).cwd(&work).finish().expect_code(125);
    outcome.expect_err_line(&["--stage-out: ", "large: it changes while it is read"]);
    assert!(!folder.at("got/large").exists(), "{outcome}");
}

#[test]
fn a_detached_job_gathers_too() {
    let folder = Folder::new("staging");
    let session = Session::up("--virtual-nodes 2");
    fs::write(folder.at("taken"), b"old").expect("a file");
    let words = [rule(&folder.at("made").display().to_string(), &folder, "got"), rule("/etc/hostname", &folder, "got")];
    let script = format!("echo made > {0}; echo done", folder.at("made").display());
    let run = session
        .leaving(Run::job("--detach -n 1 --stage-out").arg(&words[0]).args(["--stage-out", &words[1]]).sh(&script));
    let number = run.succeed().out().trim().to_owned();
    let outcome: Outcome = session.wireup(&format!("attach {number}")).succeed();
    assert_eq!(outcome.out(), "done\n");
    assert_eq!(fs::read(folder.at("got/made")).expect("a file"), b"made\n", "{outcome}");
    session.down("");
}

#[test]
fn a_dry_run_shows_what_would_be_gathered() {
    let outcome = Run::job("-n 2 --virtual-nodes 2 --dry-run --stage-out /tmp/out.{rank}=>/got/{node} true").succeed();
    let out = outcome.out();
    assert!(
        out.contains("gathered after the job:\n  node0:/tmp/out.0  to /got/node0\n  node1:/tmp/out.1  to /got/node1\n"),
        "{outcome}"
    );
    let refused = |words: &str| Run::job("-n 1 --stage-out").arg(words).arg("true").finish().expect_code(125);
    refused("here").expect_err_line(&["--stage-out here", "PATTERN=>FOLDER"]);
    refused("a/..=>x").expect_err_line(&["--stage-out", "end it with the names"]);
}
