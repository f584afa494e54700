//! The number of ranks and the node of each.

use super::mapping::{MapBy, RankBy, name_of};
use super::parsed::{Parsed, Program};
use crate::hosts::{self, Entry, Hosts};
use wireup_coll::mapping::{self, Mapping, MappingError};
use wireup_wire::job::Block;
use wireup_wire::limits::{JOB_SIZE_MAX, PPN_MAX};

/// The nodes that ranks are placed on.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// The ranks run on this machine, or on virtual nodes of it, with this many cpus.
    ThisMachine {
        nodes: u32,
        cpus: u32,
    },
    Hosts(&'a Hosts),
}

impl Places<'_> {
    pub fn nodes(&self) -> u32 {
        match self {
            Places::ThisMachine { nodes, .. } => *nodes,
            Places::Hosts(hosts) => hosts.list.len() as u32,
        }
    }

    /// The default number of ranks.
    fn ranks(&self, per_node: Option<u32>) -> u64 {
        match (self, per_node) {
            (_, Some(per_node)) => u64::from(per_node) * u64::from(self.nodes()),
            (Places::ThisMachine { cpus, .. }, None) => u64::from(*cpus),
            (Places::Hosts(hosts), None) => hosts.slots(),
        }
    }
}

pub fn ranks_per_app(parsed: &Parsed, places: Places) -> Result<Vec<u32>, String> {
    let by_default = places.ranks(parsed.ppn.or(ppr(parsed)));
    let alone = parsed.programs.len() == 1;
    let apart = have_own_hosts(parsed);
    let mut total = 0;
    let mut ranks = Vec::with_capacity(parsed.programs.len());
    for (index, program) in parsed.programs.iter().enumerate() {
        let asked = match program.flags.ranks {
            Some(ranks) => u64::from(ranks),
            None if alone => by_default,
            None if apart && !program.flags.hosts.is_empty() => stated_ranks(program).unwrap_or(0),
            None => {
                let program = program.argv.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
                return Err(format!(
                    "program {} ({program}) has no -n: with \":\" every program needs its number of ranks",
                    index + 1
                ));
            }
        };
        total += asked;
        ranks.push(asked.min(u64::from(u32::MAX)) as u32);
    }
    if total > u64::from(JOB_SIZE_MAX) {
        return Err(format!("{total} ranks are too many; a job can have at most {JOB_SIZE_MAX}; lower -n"));
    }
    Ok(ranks)
}

