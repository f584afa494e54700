//! The hosts of a run: from the user's flags, else from `WIREUP_HOSTS`, else from a batch system, else this machine.

use super::mapping::MapBy;
use super::parsed::Parsed;
use crate::hosts::allocation::{self, Allocation, Env, Node};
use crate::hosts::{self, Entry, Hosts, Names};
use crate::surroundings::Surroundings;

/// The variable that names hosts if no flag does, in the syntax of `--hosts`.
pub const VARIABLE: &str = "WIREUP_HOSTS";
const HOSTS: &str = "--hosts";
const HOST_FILE: &str = "--hostfile";
pub const ONLY_LOCAL: &str = "--nolocal: the job has no host but this machine; name others with --hosts or --hostfile";

/// The hosts of a run that is not limited to this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chosen {
    pub hosts: Hosts,
    /// Where the hosts were named, for messages.
    pub origin: String,
    /// The program that starts agents in one step, if all of the hosts belong to a batch system's allocation and it has
    /// one.
    pub step: Option<&'static str>,
}

/// Whether the hosts come from the command line, so that messages need not say where they come from.
pub fn is_of_flags(origin: &str) -> bool {
    ["", HOSTS, HOST_FILE].contains(&origin)
}

/// Whether hosts may be named, so that this machine's own addresses are needed.
pub fn may_name_hosts(parsed: &Parsed, env: Env) -> bool {
    parsed.names_hosts()
        || (parsed.virtual_nodes.is_none() && (env.get(VARIABLE).is_some() || allocation::is_likely(env)))
}

/// Reads what a command line needs to know of this machine.
pub fn look_around(parsed: &Parsed) -> Result<Surroundings, String> {
    Surroundings::read(|env| may_name_hosts(parsed, Env(env)))
        .map_err(|error| format!("cannot read this machine's settings: {error}; is /proc mounted?"))
}

/// The hosts of a run; `None`: it runs on this machine, or on virtual nodes of it.
pub fn chosen(parsed: &Parsed, surroundings: &Surroundings) -> Result<Option<Chosen>, String> {
    let env = Env(&surroundings.env);
    if let Some((entries, origin)) = named(parsed, env)? {
        // If the user has named hosts, a broken allocation does not matter.
        let allocation = allocation::detect(env).ok().flatten();
        let Within { entries, step, has_slots } = within(entries, allocation.as_ref(), parsed);
        let slots_of = has_slots.then(|| words(allocation.as_ref()));
        let origin = if step.is_some() { format!("{origin}, of {}", words(allocation.as_ref())) } else { origin };
        let hosts = Hosts { slots_of, ..sum(entries, parsed, surroundings, allocation.as_ref())? };
        return Ok(Some(Chosen { hosts, origin, step }));
    }
    if parsed.virtual_nodes.is_some() {
        return Ok(None);
    }
    let Some(allocation) = allocation::detect(env)? else { return Ok(None) };
    if let Some(refused) = &allocation.refused {
        return Err(refused.clone());
    }
    let bare = |node: &Node| Entry { name: node.name.clone(), slots: None, slots_max: None };
    let entries = match parsed.slots {
        Some(_) => allocation.nodes.iter().map(bare).collect(),
        None => allocation.entries(wanted(parsed, &allocation)),
    };
    let origin = format!("{} ({})", words(Some(&allocation)), allocation.told_by);
    let slots_of = parsed.slots.is_none().then(|| words(Some(&allocation)));
    let hosts = Hosts { slots_of, ..sum(entries, parsed, surroundings, Some(&allocation))? };
    Ok(Some(Chosen { hosts, origin, step: allocation.step_program() }))
}

/// The hosts that the user named, and where they were named.
fn named(parsed: &Parsed, env: Env) -> Result<Option<(Vec<Entry>, String)>, String> {
    match (parsed.hosts.is_empty(), parsed.host_files.is_empty()) {
        (true, true) => {}
        (false, false) => return Err("--hosts and --hostfile cannot be combined; leave one of them out".into()),
        _ if parsed.virtual_nodes.is_some() => {
            return Err(
                "--virtual-nodes (nodes on this machine) and --hosts (other machines) cannot be combined; leave \
                        one of them out"
                    .into(),
            );
        }
        (false, true) => return Ok(Some((hosts::list_of_flags(&parsed.hosts)?, HOSTS.into()))),
        (true, false) => {
            let files = parsed.host_files.iter().map(|file| hosts::read_file(file));
            return Ok(Some((files.collect::<Result<Vec<_>, _>>()?.concat(), HOST_FILE.into())));
        }
    }
    let Some(text) = env.get(VARIABLE).filter(|_| parsed.virtual_nodes.is_none()) else { return Ok(None) };
    let entries = hosts::list(text).map_err(|problem| format!("{VARIABLE}: {problem}"))?;
    Ok(Some((entries, VARIABLE.into())))
}

/// Named hosts, looked up in the allocation.
struct Within {
    entries: Vec<Entry>,
    step: Option<&'static str>,
    /// Whether the entries got their numbers of slots from the allocation.
    has_slots: bool,
}

/// If all named hosts belong to the allocation, each once and no slots were stated, they get the allocation's slots.
fn within(mut entries: Vec<Entry>, allocation: Option<&Allocation>, parsed: &Parsed) -> Within {
    let Some(allocation) = allocation.filter(|of| entries.iter().all(|entry| of.find(&entry.name).is_some())) else {
        return Within { entries, step: None, has_slots: false };
    };
    let bare = entries.iter().all(|entry| entry.slots.is_none() && entry.slots_max.is_none());
    let once = |name: &str| entries.iter().filter(|entry| entry.name == name).count() == 1;
    let has_slots = parsed.slots.is_none() && bare && entries.iter().all(|entry| once(&entry.name));
    if has_slots {
        let nodes = entries.iter().filter_map(|entry| allocation.find(&entry.name)).cloned().collect();
        let part = Allocation { nodes, ..allocation.clone() };
        entries = part.entries(wanted(parsed, &part));
    }
    Within { entries, step: allocation.step_program(), has_slots }
}

fn wanted(parsed: &Parsed, allocation: &Allocation) -> Option<u64> {
    let per_node = match parsed.map.by {
        Some(MapBy::Ppr(ranks)) => Some(ranks),
        _ => parsed.ppn,
    };
    // If a node is to get more ranks than the batch system was asked for, each node counts with all its cpus, whatever
    // the total number of ranks is.
    let least = allocation.nodes.iter().map(|node| node.tasks).min().unwrap_or(0);
    if per_node.is_some_and(|ranks| ranks > least) {
        return Some(u64::MAX);
    }
    parsed.programs.iter().map(|program| program.flags.ranks.map(u64::from)).sum()
}

fn sum(
    entries: Vec<Entry>,
    parsed: &Parsed,
    surroundings: &Surroundings,
    allocation: Option<&Allocation>,
) -> Result<Hosts, String> {
    let own = allocation.and_then(|allocation| allocation.own_name.as_deref()).unwrap_or(&surroundings.host);
    let names = Names::new(own, surroundings.addresses.clone(), &entries);
    let hosts = Hosts::new(entries, parsed.slots, &names)?;
    match parsed.excludes_local().then(|| hosts.clone().retain(|host| !host.is_local)) {
        Some(others) if others.list.is_empty() => Err(ONLY_LOCAL.to_owned()),
        Some(others) => Ok(others),
        None => Ok(hosts),
    }
}

fn words(allocation: Option<&Allocation>) -> String {
    allocation.map_or_else(String::new, |allocation| format!("{} job {}", allocation.scheduler, allocation.job))
}

#[cfg(test)]
mod tests;
