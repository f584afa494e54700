//! How agents start their children, and what is reported if these cannot start or are lost, from the viewpoint
//! of one agent of seven, 0 - (1, 2), 1 - (3, 4), 2 - (5, 6).

use super::*;
use crate::io::{ExitStatus, JobEvent, ShellId, SignalTarget};
use wireup_wire::frame::{DownFrame, Frame};
use wireup_wire::job::{Framework, PmiFlavour, Preload, StdinTarget};
use wireup_wire::peer::Note;
use wireup_wire::pmix::{FromServer, pack};
use wireup_wire::talk::{JobDown, JobUp, SessionDown, SessionUp, ToLauncher};

/// The root with a job, its child 1 linked and its child 2 starting; also the shells that it has started, with their
/// agents.
fn root() -> (TestAgent, LinkId, Vec<(ShellId, u32)>) {
    let mut root = TestAgent::new(0, session(7));
    let called = root.receive_launch(UP, job(1)).outputs().calls();
    assert_eq!(called.iter().map(|(_, agent)| *agent).collect::<Vec<_>>(), [1, 2]);
    let link = root.link_child(1);
    root.outputs();
    (root, link, called)
}

fn start_for(agent: u32) -> SessionUp {
    let (agent, jobs, parent) = (AgentId(agent), vec![JobId(1)], vec!["10.0.0.1:5".into()]);
    SessionUp::StartFor { agent, jobs, parent, problem: "".into(), snapshot: Default::default() }
}

#[test]
fn a_child_may_request_each_agent_of_its_subtree_once() {
    let (mut root, link, _) = root();
    for wanted in [3, 3, 4, 3, 1, 2, 5, 0, 7, 4_000_000_000] {
        root.receive(link, 0, start_for(wanted));
    }
    let called: Vec<u32> = root.outputs().calls().iter().map(|(_, agent)| *agent).collect();
    assert_eq!(called, [3, 4]);
    // After the start timeout the root starts no more agents.
    let (mut root, link, _) = self::root();
    root.now = T + 61 * SECOND;
    let outputs = root.receive(link, 0, start_for(3)).outputs();
    assert!(outputs.calls().is_empty());
    assert!(matches!(&outputs.sent(link)[..], [Control::SessionDown(SessionDown::NotStarted(missing))]
            if missing.agent == AgentId(3)));
}

#[test]
fn reports_of_a_child_about_agents_outside_its_subtree_are_ignored() {
    let (mut root, link, called) = root();
    let lie =
        Note::StartedFor { agent: AgentId(2), parent: AgentId(1), starter: AgentId(1), problem: Default::default() };
    root.receive(link, 0, lie);
    let missing = |agent| MissingAgent { agent: AgentId(agent), problem: "gone".into() };
    root.receive(link, 1, JobUp::Missing(vec![missing(2), missing(5), missing(900)]));
    // The root has started agent 2 itself, so the failure of that remote shell still makes agent 2 a missing agent.
    for shell in root.shell_ended(called[1].0, 255, "No route to host").outputs().probes() {
        root.shell_ended(shell, 0, "");
    }
    let sent = root.receive(link, 1, JobUp::Started { ranks: 3, pmix: None }).rank_started(1).sent(UP);
    let Some(Cause::AgentsMissing { missing }) = cause(&sent) else { panic!("{sent:?}") };
    assert!(matches!(missing[..], [MissingAgent { agent: AgentId(2), .. }]), "{missing:?}");
}

#[test]
fn notes_of_a_child_are_bounded() {
    let (mut root, link, _) = root();
    for _ in 0..100_000 {
        root.receive(link, 0, Note::Sent { agent: AgentId(3), to_second_cache: false });
    }
    let passed = root.sent(UP).len();
    assert!((3..1000).contains(&passed), "{passed}");
}

#[test]
fn an_agent_that_linked_is_not_called_again() {
    let (mut root, _, called) = root();
    root.shell_ended(called[1].0, 255, "kex_exchange_identification: Connection closed by remote host");
    root.link_child(2);
    root.outputs();
    for second in 1..60 {
        root.tick_at(T + second * SECOND);
    }
    assert!(root.outputs().calls().is_empty());
}

