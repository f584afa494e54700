//! Agents started by steps of a batch system, from the viewpoint of the root and of one of them.

use super::starting::{SECOND, T, UP, agent_by, hear, job, link_child, outputs, sent};
use super::*;
use crate::io::{ExitStatus, How, ShellId};
use crate::starts::NEEDED;
use wireup_wire::peer::Note;
use wireup_wire::session::Entry;

fn by_step(me: u32) -> Agent {
    agent_by(me, RemoteShell::Srun(vec!["srun".into()]))
}

/// The steps to call.
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

/// The root with a job on all seven agents, and its step.
fn root() -> (Agent, ShellId) {
    let mut root = by_step(0);
    hear(&mut root, T, UP, 1, &Control::Launch(job(1).into()));
    let called = steps(&outputs(&mut root));
    assert_eq!(called.len(), 1);
    assert_eq!((called[0].1.as_slice(), called[0].2), (&[1, 2, 3, 4, 5, 6][..], How::Plain));
    (root, called[0].0)
}

fn told(agent: &mut Agent, shell: ShellId, of: u32, problem: Option<&str>) {
    agent.handle(T, Input::StepTold { shell, agent: AgentId(of), problem: problem.map(str::to_owned) });
}

fn exited(agent: &mut Agent, now: Instant, shell: ShellId, code: u8, stderr: &str) -> Vec<Output> {
    agent.handle(now, Input::ShellExited { shell, status: ExitStatus::Exited(code), stderr: stderr.into() });
    outputs(agent)
}

/// The missing agents and the reasons, once the root has reported them.
fn missing(said: &[Output]) -> Vec<(u32, String)> {
    let failed = sent(said, UP).into_iter().find_map(|message| match message {
        Control::Failed(Failure { cause: Cause::AgentsMissing { missing }, .. }) => Some(missing),
        _ => None,
    });
    failed.unwrap_or_default().into_iter().map(|missing| (missing.agent.0, missing.problem)).collect()
}

#[test]
fn one_step_is_for_all_and_only_the_root_calls_it() {
    let (mut root, _) = root();
    hear(&mut root, T, UP, 1, &Control::Launch(job(1).into()));
    assert_eq!(steps(&outputs(&mut root)), []);
    let mut inner = by_step(1);
    inner.launch(T, job(1));
    assert_eq!(steps(&outputs(&mut inner)), []);
    let link = link_child(&mut inner, T, 3);
    assert!(!outputs(&mut inner).iter().any(|output| *output == Output::CloseLink { link }), "the child is expected");
}

/// A job on the root and agent 4 only: the root starts 4, and 1 on the path to it.
fn part() -> JobSpec {
    let mut part = job(1);
    part.nodes = vec![part.nodes[0].clone(), part.nodes[4].clone()];
    part.blocks = vec![wireup_wire::job::Block { first_node: 0, nodes: 2, ppn: 1 }];
    part.apps[0].ranks = 2;
    part
}

#[test]
fn only_the_agents_of_the_job_are_called() {
    let mut root = by_step(0);
    hear(&mut root, T, UP, 1, &Control::Launch(part().into()));
    let called = steps(&outputs(&mut root));
    assert_eq!(called.iter().map(|(_, agents, _)| agents.as_slice()).collect::<Vec<_>>(), [[1, 4]]);
    // A later job also needs the others.
    hear(&mut root, T, UP, 2, &Control::Launch(job(2).into()));
    let called = steps(&outputs(&mut root));
    assert_eq!(called.iter().map(|(_, agents, _)| agents.as_slice()).collect::<Vec<_>>(), [[2, 3, 5, 6]]);
}

