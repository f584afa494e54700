//! The limits on what a launcher may do to another launcher's job; nothing is kept for launchers that have left.

use super::standing::{LAUNCHER, kill, root_with_job};
use super::*;
use crate::io::{ExitStatus, JobEvent};
use wireup_wire::frame::{DownFrame, Frame};
use wireup_wire::talk::{FromLauncher, JobDown, JobUp, ToLauncher};

const OTHER: LinkId = LinkId(51);

/// The root, with a job of one launcher, and another launcher that has not launched a job.
fn two() -> (TestAgent, u32, u32) {
    let (mut root, job) = root_with_job();
    let other = root.attach(OTHER);
    (root, job, other)
}

/// The messages that the other launcher receives in reply, and all outputs.
fn reply(root: &mut TestAgent, job: u32, message: impl Into<Control>) -> (Vec<Control>, Vec<Output>) {
    let outputs = root.receive(OTHER, job, message).outputs();
    (outputs.sent(OTHER), outputs)
}

fn is_refused(sent: &[Control], words: &str) -> bool {
    matches!(sent, [Control::ToLauncher(ToLauncher::Decided(Err(problem)))] if problem.contains(words))
}

#[test]
fn a_launcher_launches_its_own_job_once() {
    let (mut root, job, own) = two();
    let (sent, _) = reply(&mut root, job, FromLauncher::Launch(small_job(job).into()));
    assert!(is_refused(&sent, "belongs to another launcher"), "{sent:?}");
    let (sent, _) = reply(&mut root, own + 1, FromLauncher::Launch(small_job(own + 1).into()));
    assert!(is_refused(&sent, "belongs to another launcher"), "{sent:?}");
    assert_eq!(root.session.cx.jobs.len(), 1);
    let (sent, _) = reply(&mut root, own, FromLauncher::Launch(small_job(own).into()));
    assert!(sent.is_empty() && root.session.cx.jobs.len() == 2, "{sent:?}");
    let (sent, outputs) = reply(&mut root, own, FromLauncher::Launch(small_job(own).into()));
    assert!(is_refused(&sent, "launched before"), "{sent:?}");
    assert!(!outputs.spawns(), "{outputs:?}");
}

#[test]
fn messages_about_the_job_of_another_launcher_are_refused() {
    let (mut root, job, _) = two();
    let about = [
        Control::JobDown(JobDown::Signal { signal: 10 }),
        Control::JobDown(JobDown::Kill { grace_ns: 0 }),
        Control::JobDown(JobDown::Resize { rows: 1, columns: 1 }),
        Control::JobDown(JobDown::StallAsk { collective: None }),
    ];
    for message in about {
        let (sent, outputs) = reply(&mut root, job, message);
        assert!(is_refused(&sent, "unexpected message about job") && outputs.len() == 1, "{outputs:?}");
    }
    let payload = Bytes::from_static(b"typed");
    let frame = Frame::new(DownFrame::Input, 0, job, 0, payload);
    for (link, taken) in [(OTHER, 0), (LAUNCHER, 1)] {
        let written = root
            .receive_frame(link, frame.clone())
            .outputs()
            .iter()
            .filter(|output| matches!(output, Output::Write { .. }))
            .count();
        assert_eq!(written, taken, "{link:?}");
    }
}

/// All launchers of a session belong to the same user, so each may end the jobs of the others.
#[test]
fn any_launcher_may_end_any_job_by_a_valid_signal() {
    let (mut root, job, _) = two();
    for signal in [0, 65, -1] {
        let message =
            Control::FromLauncher(FromLauncher::KillJob { job: JobId(job), signal: Some(signal), by: "me".into() });
        let (sent, outputs) = reply(&mut root, 0, message);
        assert!(is_refused(&sent, "no signal") && outputs.len() == 1, "{outputs:?}");
    }
    let (sent, _) = reply(&mut root, 0, kill(job + 7, "me"));
    assert!(is_refused(&sent, "there is no job"), "{sent:?}");
    let message = Control::FromLauncher(FromLauncher::KillJob { job: JobId(job), signal: Some(64), by: "me".into() });
    let (sent, outputs) = reply(&mut root, 0, message);
    assert_eq!(sent, [Control::ToLauncher(ToLauncher::Decided(Ok(())))]);
    assert!(outputs.iter().any(|output| matches!(output, Output::Signal { signal: 64, .. })), "{outputs:?}");
}

