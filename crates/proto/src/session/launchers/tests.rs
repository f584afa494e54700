use super::*;
use crate::io::Output;
use crate::testing::{Look, cause, down, in_session, job_on};
use bytes::Bytes;
use wireup_wire::frame::{DownFrame, Frame};
use wireup_wire::ids::{AgentId, Client, LocalRank};
use wireup_wire::job::{PortRange, RankPorts};
use wireup_wire::peer;
use wireup_wire::rank_address;
use wireup_wire::session::{RankPortsNews, RankPortsReport};
use wireup_wire::talk::{FromLauncher, JobDown, SessionDown, ToLauncher};

const LINK: LinkId = LinkId(5);
const OTHER: LinkId = LinkId(6);

/// The launchers at the root of a standing session, whose children are linked.
struct Bench {
    cx: Cx,
    launchers: Launchers,
    nodes: Nodes,
}

impl Bench {
    fn new() -> Bench {
        let mut cx = in_session(0).linked();
        cx.outputs();
        let nodes = Nodes::new(&cx.session);
        Bench { cx, launchers: Launchers::default(), nodes }
    }

    fn act(&mut self, act: impl FnOnce(&mut Launchers, &mut Cx, &Nodes)) -> Vec<Output> {
        act(&mut self.launchers, &mut self.cx, &self.nodes);
        self.cx.outputs()
    }

    fn attach(&mut self, link: LinkId) -> Vec<Output> {
        self.act(|launchers, cx, nodes| launchers.attach(cx, nodes, link))
    }

    fn said(&mut self, link: LinkId, job: u32, message: impl Into<Control>) -> Vec<Output> {
        self.act(|launchers, cx, nodes| launchers.on_said(cx, nodes, link, JobId(job), message.into()))
    }

    fn launch(&mut self, link: LinkId, spec: JobSpec) -> Vec<Output> {
        let job = spec.job.0;
        self.said(link, job, FromLauncher::Launch(spec.into()))
    }

    /// Ends one read of a launcher's link: the root answers the requests for lists in it.
    fn read(&mut self, link: LinkId) -> Vec<Output> {
        self.act(|launchers, cx, nodes| launchers.answer_questions(cx, nodes, link))
    }

    fn nodes_changed(&mut self) -> Vec<Output> {
        self.act(|launchers, cx, nodes| launchers.on_nodes_changed(cx, nodes))
    }

    fn tick(&mut self) -> Vec<Output> {
        self.act(|launchers, cx, nodes| launchers.tell_of_deferred(cx, nodes))
    }

    fn links_of(&self, job: u32) -> Vec<LinkId> {
        self.cx.agent.links.owners.links_of(JobId(job))
    }
}

/// The descriptions of jobs that are sent to the last node, which is below agent 2.
fn started(outputs: &[Output]) -> Vec<JobSpec> {
    let spec = |message| match message {
        Control::SessionDown(SessionDown::Start { spec, .. }) => Some(*spec),
        _ => None,
    };
    outputs.sent(down(2)).into_iter().filter_map(spec).collect()
}

/// A job of one rank on the last node.
fn job(id: u32) -> JobSpec {
    job_on(id, [14], 1)
}

#[test]
fn a_job_starts_down_the_tree_and_belongs_to_its_launcher() {
    let mut bench = Bench::new();
    bench.nodes.on_agent_up(AgentId(14));
    bench.attach(LINK);
    let outputs = bench.launch(LINK, job(1));
    assert_eq!(started(&outputs).len(), 1);
    assert!(matches!(bench.launchers.asked.pop_front(), Some(Asked::Start { later, .. }) if later.is_empty()));
    assert_eq!(bench.links_of(1), [LINK]);
    assert_eq!(bench.launchers.live(), (JobId(1), vec![JobId(1)]));
    bench.act(|launchers, cx, _| launchers.on_job_over(cx, JobId(1), None));
    assert_eq!(bench.launchers.live(), (JobId(1), Vec::new()));
}

#[test]
fn a_job_starts_when_all_its_nodes_are_up() {
    let starts = |outputs: &[Output]| started(outputs).len();
    let mut bench = Bench::new();
    for link in [LINK, OTHER] {
        bench.attach(link);
    }
    for (link, id) in [(LINK, 1), (OTHER, 2)] {
        assert_eq!(starts(&bench.launch(link, job(id))), 0);
    }
    let outputs = bench.read(LINK);
    assert!(outputs.sent(LINK).is_empty() && bench.launchers.live() == (JobId(2), vec![JobId(1), JobId(2)]));
    bench.said(LINK, 0, FromLauncher::AskJobs);
    let listed = bench.read(LINK).sent(LINK);
    assert!(matches!(&listed[..], [Control::ToLauncher(ToLauncher::JobList(jobs))]
            if jobs.len() == 2 && jobs[0].nodes == [AgentId(14)]));
    let outputs = bench.said(OTHER, 2, JobDown::Kill { grace_ns: 0 });
    assert!(matches!(&outputs.sent(OTHER)[..], [Control::ToLauncher(ToLauncher::Ended(_))]));
    bench.nodes.on_agent_up(AgentId(14));
    assert_eq!(starts(&bench.nodes_changed()), 1);
    assert_eq!(starts(&bench.nodes_changed()), 0);
}

