//! A root of seven agents whose remote shells end as the test dictates: why a child is lost, or a job fails without
//! one.

use super::*;
use crate::io::{ExitStatus, ShellId};
use wireup_wire::talk::ToLauncher;

const KILLED: ExitStatus = ExitStatus::Signalled { signal: 9, core_dumped: false };

/// A root, with a job on the agents below it, that has called the shells of its two children.
fn root() -> (TestAgent, Vec<ShellId>) {
    let mut root = TestAgent::new(0, session(7));
    let outputs = root.receive_launch(UP, job_on(1, 1..7, 1)).outputs();
    assert_eq!(outputs.calls().iter().map(|(_, agent)| *agent).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(outputs.sent(UP), []);
    (root, outputs.calls().into_iter().map(|(shell, _)| shell).collect())
}

/// The root with a job on two children, the remote shell of the first child, and the link to that child.
fn linked() -> (TestAgent, ShellId, LinkId) {
    let (mut root, shells) = root();
    let link = root.link_child(1);
    (root, shells[0], link)
}

/// Why the first child is lost.
fn problem(root: &mut TestAgent) -> String {
    match cause(&root.sent(UP)) {
        Some(Cause::AgentLost { agent: AgentId(1), problem }) => problem.to_string(),
        other => panic!("{other:?}"),
    }
}

/// No child is running or can be started: the job fails when the agents below have been probed.
#[test]
fn a_job_fails_if_no_agent_can_be_started() {
    let (mut root, shells) = root();
    for shell in shells {
        root.shell_ended(shell, 255, "refused");
    }
    let outputs = root.outputs();
    assert_eq!(outputs.probes().len(), 4, "the agents below are probed");
    assert_eq!(outputs.sent(UP), [], "it is too early");
    for shell in outputs.probes() {
        root.shell_ended(shell, 255, "refused");
    }
    let sent = root.sent(UP);
    assert!(matches!(cause(&sent), Some(Cause::AgentsMissing { missing }) if missing.len() == 6), "{sent:?}");
    assert!(
        sent.iter()
            .any(|message| matches!(message, Control::ToLauncher(ToLauncher::Ended(ended)) if ended.failure.is_some()))
    );
}

#[test]
fn a_lost_child_is_reported_with_what_its_shell_says_afterwards() {
    let (mut root, shell, link) = linked();
    assert_eq!(root.link_down(link).sent(UP), []);
    root.now = T + 1_000_000;
    root.shell_ended(shell, 137, "Killed\n");
    assert_eq!(problem(&mut root), "closed; its remote shell exited with code 137: Killed");
}

#[test]
fn a_lost_child_is_reported_with_what_its_shell_said_before() {
    let (mut root, shell, link) = linked();
    let ended = Input::ShellExited { shell, status: KILLED, stderr: String::new() };
    assert_eq!(root.handle(ended).sent(UP), []);
    root.link_down(link);
    assert_eq!(problem(&mut root), "closed; its remote shell was killed by signal 9");
}

#[test]
fn a_lost_child_is_reported_soon_if_its_shell_says_nothing() {
    let (mut root, _, link) = linked();
    root.link_down(link).tick_when_due();
    assert!(root.now <= T + 200_000_000);
    assert_eq!(problem(&mut root), "closed");
}