/// The blocks that place `job_size` ranks.
///
/// `--ppn` is how many ranks a node gets before the next node is used; as with Hydra, ranks beyond the last node
/// continue on the first one. Slots and `ppr` are limits.
pub fn blocks(parsed: &Parsed, ranks: &[u32], places: Places) -> Result<Vec<Block>, String> {
    let job_size = ranks.iter().sum();
    if let Places::Hosts(hosts) = places
        && have_own_hosts(parsed)
    {
        return blocks_of_programs(parsed, ranks, hosts);
    }
    let nodes = places.nodes();
    if let Some(per_node) = ppr(parsed) {
        if let Some(ppn) = parsed.ppn.filter(|&ppn| ppn != per_node) {
            return Err(format!("--ppn {ppn} contradicts --map-by ppr:{per_node}:node; leave one of them out"));
        }
        if u64::from(job_size) > u64::from(per_node) * u64::from(nodes) {
            let map = match parsed.map.typed {
                Some(MapBy::PprObject(each, object)) => format!("ppr:{each}:{}", name_of(object)),
                _ => format!("ppr:{per_node}:node"),
            };
            return Err(format!(
                "{job_size} ranks do not fit with --map-by {map}, which has places for {per_node} on each of {nodes} \
                 node(s); lower -n, or raise the number in {map}"
            ));
        }
    }
    let oversubscribe = parsed.may_oversubscribe();
    if oversubscribe && parsed.refuses_oversubscription() {
        return Err("--oversubscribe and --nooversubscribe contradict each other; leave one of them out".into());
    }
    let slots = match places {
        Places::Hosts(hosts) if hosts.stated => Slots::Of(hosts),
        Places::ThisMachine { cpus, .. } if parsed.refuses_oversubscription() && parsed.slots.is_none() => {
            Slots::Alike(cpus)
        }
        Places::Hosts(_) | Places::ThisMachine { .. } => parsed.slots.map_or(Slots::Unlimited, Slots::Alike),
    };
    if let Slots::Of(hosts) = slots
        && u64::from(job_size) > hosts.slots()
        && !oversubscribe
    {
        return Err(hosts.refusal(job_size, hosts.slots(), nodes as usize));
    }
    let blocks = match (parsed.map.by, parsed.ppn.or(ppr(parsed)), slots) {
        _ if parsed.rank_map.is_some() => of_rank_map(parsed.rank_map.as_deref().unwrap_or_default(), job_size, nodes)?,
        (Some(MapBy::Seq), ..) => in_order("seq", places, job_size)?,
        (Some(MapBy::RankFile), ..) => in_order("rankfile", places, job_size)?,
        (Some(MapBy::Node), _, Slots::Of(hosts)) => in_turn(&slots_of(hosts), job_size),
        (Some(MapBy::Node), _, _) => mapping::by_node(nodes, job_size),
        (_, Some(ppn), _) => mapping::by_ppn(nodes, ppn, job_size),
        (_, None, Slots::Of(hosts)) => mapping::by_slot(&slots_of(hosts), job_size),
        (_, None, Slots::Alike(slots)) => mapping::by_ppn(nodes, slots, job_size),
        (_, None, Slots::Unlimited) => mapping::evenly(nodes, job_size),
    };
    let blocks = numbered(blocks, parsed.rank_by.unwrap_or_default(), nodes as usize, job_size);
    Mapping::new(&blocks, job_size, nodes).map_err(|error| match error {
        MappingError::NodeTooFull { node, ranks } => format!(
            "node {node} would get {ranks} ranks, but at most {PPN_MAX} fit on one node; lower -n or use more nodes"
        ),
        other => cannot_place(&other),
    })?;
    match slots {
        Slots::Of(hosts) => check_hosts(hosts, &blocks, job_size, oversubscribe)?,
        Slots::Alike(slots) if !oversubscribe => {
            let counts = fill(&blocks, nodes as usize, job_size);
            if let Some((node, ranks)) = counts.into_iter().enumerate().find(|(_, ranks)| *ranks > slots) {
                let fits = u64::from(job_size) <= u64::from(nodes) * u64::from(slots);
                return Err(match parsed.slots {
                    _ if fits => format!(
                        "node {node} would get {ranks} ranks but has {slots} slots; place fewer ranks there, or add \
                         --oversubscribe to let ranks share cpus"
                    ),
                    Some(_) => format!(
                        "{job_size} ranks do not fit into {nodes} x {slots} slots; lower -n, raise --slots, use more \
                         nodes, or leave --slots out (or add --oversubscribe) to let ranks share cpus"
                    ),
                    None => format!(
                        "{job_size} ranks do not fit onto {nodes} x {slots} cpus; lower -n, use more nodes, or leave \
                         nooversubscribe out to let ranks share cpus"
                    ),
                });
            }
        }
        Slots::Alike(_) | Slots::Unlimited => {}
    }
    Ok(blocks)
}

pub fn cannot_place(error: &MappingError) -> String {
    format!("the ranks cannot be placed: {error}; choose another --map-by")
}

#[derive(Clone, Copy)]
enum Slots<'a> {
    Unlimited,
    Alike(u32),
    Of(&'a Hosts),
}

fn slots_of(hosts: &Hosts) -> Vec<u32> {
    hosts.list.iter().map(|host| host.slots).collect()
}

/// One rank per host in turn, skipping hosts whose slots are taken; when all slots are taken, the same sequence starts
/// over. Costs O(ranks + hosts).
fn in_turn(slots: &[u32], job_size: u32) -> Vec<Block> {
    if slots.iter().all(|of_host| *of_host == slots[0]) {
        return mapping::by_node(slots.len() as u32, job_size);
    }
    let mut blocks: Vec<Block> = Vec::new();
    let mut free: Vec<u32> = (0..slots.len() as u32).collect();
    let (mut left, mut round) = (u64::from(job_size), 0);
    while left > 0 && !free.is_empty() {
        let mut first_of_round = true;
        for &node in &free {
            match blocks.last_mut() {
                Some(last) if !first_of_round && last.first_node + last.nodes == node => last.nodes += 1,
                _ => blocks.push(Block { first_node: node, nodes: 1, ppn: 1 }),
            }
            first_of_round = false;
        }
        left = left.saturating_sub(free.len() as u64);
        round += 1;
        free.retain(|&node| slots[node as usize] > round);
    }
    blocks
}