#[test]
fn a_refusal_is_ignored_for_an_agent_that_is_linked_or_was_not_requested() {
    let mut middle = TestAgent::new(1, session(7));
    let called = middle.launch(job(1)).outputs().calls();
    for (shell, _) in called {
        middle.shell_ended(shell, 255, "Permission denied (publickey).");
    }
    let asked = middle.sent(UP);
    let is_asked = |message: &Control| matches!(message, Control::SessionUp(SessionUp::StartFor { .. }));
    assert!(asked.iter().all(is_asked) && asked.len() == 2, "{asked:?}");
    let link = middle.link_child(3);
    middle.outputs();
    for agent in [3, 6, 0, 1, 99] {
        let missing = MissingAgent { agent: AgentId(agent), problem: Default::default() };
        middle.receive(UP, 0, SessionDown::NotStarted(missing));
    }
    let sent = middle.outputs();
    assert!(sent.sent(UP).is_empty(), "{sent:?}");
    assert!(!sent.contains(&Output::CloseLink { link }));
    // Agent 4 is reported as missing, and is rejected if it connects later.
    let missing = MissingAgent { agent: AgentId(4), problem: "No route".into() };
    middle.receive(UP, 0, SessionDown::NotStarted(missing));
    assert!(matches!(&middle.sent(UP)[..], [Control::JobUp(JobUp::Missing(named))] if named[0].agent == AgentId(4)));
    let late = middle.link_child(4);
    assert!(middle.outputs().closes(late));
}

#[test]
fn a_later_job_has_its_own_start_time_and_names_lost_agents() {
    let (mut root, first, _) = root();
    let second = root.link_child(2);
    let later = T + 1000 * SECOND;
    root.now = later;
    root.link_down(second).outputs();
    root.receive_launch(UP, job(2)).rank_started(2);
    let sent = root.receive(first, 2, JobUp::Started { ranks: 3, pmix: None }).sent(UP);
    let Some(Cause::AgentsMissing { missing }) = cause(&sent) else { panic!("{sent:?}") };
    assert!(matches!(missing[..], [MissingAgent { agent: AgentId(2), .. }]), "{missing:?}");

    let mut middle = TestAgent::new(1, session(7));
    middle.now = later;
    assert_eq!(middle.receive_launch(UP, job(2)).outputs().calls().len(), 2);
    assert!(middle.deadline().is_some_and(|deadline| deadline > later));
    assert!(middle.tick_at(later).sent(UP).is_empty(), "no agent is late yet");
    // The launch of job 2 arrives a second time and starts nothing.
    let again = middle.receive_launch(UP, job(2)).outputs();
    assert!(!again.spawns(), "{again:?}");
}

#[test]
fn a_child_that_links_after_the_end_of_its_job_is_closed_and_the_root_can_exit() {
    let (mut root, link, _) = root();
    root.receive(UP, 1, JobDown::Kill { grace_ns: 0 });
    let status = ExitStatus::Signalled { signal: 9, core_dumped: false };
    let outputs = root.rank_started(1).rank_exited(1, 0, status).outputs();
    assert!(outputs.iter().any(|output| matches!(output, Output::StopShell { .. })), "{outputs:?}");
    let late = root.link_child(2);
    assert!(root.outputs().closes(late));
    root.receive(UP, 0, SessionDown::Shutdown).link_down(link);
    for _ in 0..10 {
        let Some(deadline) = root.deadline() else { break };
        root.tick_at(deadline);
    }
    assert!(root.outputs().contains(&Output::Exit));
}

#[test]
fn a_shorter_start_time_of_the_parent_is_passed_on() {
    let mut middle = TestAgent::new(1, session(7));
    middle.launch(job(1));
    let third = middle.link_child(3);
    middle.outputs();
    middle.receive(UP, 0, SessionDown::TimeLeft { left_ns: 10 * SECOND });
    assert_eq!(middle.sent(third), [Control::SessionDown(SessionDown::TimeLeft { left_ns: 10 * SECOND })]);
    // A remaining time that is longer than the agent's own changes nothing.
    let sent = middle.receive(UP, 0, SessionDown::TimeLeft { left_ns: 50 * SECOND }).tick_at(T + 10 * SECOND).sent(UP);
    assert!(
        sent.iter()
            .any(|message| matches!(message, Control::JobUp(JobUp::Missing(named)) if named[0].agent == AgentId(4)))
    );
}

