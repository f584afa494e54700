//! The variables by which launchers of AI frameworks tell each process its place: one table for each framework
//! (`--for`, `--rank-env`).
//!
//! Most values follow from a rank's place in the job. The address of the rendezvous is that of the store of the rank's
//! own agent, or of a port on the node of rank 0, which that node's agent reserves before any rank starts and all
//! agents learn through the job's tree. The values about the network differ by node, and only the driver knows them;
//! the driver also creates the error files.

use crate::io::{FrameworkPlan, NetworkValue};
use std::net::SocketAddr;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::job::{AppSpec, Framework, JobSpec, ProcessOptions};

/// An environment variable of a framework's table.
struct Variable {
    name: &'static str,
    value: Value,
    /// Whether the variable is left alone if the user has set it.
    is_default: bool,
}

#[derive(Clone, Copy)]
enum Value {
    Text(&'static str),
    Rank,
    JobSize,
    LocalRank,
    LocalSize,
    /// Position of the rank's node among the nodes that have ranks.
    NodeRank,
    NodeCount,
    JobName,
    /// `True` if the rank's agent serves the store to which `MASTER_ADDR` and `MASTER_PORT` lead; else `False`.
    HasStore,
    /// The number of threads: 1. Not set for a rank that is alone on its node, which has all cores.
    OneThread,
    RendezvousAddress,
    RendezvousPort,
    /// Address and port of the rendezvous, with a colon between them.
    Rendezvous,
    /// Path of a file in which this rank alone may describe its failure; the file may not exist yet.
    ErrorFile,
    Network(NetworkValue),
}

impl Value {
    fn is_of_rendezvous(self) -> bool {
        matches!(self, Value::RendezvousAddress | Value::RendezvousPort | Value::Rendezvous)
    }
}

/// A variable that is always set, as the framework's own launcher does.
const fn set(name: &'static str, value: Value) -> Variable {
    Variable { name, value, is_default: false }
}

/// A variable that is set unless the user has set it.
const fn default(name: &'static str, value: Value) -> Variable {
    Variable { name, value, is_default: true }
}

const RANK_ENV: &[Variable] = &[
    set("RANK", Value::Rank),
    set("WORLD_SIZE", Value::JobSize),
    set("LOCAL_RANK", Value::LocalRank),
    set("LOCAL_WORLD_SIZE", Value::LocalSize),
    default("MASTER_ADDR", Value::RendezvousAddress),
    default("MASTER_PORT", Value::RendezvousPort),
];

/// PyTorch 2.14, `torch/distributed/elastic/agent/server/local_elastic_agent.py`; and the network for Gloo, NCCL, vLLM.
const TORCH: &[Variable] = &[
    set("RANK", Value::Rank),
    set("WORLD_SIZE", Value::JobSize),
    set("LOCAL_RANK", Value::LocalRank),
    set("LOCAL_WORLD_SIZE", Value::LocalSize),
    set("GROUP_RANK", Value::NodeRank),
    set("GROUP_WORLD_SIZE", Value::NodeCount),
    set("ROLE_NAME", Value::Text("default")),
    set("ROLE_RANK", Value::Rank),
    set("ROLE_WORLD_SIZE", Value::JobSize),
    set("MASTER_ADDR", Value::RendezvousAddress),
    set("MASTER_PORT", Value::RendezvousPort),
    set("TORCHELASTIC_RUN_ID", Value::JobName),
    set("TORCHELASTIC_RESTART_COUNT", Value::Text("0")),
    set("TORCHELASTIC_MAX_RESTARTS", Value::Text("0")),
    set("TORCHELASTIC_USE_AGENT_STORE", Value::HasStore),
    set("TORCHELASTIC_ERROR_FILE", Value::ErrorFile),
    default("TORCH_NCCL_ASYNC_ERROR_HANDLING", Value::Text("1")),
    default("OMP_NUM_THREADS", Value::OneThread),
    default("GLOO_SOCKET_IFNAME", Value::Network(NetworkValue::Interface)),
    default("NCCL_SOCKET_IFNAME", Value::Network(NetworkValue::Interface)),
    default("VLLM_HOST_IP", Value::Network(NetworkValue::Address)),
];

/// JAX 0.10, `jax/_src/clusters/ompi_cluster.py`: a process counts as one of Open MPI's if `OMPI_MCA_orte_hnp_uri` is
/// set, whose value is not read if `JAX_COORDINATOR_ADDRESS` is set too. No variable of JAX itself gives the number of
/// a process.
const JAX: &[Variable] = &[
    set("JAX_COORDINATOR_ADDRESS", Value::Rendezvous),
    set("OMPI_MCA_orte_hnp_uri", Value::Text("0.0;tcp://0.0.0.0:0")),
    set("OMPI_COMM_WORLD_RANK", Value::Rank),
    set("OMPI_COMM_WORLD_SIZE", Value::JobSize),
    set("OMPI_COMM_WORLD_LOCAL_RANK", Value::LocalRank),
    default("NCCL_SOCKET_IFNAME", Value::Network(NetworkValue::Interface)),
];

/// DeepSpeed 0.19, `deepspeed/launcher/launch.py`.
const DEEPSPEED: &[Variable] = &[
    set("RANK", Value::Rank),
    set("WORLD_SIZE", Value::JobSize),
    set("LOCAL_RANK", Value::LocalRank),
    set("LOCAL_SIZE", Value::LocalSize),
    set("CROSS_RANK", Value::NodeRank),
    set("CROSS_SIZE", Value::NodeCount),
    set("MASTER_ADDR", Value::RendezvousAddress),
    set("MASTER_PORT", Value::RendezvousPort),
    default("GLOO_SOCKET_IFNAME", Value::Network(NetworkValue::Interface)),
    default("NCCL_SOCKET_IFNAME", Value::Network(NetworkValue::Interface)),
];

fn table(framework: Framework) -> &'static [Variable] {
    match framework {
        Framework::Torch | Framework::TorchRoutable => TORCH,
        Framework::Jax => JAX,
        Framework::DeepSpeed => DEEPSPEED,
    }
}