/// Renumbers the ranks as `rank_by` says; each node keeps its number of ranks.
fn numbered(blocks: Vec<Block>, rank_by: RankBy, nodes: usize, job_size: u32) -> Vec<Block> {
    match rank_by {
        RankBy::Slot => blocks,
        RankBy::Node => in_turn(&fill(&blocks, nodes, job_size), job_size),
        RankBy::Fill => {
            let counts = fill(&blocks, nodes, job_size).into_iter().zip(0..);
            counts
                .filter(|(ranks, _)| *ranks > 0)
                .map(|(ppn, first_node)| Block { first_node, nodes: 1, ppn })
                .collect()
        }
    }
}

/// One rank for each mention of a host, in the order of the mentions.
fn in_order(map: &str, places: Places, job_size: u32) -> Result<Vec<Block>, String> {
    let Places::Hosts(hosts) = places else {
        return Err(format!("--map-by {map} needs a list of hosts; name them with --hosts or --hostfile"));
    };
    match hosts.order.get(..job_size as usize) {
        Some(order) => Ok(one_by_one(order.iter().copied())),
        None => Err(format!(
            "--map-by {map} has places for {} ranks, but the job has {job_size}; name more hosts or lower -n",
            hosts.order.len()
        )),
    }
}

fn of_rank_map(map: &[u32], job_size: u32, nodes: u32) -> Result<Vec<Block>, String> {
    match map.iter().find(|&&node| node >= nodes) {
        Some(node) => Err(format!(
            "--rank-map names node {node}, but the job has nodes 0 to {}; name more hosts, or correct the list",
            nodes - 1
        )),
        None => Ok(one_by_one(map.iter().copied().cycle().take(job_size as usize))),
    }
}

/// The blocks for one rank on each node of this sequence.
fn one_by_one(nodes: impl Iterator<Item = u32>) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for node in nodes {
        match blocks.last_mut() {
            Some(last) if last.first_node == node => last.ppn += 1,
            _ => blocks.push(Block { first_node: node, nodes: 1, ppn: 1 }),
        }
    }
    blocks
}

/// Checks that no host has more ranks than its slots or, with `oversubscribe`, than its `max_slots`.
fn check_hosts(hosts: &Hosts, blocks: &[Block], job_size: u32, oversubscribe: bool) -> Result<(), String> {
    if oversubscribe && hosts.list.iter().all(|host| host.slots_max.is_none()) {
        return Ok(());
    }
    for (host, ranks) in hosts.list.iter().zip(fill(blocks, hosts.list.len(), job_size)) {
        if ranks > host.slots && !oversubscribe {
            let (name, slots) = (&host.name, host.slots);
            return Err(match &hosts.slots_of {
                Some(allocation) => format!(
                    "host {name} would get {ranks} ranks but {allocation} has only {slots} slots there; lower --ppn, \
                     ask the batch system for more tasks on a node, or add --oversubscribe"
                ),
                None => format!(
                    "host {name} would get {ranks} ranks but has only {slots} slots; lower --ppn, give the host more \
                     slots, or add --oversubscribe"
                ),
            });
        }
        if let Some(max) = host.slots_max.filter(|&max| ranks > max) {
            let name = &host.name;
            return Err(format!(
                "host {name} would get {ranks} ranks but its max_slots is {max}; lower -n, or raise max_slots"
            ));
        }
    }
    Ok(())
}

/// The number of ranks of each node. Costs O(ranks + blocks).
fn fill(blocks: &[Block], nodes: usize, job_size: u32) -> Vec<u32> {
    let mut fill = vec![0; nodes];
    let mut left = job_size;
    for block in blocks.iter().cycle() {
        for node in block.first_node..block.first_node + block.nodes {
            if left == 0 {
                return fill;
            }
            let ranks = block.ppn.min(left);
            fill[node as usize] += ranks;
            left -= ranks;
        }
    }
    fill
}