fn holds(outputs: &[Output], agent: u32) -> Option<bool> {
    outputs.iter().rev().find_map(|output| match output {
        Output::StartAgent { agent: called, bootstrap: Some(bootstrap), .. } if called.0 == agent => {
            Some(bootstrap.session.hold_ranks)
        }
        _ => None,
    })
}

/// A program must not run twice because its agent was started twice.
#[test]
fn ranks_of_an_agent_that_was_called_twice_wait_for_its_link() {
    let mut root = TestAgent::new(0, session(7));
    let first = root.receive_launch(UP, job(1)).outputs();
    assert_eq!(holds(&first, 2), Some(false));
    let (shell, _) = first.calls()[1];
    root.shell_ended(shell, 255, "kex_exchange_identification: Connection closed by remote host").outputs();
    assert_eq!(holds(&root.tick_at(T + SECOND).outputs(), 2), Some(true), "it is called again");

    let branch = root.link_child(1);
    root.outputs();
    assert_eq!(holds(&root.receive(branch, 0, start_for(3)).outputs(), 3), Some(true), "an ancestor calls it");

    let mut held = TestAgent::start(5, SessionSpec { hold_ranks: true, ..session(7) }, T);
    assert!(!held.launch(job(1)).outputs().spawns());
    assert!(held.link_up(UP, Peer::Parent).outputs().spawns());
}

/// The root starts nothing before both of its children have reported.
#[test]
fn no_rank_starts_before_all_agents_are_there() {
    let together = || SessionSpec { start_together: true, ..session(7) };
    let mut root = TestAgent::new(0, together());
    let calls = root.receive_launch(UP, job(1)).outputs().calls();
    let links = [1, 2].map(|child| root.link_child(child));
    assert!(!root.receive(links[0], 1, JobUp::Ready).outputs().spawns());
    let outputs = root.receive(links[1], 1, JobUp::Ready).outputs();
    assert!(
        outputs.spawns()
            && links.iter().all(|link| outputs.sent(*link).contains(&Control::JobDown(JobDown::StartRanks)))
    );

    let mut root = TestAgent::new(0, together());
    root.receive_launch(UP, job(1)).outputs();
    let link = root.link_child(1);
    root.receive(link, 1, JobUp::Ready);
    let probes = root.shell_ended(calls[1].0, 255, "No route to host").outputs();
    for probe in probes.probes() {
        root.shell_ended(probe, 255, "No route to host");
    }
    let outputs = root.outputs();
    assert!(matches!(cause(&outputs.sent(UP)), Some(Cause::AgentsMissing { .. })), "{outputs:?}");
    assert!(!outputs.spawns() && !root.tick_at(T + 10 * SECOND).outputs().spawns());

    let mut leaf = TestAgent::start(5, together(), T);
    assert!(!leaf.launch(job(1)).outputs().spawns());
    let outputs = leaf.link_up(UP, Peer::Parent).outputs();
    assert!(!outputs.spawns() && outputs.sent(UP).contains(&Control::JobUp(JobUp::Ready)), "{outputs:?}");
    assert!(leaf.receive(UP, 1, JobDown::StartRanks).outputs().spawns());
}

#[test]
fn no_rank_starts_before_its_store_listens() {
    let mut spec = job_on(1, [1], 1);
    spec.options.process.framework = Some(Framework::Torch);
    let mut leaf = TestAgent::linked(1, session(3));
    let outputs = leaf.receive_launch(UP, spec).outputs();
    assert!(outputs.iter().any(|output| matches!(output, Output::ListenForStore { .. })) && !outputs.spawns());
    let listens = JobEvent::StoreListens { result: Ok(23_456) };
    let outputs = leaf.event(JobId(1), listens).outputs();
    let env = &outputs.plan().expect("the rank starts").ranks[0].env;
    assert!(env.contains(&b"MASTER_ADDR=127.0.0.1".to_vec()) && env.contains(&b"MASTER_PORT=23456".to_vec()));
}

