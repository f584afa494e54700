//! The map of a job and the choices made for it, as text; the map and the results (`--json`) as JSON.

use crate::environment::Reached;
use crate::flags::chosen::is_of_flags;
use crate::flags::mapping::{MapBy, name_of};
use crate::flags::parsed::Start;
use crate::flags::resolved::Resolved;
use crate::hosts::collapse_short;
use crate::words::{Setting, count, failure_line, ranges, shell};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ptr;
use wireup_coll::Tree;
use wireup_node::launcher::RunOutcome;
use wireup_os::bind::{CpuSet, Even, Machine};
use wireup_wire::ids::{AgentId, NodeId, Rank};
use wireup_wire::job::{AppSpec, BindTo, Binding, JobSpec, NodeSpec, Object, PmiFlavour};
use wireup_wire::peer::{Containment, ExitStatus, RankTrace};
use wireup_wire::session::SeatOrder;

/// One line per node: its ranks by program, and how they are bound.
pub fn map(resolved: &Resolved) -> String {
    let job = &resolved.job;
    let width = job.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (index, node) in job.nodes.iter().enumerate() {
        let ranks: Vec<Rank> = resolved.mapping.ranks_of(NodeId(index as u32)).collect();
        let mut line = format!("{:<width$}", node.name);
        if ranks.is_empty() {
            line += "  no ranks";
        }
        for ranks in ranks.chunk_by(|one, next| ptr::eq(app_of(job, *one), app_of(job, *next))) {
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            let program = String::from_utf8_lossy(&app_of(job, ranks[0]).argv[0]);
            line += &format!("  {noun} {}  {program}", ranges(ranks.iter().map(|rank| rank.0)));
        }
        if let Some(slots) = resolved.slots.get(index) {
            line += &format!("  {}", count(*slots, "slot"));
        }
        if !ranks.is_empty() {
            let elsewhere = node.agent != AgentId(0) && is_remote(resolved);
            line += &format!("  ({})", binding(resolved, node.shared, elsewhere, ranks.len() as u32));
        }
        text += &(line + "\n");
    }
    text
}

fn app_of(job: &JobSpec, rank: Rank) -> &AppSpec {
    let mut end = 0;
    let is_its = |app: &&AppSpec| {
        end += app.ranks;
        rank.0 < end
    };
    job.apps.iter().find(is_its).expect("each rank has a program")
}

/// How the ranks of one node are bound. It uses the cpus of this machine, the only ones known before the start.
fn binding(resolved: &Resolved, shared: bool, elsewhere: bool, ranks: u32) -> String {
    let Binding { to, over, cpus, slots } = &resolved.job.options.binding;
    let within = over.map(|over| format!(", within each {}", name_of(over.object))).unwrap_or_default();
    match to {
        _ if shared && is_remote(resolved) => "not bound: nodes share their machine".to_owned(),
        _ if shared => "not bound: virtual nodes share this machine".to_owned(),
        _ if !slots.is_empty() => "as --rankfile says".to_owned(),
        BindTo::None => "not bound: --bind-to none".to_owned(),
        BindTo::Even if elsewhere => "2 or more cores each, or a NUMA domain, or not bound".to_owned(),
        BindTo::Even => match cpus.as_ref().and_then(|cpus| CpuSet::parse(cpus)) {
            Some(cpus) => format!("{} of cpus {cpus}", even(&resolved.machine.limited(&cpus), ranks)),
            None => even(&resolved.machine, ranks),
        },
        BindTo::Lists(lists) => format!("cpus {} in turn", lists.join(" and ")),
        BindTo::To { object: Object::Thread, count: 1 } => format!("a hardware thread each, in turn{within}"),
        BindTo::To { object, count: 1 } => format!("a {} each, in turn{within}", name_of(*object)),
        BindTo::To { object, count } => format!("{count} {}s each, in turn{within}", name_of(*object)),
    }
}