fn ppr(parsed: &Parsed) -> Option<u32> {
    match parsed.map.by {
        Some(MapBy::Ppr(per_node)) => Some(per_node),
        Some(MapBy::PprObject(..) | MapBy::Objects(_) | MapBy::Slot | MapBy::Node | MapBy::Seq | MapBy::RankFile)
        | None => None,
    }
}

/// Whether the programs of a job may have different hosts: a program after the first one names hosts. Otherwise the
/// hosts of the first program apply to all programs.
fn have_own_hosts(parsed: &Parsed) -> bool {
    parsed.programs.iter().skip(1).any(|program| !program.flags.hosts.is_empty())
}

/// The number of ranks of a program without `-n`: the sum of its slots, one for each host without a number.
fn stated_ranks(program: &Program) -> Option<u64> {
    let entries = own_entries(program).ok().filter(|entries| !entries.is_empty())?;
    Some(entries.iter().map(|entry| u64::from(entry.slots.unwrap_or(1))).sum())
}

/// The blocks of programs with hosts of their own, one after another: `-n 1 --host a ./x : -n 4 --host b,c ./y`.
///
/// The job gets all nodes that are named. If a program states slots for its hosts, its ranks fill them; otherwise its
/// ranks are divided evenly among its hosts. A program that names no hosts uses all nodes.
fn blocks_of_programs(parsed: &Parsed, ranks: &[u32], hosts: &Hosts) -> Result<Vec<Block>, String> {
    let all: Vec<u32> = (0..hosts.list.len() as u32).collect();
    let mut order = hosts.order.as_slice();
    let mut blocks = Vec::new();
    for (program, &ranks) in parsed.programs.iter().zip(ranks) {
        let entries = own_entries(program)?;
        let Some((own, rest)) = order.split_at_checked(entries.len()) else {
            return Err("--nolocal contradicts hosts of one program; leave one of them out".into());
        };
        order = rest;
        if entries.is_empty() {
            add_ranks(&all, &mapping::evenly(all.len() as u32, ranks), ranks, &mut blocks);
            continue;
        }
        let places = match entries.iter().any(|entry| entry.slots.is_some()) {
            false => mapping::evenly(own.len() as u32, ranks),
            true => {
                let slots: Vec<u32> = entries.iter().map(|entry| entry.slots.unwrap_or(1)).collect();
                let room: u64 = slots.iter().map(|&slots| u64::from(slots)).sum();
                if u64::from(ranks) > room && !parsed.may_oversubscribe() {
                    return Err(hosts.refusal(ranks, room, own.len()));
                }
                mapping::by_slot(&slots, ranks)
            }
        };
        add_ranks(own, &places, ranks, &mut blocks);
    }
    Ok(blocks)
}

fn own_entries(program: &Program) -> Result<Vec<Entry>, String> {
    match program.flags.hosts.is_empty() {
        true => Ok(Vec::new()),
        false => hosts::list_of_flags(&program.flags.hosts),
    }
}