#[test]
fn no_rank_starts_before_it_is_known_where_ranks_meet() {
    let meeting = |nodes: [u32; 2]| {
        let mut spec = job_on(1, nodes, 1);
        spec.options.process.framework = Some(Framework::TorchRoutable);
        spec
    };
    let address = "10.0.0.1:23456".parse().unwrap();
    let reserved = || Input::Job { job: JobId(1), event: JobEvent::RendezvousReserved { result: Ok(address) } };
    let reserves = |outputs: &[Output]| outputs.iter().any(|output| matches!(output, Output::ReserveRendezvous { .. }));
    let (up, down) = (Control::from(JobUp::Rendezvous { address }), JobDown::Rendezvous { address });

    // Rank 0 runs at the leaf.
    let mut leaf = TestAgent::linked(1, session(3));
    let outputs = leaf.receive_launch(UP, meeting([1, 0])).outputs();
    assert!(reserves(&outputs) && !outputs.spawns());
    let outputs = leaf.handle(reserved()).outputs();
    assert!(!outputs.spawns() && outputs.sent(UP).contains(&up), "{outputs:?}");
    assert!(leaf.receive(UP, 1, down.clone()).outputs().spawns());

    let mut root = TestAgent::new(0, session(3));
    root.receive_launch(UP, meeting([1, 0]));
    let link = root.link_child(1);
    let outputs = root.outputs();
    assert!(!reserves(&outputs) && !outputs.spawns());
    let outputs = root.receive(link, 1, up).outputs();
    assert!(outputs.sent(link).contains(&down.clone().into()));
    let env = &outputs.plan().expect("rank 1 starts").ranks[0].env;
    assert!(env.contains(&b"MASTER_ADDR=10.0.0.1".to_vec()) && env.contains(&b"MASTER_PORT=23456".to_vec()));

    // A job that is killed before the address of the rendezvous arrives starts nothing.
    let mut leaf = TestAgent::linked(1, session(3));
    leaf.receive_launch(UP, meeting([0, 1]));
    leaf.receive(UP, 1, JobDown::Kill { grace_ns: 0 });
    let outputs = leaf.receive(UP, 1, down.clone()).outputs();
    assert!(!outputs.spawns() && outputs.iter().any(|output| matches!(output, Output::JobGone { .. })), "{outputs:?}");
}

/// The launcher answers a rank's spawn request when it learns that the job has started, with an error if the job has
/// failed before; so the failure must be reported first.
#[test]
fn a_job_whose_only_agent_is_missing_has_failed_before_it_has_started() {
    let mut root = TestAgent::new(0, SessionSpec { start_together: true, ..session(3) });
    let calls = root.receive_launch(UP, job_on(1, [2], 1)).outputs().calls();
    let probes = root.shell_ended(calls[0].0, 255, "No route to host").outputs();
    for probe in probes.calls() {
        root.shell_ended(probe.0, 255, "No route to host");
    }
    let mut sent = [probes.sent(UP), root.sent(UP)].concat();
    sent.retain(|message| matches!(message, Control::JobUp(JobUp::Started { .. } | JobUp::Failed(_))));
    assert!(matches!(cause(&sent[..1]), Some(Cause::AgentsMissing { .. })), "{sent:?}");
}

#[test]
fn a_signal_that_ends_ranks_ends_a_job_that_waits_for_agents() {
    let mut root = TestAgent::new(0, SessionSpec { start_together: true, ..session(7) });
    root.receive_launch(UP, job(1)).outputs();
    let outputs = root.receive(UP, 1, JobDown::Signal { signal: 2 }).outputs();
    assert!(matches!(cause(&outputs.sent(UP)), Some(Cause::Interrupted { signal: 2 })), "{outputs:?}");
    assert!(!outputs.spawns());
}