fn even(machine: &Machine, ranks: u32) -> String {
    let cpus = machine.cpus() as u32;
    match machine.even(ranks as usize) {
        Even::Cores { fewest, most, .. } if fewest == most => format!("{most} cores each"),
        Even::Cores { fewest, most, .. } => format!("{fewest} to {most} cores each"),
        Even::Domains { domains, .. } => format!("a NUMA domain each, of {domains}"),
        Even::Unbound if ranks == 1 => "not bound: one rank".to_owned(),
        Even::Unbound if ranks > cpus => format!("not bound: more ranks than the {}", count(cpus, "cpu")),
        Even::Unbound => "not bound: fewer than 2 cores for each rank".to_owned(),
    }
}

/// The PMI that ranks are offered, in words.
pub fn pmi(flavour: PmiFlavour) -> &'static str {
    match flavour {
        PmiFlavour::Simple => "1 or 2, over an inherited socket",
        PmiFlavour::Pmix => "PMIx, by a server process on each node",
        PmiFlavour::Both => "1, 2 or PMIx, by a socket and a server process on each node",
        PmiFlavour::None => "none",
    }
}

/// The choices that were made for the job, a line each: `key: value (why)`.
pub fn choices(resolved: &Resolved) -> Vec<String> {
    let job = &resolved.job;
    let pmi = pmi(job.options.pmi.flavour);
    let library = job.options.pmi.pmix_library.as_ref().map(|path| format!(", {path}")).unwrap_or_default();
    let pmi = format!("pmi: {pmi}{library} ({})", resolved.pmi_why);
    let first = job.nodes.first();
    let shared = first.is_some_and(|node| node.shared);
    let elsewhere = is_remote(resolved) && first.is_some_and(|node| node.agent != AgentId(0));
    let fullest = resolved.mapping.local_size(NodeId(0)).max(1);
    let agents = resolved.session.agents.len() as u32;
    let exchange = if agents > 1 { "gathered up the tree, broadcast down" } else { "inside the one agent" };
    let binding = binding(resolved, shared, elsewhere, fullest);
    let binding = match binding.split_once(": ") {
        Some((value, why)) => format!("{value} ({why})"),
        None => binding,
    };
    let from = if is_of_flags(&resolved.hosts_from) { "" } else { &format!(" from {}", resolved.hosts_from) };
    let ranks = format!("ranks: {} on {}{from} ({})", job.job_size(), nodes(resolved), placement(resolved));
    let (tree, exchange) = (tree(resolved, agents), format!("exchange: {exchange}"));
    [ranks, pmi, format!("binding: {binding}"), tree]
        .into_iter()
        .chain(links(resolved))
        .chain(containment(resolved))
        .chain([exchange])
        .collect()
}

/// Whether agents are reached by a remote shell.
fn is_remote(resolved: &Resolved) -> bool {
    resolved.reached != Reached::ThisMachine
}

/// The number of nodes, with their names if they are other machines.
fn nodes(resolved: &Resolved) -> String {
    let nodes = &resolved.job.nodes;
    let number = count(nodes.len() as u32, "node");
    if !is_remote(resolved) {
        return number;
    }
    let mut names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    names.dedup();
    format!("{number} {}", collapse_short(names))
}

fn placement(resolved: &Resolved) -> String {
    let nodes = match resolved.seats {
        None => "",
        Some(SeatOrder::Spread) => ", on nodes with the fewest ranks per slot: --place spread",
        Some(SeatOrder::Pack) => ", on the first nodes with free slots: --place pack",
    };
    let rule = match resolved.flags.map.by.unwrap_or_default() {
        MapBy::Slot if !resolved.slots.is_empty() => "node after node by slots".to_owned(),
        MapBy::Slot => "consecutive ranks together".to_owned(),
        MapBy::Node => "one rank a node in turn".to_owned(),
        MapBy::Ppr(per_node) => format!("{per_node} a node"),
        MapBy::Objects(object) | MapBy::PprObject(_, object) => format!("by {}", name_of(object)),
        MapBy::Seq => "in the order of the hosts".to_owned(),
        MapBy::RankFile => "by --rankfile".to_owned(),
    };
    rule + nodes
}

