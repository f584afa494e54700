//! Ports that agents of a standing session reserve for the ranks of its jobs, once, so that a job need not look for
//! ports and its agents need not tell each other.
//!
//! ```text
//!   an agent begins       ReserveRankPorts ─► the driver listens on them
//!   they are reserved     RankPorts ↑ ──────► the root: launchers/ports allots them, and the job carries the addresses
//!   a rank ends           its port is closed: connects are refused
//!   the job has ended     Over ↓ ───────────► RenewRankPorts: they listen anew, for the next job ──► RankPorts ↑
//!   everywhere
//! ```
//!
//! A port that the root allots listens already, so that ranks can connect whatever order the job's nodes start in; and
//! nobody connects to it for an earlier job, since that has ended everywhere. An agent tells again what it has reserved
//! when it has a new parent. If a message is lost with an agent on its way, or a node has no ports left, jobs there
//! find ports of their own. A node where a job could not begin, because another node was lost meanwhile, answers too:
//! its share is free for others. Cost: one message for each agent per level above it, and for each job that has used
//! ports one more down and up.

use super::inputs::{launchers, rank_ports::Input};
use super::{Effect, Effects, Routes, View};
use crate::io::Output;
use bytes::Bytes;
use std::collections::BTreeSet;
use wireup_wire::ids::JobId;
use wireup_wire::peer::Note;
use wireup_wire::session::{PortsPerNode as Wanted, RankPortsNews, RankPortsReport};
use wireup_wire::talk::{Control, SessionUp};

#[derive(Default)]
pub struct RankPorts {
    /// The address with the lowest port, once the ports are reserved.
    own: Option<Bytes>,
    /// Jobs that have ended everywhere else, as far as the root waits for them, but not here.
    over: BTreeSet<JobId>,
}

impl RankPorts {
    pub fn handle(&mut self, view: &View<'_>, routes: &Routes, input: Input, fx: &mut Effects) {
        // A host that was added serves one job, which would have to wait for its ports.
        let standing = view.session.standing.as_ref().filter(|_| !view.tree.is_beside(view.me));
        let Some(Wanted { count, range }) = standing.and_then(|standing| standing.rank_ports) else { return };
        match input {
            Input::Begin => fx.push(Effect::Output(Output::ReserveRankPorts { count, range })),
            Input::Reserved(Ok(address)) => {
                self.own = Some(address);
                self.tell_reserved(view, routes, count, fx);
            }
            Input::Reserved(Err(problem)) => fx.note(Note::NoRankPorts { host: view.host().to_owned(), problem }),
            Input::ParentUp => self.tell_reserved(view, routes, count, fx),
            Input::Told { branch, report } => {
                let (roster, agent) = (&routes.roster, report.agent);
                let is_current = roster.incarnation(agent) == report.incarnation && !roster.is_lost(agent);
                if is_current && roster.is_below(branch, agent) {
                    pass_on(view, report, fx);
                }
            }
            Input::Over(job) if view.jobs.has(job) => drop(self.over.insert(job)),
            Input::Over(job) => fx.push(Effect::Output(Output::RenewRankPorts { job })),
            Input::JobGone(job) => {
                if self.over.remove(&job) {
                    fx.push(Effect::Output(Output::RenewRankPorts { job }));
                }
            }
            Input::Renewed(job) => tell(view, routes, RankPortsNews::Renewed(job), fx),
        }
    }

    fn tell_reserved(&self, view: &View<'_>, routes: &Routes, count: u16, fx: &mut Effects) {
        if let Some(address) = self.own.clone() {
            tell(view, routes, RankPortsNews::Reserved { count, address }, fx);
        }
    }
}

fn tell(view: &View<'_>, routes: &Routes, news: RankPortsNews, fx: &mut Effects) {
    let incarnation = routes.roster.incarnation(view.me);
    pass_on(view, RankPortsReport { agent: view.me, incarnation, news }, fx);
}

