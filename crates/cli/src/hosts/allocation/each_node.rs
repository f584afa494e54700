//! Systems that start the same command on each node, as `torchrun` wants it. One wireup is enough: the wireup on node 0
//! uses all nodes, and on the other nodes wireup refuses to run.
//!
//! `RANK` and `WORLD_SIZE` are never read: on some platforms (Alibaba PAI) they count nodes, elsewhere processes.

use super::{Allocation, Env, Node, one_name, wrong};
use wireup_node::hosts::HOSTS_MAX;

/// A system that starts the same command on each node, and the variables that describe a node's job.
struct System {
    name: &'static str,
    /// The variable that names the job; if unset, its first node does.
    job: &'static str,
    /// The number of this node, from 0.
    index: &'static str,
    /// The number of nodes.
    count: &'static str,
    nodes: Nodes,
    /// The variable with the number of ranks for each node; ignored if its value is not a number.
    per_node: &'static str,
}

enum Nodes {
    /// The variable lists all nodes, separated by white space.
    Listed(&'static str),
    /// The variable names node 0; the function derives the name of another node.
    Named(&'static str, fn(&str, u32) -> Option<String>),
}

/// The number of nodes of a Kubeflow job; in an elastic one, a range such as `2:4`.
const PET_NNODES: &str = "PET_NNODES";

const SYSTEMS: &[System] = &[
    System {
        name: "SkyPilot",
        job: "SKYPILOT_TASK_ID",
        index: "SKYPILOT_NODE_RANK",
        count: "SKYPILOT_NUM_NODES",
        nodes: Nodes::Listed("SKYPILOT_NODE_IPS"),
        per_node: "SKYPILOT_NUM_GPUS_PER_NODE",
    },
    System {
        name: "dstack",
        job: "DSTACK_RUN_NAME",
        index: "DSTACK_NODE_RANK",
        count: "DSTACK_NODES_NUM",
        nodes: Nodes::Listed("DSTACK_NODES_IPS"),
        per_node: "DSTACK_GPUS_PER_NODE",
    },
    System {
        name: "LeaderWorkerSet",
        job: "",
        index: "LWS_WORKER_INDEX",
        count: "LWS_GROUP_SIZE",
        nodes: Nodes::Named("LWS_LEADER_ADDRESS", below_leader),
        per_node: "",
    },
    System {
        name: "Kubeflow",
        job: "",
        index: "PET_NODE_RANK",
        count: PET_NNODES,
        nodes: Nodes::Named("PET_MASTER_ADDR", numbered),
        per_node: "PET_NPROC_PER_NODE",
    },
    // Kubernetes tells a pod only its index, also in a JobSet. `NNODES` and `MASTER_ADDR` are what manifests add.
    System {
        name: "indexed Kubernetes",
        job: "",
        index: "JOB_COMPLETION_INDEX",
        count: "NNODES",
        nodes: Nodes::Named("MASTER_ADDR", numbered),
        per_node: "",
    },
];

pub fn detect(env: Env) -> Result<Option<Allocation>, String> {
    for system in SYSTEMS {
        if let Some(allocation) = system.detect(env)? {
            return Ok(Some(allocation));
        }
    }
    Ok(None)
}

/// Whether a variable of one of these systems is set, valid or not.
pub fn is_likely(env: Env) -> bool {
    SYSTEMS.iter().any(|system| env.get(system.index).is_some())
}

impl System {
    fn detect(&self, env: Env) -> Result<Option<Allocation>, String> {
        // The count is checked before the node's index, which an elastic job sets only if it has a master.
        let (count, index) = (self.count(env)?, env.number(self.index)?);
        let Some(count @ 2..) = count else { return Ok(None) };
        let Some(index) = index else {
            let (Nodes::Listed(names) | Nodes::Named(names, _)) = self.nodes;
            let problem = format!(
                "{0} is not set, so each node would start a job of its own; on each node set {0} to the node's number \
                 (0 on the first) and {names} to the first node's name",
                self.index
            );
            return Err(wrong(self.count, &count.to_string(), problem));
        };
        let (told_by, names) = self.names(env, count)?;
        let per_node = env.get(self.per_node).and_then(|value| value.parse().ok()).filter(|ranks| *ranks > 0);
        let node = |name: &String| Node { name: name.clone(), tasks: per_node.unwrap_or(1), cpus: 0 };
        let job = env.get(self.job).unwrap_or(&names[0]);
        let allocation = Allocation::new(self.name, job, told_by, names.iter().map(node).collect());
        Ok(Some(Allocation { refused: (index > 0).then(|| self.refusal(index, count)), ..allocation }))
    }

    /// The number of nodes, if the system states it. Without the node's index only `PET_NNODES` counts: users set it
    /// for `torchrun`, whose rendezvous needs no index, while the systems always set both.
    fn count(&self, env: Env) -> Result<Option<u32>, String> {
        let is_torchruns = self.count == PET_NNODES;
        let range = env.get(self.count).filter(|_| is_torchruns);
        match range.and_then(|range| range.split_once(':')) {
            None if !is_torchruns && env.get(self.index).is_none() => Ok(None),
            None => env.number(self.count),
            Some((least, most)) if least == most => {
                least.parse().map(Some).map_err(|_| wrong(self.count, least, "not a whole number"))
            }
            Some((least, most)) => {
                let problem = "the number of nodes is not fixed, so each node would start a job of its own; give the \
                               job a fixed number of nodes";
                Err(wrong(self.count, &format!("{least}:{most}"), problem))
            }
        }
    }

    /// The names of all nodes, and the variable that they come from.
    fn names(&self, env: Env, count: u32) -> Result<(&'static str, Vec<String>), String> {
        let (Nodes::Listed(variable) | Nodes::Named(variable, _)) = self.nodes;
        let text = env.get(variable).ok_or_else(|| super::no_hosts(self.name, self.index, variable))?;
        if u64::from(count) > HOSTS_MAX {
            return Err(wrong(self.count, &count.to_string(), format!("more than {HOSTS_MAX} hosts")));
        }
        let names: Vec<String> = match self.nodes {
            Nodes::Listed(_) => {
                text.split_whitespace().map(|word| one_name(variable, text, word)).collect::<Result<_, _>>()?
            }
            Nodes::Named(_, of_node) => {
                let first = one_name(variable, text, text)?;
                let others: Option<Vec<String>> = (1..count).map(|index| of_node(&first, index)).collect();
                let others = others
                    .ok_or_else(|| wrong(variable, text, "the names of the other nodes do not follow from this one"))?;
                [first].into_iter().chain(others).collect()
            }
        };
        if names.len() != count as usize {
            let problem = format!("it has {} hosts, but {}={count}", names.len(), self.count);
            return Err(wrong(variable, text, problem));
        }
        Ok((variable, names))
    }

    /// The message on a node other than node 0, on which wireup must not run.
    fn refusal(&self, index: u32, count: u32) -> String {
        let System { name, index: variable, .. } = self;
        format!(
            "this is node {index} of {count} (from 0) of the {name} job, and each node would start the whole job; run \
             wireup on node 0 only: if [ \"${variable}\" = 0 ]; then wireup run ...; fi; where a node ends with its \
             command (dstack, Kubernetes), let the others wait, with \"else sleep infinity\" before \"fi\"; to ignore \
             the {name} job, give --hosts or --virtual-nodes"
        )
    }
}

/// A worker's name in a LeaderWorkerSet: `x-0.x.ns` is the leader of `x-0-1.x.ns`.
fn below_leader(leader: &str, index: u32) -> Option<String> {
    let (pod, domain) = split_domain(leader);
    Some(format!("{pod}-{index}{domain}"))
}

/// A pod's name in an indexed job, a JobSet or a TrainJob, where `x-0.svc` is the first and `x-1.svc` the second; or in
/// a PyTorchJob, where those are `x-master-0` and `x-worker-0`.
fn numbered(first: &str, index: u32) -> Option<String> {
    let (pod, domain) = split_domain(first);
    if let Some(job) = pod.strip_suffix("-master-0") {
        return Some(format!("{job}-worker-{}{domain}", index - 1));
    }
    let job = pod.strip_suffix("-0")?;
    Some(format!("{job}-{index}{domain}"))
}

/// A host name's first label, and the rest with its dot.
fn split_domain(name: &str) -> (&str, &str) {
    name.split_at(name.find('.').unwrap_or(name.len()))
}
