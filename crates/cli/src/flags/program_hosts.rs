//! Programs that name hosts of their own: `-n 1 --host a ./x : -n 4 --host b,c ./y`.
//!
//! The job gets all nodes that are named. If a program states slots for its hosts, its ranks fill them; otherwise its
//! ranks are divided evenly among its hosts. A program that names no hosts uses all nodes.

use super::parsed::{Parsed, Program};
use crate::hosts::{self, Entry, Hosts};
use wireup_coll::mapping;
use wireup_wire::job::Block;

/// Whether the programs of a job may have different hosts: a program after the first one names hosts. Otherwise the
/// hosts of the first program apply to all programs.
pub fn are_apart(parsed: &Parsed) -> bool {
    parsed.programs.iter().skip(1).any(|program| !program.flags.hosts.is_empty())
}

/// The number of ranks of a program without `-n`: the sum of its slots, one for each host without a number.
pub fn ranks(program: &Program) -> Option<u64> {
    let entries = entries(program).ok().filter(|entries| !entries.is_empty())?;
    Some(entries.iter().map(|entry| u64::from(entry.slots.unwrap_or(1))).sum())
}

/// The blocks of all programs, one after another.
pub fn blocks(parsed: &Parsed, ranks: &[u32], hosts: &Hosts) -> Result<Vec<Block>, String> {
    let all: Vec<u32> = (0..hosts.list.len() as u32).collect();
    let mut order = hosts.order.as_slice();
    let mut blocks = Vec::new();
    for (program, &ranks) in parsed.programs.iter().zip(ranks) {
        let entries = entries(program)?;
        let Some((own, rest)) = order.split_at_checked(entries.len()) else {
            return Err("--nolocal contradicts hosts of one program; leave one of them out".into());
        };
        order = rest;
        if entries.is_empty() {
            place(&all, &mapping::evenly(all.len() as u32, ranks), ranks, &mut blocks);
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
        place(own, &places, ranks, &mut blocks);
    }
    Ok(blocks)
}

fn entries(program: &Program) -> Result<Vec<Entry>, String> {
    match program.flags.hosts.is_empty() {
        true => Ok(Vec::new()),
        false => hosts::list_of_flags(&program.flags.hosts),
    }
}

/// Adds `ranks` ranks, placed by `places` on these nodes.
fn place(nodes: &[u32], places: &[Block], ranks: u32, blocks: &mut Vec<Block>) {
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
    use super::super::parsed::parsed_words;
    use super::*;
    use crate::hosts::Names;

    fn placed(line: &str) -> Result<Vec<(u32, u32)>, String> {
        let parsed = parsed_words(line.split(' '));
        assert!(are_apart(&parsed), "{line}");
        let entries = hosts::list(&parsed.hosts.join(",")).expect(line);
        let names = Names::new("launcher", Vec::new(), &entries);
        let hosts = Hosts::new(entries, None, &names).expect(line);
        let counts: Vec<u32> = parsed
            .programs
            .iter()
            .map(|program| program.flags.ranks.or(ranks(program).map(|all| all as u32)).unwrap_or(0))
            .collect();
        let blocks = blocks(&parsed, &counts, &hosts).map_err(|error| error.to_string())?;
        Ok(blocks.into_iter().map(|block| (block.first_node, block.ppn)).collect())
    }

    #[test]
    fn each_program_runs_on_its_own_hosts() {
        assert_eq!(placed("-n 1 --host a ./x : -n 4 --host b,c ./y"), Ok(vec![(0, 1), (1, 2), (2, 2)]));
        assert_eq!(placed("-n 2 --host a ./x : -n 2 --host b,a ./y"), Ok(vec![(0, 2), (1, 1), (0, 1)]));
        assert_eq!(placed("--host a:2 ./x : --host b:3,a ./y"), Ok(vec![(0, 2), (1, 3), (0, 1)]));
        assert_eq!(placed("-n 2 ./x : -n 1 --host b ./y"), Ok(vec![(0, 2), (0, 1)]));
        assert!(
            placed("-n 3 --host a:2 ./x : -n 1 --host b ./y").expect_err("two slots").contains("3 ranks do not fit")
        );
    }
}
