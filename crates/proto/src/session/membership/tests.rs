use super::*;
use crate::io::{LinkId, Output};
use crate::session::Cx;
use crate::testing::{Look, UP, agent_of, in_session, one_run, session, standing};
use wireup_wire::peer::{MissingAgent, Rejoin};
use wireup_wire::session::{Entry, Log};
use wireup_wire::talk::{Control, SessionDown, SessionUp};

/// The membership part of an agent.
struct Bench {
    cx: Cx,
    part: Membership,
}

/// The outputs and news of the membership part in one call, and their effects.
#[derive(Default)]
struct Came {
    outputs: Vec<Output>,
    news: Vec<News>,
    leaves: bool,
    adopted: bool,
}

impl Bench {
    fn new(cx: Cx, snapshot: &SessionSnapshot) -> Bench {
        let part = Membership::new(cx.me, &cx.session, vec!["10.0.0.1:1".into()], snapshot, &cx.agent.links.routes);
        let mut bench = Bench { cx, part };
        bench.cx.outputs();
        bench
    }

    /// Agent `me` of fifteen in a standing session, fan-out 2; all agents are linked.
    fn settled(me: u32) -> Bench {
        let mut bench = Bench::new(in_session(me).linked(), &SessionSnapshot::default());
        for child in bench.roster().children(AgentId(me)) {
            let agents = bench.roster().subtree(child).into_iter().map(|agent| (agent, 0)).collect();
            bench.part.on_here(&mut bench.cx, child, agents);
        }
        bench.cx.outputs();
        bench
    }

    fn roster(&self) -> &crate::link::Roster {
        &self.cx.agent.links.routes.roster
    }

    /// Calls `act` with the membership part, and changes the links as the agent would for the news.
    fn act(&mut self, act: impl FnOnce(&mut Membership, &mut Cx) -> Vec<News>) -> Came {
        let news = act(&mut self.part, &mut self.cx);
        let outputs = self.cx.outputs();
        for one in &news {
            match one {
                News::Lost(agents) => agents.iter().for_each(|agent| {
                    self.cx.agent.links.cut_child(*agent);
                }),
                News::Returned { own, .. } => {
                    own.iter().for_each(|child| self.cx.agent.links.neighbours.expect(*child))
                }
                News::Dismissed => {}
            }
        }
        self.cx.outputs();
        Came { outputs, news, ..Came::default() }
    }

    fn on_log(&mut self, mut log: Log) -> Came {
        let adopted = match self.part.on_log(&self.cx, &log) {
            Ok(link) => link.is_some(),
            Err(Unfit) => return Came { leaves: true, ..Came::default() },
        };
        let came = self.act(|part, cx| std::iter::from_fn(|| part.next_decision(cx, &mut log)).collect());
        Came { adopted, leaves: came.news.contains(&News::Dismissed), ..came }
    }

    fn log(&mut self, at: u32, entry: Entry) -> Came {
        let entries = vec![entry];
        self.on_log(Log { at, entries, has_moved: false, newest: JobId(4), live: vec![JobId(2)] })
    }

    fn gone(&mut self, by: u32, agent: u32, incarnation: u32) -> Came {
        let gone = Gone { by: AgentId(by), agent: AgentId(agent), incarnation, problem: "its link broke".into() };
        // Each agent is below one of the root's two children.
        let branch = [1, 2].map(AgentId).into_iter().find(|top| self.cx.tree.subtree_contains(*top, gone.by));
        self.act(|part, cx| part.on_gone(cx, &nothing_live, branch.unwrap_or(AgentId(0)), vec![gone]))
    }

    fn lost(&mut self, agent: u32, problem: &str) -> Came {
        let missing = MissingAgent { agent: AgentId(agent), problem: problem.into() };
        self.act(|part, cx| part.report_lost(cx, &nothing_live, vec![missing]))
    }

    fn revive(&mut self) -> Came {
        self.act(|part, cx| part.revive(cx, &nothing_live))
    }

    fn rejoin(&mut self, agent: u32, incarnation: u32, at: u32) -> (Came, Option<Log>) {
        let (rejoin, mut missed) = (Rejoin { incarnation, at }, None);
        let link = LinkId(90 + agent);
        let came = self.act(|part, cx| match part.on_rejoin(cx, &nothing_live, link, AgentId(agent), rejoin) {
            Ok(log) => {
                missed = Some(log);
                Vec::new()
            }
            Err(news) => news,
        });
        if missed.is_some() {
            // Adopts the agent as `Session::adopt` does.
            self.cx.agent.links.neighbours.on_child_up(AgentId(agent), link);
            self.part.on_here(&mut self.cx, AgentId(agent), vec![(AgentId(agent), incarnation)]);
            self.cx.outputs();
        }
        (came, missed)
    }

