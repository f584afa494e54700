//! Lost agents of a standing session: which jobs do not start, and which agents are not adopted.

use super::standing::{LAUNCHER, attach, kill, small, standing};
use super::starting::{SECOND, T, UP, hear, link_child, outputs, sent};
use super::*;
use wireup_wire::job::{Block, NodeSpec};
use wireup_wire::peer::Rejoin;
use wireup_wire::session::{Entry, Log};

/// One rank on each of these agents.
fn on(id: u32, agents: &[u32]) -> JobSpec {
    let mut spec = small(id);
    let node = |agent: &u32| NodeSpec { agent: AgentId(*agent), name: format!("n{agent}"), shared: false };
    spec.nodes = agents.iter().map(node).collect();
    spec.blocks = vec![Block { first_node: 0, nodes: agents.len() as u32, ppn: 1 }];
    spec.apps[0].ranks = agents.len() as u32;
    spec
}

/// A root whose agents are all linked.
fn root() -> Agent {
    let mut root = standing(0, RemoteShell::Local);
    for (child, below) in [(1, [1, 3, 4]), (2, [2, 5, 6])] {
        let link = link_child(&mut root, T, child);
        hear(&mut root, T, link, 0, &Control::Here(below.map(|agent| (AgentId(agent), 0)).to_vec()));
    }
    outputs(&mut root);
    root
}

/// Breaks the link to this child; nothing more is received from it.
fn lose(root: &mut Agent, child: u32) {
    root.handle(T, Input::LinkDown { link: LinkId(100 + child), problem: "closed".into() });
    root.handle(T + SECOND, Input::Tick);
    outputs(root);
}

fn come_back(root: &mut Agent, agent: u32, incarnation: u32) -> (Vec<Control>, bool) {
    let link = LinkId(200 + agent);
    root.handle(
        T + SECOND,
        Input::LinkUp {
            link,
            peer: Peer::Rejoin { agent: AgentId(agent), rejoin: Rejoin { incarnation, at: 0 } },
            local: String::new(),
        },
    );
    let done = outputs(root);
    (sent(&done, link), done.contains(&Output::CloseLink { link }))
}

#[test]
fn a_job_with_a_lost_agent_does_not_begin() {
    for (nodes, begun) in [([1, 3], 0), ([1, 4], 1)] {
        let mut agent = standing(1, RemoteShell::Local);
        let log = Log { at: 0, entries: vec![Entry::Lost(vec![AgentId(3)])], ..Log::default() };
        hear(&mut agent, T, UP, 0, &Control::Log(log));
        outputs(&mut agent);
        let spec = on(5, &nodes);
        hear(&mut agent, T, UP, 5, &Control::Start { spec: spec.into(), newest: JobId(5), live: vec![JobId(5)] });
        let spawned = outputs(&mut agent).iter().filter(|output| matches!(output, Output::Spawn(_))).count();
        assert_eq!((agent.jobs.len(), spawned), (begun, begun), "{nodes:?}");
    }
}

#[test]
fn those_behind_a_lost_agent_hear_again_of_jobs_that_are_not_ending() {
    for ends in [false, true] {
        let mut root = root();
        let job = attach(&mut root, LAUNCHER);
        hear(&mut root, T, LAUNCHER, job, &Control::Launch(on(job, &[0, 3]).into()));
        if ends {
            hear(&mut root, T, LAUNCHER, 0, &kill(job, "me"));
        }
        lose(&mut root, 1);
        let (said, closed) = come_back(&mut root, 3, 0);
        let starts = said.iter().filter(|message| matches!(message, Control::Start { .. })).count();
        assert_eq!((starts, closed), (usize::from(!ends), false), "{said:?}");
    }
}

/// An incarnation that took long to start is lost and replaced before it links.
#[test]
fn an_old_incarnation_is_not_taken_for_the_new_one() {
    let mut root = root();
    lose(&mut root, 1);
    attach(&mut root, LAUNCHER);
    hear(&mut root, T + SECOND, LAUNCHER, 0, &Control::Revive);
    outputs(&mut root);
    let mut dials = |link, incarnation| {
        let peer = Peer::Child { agent: AgentId(1), incarnation };
        root.handle(T + SECOND, Input::LinkUp { link: LinkId(link), peer, local: String::new() });
        let done = outputs(&mut root);
        (
            sent(&done, LinkId(link)).contains(&Control::Log(Log::unfit())),
            done.contains(&Output::CloseLink { link: LinkId(link) }),
        )
    };
    assert_eq!([dials(300, 0), dials(301, 2), dials(302, 2)], [(true, true), (false, false), (true, true)]);
}
