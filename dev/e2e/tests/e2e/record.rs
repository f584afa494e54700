//! `--record` and `replay`: the recorded inputs of a real run give the same outputs again.

use rustix::process::Signal;
use wireup_e2e::folders::Folder;
use wireup_e2e::{Run, wireup};

/// Replays the recordings of `agents` agents; each must give the recorded outputs.
fn replay(folder: &Folder, agents: usize) {
    let files = (0..agents).map(|agent| folder.0.join(format!("agent-{agent}.rec")).into_os_string());
    let outcome = Run::wireup(std::iter::once("replay".into()).chain(files)).finish();
    let whole = Run::wireup(["replay".as_ref(), folder.0.as_os_str()]).succeed();
    assert_eq!(whole.out(), outcome.out(), "a directory stands for its recordings");
    assert_eq!((outcome.code(), outcome.out().matches("the same as recorded").count()), (0, agents), "{outcome}");
}

/// The second recorded run uses direct links.
#[test]
fn recorded_exchanges_replay_the_same() {
    for (line, agents) in
        [("-n 6 --virtual-nodes 3 --record", 3), ("-n 5 --virtual-nodes 5 --fanout 2 --exchange ring --record", 5)]
    {
        let folder = Folder::new("record-exchange");
        Run::job(line).arg(&folder.0).arg(wireup()).args(["pmi", "exchange"]).succeed();
        replay(&folder, agents);
    }
}

#[test]
fn a_recorded_interrupted_job_replays_the_same() {
    let folder = Folder::new("record-interrupt");
    let mut running = Run::job("-n 4 --virtual-nodes 2 --record").arg(&folder.0).sh("echo up; exec sleep 100").start();
    running.await_out("up", 4);
    running.signal(Signal::INT);
    assert_eq!(running.finish().code(), 130);
    replay(&folder, 2);
}
