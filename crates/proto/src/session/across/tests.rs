//! Jobs 1 (agents 0, 1) and 2 (agents 1, 2), with two ranks on each node, and the root's answers to messages of their
//! agents.

use super::*;
use crate::io::{LinkId, Output};
use crate::testing::{in_session, job_on};
use wireup_wire::ids::AgentId;
use wireup_wire::job::PmiFlavour;
use wireup_wire::talk::Control;

struct Bench {
    cx: Cx,
    across: Across,
    together: Vec<(JobId, bool)>,
}

fn at(job: u32, agent: u32) -> JobNode {
    JobNode { job: JobId(job), agent: AgentId(agent) }
}

/// A job, an agent with ranks of it, and the answer that the agent gets.
type Answered = (u32, u32, Answer);

impl Bench {
    fn new() -> Bench {
        let mut cx = in_session(0);
        cx.outputs();
        for (job, agents) in [(1, 0..2), (2, 1..3)] {
            let mut spec = job_on(job, agents, 2);
            spec.options.pmi.flavour = PmiFlavour::Pmix;
            cx.jobs.announce(spec.into());
            cx.agent.links.owners.jobs.insert(JobId(job), LinkId(job));
        }
        Bench { cx, across: Across::default(), together: Vec::new() }
    }

    fn act(&mut self, act: impl FnOnce(&mut Across, &mut Cx)) -> Vec<Answered> {
        act(&mut self.across, &mut self.cx);
        for output in self.cx.outputs() {
            let Output::Send { link, frame } = output else { panic!("nothing else is asked for") };
            let Ok(Control::ToLauncher(ToLauncher::Together { connected, .. })) = peer::decode(&frame.payload) else {
                panic!("nothing else is asked for")
            };
            self.together.push((JobId(link.0), connected));
        }
        let told = self.cx.jobs.answered.drain(..).map(|(at, answer)| (at.job.0, at.agent.0, answer));
        // `Order::TellDeparted`, which goes once to each agent of the jobs, is left out.
        told.filter(|(_, _, answer)| *answer != Answer::Order(Order::TellDeparted)).collect()
    }

    fn report(&mut self, job: u32, agent: u32, report: InterJobReport) -> Vec<Answered> {
        self.act(|across, cx| across.on_report(cx, at(job, agent), report))
    }

    fn job_over(&mut self, job: u32) -> Vec<Answered> {
        self.act(|across, cx| across.on_job_over(cx, JobId(job)))
    }

    fn join(
        &mut self,
        job: u32,
        agent: u32,
        purpose: Purpose,
        members: &[(&str, Set)],
        data: &'static str,
    ) -> Vec<Answered> {
        let members = members.iter().map(|(name, set)| ((*name).to_owned(), set.clone())).collect();
        let joint = Joint { purpose, members, data: data.into() };
        self.act(|across, cx| across.on_join(cx, (at(job, agent), Asker::Server(7)), joint))
    }

    fn departs(&mut self, job: u32, agent: u32, rank: u32) -> Vec<Answered> {
        self.report(job, agent, InterJobReport::Departed { ranks: vec![Rank(rank)] })
    }

    fn fetch(&mut self, nspace: &str, rank: Option<u32>) -> Vec<Answered> {
        let wanted = rank.map(|rank| Wanted::data_of(Rank(rank)));
        let fetch = Fetch { nspace: nspace.into(), wanted, is_new: true };
        self.act(|across, cx| across.on_fetch(cx, (at(1, 0), Asker::Server(8)), fetch))
    }
}

const ALL: [(&str, Set); 2] = [("s-1", Set::All), ("s-2", Set::All)];

fn ranks(ranks: &[u32]) -> Set {
    Set::Ranks(ranks.iter().copied().map(Rank).collect())
}

fn gone(told: &[Answered]) -> Vec<(u32, u32)> {
    let is_gone = |(_, _, answer): &&Answered| *answer == Answer::Failed(Status::RankGone);
    told.iter().filter(is_gone).map(|(job, agent, _)| (*job, *agent)).collect()
}

