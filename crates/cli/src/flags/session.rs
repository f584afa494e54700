//! The session that a command line describes: a job's own, or the one that `wireup up` starts.

use super::chosen;
use super::layout::{self, Layout};
use super::parsed::{Parsed, Start};
use super::remote_shell::{Reach, remote_shell};
use super::session_nodes::StatedToUp;
use crate::surroundings::Surroundings;
use wireup_wire::peer::{Containment, LinkOptions, RemoteShell, SessionSpec};
use wireup_wire::session::Standing;

/// An agent that has not connected to its parent by then is lost. Chosen: a slow login takes seconds, not a minute.
const START_TIMEOUT_NS: u64 = 60_000_000_000;
/// A node that has not answered for this long is lost. Chosen: a swapping node or a rebooting switch answers sooner.
const NODE_TIMEOUT_NS: u64 = 30_000_000_000;

pub fn of_job(
    parsed: &Parsed,
    surroundings: &Surroundings,
    reach: Reach,
    layout: &Layout,
    name: String,
) -> Result<SessionSpec, String> {
    let start = start(parsed, reach != Reach::ThisMachine)?;
    let shell = remote_shell(parsed.remote_shell.as_deref(), reach, surroundings)?;
    Ok(SessionSpec {
        name,
        fanout: layout.fanout(start, parsed.fanout),
        agents: layout.agents.clone(),
        containment: containment(parsed, layout, &shell),
        remote_shell: shell,
        shells_max: layout::shells_max(start),
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
        None => Layout::surroundings(parsed.virtual_nodes, &surroundings.host),
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
