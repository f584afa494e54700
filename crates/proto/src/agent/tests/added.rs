//! Jobs that add hosts to a standing session.

use super::standing::{LAUNCHER, receive_all};
use super::*;
use crate::io::{ExitStatus, ShellId};
use crate::testing::local;
use wireup_wire::job::NodeSpec;
use wireup_wire::limits::ADDED_HOSTS_MAX;
use wireup_wire::peer::Note;
use wireup_wire::session::Entry;
use wireup_wire::talk::{FromLauncher, JobDown, JobUp, SessionDown, ToLauncher};

const CHILD: LinkId = LinkId(101);

/// The root of a session on three hosts, all of whose agents are linked, and the number of its launcher's job.
fn root() -> (TestAgent, u32) {
    let mut root = TestAgent::linked(0, standing(session(3)));
    root.handle(Input::Listening { result: Ok(vec!["10.0.0.1:5".into()]) });
    for child in [1, 2] {
        root.link_child(child);
    }
    root.outputs();
    let job = root.attach(LAUNCHER);
    (root, job)
}

/// A root whose launcher has launched a job with these hosts, the job's number, and the remote shells to the hosts.
fn adding(hosts: &[&str]) -> (TestAgent, u32, Vec<ShellId>) {
    let (mut root, job) = root();
    root.receive_launch(LAUNCHER, job_with(job, [0], hosts));
    let shells = root.outputs().calls().into_iter().map(|(shell, _)| shell).collect();
    (root, job, shells)
}

fn to_add(name: &str) -> NodeSpec {
    NodeSpec { agent: AgentId::ADDED, name: name.into(), shared: false }
}

/// A job with one rank on each of `agents` and one on each of `hosts`, which are to be added to the session.
fn job_with(id: u32, agents: impl IntoIterator<Item = u32>, hosts: &[&str]) -> JobSpec {
    let mut spec = job_on(id, agents, 1);
    let count = hosts.len() as u32;
    spec.nodes.extend(hosts.iter().map(|host| to_add(host)));
    spec.blocks[0].nodes += count;
    spec.apps[0].ranks += count;
    spec
}

fn entries(outputs: &[Output]) -> Vec<Entry> {
    let log = |message| match message {
        Control::SessionDown(SessionDown::Log(log)) => log.entries,
        _ => Vec::new(),
    };
    outputs.sent(CHILD).into_iter().flat_map(log).collect()
}

fn called(outputs: &[Output]) -> Vec<(u32, String)> {
    let call = |output: &Output| match output {
        Output::StartAgent { agent, host, bootstrap: Some(_), .. } => Some((agent.0, host.clone())),
        _ => None,
    };
    outputs.iter().filter_map(call).collect()
}

fn link(root: &mut TestAgent, agent: u32, incarnation: u32) -> LinkId {
    let link = LinkId(200 + agent);
    root.link_up(link, Peer::Child { agent: AgentId(agent), incarnation });
    link
}

/// Reports that the ranks of a job have ended: one rank on each of these agents, and one at the root.
fn end(root: &mut TestAgent, job: u32, links: &[LinkId]) {
    for link in links {
        root.receive(*link, job, JobUp::Started { ranks: 1, pmix: None });
        root.receive(*link, job, JobUp::Done(peer::Done { ranks: 1, ..peer::Done::default() }));
    }
    root.rank_started(job).rank_ended(job, 0, ExitStatus::Exited(0));
}