#[test]
fn a_collective_of_two_jobs_ends_when_all_nodes_have_entered() {
    let mut bench = Bench::new();
    for (job, agent, data) in [(1, 1, "b"), (2, 2, "d"), (2, 1, "c")] {
        assert!(bench.join(job, agent, Purpose::Connect, &ALL, data).is_empty());
    }
    let told = bench.join(1, 0, Purpose::Connect, &ALL, "a");
    let places: Vec<(u32, u32)> = told.iter().map(|(job, agent, _)| (*job, *agent)).collect();
    assert_eq!(places, [(1, 0), (1, 1), (2, 1), (2, 2)]);
    for (job, _, answer) in &told {
        let Answer::Joined(joined) = answer else { panic!("{answer:?}") };
        assert_eq!(joined.data.concat(), b"abcd");
        let names: Vec<&str> = joined.jobs.iter().map(|job| job.nspace.as_str()).collect();
        assert_eq!(names, [if *job == 1 { "s-2" } else { "s-1" }]);
    }
    assert_eq!(bench.together, [(JobId(1), true), (JobId(2), true)]);
    // The answer to a disconnect describes the other jobs again, since an earlier answer may not have reached the node.
    let mut last = Vec::new();
    for (job, agent) in places {
        last = bench.join(job, agent, Purpose::Disconnect, &ALL, "");
    }
    assert!(last.iter().all(|(_, _, answer)| matches!(answer, Answer::Joined(joined) if joined.jobs.len() == 1)));
    assert_eq!(bench.together[2..], [(JobId(1), false), (JobId(2), false)]);
    let told = bench.job_over(2);
    let forget = Answer::Order(Order::Forget { nspace: "s-2".into() });
    assert_eq!(told, [(1, 0, forget.clone()), (1, 1, forget)]);
    bench.job_over(1);
    assert_eq!(bench.across.size(), 0);
}

#[test]
fn rounds_of_the_same_members_follow_each_other() {
    let mut bench = Bench::new();
    let pair = [("s-1", ranks(&[3])), ("s-2", ranks(&[0]))];
    assert!(bench.join(1, 1, Purpose::Fence, &pair, "").is_empty());
    assert!(bench.join(1, 1, Purpose::Fence, &pair, "").is_empty(), "it may be faster");
    assert!(bench.join(1, 1, Purpose::Group("g".into()), &pair, "").is_empty(), "another collective");
    assert_eq!(bench.join(2, 1, Purpose::Fence, &pair, "").len(), 2);
    assert_eq!(bench.join(2, 1, Purpose::Fence, &pair, "").len(), 2);
    assert!(bench.join(2, 1, Purpose::Fence, &pair, "").is_empty());
    assert!(bench.together.is_empty());
}

#[test]
fn a_node_that_gives_up_has_not_entered() {
    let mut bench = Bench::new();
    bench.join(1, 0, Purpose::Connect, &ALL, "late");
    bench.join(1, 1, Purpose::Connect, &ALL, "");
    bench.fetch("s-2", Some(0));
    for id in [7, 8] {
        assert!(bench.report(1, 0, InterJobReport::GaveUp { id }).is_empty());
    }
    for agent in [1, 2] {
        assert!(bench.join(2, agent, Purpose::Connect, &ALL, "").is_empty());
    }
    assert_eq!(bench.join(1, 0, Purpose::Connect, &ALL, "").len(), 4, "it enters the same round again");
    let own = InterJobReport::Given { ticket: 1, status: Status::Ok, blob: "x".into() };
    assert!(bench.report(2, 1, own).is_empty());
}

#[test]
fn nobody_waits_for_members_that_are_gone() {
    let mut bench = Bench::new();
    bench.join(1, 0, Purpose::Fence, &ALL, "");
    bench.join(2, 2, Purpose::Fence, &ALL, "");
    assert!(bench.departs(2, 2, 3).is_empty(), "its node has entered");
    assert_eq!(gone(&bench.departs(2, 1, 0)), [(1, 0), (2, 2)]);
    assert_eq!(gone(&bench.join(1, 1, Purpose::Fence, &ALL, "")), [(1, 1)], "later ones are told at once");
    let others = [("s-1", ranks(&[0])), ("s-2", ranks(&[2]))];
    assert!(bench.join(1, 0, Purpose::Fence, &others, "").is_empty(), "these are there");
    assert_eq!(gone(&bench.job_over(2)), [(1, 0)]);
}