    /// The result for an agent that has lost its parent: it is adopted, dismissed, or may try again later.
    fn fate(&mut self, agent: u32, incarnation: u32, at: u32) -> &'static str {
        let (came, missed) = self.rejoin(agent, incarnation, at);
        let link = LinkId(90 + agent);
        match (missed.is_some(), came.outputs.sent(link).is_empty(), came.outputs.closes(link)) {
            (true, true, false) => "adopted",
            (false, false, true) => "dismissed",
            (false, true, true) => "later",
            _ => "unclear",
        }
    }

    /// Moves the clock to the deadline of the part, and checks leases.
    fn tick_when_due(&mut self) -> Came {
        self.cx.agent.now = self.part.deadline().expect("the part waits for a time");
        self.act(|part, cx| part.check_leases(cx, &nothing_live))
    }

    /// Dials the root again when it is due; returns the link to a root that has not sent anything.
    fn seek_when_due(&mut self) -> (Came, Option<LinkId>) {
        self.cx.agent.now = self.part.deadline().expect("the part waits for a time");
        let mut silent = None;
        let came = self.act(|part, cx| {
            silent = part.seek_if_due(cx);
            Vec::new()
        });
        (came, silent)
    }

    fn parent_lost(&mut self) -> Came {
        let mut leaves = false;
        let came = self.act(|part, cx| {
            leaves = part.on_parent_lost(cx);
            Vec::new()
        });
        Came { leaves, ..came }
    }

    fn parent_up(&mut self) -> Vec<Control> {
        self.part.on_parent_up(&mut self.cx);
        self.cx.outputs().sent(UP)
    }
}

fn nothing_live() -> (JobId, Vec<JobId>) {
    (JobId(4), vec![JobId(2)])
}

fn ids<const N: usize>(agents: [u32; N]) -> Vec<AgentId> {
    agents.map(AgentId).to_vec()
}

impl Came {
    /// The parts of the log that were sent to a child.
    fn logs(&self) -> Vec<Log> {
        let children = self.outputs.iter().filter_map(|output| match output {
            Output::Send { link, .. } => Some(*link),
            _ => None,
        });
        let log = |message| match message {
            Control::SessionDown(SessionDown::Log(log)) => Some(log),
            _ => None,
        };
        let of = |link| self.outputs.sent(link).into_iter().filter_map(log).collect::<Vec<Log>>();
        children.filter(|link| link.0 > 100).map(of).max_by_key(Vec::len).unwrap_or_default()
    }

    /// The decisions in the log entries that were sent to all children.
    fn decided(&self) -> Vec<Entry> {
        self.logs().into_iter().flat_map(|log| log.entries).collect()
    }

    fn started(&self) -> Vec<AgentId> {
        let own = |news: &News| if let News::Returned { own, .. } = news { own.clone() } else { Vec::new() };
        self.news.iter().flat_map(own).collect()
    }

    fn dials(&self, address: &str) -> bool {
        self.outputs.iter().any(|output| {
            matches!(output, Output::Rejoin { root, rejoin: Rejoin { incarnation: 0, at: 0 } } if root[0] == address)
        })
    }
}

#[test]
fn the_root_decides_a_loss_once_and_tells_all() {
    let mut root = Bench::settled(0);
    let came = root.gone(1, 3, 0);
    assert_eq!((came.decided(), came.news), (vec![Entry::Lost(ids([3]))], vec![News::Lost(ids([3]))]));
    let again = root.gone(1, 3, 0);
    assert!(again.outputs.is_empty() && again.news.is_empty());
}

#[test]
fn a_report_about_an_earlier_incarnation_is_ignored() {
    let mut root = Bench::settled(0);
    root.gone(1, 3, 0);
    let came = root.revive();
    assert_eq!((came.decided(), came.started()), (vec![Entry::Return(ids([3]))], ids([3])));
    assert!(root.gone(1, 3, 0).decided().is_empty(), "the report is about the previous incarnation");
    assert!(root.gone(1, 3, 2).decided().is_empty(), "agent 1 is not its parent any more");
    assert_eq!(root.lost(3, "its link broke").decided(), [Entry::Lost(ids([3]))]);
}

#[test]
fn children_of_a_lost_agent_dial_the_root_in_time_or_are_lost() {
    let mut root = Bench::settled(0);
    assert_eq!(root.fate(7, 0, 0), "later", "its parent may be up");
    root.gone(1, 3, 0);
    let (_, missed) = root.rejoin(7, 0, 0);
    assert_eq!(missed.map(|log| (log.at, log.entries)), Some((0, vec![Entry::Lost(ids([3]))])));
    assert_eq!(root.tick_when_due().decided(), [Entry::Lost(ids([8]))]);
    assert_eq!(root.part.deadline(), None);
}