#[test]
fn an_added_host_serves_one_job_and_its_number_is_free_again() {
    let (mut root, job) = root();
    root.receive_launch(LAUNCHER, job_with(job, [0], &["moon", "sun"]));
    let outputs = root.outputs();
    assert_eq!(
        outputs.sent(LAUNCHER),
        [Control::ToLauncher(ToLauncher::Added { agents: vec![AgentId(3), AgentId(4)] })]
    );
    assert_eq!(entries(&outputs), [Entry::Return(vec![AgentId(3), AgentId(4)])]);
    assert_eq!(called(&outputs), [(3, "moon".to_owned()), (4, "sun".to_owned())]);
    assert!(!outputs.spawns(), "the job waits");
    let links = [link(&mut root, 3, 1), link(&mut root, 4, 1)];
    let outputs = root.outputs();
    assert!(outputs.spawns());
    for at in links {
        let sent = outputs.sent(at);
        assert!(matches!(&sent[..], [.., Control::SessionDown(SessionDown::Start { .. })]), "{sent:?}");
    }
    end(&mut root, job, &links);
    let outputs = root.outputs();
    let sent = outputs.sent(LAUNCHER);
    assert!(matches!(&sent[..], [.., Control::ToLauncher(ToLauncher::Ended(_))]), "{sent:?}");
    assert_eq!(entries(&outputs), [Entry::Lost(vec![AgentId(3), AgentId(4)])]);
    assert!(links.iter().all(|at| outputs.closes(*at)));
    root.link_down(LAUNCHER);
    let next = root.attach(LAUNCHER);
    root.receive_launch(LAUNCHER, job_with(next, [0], &["mars"]));
    let outputs = root.outputs();
    assert_eq!(outputs.sent(LAUNCHER), [Control::ToLauncher(ToLauncher::Added { agents: vec![AgentId(3)] })]);
    assert_eq!(called(&outputs), [(3, "mars".to_owned())]);
    link(&mut root, 3, 1);
    assert!(!root.outputs().spawns(), "that was the earlier agent");
    link(&mut root, 3, 3);
    assert!(root.outputs().spawns());
}

#[test]
fn the_remote_shell_of_an_agent_that_has_left_says_nothing_about_the_next_one() {
    let (mut root, job, shells) = adding(&["moon"]);
    let links = [link(&mut root, 3, 1)];
    root.outputs();
    end(&mut root, job, &links);
    root.link_down(LAUNCHER).outputs();
    let next = root.attach(LAUNCHER);
    root.receive_launch(LAUNCHER, job_with(next, [0], &["mars"]));
    let at = link(&mut root, 3, 3);
    root.shell_ended(shells[0], 255, "moon is closed").outputs();
    root.link_down(at);
    let sent = root.tick_when_due().sent(LAUNCHER);
    assert!(matches!(cause(&sent), Some(Cause::AgentLost { problem, .. }) if !problem.contains("moon")), "{sent:?}");
}

#[test]
fn a_host_that_cannot_be_added_fails_its_job_alone() {
    let (mut root, _, shells) = adding(&["moon"]);
    root.shell_ended(shells[0], 255, "kex_exchange_identification: Connection closed by remote host");
    let sent = root.sent(LAUNCHER);
    assert!(matches!(&sent[..], [Control::Note(Note::Retry { agent: AgentId(3), .. })]), "{sent:?}");
    let shell = root.tick_when_due().outputs().calls()[0].0;
    root.shell_ended(shell, 255, "no route to host");
    let outputs = root.outputs();
    let sent = outputs.sent(LAUNCHER);
    assert!(
        matches!(cause(&sent), Some(Cause::AgentsMissing { missing }) if missing[0].problem.contains("no route")),
        "{sent:?}"
    );
    assert_eq!(entries(&outputs), [Entry::Lost(vec![AgentId(3)])]);
    let sent = receive_all(&mut root, 0, [FromLauncher::AskNodes { revive: false }]);
    assert!(matches!(&sent[..], [Control::ToLauncher(ToLauncher::Nodes(nodes))] if nodes.len() == 3), "{sent:?}");
}

#[test]
fn all_hosts_that_cannot_be_added_are_named() {
    let (mut root, _, shells) = adding(&["moon", "sun"]);
    root.shell_ended(shells[0], 255, "no route to moon");
    assert_eq!(cause(&root.sent(LAUNCHER)), None, "sun may start");
    root.shell_ended(shells[1], 255, "no route to sun");
    let sent = root.sent(LAUNCHER);
    let Some(Cause::AgentsMissing { missing }) = cause(&sent) else { panic!("{sent:?}") };
    assert!(missing[0].problem.contains("moon") && missing[1].problem.contains("sun"), "{missing:?}");
}