#[test]
fn what_no_correct_agent_says_is_refused() {
    let mut bench = Bench::new();
    let mut join = |job, agent, members: &[(&str, Set)]| bench.join(job, agent, Purpose::Fence, members, "");
    let mut refused = |job, agent, members: &[(&str, Set)]| match &join(job, agent, members)[..] {
        [(_, _, Answer::Failed(status))] => *status,
        told => panic!("{told:?}"),
    };
    assert_eq!(refused(1, 0, &[("s-1", Set::All), ("s-9", Set::All)]), Status::NotFound);
    for members in [
        [("s-1", ranks(&[4])), ("s-2", Set::All)],
        [("s-1", ranks(&[1, 0])), ("s-2", Set::All)],
        [("s-1", ranks(&[])), ("s-2", Set::All)],
        [("s-1", ranks(&[0])), ("s-1", ranks(&[1]))],
        [("s-1", ranks(&[2])), ("s-2", Set::All)],
    ] {
        assert_eq!(refused(1, 0, &members), Status::BadParam, "{members:?}");
    }
    assert_eq!(bench.across.size(), 0);
}

#[test]
fn data_of_a_rank_of_another_job_is_fetched_from_its_node() {
    let mut bench = Bench::new();
    let told = bench.fetch("s-2", Some(3));
    let [(2, 2, Answer::Order(Order::Give { ticket, wanted }))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*wanted, Wanted::data_of(Rank(3)));
    assert!(bench.report(2, 1, given(*ticket)).is_empty() && bench.report(2, 2, given(ticket + 1)).is_empty());
    let told = bench.report(2, 2, given(*ticket));
    let [(1, 0, Answer::Fetched(fetched))] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&fetched.blob[..], fetched.job.as_ref().map(|job| &job.nspace[..])), (&b"x"[..], Some("s-2")));
    assert!(matches!(&bench.fetch("s-2", None)[..], [(1, 0, Answer::Fetched(fetched))] if fetched.blob.is_empty()));
    for (nspace, rank) in [("s-2", 4), ("s-9", 0), ("s-1", 0)] {
        assert!(matches!(&bench.fetch(nspace, Some(rank))[..], [(1, 0, Answer::Failed(Status::NotFound))]));
    }
    assert_eq!(bench.fetch("s-2", Some(0)).len(), 1);
    let told = bench.job_over(2);
    assert_eq!(gone(&told), [(1, 0)]);
    assert_eq!(bench.across.size(), 0);
}

fn given(ticket: u64) -> InterJobReport {
    InterJobReport::Given { ticket, status: Status::Ok, blob: "x".into() }
}

#[test]
fn what_several_nodes_want_is_fetched_once() {
    let mut bench = Bench::new();
    let from = |bench: &mut Bench, agent, id, is_new| {
        let fetch = Fetch { nspace: "s-2".into(), wanted: Some(Wanted::data_of(Rank(0))), is_new };
        bench.act(|across, cx| across.on_fetch(cx, (at(1, agent), Asker::Server(id)), fetch))
    };
    assert!(matches!(&from(&mut bench, 0, 1, true)[..], [(2, 1, Answer::Order(Order::Give { ticket: 1, .. }))]));
    // Callers that have given up are removed from the open request.
    for id in 2..9 {
        assert!(from(&mut bench, 0, id, false).is_empty() && from(&mut bench, 1, id, true).is_empty());
        bench.report(1, 0, InterJobReport::GaveUp { id });
    }
    bench.report(1, 0, InterJobReport::GaveUp { id: 1 });
    assert!(from(&mut bench, 0, 9, true).is_empty());
    let told = bench.report(2, 1, given(1));
    assert_eq!(told.len(), 8);
    let is_whole = |(_, _, answer): &Answered| matches!(answer, Answer::Fetched(fetched) if fetched.job.is_some());
    assert!(
        told.iter().all(is_whole),
        "each that does not know the job is told of it, also if others on its node were"
    );
    assert!(matches!(&from(&mut bench, 0, 10, true)[..], [(2, 1, Answer::Order(Order::Give { ticket: 2, .. }))]));
}