fn variables(process: &ProcessOptions) -> impl Iterator<Item = &'static Variable> {
    let rank_env = if process.rank_env { RANK_ENV } else { &[] };
    rank_env.iter().chain(process.framework.map_or(&[][..], table))
}

/// Number of consecutive ports that a job's rendezvous needs; 0: the job has no rendezvous.
pub fn rendezvous_ports(process: &ProcessOptions) -> u16 {
    match process.framework {
        // The ranks use the store of their own agent, which needs no reserved port.
        _ if process.has_store() => 0,
        // Programs open stores of their own on the ports after that of `MASTER_PORT`.
        Some(Framework::TorchRoutable) => 4,
        _ if variables(process).any(|variable| variable.value.is_of_rendezvous()) => 1,
        _ => 0,
    }
}

/// The place of a rank in its job.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub rank: Rank,
    pub local: LocalRank,
    pub local_size: u32,
    /// Position of the rank's node among the nodes that have ranks, and the number of such nodes.
    pub node_rank: u32,
    pub node_count: u32,
}

/// The variables of a rank that follow from its place.
pub fn of_place(spec: &JobSpec, app: &AppSpec, place: &Place) -> Vec<Vec<u8>> {
    env(spec, app, |value| {
        Some(match value {
            Value::Text(text) => text.to_owned(),
            Value::Rank => place.rank.to_string(),
            Value::JobSize => spec.job_size().to_string(),
            Value::LocalRank => place.local.to_string(),
            Value::LocalSize => place.local_size.to_string(),
            Value::NodeRank => place.node_rank.to_string(),
            Value::NodeCount => place.node_count.to_string(),
            Value::JobName => spec.nspace.clone(),
            Value::HasStore if spec.options.process.has_store() => "True".to_owned(),
            Value::HasStore => "False".to_owned(),
            Value::OneThread if place.local_size > 1 => "1".to_owned(),
            Value::OneThread | Value::ErrorFile | Value::Network(_) => return None,
            Value::RendezvousAddress | Value::RendezvousPort | Value::Rendezvous => return None,
        })
    })
}

/// The variables that tell the ranks of a program the address of the rendezvous, as a numeric IP address.
pub fn of_rendezvous(spec: &JobSpec, app: &AppSpec, rendezvous: SocketAddr) -> Vec<Vec<u8>> {
    env(spec, app, |value| match value {
        Value::RendezvousAddress => Some(rendezvous.ip().to_string()),
        Value::RendezvousPort => Some(rendezvous.port().to_string()),
        Value::Rendezvous => Some(rendezvous.to_string()),
        _ => None,
    })
}

/// The variables whose values only the driver knows. Variables about the network are left out if the user has set them
/// for any program.
pub fn of_driver(spec: &JobSpec) -> FrameworkPlan {
    let mut plan = FrameworkPlan::default();
    for Variable { name, value, .. } in variables(&spec.options.process) {
        match value {
            Value::ErrorFile => plan.error_file = Some(name),
            Value::Network(value) if !spec.apps.iter().any(|app| is_set(spec, app, name)) => {
                plan.network.push((name, *value));
            }
            _ => {}
        }
    }
    plan
}