#[test]
fn no_host_is_added_for_a_job_that_is_refused() {
    let (mut root, job) = root();
    root.link_down(LinkId(102)).tick_at(T + SECOND).outputs();
    root.receive_launch(LAUNCHER, job_with(job, [2], &["moon"]));
    let outputs = root.outputs();
    assert!(matches!(cause(&outputs.sent(LAUNCHER)), Some(Cause::AgentLost { agent: AgentId(2), .. })));
    assert_eq!(called(&outputs), []);
    // A client of the session requests a job with one more added host than `ADDED_HOSTS_MAX`, which no launcher does.
    let other = LinkId(51);
    let second = root.attach(other);
    root.outputs();
    let hosts: Vec<String> = (0..=ADDED_HOSTS_MAX).map(|host| format!("m{host}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    root.receive_launch(other, job_with(second, [0], &hosts));
    let outputs = root.outputs();
    assert!(matches!(cause(&outputs.sent(other)), Some(Cause::Launcher { .. })) && called(&outputs).is_empty());
}

#[test]
fn a_host_that_the_session_has_is_not_added_again() {
    let (mut root, job) = root();
    root.receive_launch(LAUNCHER, job_with(job, [0], &["n2"]));
    let outputs = root.outputs();
    assert_eq!(outputs.sent(LAUNCHER), [Control::ToLauncher(ToLauncher::Added { agents: vec![AgentId(2)] })]);
    assert!(outputs.spawns() && called(&outputs).is_empty() && entries(&outputs).is_empty());
}

#[test]
fn hosts_of_a_job_that_is_given_up_are_released() {
    for how in 0..3 {
        let (mut root, job, shells) = adding(&["moon"]);
        match how {
            0 => root.link_down(LAUNCHER),
            1 => root.receive(LAUNCHER, job, JobDown::Kill { grace_ns: 0 }),
            _ => {
                root.attach(LinkId(51));
                root.receive(LinkId(51), 0, standing::kill(job, "me"))
            }
        };
        let outputs = root.outputs();
        assert_eq!(entries(&outputs), [Entry::Lost(vec![AgentId(3)])], "{how}");
        assert!(outputs.contains(&Output::StopShell { shell: shells[0] }), "{how}");
    }
}

#[test]
fn a_job_runs_only_on_its_own_hosts() {
    let (mut root, _, _) = adding(&["moon"]);
    let other = LinkId(51);
    let second = root.attach(other);
    root.receive_launch(other, job_on(second, [3], 1));
    let sent = root.sent(other);
    assert!(matches!(cause(&sent), Some(Cause::Launcher { problem }) if problem.contains("does not have")), "{sent:?}");
    let lists = receive_all(&mut root, 0, [FromLauncher::AskJobs]);
    let [Control::ToLauncher(ToLauncher::JobList(jobs))] = &lists[..] else { panic!("{lists:?}") };
    assert_eq!((&jobs[0].nodes[..], &jobs[0].added[..]), (&[AgentId(0)][..], &["moon".to_owned()][..]));
}

#[test]
fn a_session_on_one_machine_takes_no_hosts() {
    for session in [local(session(3)), by_step(session(3))] {
        let mut root = TestAgent::linked(0, standing(session));
        let job = root.attach(LAUNCHER);
        root.outputs();
        root.receive_launch(LAUNCHER, job_with(job, [0], &["moon"]));
        let sent = root.sent(LAUNCHER);
        assert!(matches!(cause(&sent), Some(Cause::Launcher { .. })), "{sent:?}");
    }
}

#[test]
fn lost_nodes_return_without_hosts_that_were_added() {
    let (mut root, _, _) = adding(&["moon"]);
    let added = link(&mut root, 3, 1);
    root.outputs();
    root.link_down(added).tick_at(T + SECOND).outputs();
    root.receive(LAUNCHER, 0, FromLauncher::AskNodes { revive: true });
    assert_eq!(called(&root.outputs()), []);
}

#[test]
fn a_run_of_its_own_numbers_each_added_host_once() {
    let mut root = TestAgent::new(0, session(1));
    root.launch(job_on(1, [0], 1)).outputs();
    for (child, agent) in [(2, 1), (3, 2)] {
        let spawned = wireup_wire::job::Spawned {
            family: JobId(1),
            by: JobId(1),
            nspace: String::new(),
            rank: wireup_wire::ids::Rank(0),
            preput: Vec::new(),
        };
        let spec = JobSpec { spawned: Some(spawned), ..job_with(child, [0], &["moon"]) };
        root.receive_launch(UP, spec);
        let outputs = root.outputs();
        assert_eq!(called(&outputs), [(agent, "moon".to_owned())]);
        assert_eq!(outputs.sent(UP), [Control::ToLauncher(ToLauncher::Added { agents: vec![AgentId(agent)] })]);
        let at = link(&mut root, agent, 0);
        root.outputs();
        end(&mut root, child, &[at]);
        assert!(root.sent(at).contains(&Control::SessionDown(SessionDown::Shutdown)));
        root.link_down(at).outputs();
    }
}