#[test]
fn three_agents_lost_together_do_not_cause_the_loss_of_others() {
    // Agents 1, 3 and 7 have lost power. There are no agents below 7; 8 and 4 are healthy.
    let mut root = Bench::settled(0);
    root.lost(1, "silent");
    assert_eq!(root.fate(4, 0, 0), "adopted");
    let lease = root.part.deadline().expect("agent 3 is awaited");
    assert_eq!(root.fate(8, 0, 0), "later", "agent 3 may still dial");
    assert!(root.part.deadline().is_some_and(|until| until < lease), "a shorter lease: its child has lost it");
    assert!(!root.part.nodes().unwrap().is_settled());
    assert_eq!(root.tick_when_due().decided(), [Entry::Lost(ids([3]))]);
    assert_eq!(root.fate(8, 0, 0), "adopted");
    assert_eq!(root.tick_when_due().decided(), [Entry::Lost(ids([7]))]);
    assert_eq!((root.part.deadline(), root.part.nodes().unwrap().lost()), (None, ids([1, 3, 7])));
}

#[test]
fn an_agent_that_dials_while_its_parent_is_up_is_lost_when_the_lease_ends() {
    let mut root = Bench::settled(0);
    assert_eq!(root.fate(7, 0, 0), "later");
    assert_eq!(root.tick_when_due().decided(), [Entry::Lost(ids([7]))]);
    assert_eq!(root.fate(7, 0, 0), "dismissed");
    // Agent 2 dials although its link to the root is up here: its own end of that link has broken.
    let (came, missed) = root.rejoin(2, 0, 0);
    assert_eq!((missed, came.decided()), (None, vec![Entry::Lost(ids([2]))]));
    assert!(!came.outputs.sent(LinkId(92)).is_empty() && came.outputs.closes(LinkId(92)), "it is dismissed");
}

#[test]
fn unknown_agents_and_other_incarnations_are_told_to_leave() {
    let mut root = Bench::settled(0);
    root.gone(1, 3, 0);
    root.revive();
    for (agent, incarnation, at) in [(3, 0, 0), (3, 1, 1), (7, 1, 0), (7, 0, 3)] {
        assert_eq!(root.fate(agent, incarnation, at), "dismissed", "{agent} {incarnation} {at}");
    }
    assert!(root.rejoin(99, 0, 0).0.decided().is_empty());
    assert_eq!(Bench::settled(1).fate(7, 0, 0), "later", "only the root adopts");
}

#[test]
fn agents_that_a_lost_agent_should_have_started_are_started_again() {
    let mut root = Bench::new(in_session(0).linked(), &SessionSnapshot::default());
    root.part.on_here(&mut root.cx, AgentId(1), vec![(AgentId(1), 0), (AgentId(3), 0)]);
    let came = root.lost(1, "silent");
    // Agent 3 is up and awaited. Agents 7 and 8 below it were not reported, but agent 3 starts them.
    let unheard = ids([4, 7, 8, 9, 10]);
    let mut lost = unheard.clone();
    lost.insert(0, AgentId(1));
    assert_eq!(came.decided(), [Entry::Lost(lost), Entry::Return(unheard)]);
    assert_eq!(came.started(), ids([4, 7, 8]));
    assert_eq!(root.roster().children(AgentId(4)), ids([9, 10]));
}

#[test]
fn each_agent_follows_the_log_once_and_passes_it_on() {
    let mut agent = Bench::settled(1);
    let came = agent.log(0, Entry::Lost(ids([3])));
    assert_eq!((came.decided(), came.news), (vec![Entry::Lost(ids([3]))], vec![News::Lost(ids([3]))]));
    assert!(agent.log(0, Entry::Lost(ids([3]))).decided().is_empty(), "the entry is known");
    assert!(agent.log(2, Entry::Lost(ids([5]))).leaves, "an entry is missing");
    assert!(agent.log(1, Entry::Lost(ids([1]))).leaves, "the agent itself is lost");
}

#[test]
fn agents_that_return_together_are_started_by_their_parents() {
    let mut root = Bench::settled(0);
    root.lost(1, "silent");
    root.tick_when_due();
    let came = root.revive();
    assert_eq!((came.decided(), came.started()), (vec![Entry::Return(ids([1, 3, 4]))], ids([1])));
    let snapshot = root.part.snapshot(&root.cx, &nothing_live);
    assert_eq!(
        (snapshot.newest, snapshot.live.clone(), snapshot.place(AgentId(3)).map(|place| place.parent)),
        (JobId(4), vec![JobId(2)], Some(AgentId(1)))
    );
    let child = agent_of(1, standing(session(15)), &snapshot);
    assert_eq!(child.agent.links.routes.roster.children(AgentId(1)), ids([3, 4]));
}

