use super::*;
use crate::io::Output;
use crate::session::inputs::early;
use crate::session::inputs::rank_ports;
use crate::testing::{Bench, Part, Scene, job_on};
use bytes::Bytes;
use wireup_wire::frame::Kind;
use wireup_wire::ids::AgentId;
use wireup_wire::job::{PortRange, RankPorts};
use wireup_wire::peer;
use wireup_wire::rank_address;
use wireup_wire::session::{RankPortsNews, RankPortsReport};
use wireup_wire::talk::{FromLauncher, JobDown, SessionDown, ToLauncher};

const LINK: LinkId = LinkId(5);
const OTHER: LinkId = LinkId(6);

/// With the root's table of nodes.
struct WithNodes {
    launchers: Launchers,
    nodes: Nodes,
}

impl Part for WithNodes {
    type Input = Input;
    const TICK: Option<Input> = Some(Input::Tick);

    fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        self.launchers.handle(view, Some(&self.nodes), input, fx);
    }

    fn deadline(&self) -> Option<Instant> {
        self.launchers.deadline()
    }
}

fn bench() -> Bench<WithNodes> {
    let scene = Scene::standing(0);
    let nodes = Nodes::new(&scene.session);
    Bench::new(scene, WithNodes { launchers: Launchers::default(), nodes })
}

fn message(bench: &mut Bench<WithNodes>, link: LinkId, job: u32, message: Control) -> Effects {
    bench.input(Input::Said { link, job: JobId(job), message: Box::new(message) })
}

/// A job of one rank on the last node.
fn job(id: u32) -> JobSpec {
    job_on(id, [14], 1)
}

#[test]
fn each_launcher_has_a_job_of_its_own() {
    let mut bench = bench();
    for (link, own) in [(LINK, 1), (OTHER, 2)] {
        let fx = bench.input(Input::Up(link));
        assert!(matches!(&fx.sent_on(link)[..], [Control::ToLauncher(ToLauncher::Welcome(welcome))]
                if welcome.job == JobId(own)));
    }
    let fx = message(&mut bench, OTHER, 1, Control::FromLauncher(FromLauncher::Launch(job(1).into())));
    assert!(matches!(&fx.sent_on(OTHER)[..], [Control::ToLauncher(ToLauncher::Refused { .. })]));
    assert!(bench.part.launchers.links_of(JobId(1)).is_empty());
}

#[test]
fn a_job_starts_down_the_tree_and_belongs_to_its_launcher() {
    let mut bench = bench();
    bench.part.nodes.on_agent_up(AgentId(14));
    bench.input(Input::Up(LINK));
    let fx = message(&mut bench, LINK, 1, Control::FromLauncher(FromLauncher::Launch(job(1).into())));
    let passed = |effect: &Effect| matches!(effect, Effect::PassOn(agents, _) if agents == &[AgentId(14)]);
    assert!(fx.iter().any(passed));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Early(early::Input::Start { live: Some(_), .. }))));
    assert_eq!(bench.part.launchers.links_of(JobId(1)), [LINK]);
    assert_eq!(bench.part.launchers.live(), (JobId(1), vec![JobId(1)]));
    bench.input(Input::JobOver { job: JobId(1), traces: None });
    assert_eq!(bench.part.launchers.live(), (JobId(1), Vec::new()));
}

#[test]
fn a_job_starts_when_all_its_nodes_are_up() {
    let starts = |fx: &Effects| fx.iter().filter(|effect| matches!(effect, Effect::PassOn(..))).count();
    let mut bench = bench();
    for link in [LINK, OTHER] {
        bench.input(Input::Up(link));
    }
    for (link, id) in [(LINK, 1), (OTHER, 2)] {
        assert_eq!(
            starts(&message(&mut bench, link, id, Control::FromLauncher(FromLauncher::Launch(job(id).into())))),
            0
        );
    }
    let fx = bench.input(Input::Answer(LINK));
    assert!(fx.sent_on(LINK).is_empty() && bench.part.launchers.live() == (JobId(2), vec![JobId(1), JobId(2)]));
    message(&mut bench, LINK, 0, Control::FromLauncher(FromLauncher::AskJobs));
    let listed = bench.input(Input::Answer(LINK)).sent_on(LINK);
    assert!(matches!(&listed[..], [Control::ToLauncher(ToLauncher::JobList(jobs))]
            if jobs.len() == 2 && jobs[0].nodes == [AgentId(14)]));
    let fx = message(&mut bench, OTHER, 2, Control::JobDown(JobDown::Kill { grace_ns: 0 }));
    assert!(matches!(&fx.sent_on(OTHER)[..], [Control::ToLauncher(ToLauncher::Ended(_))]));
    bench.part.nodes.on_agent_up(AgentId(14));
    assert_eq!(starts(&bench.input(Input::NodesChanged)), 1);
    assert_eq!(starts(&bench.input(Input::NodesChanged)), 0);
}

