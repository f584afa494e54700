//! Brings the clocks of all nodes onto the clock of rank 0's node: no rank leaves a fence before the last one has entered it.

use crate::record::Record;
use std::collections::BTreeMap;

/// What the times say about the clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clocks {
    /// Nodes whose times were moved.
    pub moved: usize,
    /// By so much at most.
    pub moved_ns: u64,
    /// Afterwards a node may still be off by so much.
    pub error_ns: u64,
}

/// By how much a node's clock may be ahead of the first node's.
#[derive(Clone, Copy)]
struct Bounds {
    least: i128,
    most: i128,
}

/// Moves the times of nodes whose clocks cannot be right.
pub fn align(records: &mut BTreeMap<u32, Record>) -> Clocks {
    let mut clocks = Clocks::default();
    let Some(first) = records.values().next().map(|record| record.node.clone()) else { return clocks };
    let moves: BTreeMap<String, i128> = nodes(records)
        .into_iter()
        .filter(|node| *node != first)
        .filter_map(|node| {
            let Bounds { least, most } = bounds(records, &first, &node)?;
            clocks.error_ns = clocks.error_ns.max(u64::try_from(most - least).unwrap_or(0) / 2);
            let ahead = if least <= 0 && 0 <= most { 0 } else { i128::midpoint(least, most) };
            (ahead != 0).then_some((node, ahead))
        })
        .collect();
    for record in records.values_mut() {
        if let Some(&ahead) = moves.get(&record.node) {
            clocks.moved_ns = clocks.moved_ns.max(u64::try_from(ahead.abs()).unwrap_or(u64::MAX));
            shift(record, ahead);
        }
    }
    clocks.moved = moves.len();
    clocks
}

fn nodes(records: &BTreeMap<u32, Record>) -> Vec<String> {
    let mut nodes: Vec<String> = records.values().map(|record| record.node.clone()).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

/// `None`: they have no fence in common.
fn bounds(records: &BTreeMap<u32, Record>, first: &str, node: &str) -> Option<Bounds> {
    let mut bounds: Option<Bounds> = None;
    for fence in 0..crate::page::FENCES_KEPT {
        let of = |name: &str| {
            let times = records.values().filter(|record| record.node == name);
            let times = times.map(|record| record.tally.fence_times[fence]).filter(|&(from, to)| from > 0 && to > 0);
            times.fold(None, |sum: Option<(u64, u64)>, (from, to)| {
                let (last_in, first_out) = sum.unwrap_or((0, u64::MAX));
                Some((last_in.max(from), first_out.min(to)))
            })
        };
        let (Some(here), Some(there)) = (of(first), of(node)) else { continue };
        let found =
            Bounds { least: i128::from(there.0) - i128::from(here.1), most: i128::from(there.1) - i128::from(here.0) };
        let so_far = bounds.unwrap_or(found);
        bounds = Some(Bounds { least: so_far.least.max(found.least), most: so_far.most.min(found.most) });
    }
    bounds
}

fn shift(record: &mut Record, ahead: i128) {
    let moved = |at: &mut u64| {
        if *at > 0 {
            *at = u64::try_from(i128::from(*at) - ahead).unwrap_or(0).max(1);
        }
    };
    let tally = &mut record.tally;
    let stamps = [&mut record.launcher_ns, &mut record.tap_ns, &mut record.exec_ns, &mut record.end_ns];
    stamps.into_iter().for_each(moved);
    let stamps = [&mut tally.loaded_ns, &mut tally.first_ns, &mut tally.finalize_ns, &mut tally.last_ns];
    stamps.into_iter().for_each(moved);
    tally.fence_times.iter_mut().for_each(|(from, to)| {
        moved(from);
        moved(to);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn of(ahead: i128) -> BTreeMap<u32, Record> {
        let mut records: BTreeMap<u32, Record> = (0..4).map(|rank| (rank, record(rank))).collect();
        records.values_mut().for_each(|record| shift(record, -1_000_000));
        records.values_mut().filter(|record| record.node == "n1").for_each(|record| shift(record, -ahead));
        records
    }

    #[test]
    fn a_clock_that_is_ahead_is_moved_back() {
        for ahead in [5_000, -5_000] {
            let mut records = of(ahead);
            let clocks = align(&mut records);
            assert_eq!((clocks.moved, clocks.moved_ns.abs_diff(5_000) <= 10), (1, true), "{clocks:?}");
            let first = records[&0].tally.fence_times[0];
            let other = records[&3].tally.fence_times[0];
            assert!(other.0 <= first.1 && first.0 <= other.1, "{first:?} {other:?}");
        }
    }

    #[test]
    fn clocks_that_agree_stay() {
        let mut records = of(2);
        let before = records.clone();
        assert_eq!(align(&mut records).moved, 0);
        assert_eq!(records, before);
    }
}