fn env(spec: &JobSpec, app: &AppSpec, text: impl Fn(Value) -> Option<String>) -> Vec<Vec<u8>> {
    variables(&spec.options.process)
        .filter(|variable| !(variable.is_default && is_set(spec, app, variable.name)))
        .filter_map(|variable| Some(format!("{}={}", variable.name, text(variable.value)?).into_bytes()))
        .collect()
}

/// Whether the user has set a variable of this name for a program.
fn is_set(spec: &JobSpec, app: &AppSpec, name: &str) -> bool {
    let has_name = |variable: &Vec<u8>| {
        variable.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'='))
    };
    app.env.iter().chain(&spec.env).any(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_on;

    fn spec(framework: Option<Framework>, rank_env: bool) -> JobSpec {
        let mut spec = job_on(1, [0, 1], 2);
        spec.options.process.framework = framework;
        spec.options.process.rank_env = rank_env;
        spec
    }

    fn lines(env: Vec<Vec<u8>>) -> String {
        let lines: Vec<String> = env.into_iter().map(|variable| String::from_utf8(variable).unwrap()).collect();
        lines.join(" ")
    }

    const PLACE: Place = Place { rank: Rank(3), local: LocalRank(1), local_size: 2, node_rank: 1, node_count: 2 };

    #[test]
    fn ranks_get_the_variables_of_torchrun() {
        let mut spec = spec(Some(Framework::Torch), false);
        spec.nspace = "job".into();
        assert_eq!(
            lines(of_place(&spec, &spec.apps[0], &PLACE)),
            "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 ROLE_NAME=default \
             ROLE_RANK=3 ROLE_WORLD_SIZE=4 TORCHELASTIC_RUN_ID=job TORCHELASTIC_RESTART_COUNT=0 \
             TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_USE_AGENT_STORE=True TORCH_NCCL_ASYNC_ERROR_HANDLING=1 \
             OMP_NUM_THREADS=1"
        );
        let rendezvous = of_rendezvous(&spec, &spec.apps[0], "[fd00::1]:23456".parse().unwrap());
        assert_eq!(lines(rendezvous), "MASTER_ADDR=fd00::1 MASTER_PORT=23456");
    }

    #[test]
    fn what_the_user_has_set_takes_precedence_unless_it_says_the_place_of_a_rank() {
        let mut spec = spec(Some(Framework::Torch), false);
        spec.env.push(b"OMP_NUM_THREADS=8".to_vec());
        spec.env.push(b"RANK=0".to_vec());
        spec.apps[0].env.push(b"GLOO_SOCKET_IFNAME=ib0".to_vec());
        let of_rank = lines(of_place(&spec, &spec.apps[0], &PLACE));
        assert!(!of_rank.contains("OMP_NUM_THREADS") && of_rank.contains("RANK=3"), "{of_rank}");
        let plan = of_driver(&spec);
        let names: Vec<&str> = plan.network.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["NCCL_SOCKET_IFNAME", "VLLM_HOST_IP"]);
        assert_eq!(plan.error_file, Some("TORCHELASTIC_ERROR_FILE"));
        let alone = Place { local_size: 1, ..PLACE };
        let unset = JobSpec { env: Vec::new(), ..spec };
        assert!(!lines(of_place(&unset, &unset.apps[0], &alone)).contains("OMP_NUM_THREADS"), "it has all cores");
    }

    #[test]
    fn the_rendezvous_takes_ports_only_if_a_variable_names_it() {
        let ports = |framework, rank_env| rendezvous_ports(&spec(framework, rank_env).options.process);
        assert_eq!(ports(None, false), 0);
        assert_eq!(ports(None, true), 1);
        assert_eq!(ports(Some(Framework::Torch), true), 0);
        assert_eq!(ports(Some(Framework::TorchRoutable), true), 4);
        assert_eq!(ports(Some(Framework::Jax), false), 1);
        let jax = spec(Some(Framework::Jax), false);
        let rendezvous = of_rendezvous(&jax, &jax.apps[0], "[fd00::1]:23456".parse().unwrap());
        assert_eq!(lines(rendezvous), "JAX_COORDINATOR_ADDRESS=[fd00::1]:23456");
        let mut set = spec(None, true);
        set.env.push(b"MASTER_ADDR=n7".to_vec());
        let port_only = of_rendezvous(&set, &set.apps[0], "10.0.0.1:23456".parse().unwrap());
        assert_eq!(lines(port_only), "MASTER_PORT=23456");
    }
}
