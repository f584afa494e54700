//! The nodes of jobs: which belong to the members that an agent names, and what they know of other jobs.

use crate::plan;
use crate::session::{Cx, JobNode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId, NodeId, Rank};
use wireup_wire::inter_job::{Order, OtherJob, Parent};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::FAMILY_JOBS_MAX;
use wireup_wire::names::{Answer, Asker};
use wireup_wire::pmix::{Set, Status};

/// The ranks of each job, in the order of the jobs.
pub type Members = Vec<(JobId, Set)>;

/// Finds the job with this namespace, if the job uses PMIx and is not being ended. The job may be about to start.
pub fn job_named<'v>(cx: &'v Cx, nspace: &str) -> Option<&'v Arc<JobSpec>> {
    let spec = cx.jobs.specs().find(|spec| spec.nspace == nspace)?;
    let is_there = cx.jobs.get(spec.job).is_none_or(|job| !job.is_ending());
    (is_there && spec.options.pmi.flavour.has_pmix()).then_some(spec)
}

/// Checks the members that an agent names for a collective that the agent's node enters, and returns them.
///
/// # Errors
/// A named job does not exist, or the agent names members that no correct agent would name.
pub fn checked(cx: &Cx, at: JobNode, named: &[(String, Set)]) -> Result<Members, Status> {
    if named.len() > FAMILY_JOBS_MAX {
        return Err(Status::BadParam);
    }
    let mut members = Members::new();
    for (nspace, set) in named {
        let spec = job_named(cx, nspace).ok_or(Status::NotFound)?;
        let size = spec.job_size();
        let set = match set {
            Set::All => Set::All,
            Set::Ranks(ranks) => {
                let is_in_order = ranks.is_sorted_by(|one, next| one < next);
                if !is_in_order || ranks.last().is_none_or(|last| last.0 >= size) {
                    return Err(Status::BadParam);
                }
                if ranks.len() == size as usize { Set::All } else { set.clone() }
            }
        };
        members.push((spec.job, set));
    }
    members.sort_unstable();
    let is_once = members.is_sorted_by(|one, next| one.0 < next.0);
    let is_member = agents(cx, &members).contains(&at);
    if is_once && is_member { Ok(members) } else { Err(Status::BadParam) }
}

/// The nodes of the members.
pub fn agents(cx: &Cx, members: &Members) -> BTreeSet<JobNode> {
    let specs = members.iter().filter_map(|(job, set)| Some((cx.jobs.spec(*job)?, set)));
    specs
        .flat_map(|(spec, set)| agents_of(spec, set).into_iter().map(|agent| JobNode { job: spec.job, agent }))
        .collect()
}

fn agents_of(spec: &JobSpec, set: &Set) -> BTreeSet<AgentId> {
    let Some(mapping) = mapping(spec) else { return BTreeSet::new() };
    let agent = |node: NodeId| spec.nodes.get(node.index()).map(|node| node.agent);
    match set {
        Set::All => {
            let nodes = (0..spec.nodes.len() as u32).map(NodeId).filter(|node| mapping.local_size(*node) > 0);
            nodes.filter_map(agent).collect()
        }
        Set::Ranks(ranks) => {
            ranks.iter().filter_map(|rank| mapping.place(*rank)).filter_map(|(node, _)| agent(node)).collect()
        }
    }
}

/// The agent of a rank's node.
pub fn agent_of(spec: &JobSpec, rank: Rank) -> Option<AgentId> {
    let (node, _) = mapping(spec)?.place(rank).filter(|_| rank.0 < spec.job_size())?;
    spec.nodes.get(node.index()).map(|node| node.agent)
}

/// The ranks of an agent's node.
pub fn ranks_on(cx: &Cx, JobNode { job, agent }: JobNode) -> Vec<Rank> {
    let Some(spec) = cx.jobs.spec(job) else { return Vec::new() };
    let node = spec.nodes.iter().position(|node| node.agent == agent).map(|at| NodeId(at as u32));
    let ranks = mapping(spec).zip(node).map(|(mapping, node)| mapping.ranks_of(node).collect());
    ranks.unwrap_or_default()
}

fn mapping(spec: &JobSpec) -> Option<Mapping> {
    Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).ok()
}

/// Describes a job for the PMIx servers of other jobs.
pub fn described(spec: &JobSpec) -> OtherJob {
    OtherJob {
        nspace: spec.nspace.clone(),
        nodes: spec.nodes.iter().map(|node| (node.agent, node.name.clone())).collect(),
        blocks: spec.blocks.clone(),
        apps: spec.apps.iter().map(plan::described).collect(),
        universe: spec.options.pmi.universe_size,
        parent: spec.spawned.as_ref().map(|by| Parent { nspace: by.nspace.clone(), rank: by.rank }),
    }
}

pub fn order(cx: &mut Cx, at: JobNode, order: Order) {
    cx.answer_job(at, Asker::Agent, Answer::Order(order));
}

/// For each job, the nodes of other jobs that know of it. They are told when the job is over, so that their PMIx
/// servers forget it.
#[derive(Default)]
pub struct Told {
    of: BTreeMap<JobId, Known>,
}

struct Known {
    nspace: String,
    by: BTreeSet<JobNode>,
}

impl Told {
    /// A node is told of a job.
    pub fn note(&mut self, spec: &JobSpec, to: JobNode) {
        if spec.job != to.job {
            let new = || Known { nspace: spec.nspace.clone(), by: BTreeSet::new() };
            self.of.entry(spec.job).or_insert_with(new).by.insert(to);
        }
    }

    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId) {
        self.of.retain(|_, known| {
            known.by.retain(|place| place.job != job);
            !known.by.is_empty()
        });
        let Some(Known { nspace, by }) = self.of.remove(&job) else { return };
        by.into_iter().for_each(|place| order(cx, place, Order::Forget { nspace: nspace.clone() }));
    }

    pub fn size(&self) -> usize {
        self.of.len()
    }
}
