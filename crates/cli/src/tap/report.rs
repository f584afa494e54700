//! The profile of a job's startup, computed from the records of its ranks.

use serde::Serialize;
use std::collections::BTreeMap;
use wireup_tap::page::{FENCES_KEPT, Family};
use wireup_tap::{Clocks, End, Gathered, Record, Spoke};

/// Kinds of requests, with their names.
pub const FAMILIES: [(&str, Family); 8] = [
    ("init", Family::Init),
    ("info", Family::Info),
    ("put", Family::Put),
    ("commit", Family::Commit),
    ("fence", Family::Fence),
    ("get", Family::Get),
    ("other", Family::Other),
    ("finalize", Family::Finalize),
];
/// Most slow ranks and nodes that are named.
const SLOWEST: usize = 3;
/// Shortest gap between two fences that can mark the end of the job's startup (ns).
const LONG_NS: u64 = 1_000_000_000;

/// A fence of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    pub first_in_ns: u64,
    pub last_in_ns: u64,
    pub last_out_ns: u64,
    pub last_rank: u32,
    /// The number of ranks that have entered the fence.
    pub ranks: u32,
}

/// The distribution of one time over all ranks.
#[derive(Clone, PartialEq, Debug)]
pub struct Spread {
    pub name: &'static str,
    pub least_ms: f64,
    pub median_ms: f64,
    pub most_ms: f64,
    /// The rank with the longest time.
    pub rank: u32,
}

/// The number and the times of all requests of one kind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RequestTotals {
    #[serde(rename = "kind")]
    pub name: &'static str,
    #[serde(rename = "number")]
    pub calls: u64,
    #[serde(rename = "sent_bytes")]
    pub sent: u64,
    #[serde(rename = "received_bytes")]
    pub received: u64,
    pub mean_ms: f64,
    pub longest_ms: f64,
}

/// How far behind the median a rank, or a node's last rank, came to the first fence.
#[derive(Clone, PartialEq, Debug)]
pub struct Late {
    pub who: String,
    pub behind_ms: f64,
}

pub struct TapReport {
    pub records: BTreeMap<u32, Record>,
    pub size: u32,
    /// Ranges of ranks without a record, each as its first and its last rank.
    pub missing: Vec<(u32, u32)>,
    pub refused: Vec<String>,
    pub clocks: Clocks,
    pub nodes: Vec<String>,
    /// When the launcher started; if that is not known, when the first tap began.
    pub from_ns: u64,
    pub end_ns: u64,
    pub fences: Vec<Fence>,
    pub spreads: Vec<Spread>,
    pub kinds: Vec<RequestTotals>,
    pub slowest_ranks: Vec<Late>,
    pub slowest_nodes: Vec<Late>,
    pub start: Start,
}

/// The start in milliseconds: until the last fence ended, or without fences until the last request before finalize was
/// answered.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Start {
    pub whole_ms: f64,
    /// Time until the last rank's program was executed.
    pub launch_ms: f64,
    /// Time in fences after the last rank had entered: the exchange itself, without waiting for late ranks.
    #[serde(rename = "fences_ms")]
    pub moving_ms: f64,
    /// The median rank's time in other requests.
    pub requests_ms: f64,
}

impl TapReport {
    pub fn from_gathered(gathered: Gathered) -> TapReport {
        let Gathered { mut records, mut refused, more_refused } = gathered;
        if more_refused > 0 {
            refused.push(format!("{more_refused} more"));
        }
        let clocks = wireup_tap::align(&mut records);
        let size = records.values().map(|record| record.size).max().unwrap_or(0).max(records.len() as u32);
        let missing = missing(records.keys().copied(), size);
        let mut nodes: Vec<String> = records.values().map(|record| record.node.clone()).collect();
        nodes.sort();
        nodes.dedup();
        // A time of 0 means that the launcher's start is not known.
        let known = records.values().map(|record| record.launcher_ns).filter(|&at| at > 0).min();
        let tapped = records.values().map(|record| record.tap_ns).min().unwrap_or(0);
        let from_ns = known.map_or(tapped, |at| at.min(tapped));
        let end_ns = records.values().map(|record| record.end_ns).max().unwrap_or(0);
        let fences = fences(&records);
        let kinds = kinds(&records);
        let start = start(&records, &fences, from_ns);
        let (slowest_ranks, slowest_nodes) = slowest(&records);
        TapReport {
            spreads: spreads(&records, from_ns),
            records,
            size,
            missing,
            refused,
            clocks,
            nodes,
            from_ns,
            end_ns,
            fences,
            kinds,
            slowest_ranks,
            slowest_nodes,
            start,
        }
    }

