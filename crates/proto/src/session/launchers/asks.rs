//! Launchers' requests for nodes and jobs. A request is a few bytes and its answer a few bytes per node or job, so the
//! requests of one read are answered together.

use super::attached::Asks;
use super::{Asked, Launchers};
use crate::io::LinkId;
use crate::session::Cx;
use crate::session::membership::Nodes;
use crate::text;
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::{JobSpec, NodeSpec};
use wireup_wire::limits::LISTED_NAME_LEN_MAX;
use wireup_wire::session::{JobEntry, JobState, SeatOrder, SeatRequest};
use wireup_wire::talk::{Control, ToLauncher};

impl Launchers {
    /// A launcher asks where its job may run.
    pub(super) fn give_seats(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, request: &SeatRequest) {
        let Some(attached) = self.attached.get(&link).filter(|attached| !attached.has_launched) else {
            return cx.answer(
                link,
                &Control::ToLauncher(ToLauncher::Refused { problem: "the job was launched before".into() }),
            );
        };
        cx.answer(link, &Control::ToLauncher(ToLauncher::Seats(self.loads.assign(attached.job, nodes.own(), request))));
    }

    pub(super) fn note(&mut self, link: LinkId, note: impl FnOnce(&mut Asks)) {
        if let Some(attached) = self.attached.get_mut(&link) {
            note(&mut attached.asks);
        }
    }

    /// All frames of one read of a launcher's link have been handled.
    pub fn answer_questions(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId) {
        let Some(attached) = self.attached.get_mut(&link) else { return };
        let asks = std::mem::take(&mut attached.asks);
        if asks.nodes {
            tell_nodes(cx, nodes, link);
        }
        if asks.jobs {
            self.tell_jobs(cx, link);
        }
        if asks.revived {
            self.tell_if_settled(cx, nodes);
        }
    }

    /// Answers the launchers that wait until all nodes are up or known to be missing, if that is so.
    pub(super) fn tell_if_settled(&mut self, cx: &mut Cx, nodes: &Nodes) {
        if !nodes.is_settled() {
            return;
        }
        for (link, attached) in &mut self.attached {
            if std::mem::take(&mut attached.waits_for_nodes) {
                tell_nodes(cx, nodes, *link);
            }
        }
    }

    pub(super) fn on_revive(&mut self, cx: &mut Cx, link: LinkId) {
        if let Some(reason) = &self.ending {
            let problem = format!("the session is being ended: {reason}");
            return cx.answer(link, &Control::ToLauncher(ToLauncher::Refused { problem }));
        }
        if let Some(attached) = self.attached.get_mut(&link) {
            attached.asks.revived = true;
            attached.waits_for_nodes = true;
        }
        cx.links.owners.listen(link);
        self.asked.push_back(Asked::Revive);
    }

    pub(super) fn tell_jobs(&self, cx: &mut Cx, link: LinkId) {
        let entries = cx.jobs.ids().into_iter().filter_map(|id| self.entry(cx, id));
        let entries = entries.chain(self.held_entries(cx)).collect();
        cx.answer(link, &Control::ToLauncher(ToLauncher::JobList(entries)));
    }

    fn entry(&self, cx: &Cx, id: JobId) -> Option<JobEntry> {
        let (job, spec) = (cx.jobs.get(id)?, cx.jobs.spec(id)?);
        let age_ns = self.begun.get(&id).map_or(0, |since| cx.now - *since);
        let state = match job.has_started() {
            _ if job.is_ending() => JobState::Ending,
            true => JobState::Running,
            false => JobState::Starting,
        };
        Some(jobs_entry(cx.tree, spec, job.facts.agents(), self.loads.order_of(id), age_ns, state))
    }
}

fn tell_nodes(cx: &mut Cx, nodes: &Nodes, link: LinkId) {
    cx.answer(link, &Control::ToLauncher(ToLauncher::Nodes(nodes.own().to_vec())));
}

/// The description of a job in a list.
pub fn jobs_entry(
    tree: Tree,
    spec: &JobSpec,
    agents: Vec<AgentId>,
    seats: Option<SeatOrder>,
    age_ns: u64,
    state: JobState,
) -> JobEntry {
    let (added, nodes): (Vec<AgentId>, _) = agents.into_iter().partition(|agent| tree.is_beside(*agent));
    let is_added = |node: &&NodeSpec| added.contains(&node.agent);
    let program = spec.apps.first().and_then(|app| app.argv.first()).map(Vec::as_slice).unwrap_or_default();
    let program = String::from_utf8_lossy(&program[..program.len().min(LISTED_NAME_LEN_MAX)]);
    JobEntry {
        job: spec.job,
        parent: spec.spawned.as_ref().map(|spawned| spawned.by),
        nspace: text::beginning(&spec.nspace, LISTED_NAME_LEN_MAX).to_owned(),
        program: text::beginning(&program, LISTED_NAME_LEN_MAX).to_owned(),
        ranks: spec.job_size(),
        nodes,
        added: spec.nodes.iter().filter(is_added).map(|node| node.name.clone()).collect(),
        seats,
        age_ns,
        state,
    }
}
