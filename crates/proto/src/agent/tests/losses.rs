//! Lost agents of a standing session: which jobs do not start, and which agents are not adopted.

use super::standing::{LAUNCHER, kill};
use super::*;
use wireup_wire::peer::Rejoin;
use wireup_wire::session::Entry;
use wireup_wire::talk::{FromLauncher, SessionDown, SessionUp};

fn root() -> TestAgent {
    let mut root = TestAgent::standing(0);
    for (child, below) in [(1, [1, 3, 4]), (2, [2, 5, 6])] {
        let link = root.link_child(child);
        root.receive(link, 0, SessionUp::Here(below.map(|agent| (AgentId(agent), 0)).to_vec()));
    }
    root.outputs();
    root
}

/// Breaks the link to this child; nothing more is received from it.
fn lose(root: &mut TestAgent, child: u32) {
    root.link_down(LinkId(100 + child)).tick_at(T + SECOND).outputs();
}

#[test]
fn a_job_with_a_lost_agent_does_not_begin() {
    for (nodes, begins) in [([1, 3], false), ([1, 4], true)] {
        let mut agent = TestAgent::standing(1);
        let log = Log { at: 0, entries: vec![Entry::Lost(vec![AgentId(3)])], ..Log::default() };
        agent.receive(UP, 0, SessionDown::Log(log)).outputs();
        let spec = job_on(5, nodes, 1);
        agent.receive(UP, 5, SessionDown::Start { spec: spec.into(), newest: JobId(5), live: vec![JobId(5)] });
        assert_eq!((agent.session.cx.jobs.len(), agent.outputs().spawns()), (usize::from(begins), begins), "{nodes:?}");
    }
}

#[test]
fn agents_below_a_lost_one_are_sent_running_jobs_again() {
    for ends in [false, true] {
        let mut root = root();
        let job = root.attach(LAUNCHER);
        root.receive_launch(LAUNCHER, job_on(job, [0, 3], 1));
        if ends {
            root.receive(LAUNCHER, 0, kill(job, "me"));
        }
        lose(&mut root, 1);
        let peer = Peer::Rejoin { agent: AgentId(3), rejoin: Rejoin { incarnation: 0, at: 0 } };
        let (link, outputs) = (LinkId(203), root.link_up(LinkId(203), peer).outputs());
        let starts = outputs
            .sent(link)
            .iter()
            .filter(|message| matches!(message, Control::SessionDown(SessionDown::Start { .. })))
            .count();
        assert_eq!((starts, outputs.closes(link)), (usize::from(!ends), false), "{outputs:?}");
    }
}

/// An agent that took long to start is lost and started again before its first incarnation links.
#[test]
fn an_earlier_incarnation_that_links_late_is_dismissed() {
    let mut root = root();
    lose(&mut root, 1);
    root.attach(LAUNCHER);
    root.receive(LAUNCHER, 0, FromLauncher::AskNodes { revive: true }).outputs();
    let mut dials = |link, incarnation| {
        let outputs = root.link_up(LinkId(link), Peer::Child { agent: AgentId(1), incarnation }).outputs();
        (
            outputs.sent(LinkId(link)).contains(&Control::SessionDown(SessionDown::Log(Log::unfit()))),
            outputs.closes(LinkId(link)),
        )
    };
    assert_eq!([dials(300, 0), dials(301, 2), dials(302, 2)], [(true, true), (false, false), (true, true)]);
}