#[test]
fn later_entrances_move_forward_when_one_is_withdrawn() {
    let mut bench = Bench::new();
    let pair = [("s-1", ranks(&[3])), ("s-2", ranks(&[0]))];
    let join = |bench: &mut Bench, job, id| {
        let members = pair.iter().map(|(name, set)| ((*name).to_owned(), set.clone())).collect();
        let joint = Joint { purpose: Purpose::Fence, members, data: "abc".into() };
        bench.act(|across, cx| across.on_join(cx, (at(job, 1), Asker::Server(id)), joint))
    };
    for id in [1, 2, 3] {
        assert!(join(&mut bench, 1, id).is_empty());
    }
    bench.report(1, 1, InterJobReport::GaveUp { id: 1 });
    assert_eq!([join(&mut bench, 2, 1).len(), join(&mut bench, 2, 2).len()], [2, 2]);
    assert!(join(&mut bench, 2, 3).is_empty(), "two are left, and both are over");
    bench.report(2, 1, InterJobReport::GaveUp { id: 3 });
    bench.job_over(1);
    bench.job_over(2);
    assert_eq!((bench.across.size(), bench.across.bytes()), (0, 0));
}

#[test]
fn a_node_with_a_departed_member_waits_for_nobody() {
    let mut bench = Bench::new();
    bench.join(1, 0, Purpose::Fence, &ALL, "");
    assert_eq!(gone(&bench.departs(2, 1, 0)), [(1, 0)]);
    assert_eq!(gone(&bench.join(2, 1, Purpose::Fence, &ALL, "")), [(2, 1)], "the others were told already");
}

#[test]
fn all_ranks_of_an_agent_without_its_part_of_a_job_are_gone() {
    let mut bench = Bench::new();
    let all_of_1 = [("s-1", ranks(&[0])), ("s-2", ranks(&[3]))];
    assert!(bench.join(1, 0, Purpose::Fence, &all_of_1, "").is_empty());
    assert!(bench.report(2, 1, InterJobReport::Ended).is_empty(), "it has ranks 0 and 1");
    assert_eq!(gone(&bench.report(2, 2, InterJobReport::Ended)), [(1, 0)]);
}

#[test]
fn too_much_data_is_an_error_for_all() {
    let mut bench = Bench::new();
    let blob: Bytes = vec![0; ACROSS_BYTES_MAX / 4].into();
    let mut told = Vec::new();
    for (job, agent) in [(1, 0), (1, 1), (2, 1), (2, 2)] {
        assert!(told.is_empty());
        let members = ALL.iter().map(|(name, set)| ((*name).to_owned(), set.clone())).collect();
        let joint = Joint { purpose: Purpose::Fence, members, data: blob.clone() };
        told = bench.act(|across, cx| across.on_join(cx, (at(job, agent), Asker::Server(7)), joint));
    }
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|(_, _, answer)| *answer == Answer::Failed(Status::Full)), "no frame can carry it");
    assert_eq!(bench.across.bytes(), 0);
}

#[test]
fn an_outcome_must_fit_into_a_frame_and_into_memory() {
    let data = |len: usize| [Bytes::from(vec![0; len])];
    assert!(fits(&data(1 << 20), &[], 4000));
    assert!(!fits(&data(1 << 20), &[], 5000));
    assert!(!fits(&data(FRAME_PAYLOAD_MAX - 100), &[], 1));
}

#[test]
fn names_and_lists_of_ranks_have_weight() {
    let members = vec![(JobId(1), Set::Ranks(vec![Rank(0); 1000])), (JobId(2), Set::All)];
    let fence = weight(&Purpose::Fence, &members);
    assert!(fence >= 4000);
    assert_eq!(weight(&Purpose::Group("abc".into()), &members), fence + 3);
}
