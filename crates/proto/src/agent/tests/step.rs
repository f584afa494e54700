//! Agents started by steps of a batch system, from the viewpoint of the root and of one of them.

use super::*;
use crate::io::{How, ShellId};
use crate::{NEEDED, SECOND_CACHE_WORDS};
use wireup_wire::peer::{Note, ProblemKind};
use wireup_wire::session::Entry;
use wireup_wire::talk::{FromLauncher, JobUp, SessionDown};

fn by_step_agent(me: u32) -> TestAgent {
    TestAgent::new(me, by_step(session(7)))
}

/// The steps of the batch system that `outputs` start: shell, agents, and how the program is found.
fn steps(outputs: &[Output]) -> Vec<(ShellId, Vec<u32>, How)> {
    let step = |output: &Output| match output {
        Output::StartStep { shell, agents, how, .. } => {
            Some((*shell, agents.iter().map(|agent| agent.0).collect(), *how))
        }
        Output::StartAgent { .. } => panic!("no agent is called singly"),
        _ => None,
    };
    outputs.iter().filter_map(step).collect()
}

/// The root with a job on all seven agents, and the shell id of the step that starts the other agents.
fn root() -> (TestAgent, ShellId) {
    let mut root = by_step_agent(0);
    let called = steps(&root.receive_launch(UP, job(1)).outputs());
    assert_eq!(called.len(), 1);
    assert_eq!((called[0].1.as_slice(), called[0].2), (&[1, 2, 3, 4, 5, 6][..], How::Plain));
    (root, called[0].0)
}

/// Delivers a report of the batch system about an agent's task: it has started the agent, or failed with `problem`.
fn task(root: &mut TestAgent, shell: ShellId, agent: u32, problem: Option<&str>) {
    root.handle(Input::StepTold { shell, agent: AgentId(agent), problem: problem.map(Into::into) });
}

fn tasks_start(root: &mut TestAgent, shell: ShellId, agents: impl IntoIterator<Item = u32>) {
    agents.into_iter().for_each(|agent| task(root, shell, agent, None));
}

/// The missing agents and the reasons, as the root has reported them; empty: it has not reported any.
fn missing(sent: &[Output]) -> Vec<(u32, String)> {
    let Some(Cause::AgentsMissing { missing }) = cause(&sent.sent(UP)).cloned() else { return Vec::new() };
    missing.into_iter().map(|missing| (missing.agent.0, missing.problem.words)).collect()
}

#[test]
fn only_the_root_calls_a_step_once_for_all_agents() {
    let (mut root, _) = root();
    assert_eq!(steps(&root.receive_launch(UP, job(1)).outputs()), []);
    let mut inner = by_step_agent(1);
    assert_eq!(steps(&inner.launch(job(1)).outputs()), []);
    let link = inner.link_child(3);
    assert!(!inner.outputs().closes(link), "the child is expected");
}

/// A job on the root and agent 4 only: the root starts agent 4, and agent 1 because it is on the path to agent 4.
fn part() -> JobSpec {
    job_on(1, [0, 4], 1)
}

#[test]
fn only_the_agents_of_the_job_are_started() {
    let mut root = by_step_agent(0);
    let called = steps(&root.receive_launch(UP, part()).outputs());
    assert_eq!(called.iter().map(|(_, agents, _)| agents.as_slice()).collect::<Vec<_>>(), [[1, 4]]);
    // A later job on all agents starts those that were not started before.
    let called = steps(&root.receive_launch(UP, job(2)).outputs());
    assert_eq!(called.iter().map(|(_, agents, _)| agents.as_slice()).collect::<Vec<_>>(), [[2, 3, 5, 6]]);
}

#[test]
fn the_problem_of_a_task_is_sent_to_the_parent_of_its_agent() {
    let (mut root, shell) = root();
    let link = root.link_child(1);
    root.outputs();
    task(&mut root, shell, 1, None);
    task(&mut root, shell, 3, Some("no room"));
    let sent = root.outputs();
    let problem = MissingAgent { agent: AgentId(3), problem: "no room".into() };
    assert_eq!(sent.sent(link), [Control::SessionDown(SessionDown::NotStarted(problem.clone()))]);
    let mut parent = by_step_agent(1);
    parent.launch(job(1)).outputs();
    parent.receive(UP, 0, SessionDown::NotStarted(problem.clone()));
    assert_eq!(parent.sent(UP), [Control::JobUp(JobUp::Missing(vec![problem]))]);
}

