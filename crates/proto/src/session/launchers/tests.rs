use super::*;
use crate::io::Output;
use crate::session::Scene;
use crate::session::inputs::early;
use wireup_wire::frame::Kind;
use wireup_wire::ids::AgentId;
use wireup_wire::job::{AppSpec, Block, JobOptions, NodeSpec};
use wireup_wire::peer;

const LINK: LinkId = LinkId(5);
const OTHER: LinkId = LinkId(6);

struct Bench {
    scene: Scene,
    nodes: Nodes,
    launchers: Launchers,
}

fn bench() -> Bench {
    let scene = Scene::standing(0);
    let nodes = Nodes::new(&scene.session);
    Bench { scene, nodes, launchers: Launchers::default() }
}

impl Bench {
    fn tell(&mut self, input: Input) -> Effects {
        let mut fx = Effects::default();
        self.launchers.handle(&self.scene.view(), Some(&self.nodes), input, &mut fx);
        fx
    }

    fn says(&mut self, link: LinkId, job: u32, message: Control) -> Effects {
        self.tell(Input::Said { link, job: JobId(job), message: Box::new(message) })
    }
}

/// The messages to a launcher in these effects.
fn told(fx: &Effects, to: LinkId) -> Vec<Control> {
    let message = |effect: &Effect| match effect {
        Effect::Send(link, frame) if *link == to && frame.kind == Kind::Control => {
            Some(peer::decode(&frame.payload).expect("our own message"))
        }
        _ => None,
    };
    fx.iter().filter_map(message).collect()
}

/// A job of one rank on the last node.
fn job(id: u32) -> JobSpec {
    JobSpec {
        job: JobId(id),
        nodes: vec![NodeSpec { agent: AgentId(14), name: "n14".into(), shared: false }],
        blocks: vec![Block { first_node: 0, nodes: 1, ppn: 1 }],
        apps: vec![AppSpec { ranks: 1, argv: vec![b"a".to_vec()], cwd: b"/".to_vec(), env: Vec::new() }],
        nspace: format!("s-{id}"),
        env: Vec::new(),
        options: JobOptions::default(),
    }
}

#[test]
fn each_launcher_has_a_job_of_its_own() {
    let mut bench = bench();
    for (link, own) in [(LINK, 1), (OTHER, 2)] {
        let fx = bench.tell(Input::Up(link));
        assert!(matches!(&told(&fx, link)[..], [Control::Welcome(welcome)] if welcome.job == JobId(own)));
    }
    let fx = bench.says(OTHER, 1, Control::Launch(job(1).into()));
    assert!(matches!(&told(&fx, OTHER)[..], [Control::Refused { .. }]));
    assert!(bench.launchers.links_of(JobId(1)).is_empty());
}

#[test]
fn a_job_starts_down_the_tree_and_belongs_to_its_launcher() {
    let mut bench = bench();
    bench.nodes.on_agent_up(AgentId(14));
    bench.tell(Input::Up(LINK));
    let fx = bench.says(LINK, 1, Control::Launch(job(1).into()));
    let passed = |effect: &Effect| matches!(effect, Effect::PassOn(agents, _) if agents == &[AgentId(14)]);
    assert!(fx.iter().any(passed));
    assert!(fx.iter().any(|effect| matches!(effect, Effect::Early(early::Input::Start { live: Some(_), .. }))));
    assert_eq!(bench.launchers.links_of(JobId(1)), [LINK]);
    assert_eq!(bench.launchers.live(), (JobId(1), vec![JobId(1)]));
    bench.tell(Input::JobOver { job: JobId(1), traces: None });
    assert_eq!(bench.launchers.live(), (JobId(1), Vec::new()));
}

#[test]
fn nobody_hears_of_a_job_before_its_nodes_are_up() {
    let starts = |fx: &Effects| fx.iter().filter(|effect| matches!(effect, Effect::PassOn(..))).count();
    let mut bench = bench();
    for link in [LINK, OTHER] {
        bench.tell(Input::Up(link));
    }
    for (link, id) in [(LINK, 1), (OTHER, 2)] {
        assert_eq!(starts(&bench.says(link, id, Control::Launch(job(id).into()))), 0);
    }
    let fx = bench.tell(Input::Answer(LINK));
    assert!(told(&fx, LINK).is_empty() && bench.launchers.live() == (JobId(2), vec![JobId(1), JobId(2)]));
    bench.says(LINK, 0, Control::AskJobs);
    let listed = told(&bench.tell(Input::Answer(LINK)), LINK);
    assert!(matches!(&listed[..], [Control::JobList(jobs)] if jobs.len() == 2 && jobs[0].nodes == [AgentId(14)]));
    let fx = bench.says(OTHER, 2, Control::Kill { grace_ns: 0 });
    assert!(matches!(&told(&fx, OTHER)[..], [Control::Ended(_)]));
    bench.nodes.on_agent_up(AgentId(14));
    assert_eq!(starts(&bench.tell(Input::NodesChanged)), 1);
    assert_eq!(starts(&bench.tell(Input::NodesChanged)), 0);
}