#[test]
fn what_is_wrong_with_a_task_goes_to_the_parent_of_its_agent() {
    let (mut root, shell) = root();
    let link = link_child(&mut root, T, 1);
    outputs(&mut root);
    told(&mut root, shell, 1, None);
    told(&mut root, shell, 3, Some("no room"));
    let said = outputs(&mut root);
    let problem = MissingAgent { agent: AgentId(3), problem: "no room".into() };
    assert_eq!(sent(&said, link), [Control::NotStarted(problem.clone())]);
    let mut parent = by_step(1);
    parent.launch(T, job(1));
    outputs(&mut parent);
    hear(&mut parent, T, UP, 0, &Control::NotStarted(problem.clone()));
    assert_eq!(sent(&outputs(&mut parent), UP), [Control::Missing(vec![problem])]);
}

#[test]
fn a_program_that_nobody_has_is_looked_for_and_sent() {
    let (mut root, mut shell) = root();
    let not_there = "slurmstepd: error: execve(): /p/wireup: No such file or directory";
    let ways = [(2, not_there, How::Look), (NEEDED, "", How::Send), (0, "", How::Look)];
    for (code, stderr, how) in ways {
        told(&mut root, shell, 4, Some("its task exited"));
        let said = exited(&mut root, T, shell, code, stderr);
        let called = steps(&said);
        assert_eq!((called.len(), called[0].2, called[0].1.len()), (1, how, 6), "{code}");
        let notes = sent(&said, UP);
        assert_eq!(notes.contains(&Control::Note(Note::Sent { agent: AgentId(6) })), how == How::Send);
        shell = called[0].0;
    }
    told(&mut root, shell, 1, None);
    let link = link_child(&mut root, T, 1);
    outputs(&mut root);
    told(&mut root, shell, 2, Some("it is not there"));
    assert_eq!(missing(&outputs(&mut root)), [], "reports about its children may follow");
    let _ = link;
    // Once an agent has started, its ranks run: the others are not called again.
    let said = exited(&mut root, T, shell, NEEDED, "");
    assert_eq!(steps(&said), []);
}

