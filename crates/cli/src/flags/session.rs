//! The session that a command line describes: a job's own, or the one that `wireup up` starts.

use super::chosen;
use super::parsed::{Parsed, Start};
use super::remote_shell::{Reach, remote_shell};
use super::session_nodes::StatedToUp;
use crate::hosts::Hosts;
use crate::surroundings::Surroundings;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree;
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::job::NodeSpec;
use wireup_wire::peer::{AgentSpec, Containment, LinkOptions, RemoteShell, SessionSpec};
use wireup_wire::session::Standing;

/// An agent that has not connected to its parent by then is lost. Chosen: a slow login takes seconds, not a minute.
const START_TIMEOUT_NS: u64 = 60_000_000_000;
/// A node that has not answered for this long is lost. Chosen: a swapping node or a rebooting switch answers sooner.
const NODE_TIMEOUT_NS: u64 = 30_000_000_000;
/// Remote shells in progress at once below one agent. Chosen: more than the default fan-out, so that only `--start
/// ssh-flat` has to wait; few enough for the memory and the process limit of a login node.
const SHELLS_MAX: u32 = 64;

/// The agents of a session and the nodes of a job: which agent runs on which machine.
///
/// Agent 0 is the launcher's own process. If the launcher's machine is one of the hosts, agent 0 runs that node;
/// otherwise agent 0 has no node. Nodes keep the user's order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub agents: Arc<[AgentSpec]>,
    pub nodes: Vec<NodeSpec>,
}

impl Layout {
    /// The layout of a job on this machine, or on the given number of virtual nodes of it.
    pub fn of_this_machine(virtual_nodes: Option<u32>, own: &str) -> Layout {
        let nodes: Vec<NodeSpec> = match virtual_nodes {
            None => vec![NodeSpec { agent: AgentId(0), name: own.to_owned(), shared: false }],
            Some(count) => (0..count)
                .map(|node| NodeSpec { agent: AgentId(node), name: format!("node{node}"), shared: count > 1 })
                .collect(),
        };
        Layout { agents: nodes.iter().map(|node| AgentSpec { host: node.name.clone() }).collect(), nodes }
    }

    /// The layout with one agent per host.
    pub fn of_hosts(hosts: &Hosts, own: &str) -> Layout {
        let own = hosts.list.iter().find(|host| host.is_local).map_or(own, |host| &host.name);
        let mut agents = vec![AgentSpec { host: own.to_owned() }];
        let mut nodes = Vec::with_capacity(hosts.list.len());
        for host in &hosts.list {
            let agent = if host.is_local { AgentId(0) } else { add(&mut agents, &host.name) };
            nodes.push(NodeSpec { agent, name: host.name.clone(), shared: false });
        }
        Layout { agents: agents.into(), nodes }
    }

    /// One agent for each rank. Each agent is a separate node, on the host where the mapping has placed the rank.
    /// Agents on this machine are started by the remote shell, too.
    pub fn of_ranks(hosts: &Hosts, mapping: &Mapping, own: &str) -> Layout {
        let mut agents = vec![AgentSpec { host: own.to_owned() }];
        let node = |rank| {
            let (place, _) = mapping.place(Rank(rank))?;
            let name = hosts.list[place.index()].name.clone();
            Some(NodeSpec { agent: add(&mut agents, &name), name, shared: mapping.local_size(place) > 1 })
        };
        let nodes = (0..mapping.job_size()).filter_map(node).collect();
        Layout { agents: agents.into(), nodes }
    }
}

fn add(agents: &mut Vec<AgentSpec>, host: &str) -> AgentId {
    agents.push(AgentSpec { host: host.to_owned() });
    AgentId(agents.len() as u32 - 1)
}

