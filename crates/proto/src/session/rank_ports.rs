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
//! A socket listens on each reserved port before the root allots the port, so that ranks can connect whatever order the
//! job's nodes start in; and nobody connects to it for an earlier job, since that has ended everywhere. An agent
//! reports its reserved ports again when it has a new parent. If a report is lost with an agent that should forward it,
//! or a node has no reserved ports left, jobs there find ports of their own. A node where a job could not begin,
//! because another node was lost meanwhile, also reports the job's ports as free. Cost: one message for each agent per
//! level above it, and for each job that has used ports one more down and up.

use super::Cx;
use crate::io::Output;
use bytes::Bytes;
use std::collections::BTreeSet;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Note;
use wireup_wire::session::{PortsPerNode as Wanted, RankPortsNews, RankPortsReport};
use wireup_wire::talk::SessionUp;

#[derive(Default)]
pub struct RankPorts {
    /// The address with the lowest of the reserved ports; `None`: no ports are reserved yet.
    own: Option<Bytes>,
    /// Jobs for which `on_over` was called before they ended on this agent.
    over: BTreeSet<JobId>,
}

impl RankPorts {
    /// Asks the driver to reserve the ports, when the session starts on this agent.
    pub fn reserve(&self, cx: &mut Cx) {
        if let Some(Wanted { count, range }) = wanted(cx) {
            cx.output(Output::ReserveRankPorts { count, range });
        }
    }

    /// The driver has reserved the ports, or could not. Returns a report for the root.
    pub fn on_reserved(&mut self, cx: &mut Cx, result: Result<Bytes, String>) -> Option<RankPortsReport> {
        match result {
            Ok(address) => self.own = Some(address),
            Err(problem) => cx.note(Note::NoRankPorts { host: cx.host().to_owned(), problem }),
        }
        self.reserved(cx)
    }

    /// A report for the root about the ports that this agent has reserved; `None`: no ports are reserved.
    pub fn reserved(&self, cx: &Cx) -> Option<RankPortsReport> {
        let Wanted { count, .. } = wanted(cx)?;
        let address = self.own.clone()?;
        Some(report(cx, RankPortsNews::Reserved { count, address }))
    }

    /// The root no longer waits for any node of a job. Renews the job's ports once the job has ended on this agent too.
    pub fn on_over(&mut self, cx: &mut Cx, job: JobId) {
        if wanted(cx).is_none() {
        } else if cx.jobs.contains_key(&job) {
            self.over.insert(job);
        } else {
            cx.output(Output::RenewRankPorts { job });
        }
    }

    /// A job has ended on this agent: renews its ports if `on_over` was called for it before.
    pub fn on_job_gone(&mut self, cx: &mut Cx, job: JobId) {
        if self.over.remove(&job) {
            cx.output(Output::RenewRankPorts { job });
        }
    }

    /// A child has sent a report. Returns it for the root if it is about an agent below the child, and about the
    /// agent's current incarnation.
    pub fn on_told(&self, cx: &Cx, branch: AgentId, report: RankPortsReport) -> Option<RankPortsReport> {
        let (roster, agent) = (&cx.agent.links.routes.roster, report.agent);
        let is_current = roster.incarnation(agent) == report.incarnation && !roster.is_lost(agent);
        (is_current && roster.is_below(branch, agent)).then_some(report)
    }

    /// The driver has renewed the ports of a job. Returns a report for the root.
    pub fn on_renewed(&self, cx: &Cx, job: JobId) -> Option<RankPortsReport> {
        wanted(cx).map(|_| report(cx, RankPortsNews::Renewed(job)))
    }
}

/// The ports that this agent reserves. `None` on a host that was added for one job, which would have to wait until the
/// ports are reserved.
fn wanted(cx: &Cx) -> Option<Wanted> {
    let standing = cx.session.standing.as_ref().filter(|_| !cx.tree.is_beside(cx.me));
    standing.and_then(|standing| standing.rank_ports)
}

fn report(cx: &Cx, news: RankPortsNews) -> RankPortsReport {
    RankPortsReport { agent: cx.me, incarnation: cx.agent.links.routes.roster.incarnation(cx.me), news }
}