/// Agents end a job that is missing in a later list of live jobs.
#[test]
fn jobs_that_start_at_once_are_live_for_each_other() {
    let mut bench = Bench::new();
    for (link, id) in [(LINK, 1), (OTHER, 2)] {
        bench.attach(link);
        bench.launch(link, job(id));
    }
    bench.nodes.on_agent_up(AgentId(14));
    bench.nodes_changed();
    for _ in 0..2 {
        let Some(Asked::Start { live, .. }) = bench.launchers.asked.pop_front() else { panic!("the job starts") };
        assert_eq!(live, (JobId(2), vec![JobId(1), JobId(2)]));
    }
}

#[test]
fn a_job_on_a_lost_node_is_refused_with_the_reason() {
    let mut bench = Bench::new();
    bench.nodes.on_lost(AgentId(14), &"no route".into());
    bench.attach(LINK);
    let outputs = bench.launch(LINK, job(1));
    let sent = outputs.sent(LINK);
    assert!(matches!(&sent[..], [Control::ToLauncher(ToLauncher::Ended(Ended { failure: Some(failure), .. }))]
            if failure.host == "n14"));
    assert!(matches!(cause(&sent), Some(Cause::AgentLost { problem, .. }) if problem == "no route"));
}

#[test]
fn a_revive_request_is_answered_when_all_nodes_are_known() {
    let mut bench = Bench::new();
    bench.attach(LINK);
    bench.said(LINK, 0, FromLauncher::AskNodes { revive: true });
    assert!(bench.read(LINK).is_empty(), "some are still starting");
    assert_eq!(bench.links_of(0), [LINK], "it receives notes meanwhile");
    (1..15).for_each(|agent| bench.nodes.on_agent_up(AgentId(agent)));
    assert!(matches!(&bench.nodes_changed().sent(LINK)[..], [Control::ToLauncher(ToLauncher::Nodes(_))]));
    assert!(bench.nodes_changed().is_empty());
}

#[test]
fn a_session_that_is_ending_refuses_jobs_and_ends_when_there_are_none() {
    let mut bench = Bench::new();
    bench.attach(LINK);
    bench.attach(OTHER);
    assert!(!bench.launchers.may_end(&bench.cx));
    let outputs = bench.said(LINK, 0, FromLauncher::EndSession { kill: false });
    assert_eq!(outputs.sent(LINK), [ToLauncher::JobList(vec![]).into(), ToLauncher::Decided(Ok(())).into()]);
    // The other launcher's launch request may be in transit.
    assert!(matches!(&outputs.sent(OTHER)[..], [Control::ToLauncher(ToLauncher::Ended(_))]));
    assert!(bench.launch(OTHER, job(2)).sent(OTHER).is_empty(), "it was refused with the end of the session");
    let sent = bench.launch(LINK, job(1)).sent(LINK);
    assert!(matches!(cause(&sent), Some(Cause::SessionEnded { .. })), "{sent:?}");
    assert!(bench.launchers.may_end(&bench.cx));
}

#[test]
fn a_launcher_is_told_once_for_which_nodes_its_job_waits() {
    let mut bench = Bench::new();
    bench.attach(LINK);
    assert_eq!(bench.launch(LINK, job(1)).sent(LINK), []);
    let due = bench.launchers.deadline().expect("the job waits");
    assert!(bench.tick().is_empty(), "it has not waited for long");
    bench.cx.agent.now = due;
    let waits = Control::Note(peer::Note::Waits { agents: vec![AgentId(14)] });
    assert_eq!(bench.tick().sent(LINK), [waits]);
    assert_eq!((bench.launchers.deadline(), bench.tick().is_empty()), (None, true));
    bench.nodes.on_agent_up(AgentId(14));
    assert!(!bench.nodes_changed().is_empty(), "the job starts");
}

/// `wireup run cat < file` while a node is not up yet.
#[test]
fn input_for_a_waiting_job_is_delivered_when_it_starts() {
    let mut bench = Bench::new();
    bench.attach(LINK);
    bench.launch(LINK, job(1));
    let input = |payload: &'static [u8]| {
        let payload = bytes::Bytes::from_static(payload);
        Frame::new(DownFrame::Input, 0, 1, 0, payload)
    };
    for frame in [input(b"abc"), input(b"")] {
        assert!(bench.act(|launchers, cx, _| launchers.on_frame(cx, LINK, DownFrame::Input, frame)).is_empty());
    }
    for rows in [24, 40] {
        bench.said(LINK, 1, JobDown::Resize { rows, columns: 80 });
    }
    bench.nodes.on_agent_up(AgentId(14));
    bench.nodes_changed();
    let Some(Asked::Start { later, .. }) = bench.launchers.asked.pop_front() else { panic!("the job starts") };
    let later: Vec<String> = later
        .into_iter()
        .map(|later| match later {
            Later::Frame(_, frame) => String::from_utf8_lossy(&frame.payload).into_owned(),
            Later::Size(message) => format!("{message:?}"),
        })
        .collect();
    assert_eq!(later, ["abc", "", "Resize { rows: 40, columns: 80 }"]);
}