#[test]
fn a_step_is_repeated_to_look_for_the_program_and_to_send_it() {
    let (mut root, mut shell) = root();
    let not_there = "slurmstepd: error: execve(): /p/wireup: No such file or directory";
    let said = format!("{SECOND_CACHE_WORDS} n6");
    let attempts = [(2, not_there, How::Look), (NEEDED, "", How::Send), (0, &said, How::Look)];
    for (code, stderr, how) in attempts {
        task(&mut root, shell, 4, Some("its task exited"));
        let sent = root.shell_ended(shell, code, stderr).outputs();
        let called = steps(&sent);
        assert_eq!((called.len(), called[0].2, called[0].1.len()), (1, how, 6), "{code}");
        let notes = sent.sent(UP);
        // Agents count as having the program once the step that sends it ends without an error.
        for (agent, to_second_cache) in [(5, false), (6, true)] {
            let note = Control::Note(Note::Sent { agent: AgentId(agent), to_second_cache });
            assert_eq!(notes.contains(&note), code == 0, "{notes:?}");
        }
        shell = called[0].0;
    }
    task(&mut root, shell, 1, None);
    root.link_child(1);
    root.outputs();
    task(&mut root, shell, 2, Some("it is not there"));
    assert_eq!(missing(&root.outputs()), [], "reports about its children may follow");
    // Once one agent has started, the step is not repeated for the other agents.
    let sent = root.shell_ended(shell, NEEDED, "").outputs();
    assert_eq!(steps(&sent), []);
}

#[test]
fn where_the_program_is_not_to_be_sent_a_step_says_that_it_is_not_installed() {
    let mut root = TestAgent::new(0, SessionSpec { installed_only: true, ..by_step(session(7)) });
    let mut shell = steps(&root.receive_launch(UP, job(1)).outputs())[0].0;
    root.rank_started(1);
    for how in [How::Look, How::Send] {
        let called = steps(&root.shell_ended(shell, NEEDED, "").outputs());
        assert_eq!(called[0].2, how);
        shell = called[0].0;
    }
    task(&mut root, shell, 4, Some("its task exited with code 89"));
    let sent = root.shell_ended(shell, NEEDED, "wireup-needed x86_64").outputs().sent(UP);
    let Some(Cause::AgentsMissing { missing }) = cause(&sent) else { panic!("{sent:?}") };
    let kinds: Vec<ProblemKind> = missing.iter().map(|missing| missing.problem.kind).collect();
    assert_eq!(kinds, [ProblemKind::NotInstalled; 6]);
}