#[test]
fn a_job_on_a_lost_node_is_refused_with_the_reason() {
    let mut bench = bench();
    bench.nodes.on_lost(AgentId(14), "no route");
    bench.tell(Input::Up(LINK));
    let fx = bench.says(LINK, 1, Control::Launch(job(1).into()));
    let [Control::Ended(Ended { failure: Some(failure), .. })] = &told(&fx, LINK)[..] else { panic!("it is refused") };
    assert_eq!(failure.host, "n14");
    assert!(matches!(&failure.cause, Cause::AgentLost { problem, .. } if problem == "no route"));
}

#[test]
fn questions_of_one_read_are_answered_once() {
    let mut bench = bench();
    bench.tell(Input::Up(LINK));
    for _ in 0..3 {
        assert!(bench.says(LINK, 0, Control::AskNodes).is_empty());
    }
    assert_eq!(told(&bench.tell(Input::Answer(LINK)), LINK).len(), 1);
    assert!(bench.tell(Input::Answer(LINK)).is_empty());
}

#[test]
fn who_wants_all_nodes_hears_of_them_when_all_are_known() {
    let mut bench = bench();
    bench.tell(Input::Up(LINK));
    bench.says(LINK, 0, Control::Revive);
    assert!(bench.tell(Input::Answer(LINK)).is_empty(), "some are still starting");
    assert_eq!(bench.launchers.links_of(JobId(0)), [LINK], "it receives notes meanwhile");
    (1..15).for_each(|agent| bench.nodes.on_agent_up(AgentId(agent)));
    assert!(matches!(&told(&bench.tell(Input::NodesChanged), LINK)[..], [Control::Nodes(_)]));
    assert!(bench.tell(Input::NodesChanged).is_empty());
}

#[test]
fn a_session_that_is_to_end_takes_no_jobs_and_ends_when_there_are_none() {
    let mut bench = bench();
    bench.tell(Input::Up(LINK));
    assert!(bench.tell(Input::EndIfIdle).is_empty());
    let fx = bench.says(LINK, 0, Control::EndSession { kill: false });
    assert!(matches!(&told(&fx, LINK)[..], [Control::JobList(_), Control::Granted]));
    let fx = bench.says(LINK, 1, Control::Launch(job(1).into()));
    assert!(matches!(&told(&fx, LINK)[..], [Control::Ended(_)]));
    assert!(bench.tell(Input::EndIfIdle).iter().any(|effect| matches!(effect, Effect::Shutdown)));
}

#[test]
fn nobody_attaches_where_the_root_is_not() {
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
fn whoever_waits_for_nodes_is_told_for_which_once() {
    let mut bench = bench();
    bench.tell(Input::Up(LINK));
    assert_eq!(told(&bench.says(LINK, 1, Control::Launch(job(1).into())), LINK), []);
    let due = bench.launchers.deadline().expect("the job waits");
    assert!(bench.tell(Input::Tick).is_empty(), "it has not waited for long");
    bench.scene.now = due;
    let waits = Control::Note(peer::Note::Waits { agents: vec![AgentId(14)] });
    assert_eq!(told(&bench.tell(Input::Tick), LINK), [waits]);
    assert_eq!((bench.launchers.deadline(), bench.tell(Input::Tick).is_empty()), (None, true));
    bench.nodes.on_agent_up(AgentId(14));
    assert!(!bench.tell(Input::NodesChanged).is_empty(), "the job starts");
}

/// `wireup run cat < file` while a node is not up yet.
#[test]
fn what_a_launcher_says_while_its_job_waits_comes_when_it_begins() {
    let mut bench = bench();
    bench.tell(Input::Up(LINK));
    bench.says(LINK, 1, Control::Launch(job(1).into()));
    let input = |payload: &'static [u8]| {
        let payload = bytes::Bytes::from_static(payload);
        Frame { kind: Kind::Input, class: wireup_wire::frame::Class::Stdio, stream: 0, job: 1, arg: 0, payload }
    };
    for frame in [input(b"abc"), input(b"")] {
        assert!(bench.tell(Input::Frame { link: LINK, frame }).is_empty());
    }
    for rows in [24, 40] {
        bench.says(LINK, 1, Control::Resize { rows, columns: 80 });
    }
    bench.nodes.on_agent_up(AgentId(14));
    let fx = bench.tell(Input::NodesChanged);
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
    assert_eq!(later, ["abc", "", "Resize { rows: 40, columns: 80 }"]);
}

#[test]
fn a_job_that_waits_is_ended_by_what_would_end_its_ranks() {
    for (signal, ends) in [(2, true), (28, false), (18, false), (10, true)] {
        let mut bench = bench();
        bench.tell(Input::Up(LINK));
        bench.says(LINK, 1, Control::Launch(job(1).into()));
        let told = told(&bench.says(LINK, 1, Control::Signal { signal }), LINK);
        assert_eq!(matches!(told[..], [Control::Ended(_)]), ends, "{signal}: {told:?}");
        assert_eq!(bench.launchers.deadline().is_none(), ends);
    }
}