#[test]
fn a_signal_that_ends_ranks_ends_a_job_whose_modules_are_being_imported() {
    let mut preloading = job(1);
    preloading.options.process.preload = Some(Preload::default());
    for (has_rank, signal) in [(false, 2), (false, 28), (true, 2)] {
        let mut root = TestAgent::new(0, session(7));
        assert!(root.receive_launch(UP, preloading.clone()).outputs().spawns());
        if has_rank {
            root.rank_started(1);
        }
        let outputs = root.receive(UP, 1, JobDown::Signal { signal }).outputs();
        let is_forwarded =
            outputs.iter().any(|output| matches!(output, Output::Signal { signal: sent, .. } if *sent == signal));
        match cause(&outputs.sent(UP)) {
            None => assert!(is_forwarded, "{outputs:?}"),
            Some(Cause::Interrupted { signal: 2 }) => assert!(!has_rank && signal == 2 && !is_forwarded),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn input_and_signals_wait_for_ranks_that_wait_for_a_server() {
    let mut middle = TestAgent::new(5, session(7));
    middle.outputs();
    let mut served = job(1);
    served.options.pmi.flavour = PmiFlavour::Both;
    served.options.stdio.stdin = StdinTarget::All;
    middle.receive_launch(UP, served);
    let input = Frame::new(DownFrame::Input, 0, 1, 0, b"in"[..].into());
    let early = middle.receive_frame(UP, input).receive(UP, 1, JobDown::Signal { signal: 10 }).outputs();
    let is_for_ranks = |output: &Output| {
        matches!(output, Output::Spawn(_) | Output::Write { .. } | Output::Signal { target: SignalTarget::All, .. })
    };
    assert!(!early.iter().any(is_for_ranks), "{early:?}");
    let failed = FromServer::Failed { problem: "no library".into() };
    let later = middle.event(JobId(1), JobEvent::PmixBytes { bytes: pack(&failed) }).outputs();
    let kinds: Vec<_> = later.iter().filter(|output| is_for_ranks(output)).collect();
    assert!(
        matches!(kinds[..], [Output::Spawn(_), Output::Write { .. }, .., Output::Signal { signal: 10, .. }]),
        "{kinds:?}"
    );
}

#[test]
fn a_profiled_job_requests_the_clock_if_the_link_is_up() {
    let mut middle = TestAgent::new(5, session(7));
    middle.outputs();
    let mut profiled = job(1);
    profiled.options.profile = true;
    let asked = middle.receive_launch(UP, profiled).sent(UP);
    assert!(asked.iter().any(|message| matches!(message, Control::SessionUp(SessionUp::ClockAsk { .. }))), "{asked:?}");
}

#[test]
fn in_a_verbose_session_an_agent_reports_how_it_reached_its_parent() {
    for verbose in [false, true] {
        let mut agent = TestAgent::new(5, SessionSpec { verbose, ..session(7) });
        let failed = "10.0.0.2:7: refused";
        agent.handle(Input::ParentReached { address: "10.0.0.1:7".into(), took_ns: 4, failed: failed.into() });
        let sent = agent.sent(UP);
        let note = Note::Dialled { agent: AgentId(5), address: "10.0.0.1:7".into(), took_ns: 4, failed: failed.into() };
        assert_eq!(sent.contains(&Control::Note(note)), verbose, "{sent:?}");
    }
}

/// A root with a job on the agents below it, and the remote shells that it has started for its two children.
fn root_without_ranks() -> (TestAgent, Vec<ShellId>) {
    let mut root = TestAgent::new(0, session(7));
    let outputs = root.receive_launch(UP, job_on(1, 1..7, 1)).outputs();
    assert_eq!(outputs.calls().iter().map(|(_, agent)| *agent).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(outputs.sent(UP), []);
    (root, outputs.calls().into_iter().map(|(shell, _)| shell).collect())
}

/// No child is running or can be started: the job fails when the agents below have been probed.
#[test]
fn a_job_fails_if_no_agent_can_be_started() {
    let (mut root, shells) = root_without_ranks();
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
    let (mut root, shells) = root_without_ranks();
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