/// Adds `ranks` ranks, placed by `places` on these nodes.
fn add_ranks(nodes: &[u32], places: &[Block], ranks: u32, blocks: &mut Vec<Block>) {
    let mut left = ranks;
    for place in places.iter().cycle() {
        for &first_node in &nodes[place.first_node as usize..(place.first_node + place.nodes) as usize] {
            let ppn = place.ppn.min(left);
            if ppn == 0 {
                return;
            }
            blocks.push(Block { first_node, nodes: 1, ppn });
            left -= ppn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parsed::parsed_words;
    use crate::hosts::{Names, list};

    const HERE: Places = Places::ThisMachine { nodes: 4, cpus: 6 };

    fn hosts(text: &str, slots: Option<u32>) -> Hosts {
        let entries = list(text).expect(text);
        let names = Names::new("launcher", Vec::new(), &entries);
        Hosts::new(entries, slots, &names).expect(text)
    }

    /// The placement that `--hosts` and the flags in `line` lead to.
    fn on_hosts(text: &str, line: &str) -> Result<Vec<(u32, u32, u32)>, String> {
        placed_on(line, Places::Hosts(&hosts(text, parsed(line).slots)))
    }

    fn parsed(line: &str) -> Parsed {
        parsed_words(line.split(' '))
    }

    fn placed(line: &str, nodes: u32) -> Result<Vec<(u32, u32, u32)>, String> {
        placed_on(line, Places::ThisMachine { nodes, cpus: 8 })
    }

    fn placed_on(line: &str, places: Places) -> Result<Vec<(u32, u32, u32)>, String> {
        let parsed = parsed(line);
        let ranks = ranks_per_app(&parsed, places)?;
        let blocks = blocks(&parsed, &ranks, places)?;
        Ok(blocks.into_iter().map(|block| (block.first_node, block.nodes, block.ppn)).collect())
    }

    #[test]
    fn rank_counts_default_to_cpus_or_nodes_times_ppn() {
        assert_eq!(ranks_per_app(&parsed("./a"), HERE), Ok(vec![6]));
        assert_eq!(ranks_per_app(&parsed("--ppn 3 ./a"), HERE), Ok(vec![12]));
        assert_eq!(ranks_per_app(&parsed("--map-by ppr:2:node ./a"), HERE), Ok(vec![8]));
        assert_eq!(ranks_per_app(&parsed("-n 2 ./a : -n 3 ./b"), HERE), Ok(vec![2, 3]));
    }

    #[test]
    fn rank_counts_are_bounded() {
        let refused = |line: &str| ranks_per_app(&parsed(line), HERE).expect_err("out of bounds");
        let expected = "4194305 ranks are too many; a job can have at most 4194304; lower -n";
        assert_eq!(refused("-n 4194304 ./a : -n 1 ./b"), expected);
        assert!(refused("-n 1 ./a : ./b").starts_with("program 2 (./b) has no -n"));
    }

    #[test]
    fn mapping_flags_determine_the_placement_of_ranks() {
        assert_eq!(placed("-n 8 ./a", 2), Ok(vec![(0, 2, 4)]));
        assert_eq!(placed("-n 5 ./a", 2), Ok(vec![(0, 1, 3), (1, 1, 2)]));
        assert_eq!(placed("-n 5 --map-by node ./a", 2), Ok(vec![(0, 2, 1)]));
        assert_eq!(placed("-n 10 --ppn 4 ./a", 2), Ok(vec![(0, 2, 4)]));
        assert_eq!(placed("-n 5 --slots 4 ./a", 2), Ok(vec![(0, 2, 4)]));
        assert_eq!(placed("-n 4 --map-by ppr:2:node ./a", 3), Ok(vec![(0, 2, 2)]));
    }

    #[test]
    fn slot_limits_apply_only_if_the_user_set_them() {
        assert!(placed("-n 1000 ./a", 1).is_ok());
        let over = placed("-n 9 --slots 4 ./a", 2).expect_err("9 into 8");
        assert!(over.starts_with("9 ranks do not fit into 2 x 4 slots; lower -n, raise --slots"), "{over}");
        let over = placed("-n 17 --nooversubscribe ./a", 2).expect_err("17 onto 16 cpus");
        assert!(over.starts_with("17 ranks do not fit onto 2 x 8 cpus; lower -n, use more nodes"), "{over}");
        let over = placed("-n 8 --ppn 5 --slots 4 ./a", 2).expect_err("5 into 4");
        assert!(over.starts_with("node 0 would get 5 ranks but has 4 slots"), "{over}");
        assert!(placed("-n 8 --slots 4 --map-by node ./a", 2).is_ok());
        assert!(placed("-n 9 --slots 4 --map-by node ./a", 2).is_err());
        let over = placed("-n 4 --slots 2 --rank-map 0,1,1,1 ./a", 2).expect_err("3 into 2");
        assert!(over.starts_with("node 1 would get 3 ranks but has 2 slots"), "{over}");
        assert!(placed("-n 5 --map-by ppr:2:node ./a", 2).is_err());
        assert!(placed("-n 4 --ppn 1 --map-by ppr:2:node ./a", 2).is_err());
        assert!(placed("-n 65536 ./a", 1).expect_err("too full").contains("at most 65535 fit on one node"));
    }

    #[test]
    fn hosts_without_slots_share_ranks_evenly_without_a_limit() {
        assert_eq!(on_hosts("a,b", "./p"), Ok(vec![(0, 2, 1)]));
        assert_eq!(on_hosts("a,b", "-n 1000 ./p"), Ok(vec![(0, 2, 500)]));
        assert_eq!(on_hosts("a,b", "--ppn 3 ./p"), Ok(vec![(0, 2, 3)]));
        assert_eq!(on_hosts("a,b,c", "-n 4 --map-by node ./p"), Ok(vec![(0, 3, 1)]));
    }

    #[test]
    fn stated_slots_are_filled_one_host_after_another() {
        assert_eq!(on_hosts("a:2,b:4", "./p"), Ok(vec![(0, 1, 2), (1, 1, 4)]));
        assert_eq!(on_hosts("a:2,b:4", "-n 3 ./p"), Ok(vec![(0, 1, 2), (1, 1, 4)]));
        assert_eq!(on_hosts("a,b,a", "./p"), Ok(vec![(0, 1, 2), (1, 1, 1)]));
        assert_eq!(on_hosts("a,b:1", "--slots 3 ./p"), Ok(vec![(0, 1, 3), (1, 1, 1)]));
        assert_eq!(on_hosts("a:2,b:4", "--ppn 2 ./p"), Ok(vec![(0, 2, 2)]));
    }

    #[test]
    fn ranks_beyond_stated_slots_need_oversubscribe() {
        assert_eq!(
            on_hosts("a:2,b:4", "-n 7 ./p"),
            Err("7 ranks do not fit into the 6 slots of 2 host(s); lower -n, give the hosts more slots (n0:16), name \
                 more hosts, or add --oversubscribe to run more ranks than slots"
                .into())
        );
        assert_eq!(on_hosts("a:2,b:4", "-n 7 --oversubscribe ./p"), Ok(vec![(0, 1, 2), (1, 1, 4)]));
        let full = on_hosts("a:2,b:4", "-n 6 --ppn 3 ./p").expect_err("a has 2");
        assert!(full.starts_with("host a would get 3 ranks but has only 2 slots"), "{full}");
        assert!(placed("-n 9 --slots 4 --oversubscribe ./a", 2).is_ok());
        let mut limited = hosts("a:1,b:1", None);
        limited.list[0].slots_max = Some(2);
        assert!(placed_on("-n 4 --oversubscribe ./p", Places::Hosts(&limited)).is_ok());
        let over = placed_on("-n 5 --oversubscribe ./p", Places::Hosts(&limited)).expect_err("a takes 2");
        assert!(over.starts_with("host a would get 3 ranks but its max_slots is 2"), "{over}");
    }

    #[test]
    fn mapping_by_node_skips_full_hosts() {
        assert_eq!(on_hosts("a:2,b:2", "-n 3 --map-by node ./p"), Ok(vec![(0, 2, 1)]));
        assert_eq!(on_hosts("a:1,b:3,c:2", "--map-by node ./p"), Ok(vec![(0, 3, 1), (1, 2, 1), (1, 1, 1)]));
        assert_eq!(on_hosts("a:1,b:3,c:2", "-n 4 --map-by node ./p"), Ok(vec![(0, 3, 1), (1, 2, 1)]));
    }

    fn programs_placed(line: &str) -> Result<Vec<(u32, u32)>, String> {
        let parsed = parsed(line);
        assert!(have_own_hosts(&parsed), "{line}");
        let blocks = placed_on(line, Places::Hosts(&hosts(&parsed.hosts.join(","), None)))?;
        Ok(blocks.into_iter().map(|(first_node, _, ppn)| (first_node, ppn)).collect())
    }

    #[test]
    fn each_program_runs_on_its_own_hosts() {
        assert_eq!(programs_placed("-n 1 --host a ./x : -n 4 --host b,c ./y"), Ok(vec![(0, 1), (1, 2), (2, 2)]));
        assert_eq!(programs_placed("-n 2 --host a ./x : -n 2 --host b,a ./y"), Ok(vec![(0, 2), (1, 1), (0, 1)]));
        assert_eq!(programs_placed("--host a:2 ./x : --host b:3,a ./y"), Ok(vec![(0, 2), (1, 3), (0, 1)]));
        assert_eq!(programs_placed("-n 2 ./x : -n 1 --host b ./y"), Ok(vec![(0, 2), (0, 1)]));
        let over = programs_placed("-n 3 --host a:2 ./x : -n 1 --host b ./y").expect_err("two slots");
        assert!(over.contains("3 ranks do not fit"), "{over}");
    }
}
