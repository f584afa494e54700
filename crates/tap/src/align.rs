//! Shifts the recorded times of all nodes to the clock of rank 0's node. It uses that no rank leaves a fence before the
//! last rank has entered it.

use crate::page::FENCES_KEPT;
use crate::record::Record;
use std::collections::BTreeMap;

/// What a comparison of the nodes' recorded times shows about their clocks, and how the times were corrected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clocks {
    /// Number of nodes whose times were shifted.
    pub moved: usize,
    /// The largest of these shifts (ns), without its sign.
    pub moved_ns: u64,
    /// The largest error that a node's times may still have after the correction (ns).
    pub error_ns: u64,
    /// Nodes whose times no single shift can make consistent with the first node's; they are not shifted.
    pub contradictory: Vec<String>,
}

/// The times at which the last rank of a node entered a fence and the first rank left it (ns); `None`: not recorded.
type Passed = Option<(u64, u64)>;

/// By how much a node's clock may be ahead of the first node's.
#[derive(Clone, Copy)]
struct Bounds {
    least: i128,
    most: i128,
}

/// Shifts the times of nodes whose clocks contradict that of rank 0's node.
pub fn align(records: &mut BTreeMap<u32, Record>) -> Clocks {
    let mut clocks = Clocks::default();
    let Some(first) = records.values().next().map(|record| record.node.clone()) else { return clocks };
    let passed = passed(records);
    let mut moves = BTreeMap::new();
    for (node, there) in passed.iter().filter(|(node, _)| **node != first) {
        let Some(Bounds { least, most }) = bounds(&passed[&first], there) else { continue };
        if least > most {
            clocks.contradictory.push(node.clone());
            continue;
        }
        clocks.error_ns = clocks.error_ns.max(u64::try_from(most - least).unwrap_or(0) / 2);
        if least > 0 || most < 0 {
            moves.insert(node.clone(), i128::midpoint(least, most));
        }
    }
    for record in records.values_mut() {
        if let Some(&ahead) = moves.get(&record.node) {
            clocks.moved_ns = clocks.moved_ns.max(u64::try_from(ahead.abs()).unwrap_or(u64::MAX));
            shift(record, ahead);
        }
    }
    clocks.moved = moves.len();
    clocks
}

fn passed(records: &BTreeMap<u32, Record>) -> BTreeMap<String, [Passed; FENCES_KEPT]> {
    let mut nodes: BTreeMap<String, [Passed; FENCES_KEPT]> = BTreeMap::new();
    for record in records.values() {
        let node = nodes.entry(record.node.clone()).or_default();
        for (passed, &(from, to)) in node.iter_mut().zip(&record.tally.fence_times) {
            if from > 0 && to > 0 {
                let (last_in, first_out) = passed.unwrap_or((0, u64::MAX));
                *passed = Some((last_in.max(from), first_out.min(to)));
            }
        }
    }
    nodes
}

/// Compares the fences of two nodes; `None`: no fence was recorded on both.
fn bounds(here: &[Passed], there: &[Passed]) -> Option<Bounds> {
    let both = here.iter().zip(there).filter_map(|(here, there)| Some(((*here)?, (*there)?)));
    let of_fences = both.map(|(here, there)| Bounds {
        least: i128::from(there.0) - i128::from(here.1),
        most: i128::from(there.1) - i128::from(here.0),
    });
    of_fences.reduce(|all, one| Bounds { least: all.least.max(one.least), most: all.most.min(one.most) })
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

    #[test]
    fn times_that_contradict_each_other_are_not_moved() {
        let mut records = of(0);
        // The times of fence 0 show that the clock is ahead, those of fence 1 that it is behind.
        for record in records.values_mut().filter(|record| record.node == "n1") {
            let times = &mut record.tally.fence_times;
            times[0] = (times[0].0 + 5_000, times[0].1 + 5_000);
            times[1] = (times[1].0 - 5_000, times[1].1 - 5_000);
        }
        let before = records.clone();
        let clocks = align(&mut records);
        assert_eq!((clocks.moved, clocks.contradictory, records == before), (0, vec!["n1".to_owned()], true));
    }
}