#[test]
fn answers_to_why_go_to_whoever_has_asked() {
    let (mut root, job, _) = two();
    let why = |job| Control::FromLauncher(FromLauncher::Why { job: JobId(job) });
    let (sent, _) = reply(&mut root, 0, why(job + 7));
    assert!(is_refused(&sent, "there is no job"), "{sent:?}");
    root.rank_started(job).outputs();
    let (sent, outputs) = reply(&mut root, 0, why(job));
    assert!(matches!(&sent[..], [Control::JobUp(JobUp::Stall(_))]), "{sent:?}");
    assert_eq!(outputs.sent(LAUNCHER), [], "nothing of it is shown among the job's output");
    let asked = outputs.iter().filter(|output| matches!(output, Output::TakeStacks { .. })).count();
    assert_eq!(asked, 1, "{outputs:?}");
    let event = JobEvent::Stacks { stacks: Vec::new() };
    let outputs = root.handle(Input::Job { job: JobId(job), event }).outputs();
    assert_eq!(outputs.sent(OTHER), [Control::JobUp(JobUp::Stacks(Vec::new()))]);
    let watchers = |root: &Agent| root.session.cx.agent.links.owners.watchers.len();
    assert_eq!(watchers(&root), 0, "it has its answer: later reports of the job go to the job's launcher only");
    reply(&mut root, 0, why(job));
    assert_eq!(watchers(&root), 1);
    root.link_down(OTHER);
    assert_eq!(watchers(&root), 0);
}

#[test]
fn the_end_of_a_job_answers_why() {
    let (mut root, job, _) = two();
    root.rank_started(job).outputs();
    reply(&mut root, 0, FromLauncher::Why { job: JobId(job) });
    let outputs = root.rank_ended(job, 0, ExitStatus::Exited(0)).outputs();
    assert!(is_refused(&outputs.sent(OTHER), "has ended"), "{outputs:?}");
    assert!(root.session.cx.agent.links.owners.watchers.is_empty());
}

#[test]
fn nothing_is_kept_of_launchers_and_jobs_that_are_gone() {
    let (mut root, job, _) = two();
    let links_of = |root: &Agent, job| root.session.cx.agent.links.owners.links_of(JobId(job));
    assert_eq!(links_of(&root, job), [LAUNCHER]);
    root.receive(OTHER, 0, FromLauncher::AskNodes { revive: true });
    assert_eq!(links_of(&root, 0), [OTHER]);
    root.link_down(OTHER);
    assert_eq!(links_of(&root, 0), []);
    // One job ends while its launcher is attached; the launcher of the other job leaves before the job ends.
    for (link, goes_first) in [(LAUNCHER, false), (OTHER, true)] {
        let job = if goes_first { root.attach(link) } else { job };
        if goes_first {
            root.receive_launch(link, small_job(job)).link_down(link);
            assert_eq!(links_of(&root, job), []);
        }
        root.rank_started(job).rank_ended(job, 0, ExitStatus::Exited(0));
        assert_eq!((root.session.cx.jobs.len(), links_of(&root, job)), (0, Vec::new()));
    }
}

#[test]
fn launchers_attach_only_to_the_root() {
    let mut agent = TestAgent::standing(1);
    agent.outputs();
    assert!(agent.link_up(LinkId(5), Peer::Launcher).outputs().closes(LinkId(5)));
}