/// Passes a report on to the parent; returns it at the root.
pub fn pass_on(cx: &mut Cx, report: RankPortsReport) -> Option<RankPortsReport> {
    if cx.is_root() {
        return Some(report);
    }
    if cx.agent.links.neighbours.has_up() {
        cx.up(SessionUp::RankPorts(report));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::facts::Facts;
    use crate::job::{Born, Job, JobTree};
    use crate::testing::{Look, UP, agent_of, in_session, session};
    use wireup_coll::tree::Tree;
    use wireup_wire::job::PortRange;
    use wireup_wire::peer::SessionSpec;
    use wireup_wire::session::{Entry, SessionSnapshot, Standing};
    use wireup_wire::talk::Control;

    /// Agent `me`, linked to its neighbours, in a session that reserves ports.
    fn reserving(me: u32) -> (Cx, RankPorts) {
        let range = PortRange { low: 100, high: 200 };
        let rank_ports = Some(Wanted { count: 8, range });
        let standing = Some(Standing { rank_ports, ..Standing::default() });
        let mut cx = agent_of(me, SessionSpec { standing, ..session(15) }, &SessionSnapshot::default()).linked();
        cx.outputs();
        (cx, RankPorts::default())
    }

    /// The messages that an agent sends to its parent when a child reports `agent`'s ports, and whether the root
    /// accepts the report.
    fn told(cx: &mut Cx, branch: u32, agent: u32, incarnation: u32) -> (Vec<Control>, bool) {
        let report = RankPortsReport { agent: AgentId(agent), incarnation, news: reserved() };
        let report = RankPorts::default().on_told(cx, AgentId(branch), report);
        let arrives = report.and_then(|report| pass_on(cx, report)).is_some();
        (cx.outputs().sent(UP), arrives)
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
        let (mut cx, mut part) = reserving(3);
        part.reserve(&mut cx);
        assert!(matches!(cx.outputs()[..], [Output::ReserveRankPorts { count: 8, .. }]));
        assert!(part.reserved(&cx).is_none(), "nothing is reserved yet");
        let report = RankPortsReport { agent: AgentId(3), incarnation: 0, news: reserved() };
        assert_eq!(part.on_reserved(&mut cx, Ok(address())), Some(report.clone()));
        assert_eq!(part.reserved(&cx), Some(report));
        let (mut cx, mut part) = reserving(3);
        assert_eq!(part.on_reserved(&mut cx, Err("no port is free".into())), None);
        let sent = cx.outputs().sent(UP);
        assert!(matches!(&sent[..], [Control::Note(Note::NoRankPorts { host, .. })] if host == "n3"));
    }

    #[test]
    fn messages_of_agents_below_reach_the_root_if_they_are_not_of_the_past() {
        let (mut cx, _) = reserving(1);
        assert_eq!(told(&mut cx, 3, 7, 0), (vec![sent(7, 0)], false));
        assert_eq!(told(&mut cx, 4, 7, 0), (vec![], false), "7 is not below 4");
        cx.agent.links.routes.roster.apply(&Entry::Lost(vec![AgentId(7)]));
        assert_eq!(told(&mut cx, 3, 7, 0), (vec![], false));
        let (mut root, _) = reserving(0);
        assert_eq!(told(&mut root, 1, 7, 0), (vec![], true));
    }

    #[test]
    fn a_session_without_such_ports_reserves_none() {
        let mut cx = in_session(1);
        cx.outputs();
        RankPorts::default().reserve(&mut cx);
        assert!(cx.outputs().is_empty());
    }

    #[test]
    fn ports_are_renewed_when_their_job_has_ended_here_and_everywhere() {
        let renews = |cx: &mut Cx| cx.outputs().iter().any(|output| matches!(output, Output::RenewRankPorts { .. }));
        let (mut cx, mut part) = reserving(3);
        part.on_job_gone(&mut cx, JobId(1));
        assert!(!renews(&mut cx));
        part.on_over(&mut cx, JobId(1));
        assert!(renews(&mut cx));
        let facts = Facts::for_test(2, 2, 0);
        let (spec, mapping, tree) = (facts.spec.clone(), &facts.mapping, JobTree::whole(AgentId(0), Tree::new(2, 2)));
        let born = Born { process_ns: 0, bootstrap_ns: 0 };
        cx.jobs.insert(JobId(2), Job::new(spec, mapping, AgentId(0), tree, born, &[], cx.agent.now));
        part.on_over(&mut cx, JobId(2));
        assert!(!renews(&mut cx));
        cx.jobs = Default::default();
        part.on_job_gone(&mut cx, JobId(2));
        assert!(renews(&mut cx));
        part.on_job_gone(&mut cx, JobId(2));
        assert!(!renews(&mut cx));
        part.on_over(&mut cx, JobId(3));
        assert!(renews(&mut cx), "a job that could not begin here has a share at the root");
        let report = part.on_renewed(&cx, JobId(2)).expect("the root is told");
        assert_eq!(report.news, RankPortsNews::Renewed(JobId(2)));
    }
}