    /// The launcher's name, empty if it was not recognized.
    pub fn launcher(&self) -> &str {
        self.records.values().map(|record| record.launcher.as_str()).find(|name| !name.is_empty()).unwrap_or_default()
    }

    pub fn spoken(&self) -> &'static str {
        match self.records.values().map(|record| record.spoke).find(|&spoke| spoke != Spoke::Not) {
            Some(Spoke::Pmi1) => "PMI-1",
            Some(Spoke::Pmi2) => "PMI-2",
            Some(Spoke::Pmix) => "PMIx",
            Some(Spoke::Not) | None => "",
        }
    }

    /// Ranks that have ended otherwise than with code 0.
    pub fn failed(&self) -> impl Iterator<Item = &Record> {
        self.records.values().filter(|record| record.end != End::Exit(0))
    }
}

/// The ranges of ranks below `size` that are not in `present`, which is in ascending order.
fn missing(present: impl Iterator<Item = u32>, size: u32) -> Vec<(u32, u32)> {
    let mut missing = Vec::new();
    let mut next = 0;
    for rank in present.chain(std::iter::once(size)) {
        if rank > next {
            missing.push((next, rank - 1));
        }
        next = rank.saturating_add(1);
    }
    missing
}

/// Saturating sum: records come from ranks, and may contain any numbers.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn fences(records: &BTreeMap<u32, Record>) -> Vec<Fence> {
    let one = |number: usize| {
        let times = records.values().map(|record| (record.rank, record.tally.fence_times[number]));
        let entered: Vec<(u32, (u64, u64))> = times.filter(|&(_, (from, _))| from > 0).collect();
        let &(last_rank, (last_in_ns, _)) = entered.iter().max_by_key(|(_, (from, _))| *from)?;
        Some(Fence {
            first_in_ns: entered.iter().map(|(_, (from, _))| *from).min()?,
            last_in_ns,
            last_out_ns: entered.iter().map(|(_, (_, to))| *to).max()?.max(last_in_ns),
            last_rank,
            ranks: entered.len() as u32,
        })
    };
    (0..FENCES_KEPT).map_while(one).collect()
}

fn kinds(records: &BTreeMap<u32, Record>) -> Vec<RequestTotals> {
    let kind = |&(name, family): &(&'static str, Family)| {
        let all = || records.values().map(|record| record.tally.family(family));
        let calls: u64 = sum(all().map(|of| of.calls));
        let wait_ns: u64 = sum(all().map(|of| of.wait_ns));
        (calls > 0).then(|| RequestTotals {
            name,
            calls,
            sent: sum(all().map(|of| of.sent)),
            received: sum(all().map(|of| of.received)),
            mean_ms: ms(wait_ns) / calls as f64,
            longest_ms: ms(all().map(|of| of.longest_ns).max().unwrap_or(0)),
        })
    };
    FAMILIES.iter().filter_map(kind).collect()
}

/// Time in all requests except fences and finalize.
fn in_requests_ns(record: &Record) -> u64 {
    let families = FAMILIES.iter().filter(|(_, family)| !matches!(family, Family::Fence | Family::Finalize));
    sum(families.map(|&(_, family)| record.tally.family(family).wait_ns))
}

/// A function that returns one time of a rank; `None`: the time is not known.
type Time<'a> = &'a dyn Fn(&Record) -> Option<u64>;

fn spreads(records: &BTreeMap<u32, Record>, from_ns: u64) -> Vec<Spread> {
    let since = |from: u64, to: u64| (from > 0 && to > 0).then(|| to.saturating_sub(from));
    let first = |record: &Record| since(record.exec_ns, record.tally.first_ns);
    let effort = |of: fn(&Record) -> u64| move |record: &Record| (record.effort.mapped_files > 0).then(|| of(record));
    let other = |record: &Record| {
        let effort = &record.effort;
        let took = since(record.exec_ns, record.tally.first_ns).filter(|_| effort.mapped_files > 0)?;
        Some(took.saturating_sub(effort.cpu_ns + effort.core_wait_ns))
    };
    let in_fences = |record: &Record| {
        let fences = record.tally.family(Family::Fence);
        (fences.calls > 0).then_some(fences.wait_ns)
    };
    let in_requests = |record: &Record| (record.tally.calls() > 0).then(|| in_requests_ns(record));
    let rows: [(&'static str, Time<'_>); 8] = [
        ("start of the program", &|record| since(from_ns, record.exec_ns)),
        ("libraries", &|record| since(record.exec_ns, record.tally.loaded_ns)),
        ("until the first request", &first),
        ("  on a core", &effort(|record| record.effort.cpu_ns)),
        ("  waiting for a core", &effort(|record| record.effort.core_wait_ns)),
        ("  else: files, sleep", &other),
        ("in fences", &in_fences),
        ("in other requests", &in_requests),
    ];
    rows.into_iter().filter_map(|(name, time)| spread(name, records, time)).collect()
}