#[test]
fn a_job_on_a_lost_node_is_refused_with_the_reason() {
    let mut bench = bench();
    bench.part.nodes.on_lost(AgentId(14), &"no route".into());
    bench.input(Input::Up(LINK));
    let fx = message(&mut bench, LINK, 1, Control::FromLauncher(FromLauncher::Launch(job(1).into())));
    let [Control::ToLauncher(ToLauncher::Ended(Ended { failure: Some(failure), .. }))] = &fx.sent_on(LINK)[..] else {
        panic!("it is refused")
    };
    assert_eq!(failure.host, "n14");
    assert!(matches!(&failure.cause, Cause::AgentLost { problem, .. } if problem == "no route"));
}

#[test]
fn requests_of_one_read_are_answered_once() {
    let mut bench = bench();
    bench.input(Input::Up(LINK));
    for _ in 0..3 {
        assert!(message(&mut bench, LINK, 0, Control::FromLauncher(FromLauncher::AskNodes)).is_empty());
    }
    assert_eq!(bench.input(Input::Answer(LINK)).sent_on(LINK).len(), 1);
    assert!(bench.input(Input::Answer(LINK)).is_empty());
}

#[test]
fn a_revive_request_is_answered_when_all_nodes_are_known() {
    let mut bench = bench();
    bench.input(Input::Up(LINK));
    message(&mut bench, LINK, 0, Control::FromLauncher(FromLauncher::Revive));
    assert!(bench.input(Input::Answer(LINK)).is_empty(), "some are still starting");
    assert_eq!(bench.part.launchers.links_of(JobId(0)), [LINK], "it receives notes meanwhile");
    (1..15).for_each(|agent| bench.part.nodes.on_agent_up(AgentId(agent)));
    assert!(matches!(&bench.input(Input::NodesChanged).sent_on(LINK)[..], [Control::ToLauncher(ToLauncher::Nodes(_))]));
    assert!(bench.input(Input::NodesChanged).is_empty());
}

#[test]
fn a_session_that_is_ending_refuses_jobs_and_ends_when_there_are_none() {
    let mut bench = bench();
    bench.input(Input::Up(LINK));
    bench.input(Input::Up(OTHER));
    assert!(bench.input(Input::EndIfIdle).is_empty());
    let fx = message(&mut bench, LINK, 0, Control::FromLauncher(FromLauncher::EndSession { kill: false }));
    assert!(matches!(
        &fx.sent_on(LINK)[..],
        [Control::ToLauncher(ToLauncher::JobList(_)), Control::ToLauncher(ToLauncher::Granted)]
    ));
    // The launch of another launcher may be on its way.
    assert!(matches!(&fx.sent_on(OTHER)[..], [Control::ToLauncher(ToLauncher::Ended(_))]));
    let fx = message(&mut bench, LINK, 1, Control::FromLauncher(FromLauncher::Launch(job(1).into())));
    assert!(matches!(&fx.sent_on(LINK)[..], [Control::ToLauncher(ToLauncher::Ended(_))]));
    assert!(bench.input(Input::EndIfIdle).iter().any(|effect| matches!(effect, Effect::Shutdown)));
}

#[test]
fn launchers_attach_only_to_the_root() {
    let (mut scene, mut fx) = (Scene::standing(1), Effects::default());
    let mut launchers = Launchers::default();
    launchers.handle(&scene.view(), None, Input::Up(LINK), &mut fx);
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Output(Output::CloseLink { link: LINK }))));
    assert!(!launchers.is_attached(LINK));
    scene = Scene::one_run(0);
    launchers.handle(&scene.view(), Some(&Nodes::new(&scene.session)), Input::EndIfIdle, &mut fx);
    assert_eq!(launchers.size(), 0);
}

#[test]
fn a_launcher_is_told_once_for_which_nodes_its_job_waits() {
    let mut bench = bench();
    bench.input(Input::Up(LINK));
    assert_eq!(
        message(&mut bench, LINK, 1, Control::FromLauncher(FromLauncher::Launch(job(1).into()))).sent_on(LINK),
        []
    );
    let due = bench.part.launchers.deadline().expect("the job waits");
    assert!(bench.tick().is_empty(), "it has not waited for long");
    bench.scene.now = due;
    let waits = Control::Note(peer::Note::Waits { agents: vec![AgentId(14)] });
    assert_eq!(bench.tick().sent_on(LINK), [waits]);
    assert_eq!((bench.part.launchers.deadline(), bench.tick().is_empty()), (None, true));
    bench.part.nodes.on_agent_up(AgentId(14));
    assert!(!bench.input(Input::NodesChanged).is_empty(), "the job starts");
}