#[test]
fn reports_are_repeated_to_a_new_parent_until_the_root_has_decided() {
    let mut agent = Bench::settled(1);
    agent.cx.agent.links.neighbours.on_up_lost();
    assert!(agent.lost(3, "its link broke").outputs.sent(UP).is_empty());
    agent.cx.agent.links.neighbours.on_link_up(UP);
    let gone = Gone { by: AgentId(1), agent: AgentId(3), incarnation: 0, problem: "its link broke".into() };
    let here = [1, 4, 7, 8, 9, 10].map(|agent| (AgentId(agent), 0)).to_vec();
    assert_eq!(
        agent.parent_up(),
        [Control::SessionUp(SessionUp::Here(here)), Control::SessionUp(SessionUp::Gone(vec![gone]))]
    );
    agent.log(0, Entry::Lost(ids([3])));
    let here = [1, 4, 9, 10].map(|agent| (AgentId(agent), 0)).to_vec();
    assert_eq!(agent.parent_up(), [Control::SessionUp(SessionUp::Here(here))]);
}

#[test]
fn an_agent_without_parent_dials_the_root_until_it_is_taken_in() {
    let snapshot = SessionSnapshot { root: vec!["10.0.0.9:1".into()], ..SessionSnapshot::default() };
    let mut agent = Bench::new(agent_of(7, standing(session(15)), &snapshot), &snapshot);
    assert!(agent.parent_lost().dials("10.0.0.9:1"));
    agent.part.on_root_reached(&agent.cx, LinkId(5));
    assert!(!agent.parent_lost().dials("10.0.0.9:1"), "the root tells it to try again");
    assert!(agent.seek_when_due().0.dials("10.0.0.9:1"));
    agent.part.on_root_reached(&agent.cx, LinkId(6));
    assert_eq!(agent.seek_when_due().1, Some(LinkId(6)), "the root sends nothing");
    agent.parent_lost();
    assert!(agent.seek_when_due().0.dials("10.0.0.9:1"));
    agent.part.on_root_reached(&agent.cx, LinkId(7));
    assert!(agent.log(0, Entry::Lost(ids([3]))).adopted);
    assert!(!agent.part.is_seeking() && agent.parent_lost().leaves, "it is now a child of the root");
}

/// The agent learned of its parent's loss from the parent itself, over a link that still worked: frames that were sent
/// again at that time went over this link and were lost.
#[test]
fn an_adopted_agent_tells_those_below_it_to_send_frames_again() {
    let mut agent = Bench::settled(3);
    agent.log(0, Entry::Lost(ids([1])));
    agent.parent_lost();
    agent.part.on_root_reached(&agent.cx, LinkId(6));
    let came = agent.on_log(Log { at: 1, has_moved: true, ..Log::default() });
    assert!(came.adopted && matches!(&came.logs()[..], [log] if log.has_moved));
    let mut agent = Bench::settled(3);
    let lost = vec![Entry::Lost(ids([1]))];
    let came = agent.on_log(Log { has_moved: true, entries: lost.clone(), ..Log::default() });
    assert!(matches!(&came.logs()[..], [log] if log.has_moved && log.entries == lost), "they are told once");
}

#[test]
fn an_agent_that_does_not_reach_the_root_leaves() {
    let mut agent = Bench::settled(7);
    let begun = agent.cx.agent.now;
    agent.parent_lost();
    while !agent.part.on_rejoin_failed(&agent.cx) {
        agent.seek_when_due();
    }
    let took_ns = agent.cx.agent.now - begun;
    assert!((5_000_000_000..=7_000_000_000).contains(&took_ns), "{took_ns}");
    assert!(Bench::settled(1).parent_lost().leaves, "a child of the root is lost with its link");
    assert!(Bench::new(one_run(3), &SessionSnapshot::default()).parent_lost().leaves);
    // Agent 7 learns from the log that its parent, agent 3, is lost, before the link to the parent breaks.
    let mut agent = Bench::settled(7);
    agent.log(0, Entry::Lost(ids([3])));
    assert!(!agent.parent_lost().leaves && agent.part.is_seeking());
}

#[test]
fn the_end_of_a_session_does_not_wait_for_a_rejoining_agent() {
    let mut root = Bench::settled(0);
    root.lost(1, "silent");
    root.cx.is_leaving = true;
    assert!(root.cx.agent.links.neighbours.expects(AgentId(3)));
    assert_eq!(root.fate(3, 0, 0), "dismissed");
    assert!(!root.cx.agent.links.neighbours.expects(AgentId(3)), "it is no longer awaited");
}