fn spread(name: &'static str, records: &BTreeMap<u32, Record>, time: Time<'_>) -> Option<Spread> {
    let mut times: Vec<(u64, u32)> = records.values().filter_map(|record| Some((time(record)?, record.rank))).collect();
    times.sort_unstable();
    let (least, most) = (times.first()?, times.last()?);
    let median = times[times.len() / 2];
    Some(Spread { name, least_ms: ms(least.0), median_ms: ms(median.0), most_ms: ms(most.0), rank: most.1 })
}

/// The ranks that came last to the first fence, or without fences to their first request; and the nodes by their last
/// rank.
fn slowest(records: &BTreeMap<u32, Record>) -> (Vec<Late>, Vec<Late>) {
    let has_fence = records.values().any(|record| record.tally.fence_times[0].0 > 0);
    let arrival = |record: &Record| {
        let at = if has_fence { record.tally.fence_times[0].0 } else { record.tally.first_ns };
        (at > 0).then_some(at)
    };
    let mut ranks: Vec<(u64, &Record)> =
        records.values().filter_map(|record| Some((arrival(record)?, record))).collect();
    ranks.sort_by_key(|(at, record)| (*at, record.rank));
    let Some(&(median, _)) = ranks.get(ranks.len() / 2) else { return Default::default() };
    let mut nodes: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, record) in &ranks {
        nodes.insert(&record.node, *at);
    }
    let mut nodes: Vec<(u64, &str)> = nodes.into_iter().map(|(node, at)| (at, node)).collect();
    nodes.sort_unstable();
    let late = |at: u64, who: String| Late { who, behind_ms: ms(at.saturating_sub(median)) };
    let nodes = nodes.iter().rev().take_while(|(at, _)| *at > median).take(SLOWEST);
    let of_nodes = nodes.map(|&(at, node)| late(at, node.to_owned())).collect();
    let of_ranks = ranks.iter().rev().take_while(|(at, _)| *at > median).take(SLOWEST);
    (of_ranks.map(|(at, record)| late(*at, format!("{} on {}", record.rank, record.node))).collect(), of_nodes)
}

/// The fences of the start: those after a long stretch without any, longer than all before, belong to the program or to
/// its end.
fn of_start(fences: &[Fence], from_ns: u64) -> &[Fence] {
    let is_after_the_start = |pair: &[Fence]| {
        let gap_ns = pair[1].first_in_ns.saturating_sub(pair[0].last_out_ns);
        gap_ns > LONG_NS && gap_ns > pair[0].last_out_ns.saturating_sub(from_ns)
    };
    let end = fences.windows(2).position(is_after_the_start).map_or(fences.len(), |at| at + 1);
    &fences[..end]
}

fn start(records: &BTreeMap<u32, Record>, fences: &[Fence], from_ns: u64) -> Start {
    let before_the_end = |record: &Record| {
        let tally = &record.tally;
        if tally.finalize_ns > 0 { tally.last_ns.min(tally.finalize_ns) } else { tally.last_ns }
    };
    let of_start = of_start(fences, from_ns);
    let fenced = of_start.iter().map(|fence| fence.last_out_ns).max();
    let answered = records.values().map(before_the_end).max().unwrap_or(0);
    let launched = records.values().map(|record| record.exec_ns).max().unwrap_or(0);
    let to_ns = fenced.unwrap_or(answered).max(launched);
    let mut in_requests: Vec<u64> = records.values().map(in_requests_ns).collect();
    in_requests.sort_unstable();
    Start {
        whole_ms: ms(to_ns.saturating_sub(from_ns)),
        launch_ms: ms(launched.saturating_sub(from_ns)),
        moving_ms: ms(sum(of_start.iter().map(|fence| fence.last_out_ns.saturating_sub(fence.last_in_ns)))),
        requests_ms: ms(in_requests.get(in_requests.len() / 2).copied().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_stretches() {
        assert_eq!(missing([0, 3, 4].into_iter(), 1 << 20), [(1, 2), (5, (1 << 20) - 1)]);
        assert_eq!(missing([0, 3, 4].into_iter(), 5), [(1, 2)]);
    }

    #[test]
    fn sums_do_not_overflow() {
        assert_eq!(sum([u64::MAX, 1].into_iter()), u64::MAX);
    }
}