fn tree(resolved: &Resolved, agents: u32) -> String {
    if agents <= 1 && !resolved.in_session {
        return "tree: one agent, in this process".to_owned();
    }
    let fanout = resolved.session.fanout;
    if resolved.in_session {
        return format!("session {}: {agents} agents, fan-out {fanout}", resolved.session.name);
    }
    let depth = Tree::new(agents, fanout).depth(AgentId(agents.saturating_sub(1)));
    let why = match resolved.flags.start.unwrap_or_default() {
        Start::Flat => "--start ssh-flat",
        Start::Serial => "--start serial-ssh: one remote shell per rank, one after the other; for comparisons only",
        Start::Tree if resolved.flags.fanout.is_some() => "chosen by --fanout",
        Start::Tree => "fewest levels with at most 32 children",
    };
    let remote_shell = &resolved.session.remote_shell;
    let shell = match remote_shell.start_method().same_machine {
        true => "children of this machine".to_owned(),
        false => format!("started by {}", shell(remote_shell)),
    };
    format!("tree: {agents} agents ({shell}), fan-out {fanout}, depth {depth} ({why})")
}

/// The interfaces that links between machines may use.
fn links(resolved: &Resolved) -> Option<String> {
    let session = &resolved.session;
    // The links of a standing session are set up already.
    if resolved.in_session || (!is_remote(resolved) && session.links.interface.is_none() && session.links.encrypt) {
        return None;
    }
    let interface =
        session.links.interface.as_deref().map_or("any interface".to_owned(), |which| format!("interface {which}"));
    let cipher = if session.links.encrypt { "encrypted" } else { "authenticated, not encrypted" };
    Some(format!("links: {interface}, {cipher}"))
}

/// What ends the ranks and their children if all of wireup's processes are killed at once.
fn containment(resolved: &Resolved) -> Option<String> {
    let used = match resolved.session.containment {
        // A standing session has already decided about PID namespaces.
        _ if resolved.in_session => return None,
        Containment::None if resolved.job.nodes.iter().any(|node| node.shared && is_remote(resolved)) => {
            "none (nodes share a machine)"
        }
        Containment::None => "none (--contain none)",
        Containment::EachNode { by_user: false } if is_remote(resolved) => {
            "a PID namespace on each node where wireup has CAP_SYS_ADMIN"
        }
        Containment::EachNode { by_user: true } if is_remote(resolved) => {
            "a PID namespace on each node, in a user namespace where wireup lacks CAP_SYS_ADMIN"
        }
        Containment::EachNode { by_user: true } | Containment::Machine { by_user: true, .. } if !resolved.isolates => {
            "none (this machine permits no user namespace with a PID namespace and its own /proc)"
        }
        _ if !resolved.isolates => "none (a PID namespace with its own /proc needs CAP_SYS_ADMIN, or --contain user)",
        Containment::EachNode { .. } => "a PID namespace on each node",
        Containment::Machine { .. } => "a PID namespace for all nodes, which share this machine",
    };
    Some(format!("containment: {used}"))
}

/// How the job and each of its ranks ended, as one JSON object. Fields of a rank whose end is unknown, because its node
/// was lost or it was never started, are `null`.
pub fn results_json(resolved: &Resolved, outcome: &RunOutcome) -> Value {
    let job = &resolved.job;
    let traces: HashMap<Rank, &RankTrace> =
        outcome.traces.iter().flat_map(|part| &part.ranks).map(|trace| (trace.rank, trace)).collect();
    let ranks = places(resolved);
    let ranks = ranks.iter().map(|(rank, node)| of_rank(*rank, &job.nodes[node.index()].name, traces.get(rank)));
    let setting = Setting::of(job, &resolved.session);
    let failure = outcome.ended.failure.as_ref().map(|failure| failure_line(failure, &setting));
    json!({ "exit_code": outcome.code, "failure": failure, "ranks": ranks.collect::<Vec<_>>() })
}

/// Where the ranks of a job that is not started would run, as one JSON object.
pub fn map_json(resolved: &Resolved) -> Value {
    let job = &resolved.job;
    let node = |(index, node): (usize, &NodeSpec)| {
        let ranks = resolved.mapping.local_size(NodeId(index as u32));
        json!({ "node": node.name, "ranks": ranks, "slots": resolved.slots.get(index) })
    };
    let rank = |(rank, node): &(Rank, NodeId)| {
        let program = String::from_utf8_lossy(&app_of(job, *rank).argv[0]);
        json!({ "rank": rank.0, "node": job.nodes[node.index()].name, "program": program })
    };
    let nodes: Vec<Value> = job.nodes.iter().enumerate().map(node).collect();
    let ranks: Vec<Value> = places(resolved).iter().map(rank).collect();
    json!({ "nodes": nodes, "ranks": ranks })
}

