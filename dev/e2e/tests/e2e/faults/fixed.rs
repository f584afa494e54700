//! Faults at a chosen moment: loss of remote shells that are no longer needed, and full disks.

use rustix::process::Signal;
use std::fs;
use std::process::Command;
use std::time::Duration;
use wireup_e2e::faults::{Ended, FaultSite, Started, is_sshd, kill, short_name, until};
use wireup_e2e::folders::Folder;
use wireup_e2e::wireup;

const LIMIT: Duration = Duration::from_secs(30);
const CLEAN: Duration = Duration::from_secs(10);

fn finish(site: &FaultSite, command: Command) -> Ended {
    Started::of(command).finish(site, LIMIT).expect("the launcher ends")
}

fn expect_clean(site: &FaultSite) {
    let nodes: Vec<u16> = (0..site.testbed.node_count()).collect();
    let idle = until(CLEAN, || site.left(&nodes).is_empty());
    assert!(idle.is_some(), "left behind: {:?}", site.left(&nodes));
}

/// When the agents are linked, a job needs neither `ssh` nor `sshd`'s sessions nor `sshd` itself.
#[test]
fn a_running_job_needs_no_ssh() {
    let Some(site) = FaultSite::start(4, &[FaultSite::share()]) else { return };
    let line = format!("--hosts {} -n 8 --fanout 2", site.testbed.hosts());
    let folder = Folder::shared("no-ssh");
    let gate = folder.at("gate");
    let script = format!("echo ready; until test -e {}; do sleep 0.1; done; echo over", gate.display());
    let mut job = Started::of(site.job(&line, &["sh", "-c", &script]));
    job.await_out("ready", 8);
    let on_nodes = site.left(&[0, 1, 2, 3]).into_iter().map(|(_, process)| process);
    let is_shell = |process: &wireup_testbed::Process| is_sshd(process) || short_name(process.pid) == "ssh";
    let on_nodes: Vec<u32> = on_nodes.filter(is_shell).map(|process| process.pid).collect();
    let on_hub = job.on_hub(&site).into_iter().filter(|process| process.name == "ssh");
    let on_hub: Vec<u32> = on_hub.map(|process| process.pid.as_raw_nonzero().get().cast_unsigned()).collect();
    assert!(on_hub.len() == 2 && on_nodes.len() >= 4, "{on_hub:?} {on_nodes:?}");
    let daemons = (0..4).filter_map(|i| site.testbed.daemons(i).first().copied());
    for pid in on_hub.into_iter().chain(on_nodes).chain(daemons) {
        kill(pid, Signal::KILL);
    }
    fs::write(&gate, "").expect("open the gate");
    let ended = job.finish(&site, LIMIT).expect("the launcher ends");
    assert!(ended.code == 0 && ended.stdout.matches("over").count() == 8, "{ended:?}");
    expect_clean(&site);
}

/// If a recording cannot be written, the job continues: a recording is only for debugging.
#[test]
fn a_full_disk_for_recordings_does_not_end_the_job() {
    let Some(site) = FaultSite::start(3, &[FaultSite::share()]) else { return };
    site.testbed.small_disk(1, "/tmp/rec", 4 << 10).expect("mount a small disk");
    let program = wireup().display().to_string();
    let words = [&*program, "pmi", "exchange", "--rounds", "3", "--value-len", "500"];
    let line = format!("--hosts {} -n 6 --fanout 1 --record /tmp/rec", site.testbed.hosts());
    let ended = finish(&site, site.job(&line, &words));
    assert!(ended.code == 0 && ended.stdout.lines().count() == 1, "{ended:?}");
    expect_clean(&site);
}
