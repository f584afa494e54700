//! The limits on what a launcher may do to another launcher's job; nothing is kept for launchers that have left.

use super::standing::{LAUNCHER, attach, kill, root, small, tell};
use super::starting::{T, hear, outputs, sent};
use super::*;
use crate::io::ExitStatus;
use wireup_wire::frame::Class;
use wireup_wire::ids::LocalRank;

const OTHER: LinkId = LinkId(51);

/// The root, with a job of one launcher, and another launcher that has not launched a job.
fn two() -> (Agent, u32, u32) {
    let (mut root, job) = root();
    tell(&mut root, job, &[Control::Launch(small(job).into())]);
    let other = attach(&mut root, OTHER);
    (root, job, other)
}

/// The replies to the other launcher, and all outputs.
fn says(root: &mut Agent, job: u32, message: &Control) -> (Vec<Control>, Vec<Output>) {
    hear(root, T, OTHER, job, message);
    let done = outputs(root);
    (sent(&done, OTHER), done)
}

fn is_refused(said: &[Control], words: &str) -> bool {
    matches!(said, [Control::Refused { problem }] if problem.contains(words))
}

#[test]
fn a_launcher_launches_its_own_job_once() {
    let (mut root, job, own) = two();
    let (said, _) = says(&mut root, job, &Control::Launch(small(job).into()));
    assert!(is_refused(&said, "belongs to another launcher"), "{said:?}");
    let (said, _) = says(&mut root, own + 1, &Control::Launch(small(own + 1).into()));
    assert!(is_refused(&said, "belongs to another launcher"), "{said:?}");
    assert_eq!(root.jobs.len(), 1);
    let (said, _) = says(&mut root, own, &Control::Launch(small(own).into()));
    assert!(said.is_empty() && root.jobs.len() == 2, "{said:?}");
    let (said, done) = says(&mut root, own, &Control::Launch(small(own).into()));
    assert!(is_refused(&said, "launched before"), "{said:?}");
    assert!(!done.iter().any(|output| matches!(output, Output::Spawn(_))), "{done:?}");
}

#[test]
fn what_it_says_about_another_job_is_refused() {
    let (mut root, job, _) = two();
    let about = [
        Control::Signal { signal: 10 },
        Control::Kill { grace_ns: 0 },
        Control::Resize { rows: 1, columns: 1 },
        Control::StallAsk { collective: None },
    ];
    for message in about {
        let (said, done) = says(&mut root, job, &message);
        assert!(is_refused(&said, "unexpected message about job") && done.len() == 1, "{done:?}");
    }
    let payload = Bytes::from_static(b"typed");
    let frame = Frame { kind: Kind::Input, class: Class::Stdio, stream: 0, job, arg: 0, payload };
    for (link, taken) in [(OTHER, 0), (LAUNCHER, 1)] {
        root.handle(T, Input::LinkBytes { link, bytes: Bytes::copy_from_slice(&frame.header()) });
        root.handle(T, Input::LinkBytes { link, bytes: frame.payload.clone() });
        let written = outputs(&mut root).iter().filter(|output| matches!(output, Output::Write { .. })).count();
        assert_eq!(written, taken, "{link:?}");
    }
}

/// All launchers belong to the same user.
#[test]
fn any_launcher_ends_any_job_by_a_signal_that_there_is() {
    let (mut root, job, _) = two();
    for signal in [0, 65, -1] {
        let message = Control::KillJob { job: JobId(job), signal: Some(signal), by: "me".into() };
        let (said, done) = says(&mut root, 0, &message);
        assert!(is_refused(&said, "no signal") && done.len() == 1, "{done:?}");
    }
    let (said, _) = says(&mut root, 0, &kill(job + 7, "me"));
    assert!(is_refused(&said, "there is no job"), "{said:?}");
    let message = Control::KillJob { job: JobId(job), signal: Some(64), by: "me".into() };
    let (said, done) = says(&mut root, 0, &message);
    assert_eq!(said, [Control::Granted]);
    assert!(done.iter().any(|output| matches!(output, Output::Signal { signal: 64, .. })), "{done:?}");
}

#[test]
fn nothing_is_kept_of_launchers_and_jobs_that_are_gone() {
    let (mut root, job, _) = two();
    let heard_of = |root: &Agent, job| root.launchers.links_of(JobId(job));
    assert_eq!(heard_of(&root, job), [LAUNCHER]);
    hear(&mut root, T, OTHER, 0, &Control::Revive);
    assert_eq!(heard_of(&root, 0), [OTHER]);
    root.handle(T, Input::LinkDown { link: OTHER, problem: "closed".into() });
    assert_eq!(heard_of(&root, 0), []);
    // One job ends while its launcher is still attached; for the other the launcher leaves first.
    for (link, goes_first) in [(LAUNCHER, false), (OTHER, true)] {
        let job = if goes_first { attach(&mut root, link) } else { job };
        if goes_first {
            hear(&mut root, T, link, job, &Control::Launch(small(job).into()));
            root.handle(T, Input::LinkDown { link, problem: "closed".into() });
            assert_eq!(heard_of(&root, job), []);
        }
        let (local, job) = (LocalRank(0), JobId(job));
        root.handle(T, Input::ChildStarted { job, local, pid: 7, spawn_ns: 0, exec_ns: 0 });
        root.handle(T, Input::ChildExited { job, local, status: ExitStatus::Exited(0) });
        for stream in [crate::io::Stream::Out, crate::io::Stream::Err] {
            root.handle(T, Input::StdioClosed { job, local, stream });
        }
        assert_eq!((root.jobs.len(), heard_of(&root, job.0)), (0, Vec::new()));
    }
}
