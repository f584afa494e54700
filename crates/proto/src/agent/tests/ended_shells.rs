//! Tests of a root agent (session of seven agents) whose remote shells exit: the reported cause when a child agent is
//! lost, and when no agent can be started.

use super::*;
use crate::io::ShellId;
use wireup_wire::talk::ToLauncher;

/// A root with a job on the agents below it, and the remote shells that it has started for its two children.
fn root() -> (TestAgent, Vec<ShellId>) {
    let mut root = TestAgent::new(0, session(7));
    let outputs = root.receive_launch(UP, job_on(1, 1..7, 1)).outputs();
    assert_eq!(outputs.calls().iter().map(|(_, agent)| *agent).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(outputs.sent(UP), []);
    (root, outputs.calls().into_iter().map(|(shell, _)| shell).collect())
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
    let (mut root, shells) = root();
    let link = root.link_child(1);
    assert_eq!(root.link_down(link).sent(UP), []);
    root.now = T + 1_000_000;
    root.shell_ended(shells[0], 137, "Killed\n");
    match cause(&root.sent(UP)) {
        Some(Cause::AgentLost { agent: AgentId(1), problem }) => {
            assert_eq!(problem.to_string(), "closed; its remote shell exited with code 137: Killed");
        }
        other => panic!("{other:?}"),
    }
}