#[test]
fn a_waiting_job_is_ended_by_signals_that_would_end_its_ranks() {
    for (signal, ends) in [(2, true), (28, false), (18, false), (10, true)] {
        let mut bench = Bench::new();
        bench.attach(LINK);
        bench.launch(LINK, job(1));
        let sent = bench.said(LINK, 1, JobDown::Signal { signal }).sent(LINK);
        assert_eq!(matches!(sent[..], [Control::ToLauncher(ToLauncher::Ended(_))]), ends, "{signal}: {sent:?}");
        assert_eq!(bench.launchers.deadline().is_none(), ends);
    }
}

/// The root adds the addresses of the reserved ports to the job; addresses that a launcher sends are ignored.
#[test]
fn a_job_gets_ports_that_its_agents_have_reserved() {
    let endpoints = |outputs: &[Output]| started(outputs).pop().expect("the job starts").endpoints;
    let mut bench = Bench::new();
    let address: Bytes = rank_address::encode(7, 100, &[]).into();
    bench.nodes.on_agent_up(AgentId(14));
    let report = |news| RankPortsReport { agent: AgentId(14), incarnation: 0, news };
    bench.launchers.ports.on_report(report(RankPortsNews::Reserved { count: 2, address: address.clone() }));
    let next = Bytes::from(rank_address::shift_port(&address, 1).unwrap());
    for (id, wanted) in [(1, vec![address.clone()]), (2, vec![next]), (3, vec![])] {
        bench.attach(LinkId(id));
        let mut spec = JobSpec { endpoints: vec![Bytes::from_static(b"another")], ..job(id) };
        spec.options.process.rank_ports = Some(RankPorts { range: PortRange { low: 1, high: 1000 }, listen: true });
        assert_eq!(endpoints(&bench.launch(LinkId(id), spec)), wanted, "{id}");
    }
    bench.act(|launchers, cx, _| launchers.on_job_over(cx, JobId(1), Some(vec![AgentId(14)])));
    bench.launchers.ports.on_report(report(RankPortsNews::Renewed(JobId(1))));
    bench.attach(LINK);
    let spec = JobSpec { endpoints: vec![Bytes::from_static(b"another")], ..job(4) };
    assert!(endpoints(&bench.launch(LINK, spec)).is_empty(), "it wants none");
    bench.attach(OTHER);
    let mut spec = job(5);
    spec.options.process.rank_ports = Some(RankPorts { range: PortRange { low: 1, high: 1000 }, listen: true });
    assert_eq!(endpoints(&bench.launch(OTHER, spec)), [address]);
}

#[test]
fn a_job_is_launched_once_and_its_rank_answered_once_by_the_launcher_that_was_asked() {
    let (ours, other) = (LinkId(7), LinkId(8));
    let asker = Asker::Client(Client { local: LocalRank(1), number: 0 });
    let mut spawns = Spawns::default();
    let ask = |spawns: &mut Spawns| {
        let waiting = SpawnWaiting::new(JobId(1), (AgentId(2), asker), Some(ours));
        spawns.requests.insert(JobId(5), waiting);
    };
    ask(&mut spawns);
    let launches = [(5, other), (6, ours), (5, ours), (5, ours)];
    assert_eq!(launches.map(|(job, link)| spawns.take_launch(JobId(job), link)), [false, false, true, false]);
    assert!(spawns.requests.contains_key(&JobId(5)), "it may send frames");
    let mut cx = in_session(0);
    let at = JobNode { job: JobId(1), agent: AgentId(2) };
    for (link, answers) in [(Some(other), 0), (None, 0), (Some(ours), 1), (Some(ours), 0)] {
        spawns.on_result(&mut cx, JobId(5), link, Err("no".into()));
        assert_eq!(cx.jobs.answered.len(), answers);
        let told = cx.jobs.answered.drain(..).all(|told| told == (at, Answer::NotSpawned { problem: "no".into() }));
        assert!(told);
    }
    assert_eq!(spawns.requests.len(), 0);
    // Nobody waits for a launcher that has gone.
    ask(&mut spawns);
    spawns.forget_link(other);
    assert_eq!((spawns.waiting_for(Some(ours)), spawns.waiting_for(Some(other))), (1, 0));
    spawns.forget_link(ours);
    assert_eq!(spawns.requests.len(), 0);
}

#[test]
fn text_is_cut_between_letters_and_kept_on_one_line() {
    assert_eq!(beginning("für", 2), "f");
    assert_eq!(beginning("für", 3), "fü");
    assert_eq!(beginning("für", 9), "für");
    assert_eq!(line("a\nb\x1b[1m\u{2028}c", 99), "a b [1m c");
    assert_eq!(line("\u{85}\u{85}", 3), " ");
}