/// `wireup run cat < file` while a node is not up yet.
#[test]
fn input_for_a_waiting_job_is_delivered_when_it_starts() {
    let mut bench = bench();
    bench.input(Input::Up(LINK));
    message(&mut bench, LINK, 1, Control::FromLauncher(FromLauncher::Launch(job(1).into())));
    let input = |payload: &'static [u8]| {
        let payload = bytes::Bytes::from_static(payload);
        Frame { kind: Kind::Input, class: wireup_wire::frame::Class::Stdio, stream: 0, job: 1, arg: 0, payload }
    };
    for frame in [input(b"abc"), input(b"")] {
        assert!(bench.input(Input::Frame { link: LINK, frame }).is_empty());
    }
    for rows in [24, 40] {
        message(&mut bench, LINK, 1, Control::JobDown(JobDown::Resize { rows, columns: 80 }));
    }
    bench.part.nodes.on_agent_up(AgentId(14));
    let fx = bench.input(Input::NodesChanged);
    let begins = fx.iter().position(|effect| matches!(effect, Effect::Early(_))).expect("the job starts");
    let later: Vec<String> = fx
        .iter()
        .skip(begins)
        .filter_map(|effect| match effect {
            Effect::Launchers(Input::Frame { frame, .. }) => Some(String::from_utf8_lossy(&frame.payload).into_owned()),
            Effect::Launchers(Input::Said { message, .. }) => Some(format!("{message:?}")),
            _ => None,
        })
        .collect();
    assert_eq!(later, ["abc", "", "JobDown(Resize { rows: 40, columns: 80 })"]);
}

#[test]
fn a_waiting_job_is_ended_by_signals_that_would_end_its_ranks() {
    for (signal, ends) in [(2, true), (28, false), (18, false), (10, true)] {
        let mut bench = bench();
        bench.input(Input::Up(LINK));
        message(&mut bench, LINK, 1, Control::FromLauncher(FromLauncher::Launch(job(1).into())));
        let sent = message(&mut bench, LINK, 1, Control::JobDown(JobDown::Signal { signal })).sent_on(LINK);
        assert_eq!(matches!(sent[..], [Control::ToLauncher(ToLauncher::Ended(_))]), ends, "{signal}: {sent:?}");
        assert_eq!(bench.part.launchers.deadline().is_none(), ends);
    }
}

/// The addresses of the reserved ports travel with the job; a launcher cannot make them up.
#[test]
fn a_job_gets_ports_that_its_agents_have_reserved() {
    let started = |fx: &Effects| -> Vec<Bytes> {
        let frame = fx.iter().find_map(|effect| match effect {
            Effect::PassOn(_, frame) => Some(frame),
            _ => None,
        });
        let Control::SessionDown(SessionDown::Start { spec, .. }) =
            peer::decode(&frame.expect("the job starts").payload).unwrap()
        else {
            panic!("a job starts with its description")
        };
        spec.endpoints
    };
    let mut bench = bench();
    let address: Bytes = rank_address::encode(7, 100, &[]).into();
    bench.part.nodes.on_agent_up(AgentId(14));
    let news = |news| Input::Ports(RankPortsReport { agent: AgentId(14), incarnation: 0, news });
    bench.input(news(RankPortsNews::Reserved { count: 2, address: address.clone() }));
    let next = Bytes::from(rank_address::shift_port(&address, 1).unwrap());
    for (id, wanted) in [(1, vec![address.clone()]), (2, vec![next]), (3, vec![])] {
        bench.input(Input::Up(LinkId(id)));
        let mut spec = JobSpec { endpoints: vec![Bytes::from_static(b"another")], ..job(id) };
        spec.options.rank_ports = Some(RankPorts { range: PortRange { low: 1, high: 1000 }, listen: true });
        assert_eq!(
            started(&message(&mut bench, LinkId(id), id, Control::FromLauncher(FromLauncher::Launch(spec.into())))),
            wanted,
            "{id}"
        );
    }
    let fx = bench.input(Input::JobOver { job: JobId(1), traces: Some(vec![AgentId(14)]) });
    assert!(fx.iter().any(|effect| matches!(effect, Effect::RankPorts(rank_ports::Input::Over(JobId(1))))));
    bench.input(news(RankPortsNews::Renewed(JobId(1))));
    bench.input(Input::Up(LINK));
    let spec = JobSpec { endpoints: vec![Bytes::from_static(b"another")], ..job(4) };
    assert!(
        started(&message(&mut bench, LINK, 4, Control::FromLauncher(FromLauncher::Launch(spec.into())))).is_empty(),
        "it wants none"
    );
    bench.input(Input::Up(OTHER));
    let mut spec = job(5);
    spec.options.rank_ports = Some(RankPorts { range: PortRange { low: 1, high: 1000 }, listen: true });
    assert_eq!(
        started(&message(&mut bench, OTHER, 5, Control::FromLauncher(FromLauncher::Launch(spec.into())))),
        [address]
    );
}