fn places(resolved: &Resolved) -> Vec<(Rank, NodeId)> {
    let nodes = (0..resolved.job.nodes.len() as u32).map(NodeId);
    let ranks_of = |node| resolved.mapping.ranks_of(node).map(move |rank| (rank, node));
    let mut ranks: Vec<_> = nodes.flat_map(ranks_of).collect();
    ranks.sort_unstable();
    ranks
}

fn of_rank(rank: Rank, node: &str, trace: Option<&&RankTrace>) -> Value {
    let (mut exit_code, mut signal, mut core_dumped) = (None, None, None);
    match trace.and_then(|trace| trace.status) {
        Some(ExitStatus::Exited(code)) => exit_code = Some(code),
        Some(ExitStatus::Signalled { signal: number, core_dumped: core }) => {
            (signal, core_dumped) = (Some(number), Some(core));
        }
        None => {}
    }
    json!({
        "rank": rank.0,
        "node": node,
        "pid": trace.map(|trace| trace.pid).filter(|pid| *pid > 0),
        "exit_code": exit_code,
        "signal": signal,
        "core_dumped": core_dumped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parsed::parsed_words;
    use crate::flags::resolved::resolve;
    use crate::surroundings::Surroundings;
    use wireup_node::launcher::Stamps;
    use wireup_wire::peer::{Cause, Ended, Failure, TracePart};

    fn resolved_of(line: &str) -> Resolved {
        let surroundings = Surroundings { machine: Machine::of_cores(8), ..Surroundings::example() };
        Resolved { isolates: true, ..resolve(parsed_words(line.split(' ')), surroundings).expect(line) }
    }

    fn map_of(line: &str) -> String {
        map(&resolved_of(line))
    }

    #[test]
    fn the_map_shows_ranks_programs_and_binding() {
        assert_eq!(map_of("-n 4 ./app"), "cn17  ranks 0-3  ./app  (2 cores each)\n");
        assert_eq!(
            map_of("-n 3 --virtual-nodes 3 --ppn 2 ./a : -n 2 ./b"),
            "node0  ranks 0-1  ./a  (not bound: virtual nodes share this machine)\n\
             node1  rank 2  ./a  rank 3  ./b  (not bound: virtual nodes share this machine)\n\
             node2  rank 4  ./b  (not bound: virtual nodes share this machine)\n"
        );
        assert_eq!(map_of("-n 3 ./a"), "cn17  ranks 0-2  ./a  (2 to 3 cores each)\n");
        assert_eq!(map_of("-n 5 ./a"), "cn17  ranks 0-4  ./a  (not bound: fewer than 2 cores for each rank)\n");
        assert_eq!(map_of("-n 9 ./a"), "cn17  ranks 0-8  ./a  (not bound: more ranks than the 8 cpus)\n");
        assert_eq!(map_of("-n 1 --bind-to none ./a"), "cn17  rank 0  ./a  (not bound: --bind-to none)\n");
        assert!(map_of("-n 1 --virtual-nodes 2 ./a").contains("node1  no ranks\n"));
        assert!(map_of("-n 4 --virtual-nodes 2 --map-by node ./a").contains("node1  ranks 1,3  ./a"));
    }

    #[test]
    fn choices_are_lines_with_reasons() {
        assert_eq!(
            choices(&resolved_of("-n 64 --virtual-nodes 4 ./a")),
            [
                "ranks: 64 on 4 nodes (consecutive ranks together)",
                "pmi: 1 or 2, over an inherited socket (./a was not found)",
                "binding: not bound (virtual nodes share this machine)",
                "tree: 4 agents (children of this machine), fan-out 3, depth 1 (fewest levels with at most 32 \
                 children)",
                "containment: a PID namespace for all nodes, which share this machine",
                "exchange: gathered up the tree, broadcast down",
            ]
        );
        assert_eq!(
            choices(&resolved_of("-n 1 --pmi none --contain none ./a")),
            [
                "ranks: 1 on 1 node (consecutive ranks together)", "pmi: none (--pmi)",
                "binding: not bound (one rank)", "tree: one agent, in this process",
                "containment: none (--contain none)", "exchange: inside the one agent",
            ]
        );
    }

    #[test]
    fn hosts_and_their_slots_are_shown() {
        assert_eq!(
            map_of("--hosts n1:2,cn17:1,n2:1 -n 3 ./a"),
            "n1    ranks 0-1  ./a  2 slots  (2 or more cores each, or a NUMA domain, or not bound)\n\
             cn17  rank 2  ./a  1 slot  (not bound: one rank)\n\
             n2    no ranks  1 slot\n"
        );
        let said = choices(&resolved_of("--hosts n[1-4] --ppn 2 --interface eth0 ./a"));
        for line in [
            "ranks: 8 on 4 nodes n[1-4] (consecutive ranks together)",
            "binding: 2 or more cores each, or a NUMA domain, or not bound",
            "tree: 5 agents (started by ssh), fan-out 4, depth 1 (fewest levels with at most 32 children)",
            "links: interface eth0, encrypted",
            "containment: a PID namespace on each node where wireup has CAP_SYS_ADMIN",
        ] {
            assert!(said.iter().any(|said| said == line), "{line}: {said:?}");
        }
        let said = choices(&resolved_of("--hosts n[1-2] -n 4 --start serial-ssh --remote-shell rsh ./a")).join("\n");
        assert!(said.contains("4 nodes n[1-2] (") && said.contains("5 agents (started by rsh), fan-out 5"), "{said}");
        assert!(said.contains("for comparisons only"), "{said}");
    }

    #[test]
    fn each_rank_is_listed_in_order_with_its_end() {
        let trace = |rank, pid, status| RankTrace { rank: Rank(rank), pid, status, ..RankTrace::default() };
        let killed = Some(ExitStatus::Signalled { signal: 11, core_dumped: false });
        let ranks = vec![trace(1, 21, killed), trace(0, 20, Some(ExitStatus::Exited(0)))];
        let cause = Cause::Signalled { signal: 11, core_dumped: false };
        let failure = Failure { node: NodeId(0), host: "node0".into(), rank: Some(Rank(1)), pid: Some(21), cause };
        let outcome = RunOutcome {
            code: 139,
            ended: Ended { failure: Some(failure), done: Default::default() },
            traces: vec![TracePart { ranks, ..TracePart::default() }],
            interrupted: false,
            has_open_line: Some(false),
            stamps: Stamps::default(),
        };
        let found = results_json(&resolved_of("-n 3 --virtual-nodes 2 --ppn 2 ./a"), &outcome);
        assert_eq!(found["exit_code"], 139);
        assert!(found["failure"].as_str().is_some_and(|line| line.starts_with("rank 1 on node0 (pid 21)")), "{found}");
        let expected = json!([
            { "rank": 0, "node": "node0", "pid": 20, "exit_code": 0, "signal": null, "core_dumped": null },
            { "rank": 1, "node": "node0", "pid": 21, "exit_code": null, "signal": 11, "core_dumped": false },
            { "rank": 2, "node": "node1", "pid": null, "exit_code": null, "signal": null, "core_dumped": null },
        ]);
        assert_eq!(found["ranks"], expected);
    }

    #[test]
    fn the_map_lists_each_node_and_the_place_of_each_rank() {
        let found = map_json(&resolved_of("--virtual-nodes 2 -n 2 ./a : -n 1 ./b"));
        let expected = json!({
            "nodes": [{ "node": "node0", "ranks": 2, "slots": null }, { "node": "node1", "ranks": 1, "slots": null }],
            "ranks": [
                { "rank": 0, "node": "node0", "program": "./a" },
                { "rank": 1, "node": "node0", "program": "./a" },
                { "rank": 2, "node": "node1", "program": "./b" },
            ],
        });
        assert_eq!(found, expected);
    }
}
