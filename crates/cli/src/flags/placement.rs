//! How many ranks there are and which node each goes to.

use super::error::FlagError;
use super::low::{Low, MapBy};
use wireup_coll::mapping::{self, Mapping, MappingError};
use wireup_wire::job::Block;
use wireup_wire::limits::JOB_SIZE_MAX;

/// Ranks of each program.
pub fn ranks_per_app(low: &Low, nodes: u32, cpus: u32) -> Result<Vec<u32>, FlagError> {
    let by_default = match low.ppn.or(ppr(low)) {
        Some(ppn) => u64::from(ppn) * u64::from(nodes),
        None => u64::from(cpus),
    };
    let alone = low.sections.len() == 1;
    let mut total = 0;
    let mut ranks = Vec::with_capacity(low.sections.len());
    for (index, section) in low.sections.iter().enumerate() {
        let asked = match section.ranks {
            Some(ranks) => u64::from(ranks),
            None if alone => by_default,
            None => {
                let program = section.argv.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
                return Err(FlagError::NoSectionRanks { section: index + 1, program });
            }
        };
        if asked == 0 {
            return Err(FlagError::ZeroRanks);
        }
        total += asked;
        ranks.push(asked.min(u64::from(u32::MAX)) as u32);
    }
    if total > u64::from(JOB_SIZE_MAX) {
        return Err(FlagError::TooManyRanks { ranks: total });
    }
    Ok(ranks)
}

/// The blocks that place `job_size` ranks on `nodes` nodes.
///
/// `--ppn` is how many ranks a node gets before the next one is looked at; as with Hydra, ranks beyond all nodes start
/// over. `--slots` and `ppr` are limits.
pub fn blocks(low: &Low, job_size: u32, nodes: u32) -> Result<Vec<Block>, FlagError> {
    if let Some(per_node) = ppr(low) {
        if let Some(ppn) = low.ppn.filter(|&ppn| ppn != per_node) {
            return Err(FlagError::PpnContradicts { ppn, ppr: per_node });
        }
        if u64::from(job_size) > u64::from(per_node) * u64::from(nodes) {
            return Err(FlagError::PprExceeded { ranks: job_size, nodes, per_node });
        }
    }
    let blocks = match (low.map_by, low.ppn.or(ppr(low)), low.slots) {
        (Some(MapBy::Node), _, _) => mapping::by_node(nodes, job_size),
        (_, Some(ppn), _) => mapping::by_ppn(nodes, ppn, job_size),
        (_, None, Some(slots)) => mapping::by_ppn(nodes, slots, job_size),
        (_, None, None) => mapping::evenly(nodes, job_size),
    };
    let placed = Mapping::new(&blocks, job_size, nodes).map_err(|error| match error {
        MappingError::NodeTooFull { node, ranks } => FlagError::NodeTooFull { node, ranks },
        other => FlagError::Placement(other),
    })?;
    if let Some(slots) = low.slots {
        // The blocks above fill the first node first, so it is never less full than another.
        if placed.local_size(wireup_wire::ids::NodeId(0)) > slots {
            return Err(FlagError::SlotsExceeded { ranks: job_size, nodes, slots });
        }
    }
    Ok(blocks)
}

fn ppr(low: &Low) -> Option<u32> {
    match low.map_by {
        Some(MapBy::Ppr(per_node)) => Some(per_node),
        Some(MapBy::Slot | MapBy::Node) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::low::{Wish, parse};

    fn low(line: &str) -> Low {
        match parse(line.split(' ').map(Into::into)).expect("test lines are valid") {
            Wish::Run(low) => *low,
            Wish::Help => panic!("no help here"),
        }
    }

    fn placed(line: &str, nodes: u32) -> Result<Vec<(u32, u32, u32)>, String> {
        let low = low(line);
        let job_size = ranks_per_app(&low, nodes, 8).map_err(|error| error.to_string())?.iter().sum();
        let blocks = blocks(&low, job_size, nodes).map_err(|error| error.to_string())?;
        Ok(blocks.into_iter().map(|block| (block.first_node, block.nodes, block.ppn)).collect())
    }

    #[test]
    fn counts_default_to_cpus_or_nodes_times_ppn() {
        assert_eq!(ranks_per_app(&low("./a"), 4, 6), Ok(vec![6]));
        assert_eq!(ranks_per_app(&low("--ppn 3 ./a"), 4, 6), Ok(vec![12]));
        assert_eq!(ranks_per_app(&low("--map-by ppr:2:node ./a"), 4, 6), Ok(vec![8]));
        assert_eq!(ranks_per_app(&low("-n 2 ./a : -n 3 ./b"), 1, 6), Ok(vec![2, 3]));
    }

    #[test]
    fn counts_are_bounded() {
        let refused = |line: &str| ranks_per_app(&low(line), 4, 6).expect_err("out of bounds").to_string();
        assert_eq!(refused("-n 0 ./a"), "-n 0 starts nothing; ask for at least 1 rank");
        assert_eq!(
            refused("-n 4194304 ./a : -n 1 ./b"),
            "4194305 ranks are more than a job can have (4194304); lower -n"
        );
        assert_eq!(
            refused("--ppn 4294967295 ./a"),
            "17179869180 ranks are more than a job can have (4194304); lower -n"
        );
        assert!(refused("-n 1 ./a : ./b").starts_with("program 2 (./b) has no -n"));
    }

    #[test]
    fn ways_to_place() {
        assert_eq!(placed("-n 8 ./a", 2), Ok(vec![(0, 2, 4)]));
        assert_eq!(placed("-n 5 ./a", 2), Ok(vec![(0, 1, 3), (1, 1, 2)]));
        assert_eq!(placed("-n 5 --map-by node ./a", 2), Ok(vec![(0, 2, 1)]));
        assert_eq!(placed("-n 10 --ppn 4 ./a", 2), Ok(vec![(0, 2, 4)]));
        assert_eq!(placed("-n 5 --slots 4 ./a", 2), Ok(vec![(0, 2, 4)]));
        assert_eq!(placed("-n 4 --map-by ppr:2:node ./a", 3), Ok(vec![(0, 2, 2)]));
    }

    #[test]
    fn limits_are_kept_only_where_the_user_set_them() {
        assert!(placed("-n 1000 ./a", 1).is_ok());
        let over = placed("-n 9 --slots 4 ./a", 2).expect_err("9 into 8");
        assert!(over.starts_with("9 ranks do not fit into 2 x 4 slots; lower -n, raise --slots"), "{over}");
        assert!(placed("-n 8 --ppn 5 --slots 4 ./a", 2).is_err());
        assert!(placed("-n 8 --slots 4 --map-by node ./a", 2).is_ok());
        assert!(placed("-n 9 --slots 4 --map-by node ./a", 2).is_err());
        assert!(placed("-n 5 --map-by ppr:2:node ./a", 2).is_err());
        assert!(placed("-n 4 --ppn 1 --map-by ppr:2:node ./a", 2).is_err());
        assert!(placed("-n 65536 ./a", 1).expect_err("too full").contains("at most 65535 fit on one node"));
    }
}