#[test]
fn if_a_step_starts_no_agent_all_are_missing() {
    let (mut root, shell) = root();
    root.rank_started(1);
    let sent =
        root.shell_ended(shell, 1, "srun: lots of words\nsrun: error: Unable to create step: no nodes\n").outputs();
    let missing = missing(&sent);
    let words = "its step exited with code 1: srun: error: Unable to create step: no nodes";
    assert!(missing.iter().all(|(_, problem)| problem == words), "{missing:?}");
    assert_eq!(missing.iter().map(|(agent, _)| *agent).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn the_end_of_a_step_affects_only_its_own_agents() {
    let mut root = by_step_agent(0);
    let first = steps(&root.receive_launch(UP, part()).outputs())[0].0;
    root.receive_launch(UP, job(2)).shell_ended(first, 1, "srun: error: no").outputs();
    assert!(!root.session.child_starts.children.is_starting(AgentId(1)), "its step has ended");
    assert!(root.session.child_starts.children.is_starting(AgentId(2)), "another step starts it");
}

#[test]
fn output_of_an_earlier_step_is_ignored() {
    let mut root = TestAgent::linked(0, standing(by_step(session(7))));
    let old = steps(&root.outputs())[0].0;
    let link = root.link_child(1);
    tasks_start(&mut root, old, 1..7);
    root.link_down(link).tick_at(T + SECOND).outputs();
    let launcher = LinkId(50);
    root.attach(launcher);
    let new = steps(&root.receive(launcher, 0, FromLauncher::AskNodes { revive: true }).outputs());
    assert_eq!(new.iter().map(|(_, agents, _)| agents.as_slice()).collect::<Vec<_>>(), [[1]]);
    task(&mut root, old, 1, Some("Killed"));
    root.shell_ended(old, 1, "srun: error: n1: task 1: Killed");
    assert!(root.session.child_starts.children.is_starting(AgentId(1)), "the new step starts it");
    task(&mut root, new[0].0, 1, Some("no room"));
    root.shell_ended(new[0].0, 1, "");
    assert!(!root.session.child_starts.children.is_starting(AgentId(1)));
}

/// Another agent may have become the parent since the start, so the root records the loss in the membership log, which
/// all agents receive.
#[test]
fn in_a_standing_session_the_root_logs_the_loss_of_a_task() {
    let mut root = TestAgent::linked(0, standing(by_step(session(7))));
    let shell = steps(&root.outputs())[0].0;
    let link = root.link_child(1);
    tasks_start(&mut root, shell, [1, 2, 4, 5, 6]);
    root.outputs();
    task(&mut root, shell, 3, Some("no room"));
    let sent = root.shell_ended(shell, 1, "").sent(link);
    let is_lost = |message: &Control| {
        matches!(message, Control::SessionDown(SessionDown::Log(log))
        if log.entries == [Entry::Lost(vec![AgentId(3)])])
    };
    assert!(sent.iter().any(is_lost), "{sent:?}");
    assert!(!sent.iter().any(|message| matches!(message, Control::SessionDown(SessionDown::NotStarted(_)))));
}

#[test]
fn only_agents_that_a_step_names_are_missing() {
    let (mut root, shell) = root();
    let link = root.link_child(1);
    task(&mut root, shell, 1, None);
    task(&mut root, shell, 2, Some("Communication connection failure"));
    root.outputs();
    root.link_down(link);
    root.now = T + SECOND / 10;
    let sent = root.shell_ended(shell, 233, "srun: error: Application launch failed").outputs();
    assert_eq!(missing(&sent), [(2, "Communication connection failure".to_owned())]);
}

/// Reports to the root that its own rank and the ranks in the subtree of agent 2 have started.
fn rest_has_started(root: &mut TestAgent) {
    root.rank_started(1);
    let link = root.link_child(2);
    root.receive(link, 1, JobUp::Started { ranks: 3, pmix: None }).outputs();
}

#[test]
fn an_agent_below_a_child_that_never_linked_is_missing() {
    let (mut root, shell) = root();
    rest_has_started(&mut root);
    tasks_start(&mut root, shell, [1, 2, 4, 5, 6]);
    task(&mut root, shell, 3, Some("no room"));
    let sent = root.shell_ended(shell, 137, "").outputs();
    assert_eq!(missing(&sent), [(3, "no room".to_owned())], "agent 1 ended because of it");
}

#[test]
fn a_child_that_never_linked_is_missing_even_if_an_agent_below_it_was_killed() {
    let (mut root, shell) = root();
    rest_has_started(&mut root);
    tasks_start(&mut root, shell, 1..7);
    task(&mut root, shell, 3, Some("Killed"));
    let sent = root.shell_ended(shell, 137, "").outputs();
    assert_eq!(missing(&sent), [(1, "its step exited with code 137".to_owned())]);
}

#[test]
fn agents_named_by_a_step_are_reported_before_links_that_it_breaks() {
    let (mut root, shell) = root();
    let link = root.link_child(1);
    task(&mut root, shell, 1, None);
    task(&mut root, shell, 3, Some("Communication connection failure"));
    root.outputs();
    let cause = Cause::AgentLost { agent: AgentId(4), problem: "closed".into() };
    let failure = Failure { node: wireup_wire::ids::NodeId(4), host: "n4".into(), rank: None, pid: None, cause };
    root.receive(link, 1, JobUp::Failed(failure));
    assert_eq!(missing(&root.outputs()), [(3, "Communication connection failure".to_owned())]);
}

#[test]
fn an_agent_that_has_started_is_not_missing_because_of_its_parent() {
    let (mut root, shell) = root();
    root.rank_started(1);
    let link = root.link_child(1);
    tasks_start(&mut root, shell, [1, 3, 4, 5, 6]);
    task(&mut root, shell, 2, Some("no room"));
    task(&mut root, shell, 5, Some("cannot connect to the parent agent: its address did not arrive in time"));
    root.outputs();
    root.receive(link, 1, JobUp::Started { ranks: 3, pmix: None });
    assert_eq!(missing(&root.outputs()), [(2, "no room".to_owned())]);
}

#[test]
fn agents_below_a_missing_child_are_awaited_for_the_whole_start_time() {
    let (mut root, shell) = root();
    rest_has_started(&mut root);
    tasks_start(&mut root, shell, [2, 4, 5, 6]);
    task(&mut root, shell, 1, Some("no room"));
    assert_eq!(missing(&root.outputs()), [], "agent 3 may be missing too");
    root.tick_at(T + 60 * SECOND);
    let wanted = [(1, "no room".to_owned()), (3, "its task in the step did not start within 60 s".to_owned())];
    assert_eq!(missing(&root.outputs()), wanted);
}

#[test]
fn after_a_cancelled_step_each_lost_agent_is_reported_as_cancelled() {
    let (mut root, shell) = root();
    let link = root.link_child(1);
    root.link_child(2);
    tasks_start(&mut root, shell, 1..7);
    root.link_down(link);
    task(&mut root, shell, 1, Some("Killed"));
    assert!(root.sent(UP).is_empty(), "more messages may follow");
    let words = "slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-22T09:39:10 ***\n";
    root.now = T + SECOND / 10;
    let sent = root.shell_ended(shell, 137, words).sent(UP);
    let wanted = "closed; STEP 3.0 ON n1 CANCELLED AT 2026-11-22T09:39:10";
    assert!(matches!(cause(&sent), Some(Cause::AgentLost { problem, .. }) if problem == wanted), "{sent:?}");
}

#[test]
fn agents_that_are_too_late_are_named_with_silent_agents_below_them() {
    let (mut root, shell) = root();
    root.link_child(1);
    tasks_start(&mut root, shell, 1..6);
    root.outputs();
    let sent = missing(&root.tick_at(T + 60 * SECOND).tick_at(T + 70 * SECOND).outputs());
    let wanted = [
        (2, "its agent started but did not connect to its parent within 60 s".to_owned()),
        (6, "its task in the step did not start within 60 s".to_owned()),
    ];
    assert_eq!(sent, wanted);
}

#[test]
fn an_agent_that_must_end_fails_the_job_with_that_reason() {
    let (mut root, _) = root();
    let sent = root.handle(Input::ToldToEnd { signal: 15 }).sent(UP);
    assert!(matches!(cause(&sent), Some(Cause::ToldToEnd { signal: 15 })), "{sent:?}");
}