fn pass_on(view: &View<'_>, report: RankPortsReport, fx: &mut Effects) {
    if view.is_root() {
        fx.push(Effect::Launchers(launchers::Input::Ports(report)));
    } else if view.neighbours.has_up() {
        fx.up(Control::SessionUp(SessionUp::RankPorts(report)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::facts::Facts;
    use crate::job::{Born, Job, JobTree};
    use crate::session::Policy;
    use crate::testing::Scene;
    use wireup_coll::tree::Tree;
    use wireup_wire::ids::AgentId;
    use wireup_wire::job::PortRange;
    use wireup_wire::session::{Entry, SessionSnapshot, Standing};

    /// Agent `me` of fifteen, fan-out 2, linked to its neighbours.
    struct Bench {
        scene: Scene,
        routes: Routes,
        part: RankPorts,
    }

    impl Bench {
        fn new(me: u32) -> Bench {
            let mut scene = Scene::standing(me).linked();
            let range = PortRange { low: 100, high: 200 };
            let rank_ports = Some(Wanted { count: 8, range });
            scene.session.standing = Some(Standing { rank_ports, ..Standing::default() });
            let routes = Routes::new(AgentId(me), Tree::new(15, 2), Policy::Standing, &SessionSnapshot::default());
            Bench { scene, routes, part: RankPorts::default() }
        }

        fn input(&mut self, input: Input) -> Effects {
            let mut fx = Effects::default();
            self.part.handle(&self.scene.view(), &self.routes, input, &mut fx);
            fx
        }

        fn told(&mut self, branch: u32, agent: u32, incarnation: u32) -> Effects {
            let report = RankPortsReport { agent: AgentId(agent), incarnation, news: reserved() };
            self.input(Input::Told { branch: AgentId(branch), report })
        }
    }

    fn address() -> Bytes {
        Bytes::from_static(b"address")
    }

    fn reserved() -> RankPortsNews {
        RankPortsNews::Reserved { count: 8, address: address() }
    }

    fn sent(agent: u32, incarnation: u32) -> Control {
        Control::SessionUp(SessionUp::RankPorts(RankPortsReport {
            agent: AgentId(agent),
            incarnation,
            news: reserved(),
        }))
    }

    #[test]
    fn an_agent_tells_its_parent_and_each_new_one() {
        let mut bench = Bench::new(3);
        let fx = bench.input(Input::Begin);
        assert!(fx.iter().any(|effect| matches!(effect, Effect::Output(Output::ReserveRankPorts { count: 8, .. }))));
        assert!(bench.input(Input::ParentUp).is_empty(), "nothing is reserved yet");
        assert_eq!(bench.input(Input::Reserved(Ok(address()))).sent_up(), [&sent(3, 0)]);
        assert_eq!(bench.input(Input::ParentUp).sent_up(), [&sent(3, 0)]);
        let fx = Bench::new(3).input(Input::Reserved(Err("no port is free".into())));
        assert!(matches!(fx.sent_up()[..], [Control::Note(Note::NoRankPorts { host, .. })] if host == "n3"));
    }

    #[test]
    fn messages_of_agents_below_reach_the_root_if_they_are_not_of_the_past() {
        let mut bench = Bench::new(1);
        assert_eq!(bench.told(3, 7, 0).sent_up(), [&sent(7, 0)]);
        assert!(bench.told(4, 7, 0).is_empty(), "7 is not below 4");
        bench.routes.roster.apply(&Entry::Lost(vec![AgentId(7)]));
        assert!(bench.told(3, 7, 0).is_empty());
        let mut root = Bench::new(0);
        let arrived =
            |fx: Effects| fx.iter().any(|effect| matches!(effect, Effect::Launchers(launchers::Input::Ports(_))));
        assert!(arrived(root.told(1, 7, 0)) && arrived(root.input(Input::Reserved(Ok(address())))));
    }

    #[test]
    fn a_session_without_such_ports_reserves_none() {
        let mut bench = Bench::new(1);
        bench.scene.session.standing = Some(Standing::default());
        assert!(bench.input(Input::Begin).is_empty() && bench.told(3, 7, 0).is_empty());
    }

    #[test]
    fn ports_are_renewed_when_their_job_has_ended_here_and_everywhere() {
        let renews =
            |fx: &Effects| fx.iter().any(|effect| matches!(effect, Effect::Output(Output::RenewRankPorts { .. })));
        let mut bench = Bench::new(3);
        assert!(!renews(&bench.input(Input::JobGone(JobId(1)))) && renews(&bench.input(Input::Over(JobId(1)))));
        let facts = Facts::for_test(2, 2, 0);
        let (spec, mapping, tree) = (facts.spec.clone(), &facts.mapping, JobTree::whole(AgentId(0), Tree::new(2, 2)));
        let born = Born { process_ns: 0, bootstrap_ns: 0 };
        bench.scene.jobs.begin(JobId(2), Job::new(spec, mapping, AgentId(0), tree, born, &[], bench.scene.now));
        assert!(!renews(&bench.input(Input::Over(JobId(2)))));
        bench.scene.jobs.remove(JobId(2));
        assert!(renews(&bench.input(Input::JobGone(JobId(2)))) && !renews(&bench.input(Input::JobGone(JobId(2)))));
        assert!(renews(&bench.input(Input::Over(JobId(3)))), "a job that could not begin here has a share at the root");
        let fx = bench.input(Input::Renewed(JobId(2)));
        let sent = fx.sent_up();
        assert!(matches!(&sent[..], [Control::SessionUp(SessionUp::RankPorts(report))]
                if report.news == RankPortsNews::Renewed(JobId(2))));
    }
}