pub fn of_job(
    parsed: &Parsed,
    surroundings: &Surroundings,
    reach: Reach,
    layout: &Layout,
    name: String,
) -> Result<SessionSpec, String> {
    let start = start(parsed, reach != Reach::ThisMachine)?;
    let shell = remote_shell(parsed.remote_shell.as_deref(), reach, surroundings)?;
    let agents = layout.agents.len() as u32;
    Ok(SessionSpec {
        name,
        fanout: match start {
            Start::Tree => parsed.fanout.unwrap_or_else(|| tree::default_fanout(agents)),
            Start::Flat | Start::Serial => agents,
        },
        agents: layout.agents.clone(),
        containment: containment(parsed, layout, &shell),
        remote_shell: shell,
        shells_max: if start == Start::Serial { 1 } else { SHELLS_MAX },
        program: surroundings.program.clone(),
        start_timeout_ns: parsed.start_timeout_ns.unwrap_or(START_TIMEOUT_NS),
        links: LinkOptions {
            node_timeout_ns: parsed.node_timeout_ns.unwrap_or(NODE_TIMEOUT_NS),
            encrypt: !parsed.plain_links,
            interface: parsed.interface.clone(),
            transport: parsed.transport.unwrap_or_default(),
        },
        verbose: parsed.verbose,
        installed_only: false,
        hold_ranks: false,
        // A batch system has already checked the hosts of its allocation; others may be unreachable.
        start_together: reach == Reach::Ssh && !parsed.early_start,
        record_dir: parsed.record.clone().map(|directory| surroundings.absolute(directory)),
        standing: None,
    })
}

/// Nodes that share a machine share a namespace, because libraries take their ranks for processes of one host: some
/// fail where the namespaces differ (MPICH 4.0.2 with UCX 1.13). Agents that were started by a remote shell cannot
/// share one.
fn containment(parsed: &Parsed, layout: &Layout, shell: &RemoteShell) -> Containment {
    let Some(by_user) = parsed.contain.unwrap_or_default().by_user() else { return Containment::None };
    match layout.nodes.iter().any(|node| node.shared) {
        false => Containment::EachNode { by_user },
        true if shell.start_method().same_machine => Containment::Machine { process: 0, by_user },
        true => Containment::None,
    }
}

/// The session for `wireup up`, with the slots that were stated.
pub fn standing(parsed: &Parsed, surroundings: &Surroundings, name: &str) -> Result<(SessionSpec, StatedToUp), String> {
    let chosen = chosen::chosen(parsed, surroundings)?;
    let step = chosen.as_ref().and_then(|chosen| chosen.step);
    let hosts = chosen.map(|chosen| chosen.hosts);
    if parsed.start == Some(Start::Serial) {
        return Err(
            "--start serial-ssh starts one remote shell per rank, which is not possible for a session; leave it out"
                .into(),
        );
    }
    let layout = match &hosts {
        Some(hosts) => Layout::of_hosts(hosts, &surroundings.host),
        None => Layout::of_this_machine(parsed.virtual_nodes, &surroundings.host),
    };
    let reach = Reach::choose(hosts.is_some(), step, start(parsed, hosts.is_some())?);
    let spec = of_job(parsed, surroundings, reach, &layout, name.to_owned())?;
    // Agents without a node run no ranks.
    let mut slots = vec![0; layout.agents.len()];
    let mut told = StatedToUp {
        slots_stated: false,
        slots_max: vec![None; layout.agents.len()],
        preload: parsed.preload.clone().filter(|modules| *modules != ["none"]).unwrap_or_default(),
    };
    if told.preload == ["auto"] {
        return Err("a session needs names of modules: --preload numpy,scipy; auto is for single runs".into());
    }
    for (index, node) in layout.nodes.iter().enumerate() {
        let host = hosts.as_ref().map(|hosts| &hosts.list[index]);
        slots[node.agent.index()] = host.map_or(parsed.slots.unwrap_or(1), |host| host.slots);
        told.slots_max[node.agent.index()] = host.and_then(|host| host.slots_max);
    }
    told.slots_stated = hosts.map_or(parsed.slots.is_some(), |hosts| hosts.stated);
    // A standing session knows which agents are up before it starts a job.
    let standing = Some(Standing { slots, ..Standing::default() });
    Ok((SessionSpec { standing, start_together: false, ..spec }, told))
}

pub fn start(parsed: &Parsed, hosts: bool) -> Result<Start, String> {
    let start = parsed.start.unwrap_or_default();
    match Start::NAMED.iter().find(|(_, named)| *named == start && start != Start::Tree) {
        Some((name, _)) if parsed.fanout.is_some() => Err(format!(
            "--fanout has no effect with --start {name}, where the launcher starts all agents; leave one of them out"
        )),
        _ if start == Start::Serial && !hosts => {
            Err("--start serial-ssh needs hosts; name them with --hosts or --hostfile".into())
        }
        _ => Ok(start),
    }
}