#[test]
fn a_step_that_brings_nobody_misses_all() {
    let (mut root, shell) = root();
    let local = wireup_wire::ids::LocalRank(0);
    root.handle(T, Input::ChildStarted { job: JobId(1), local, pid: 1, spawn_ns: 1, exec_ns: 1 });
    let said = exited(&mut root, T, shell, 1, "srun: lots of words\nsrun: error: Unable to create step: no nodes\n");
    let missing = missing(&said);
    let words = "its step exited with code 1: srun: error: Unable to create step: no nodes";
    assert!(missing.iter().all(|(_, problem)| problem == words), "{missing:?}");
    assert_eq!(missing.iter().map(|(agent, _)| *agent).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_step_speaks_of_its_own_agents() {
    let mut root = by_step(0);
    hear(&mut root, T, UP, 1, &Control::Launch(part().into()));
    let first = steps(&outputs(&mut root))[0].0;
    hear(&mut root, T, UP, 2, &Control::Launch(job(2).into()));
    outputs(&mut root);
    exited(&mut root, T, first, 1, "srun: error: no");
    assert!(!root.starter.is_starting(AgentId(1)), "its step has ended");
    assert!(root.starter.is_starting(AgentId(2)), "another step starts it");
}

#[test]
fn output_of_an_old_step_is_ignored_by_the_new_one() {
    let mut root = super::standing::standing(0, RemoteShell::Srun(vec!["srun".into()]));
    let old = steps(&outputs(&mut root))[0].0;
    let link = link_child(&mut root, T, 1);
    (1..7).for_each(|agent| told(&mut root, old, agent, None));
    root.handle(T, Input::LinkDown { link, problem: "closed".into() });
    root.handle(T + SECOND, Input::Tick);
    outputs(&mut root);
    let launcher = LinkId(50);
    super::standing::attach(&mut root, launcher);
    hear(&mut root, T + SECOND, launcher, 0, &Control::Revive);
    let new = steps(&outputs(&mut root));
    assert_eq!(new.iter().map(|(_, agents, _)| agents.as_slice()).collect::<Vec<_>>(), [[1]]);
    told(&mut root, old, 1, Some("Killed"));
    exited(&mut root, T + SECOND, old, 1, "srun: error: n1: task 1: Killed");
    assert!(root.starter.is_starting(AgentId(1)), "the new step starts it");
    told(&mut root, new[0].0, 1, Some("no room"));
    exited(&mut root, T + SECOND, new[0].0, 1, "");
    assert!(!root.starter.is_starting(AgentId(1)));
}

/// The agent's parent may have changed since the tree was drawn; all agents learn of the loss from the log.
#[test]
fn in_a_session_that_stands_the_root_decides_that_a_task_is_lost() {
    let mut root = super::standing::standing(0, RemoteShell::Srun(vec!["srun".into()]));
    let shell = steps(&outputs(&mut root))[0].0;
    let link = link_child(&mut root, T, 1);
    [1, 2, 4, 5, 6].into_iter().for_each(|agent| told(&mut root, shell, agent, None));
    outputs(&mut root);
    told(&mut root, shell, 3, Some("no room"));
    let said = sent(&exited(&mut root, T, shell, 1, ""), link);
    let is_lost =
        |message: &Control| matches!(message, Control::Log(log) if log.entries == [Entry::Lost(vec![AgentId(3)])]);
    assert!(said.iter().any(is_lost), "{said:?}");
    assert!(!said.iter().any(|message| matches!(message, Control::NotStarted(_))));
}

#[test]
fn those_that_a_step_names_are_missed_and_the_rest_went_with_them() {
    let (mut root, shell) = root();
    let link = link_child(&mut root, T, 1);
    told(&mut root, shell, 1, None);
    told(&mut root, shell, 2, Some("Communication connection failure"));
    outputs(&mut root);
    root.handle(T, Input::LinkDown { link, problem: "closed".into() });
    let said = exited(&mut root, T + SECOND / 10, shell, 233, "srun: error: Application launch failed");
    assert_eq!(missing(&said), [(2, "Communication connection failure".to_owned())]);
}

/// The root's own rank runs, and so do all ranks in the subtree of agent 2.
fn rest_has_started(root: &mut Agent) {
    let local = wireup_wire::ids::LocalRank(0);
    root.handle(T, Input::ChildStarted { job: JobId(1), local, pid: 1, spawn_ns: 1, exec_ns: 1 });
    let link = link_child(root, T, 2);
    hear(root, T, link, 1, &Control::Started { ranks: 3, pmix: None });
    outputs(root);
}

#[test]
fn an_agent_behind_a_child_that_never_came_is_missed() {
    let (mut root, shell) = root();
    rest_has_started(&mut root);
    [1, 2, 4, 5, 6].into_iter().for_each(|agent| told(&mut root, shell, agent, None));
    told(&mut root, shell, 3, Some("no room"));
    let said = exited(&mut root, T, shell, 137, "");
    assert_eq!(missing(&said), [(3, "no room".to_owned())], "agent 1 ended because of it");
}

#[test]
fn a_child_that_never_came_is_missed_though_an_agent_behind_it_was_killed() {
    let (mut root, shell) = root();
    rest_has_started(&mut root);
    (1..7).for_each(|agent| told(&mut root, shell, agent, None));
    told(&mut root, shell, 3, Some("Killed"));
    let said = exited(&mut root, T, shell, 137, "");
    assert_eq!(missing(&said), [(1, "its step exited with code 137".to_owned())]);
}

#[test]
fn what_a_step_names_counts_before_links_break_that_it_ends() {
    let (mut root, shell) = root();
    let link = link_child(&mut root, T, 1);
    told(&mut root, shell, 1, None);
    told(&mut root, shell, 3, Some("Communication connection failure"));
    outputs(&mut root);
    let cause = Cause::AgentLost { agent: AgentId(4), problem: "closed".into() };
    let failure = Failure { node: wireup_wire::ids::NodeId(4), host: "n4".into(), rank: None, pid: None, cause };
    hear(&mut root, T, link, 1, &Control::Failed(failure));
    assert_eq!(missing(&outputs(&mut root)), [(3, "Communication connection failure".to_owned())]);
}

#[test]
fn an_agent_that_has_begun_is_not_missed_for_its_parent() {
    let (mut root, shell) = root();
    let local = wireup_wire::ids::LocalRank(0);
    root.handle(T, Input::ChildStarted { job: JobId(1), local, pid: 1, spawn_ns: 1, exec_ns: 1 });
    let link = link_child(&mut root, T, 1);
    [1, 3, 4, 5, 6].into_iter().for_each(|agent| told(&mut root, shell, agent, None));
    told(&mut root, shell, 2, Some("no room"));
    told(&mut root, shell, 5, Some("cannot connect to the parent agent: its address did not arrive in time"));
    outputs(&mut root);
    hear(&mut root, T, link, 1, &Control::Started { ranks: 3, pmix: None });
    assert_eq!(missing(&outputs(&mut root)), [(2, "no room".to_owned())]);
}

#[test]
fn those_behind_a_missing_child_are_waited_for_as_long_as_all() {
    let (mut root, shell) = root();
    rest_has_started(&mut root);
    [2, 4, 5, 6].into_iter().for_each(|agent| told(&mut root, shell, agent, None));
    told(&mut root, shell, 1, Some("no room"));
    assert_eq!(missing(&outputs(&mut root)), [], "agent 3 may be missing too");
    root.handle(T + 60 * SECOND, Input::Tick);
    let wanted = [(1, "no room".to_owned()), (3, "its task in the step did not start within 60 s".to_owned())];
    assert_eq!(missing(&outputs(&mut root)), wanted);
}

#[test]
fn a_cancelled_step_says_so_of_every_agent() {
    let (mut root, shell) = root();
    let link = link_child(&mut root, T, 1);
    link_child(&mut root, T, 2);
    (1..7).for_each(|agent| told(&mut root, shell, agent, None));
    root.handle(T, Input::LinkDown { link, problem: "closed".into() });
    told(&mut root, shell, 1, Some("Killed"));
    assert!(sent(&outputs(&mut root), UP).is_empty(), "more messages may follow");
    let words = "slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-22T09:39:10 ***\n";
    let said = sent(&exited(&mut root, T + SECOND / 10, shell, 137, words), UP);
    let wanted = "closed; STEP 3.0 ON n1 CANCELLED AT 2026-11-22T09:39:10";
    let is = |message: &Control| matches!(message, Control::Failed(Failure { cause: Cause::AgentLost { problem, .. }, .. }) if problem == wanted);
    assert!(said.iter().any(is), "{said:?}");
}

#[test]
fn who_comes_too_late_is_named_with_those_behind_that_said_nothing() {
    let (mut root, shell) = root();
    link_child(&mut root, T, 1);
    for agent in [1, 2, 3, 4, 5] {
        told(&mut root, shell, agent, None);
    }
    outputs(&mut root);
    root.handle(T + 60 * SECOND, Input::Tick);
    root.handle(T + 70 * SECOND, Input::Tick);
    let said = missing(&outputs(&mut root));
    let wanted = [
        (2, "its agent started but did not connect to its parent within 60 s".to_owned()),
        (6, "its task in the step did not start within 60 s".to_owned()),
    ];
    assert_eq!(said, wanted);
}

#[test]
fn an_agent_that_is_told_to_end_ends_the_job_with_that_reason() {
    let (mut root, _) = root();
    root.handle(T, Input::ToldToEnd { signal: 15 });
    let said = sent(&outputs(&mut root), UP);
    let is =
        |message: &Control| matches!(message, Control::Failed(Failure { cause: Cause::ToldToEnd { signal: 15 }, .. }));
    assert!(said.iter().any(is), "{said:?}");
}
