//! Ranks that have not arrived: reports of many nodes, shown as they come and summarized when all nodes have answered.

use super::{count, ranges};
use wireup_wire::ids::Rank;
use wireup_wire::peer::{GroupStall, StallReport};

/// Nodes that are named in one round; the summary counts the rest.
const NODES_SHOWN: u32 = 16;

/// The answers of one round.
pub struct Stalls {
    node_count: u32,
    heard: Vec<bool>,
    answers: u32,
    shown: u32,
    arrived: u64,
    missing: u64,
    nodes_missing: u32,
    /// Some rank waits in the barrier of a group.
    groups: bool,
}

impl Stalls {
    pub fn new(node_count: u32) -> Stalls {
        Stalls {
            node_count,
            heard: vec![false; node_count as usize],
            answers: 0,
            shown: 0,
            arrived: 0,
            missing: 0,
            nodes_missing: 0,
            groups: false,
        }
    }

    /// The lines that one more answer produces.
    pub fn lines(&mut self, report: &StallReport) -> Vec<String> {
        let Some(heard) = self.heard.get(report.node.index()) else { return Vec::new() };
        if *heard {
            // A second answer of the same node: a new round began before all nodes had answered the last one.
            *self = Stalls::new(self.node_count);
        }
        self.heard[report.node.index()] = true;
        self.answers += 1;
        self.arrived += u64::from(report.arrived);
        self.missing += u64::from(report.missing_count);
        let mut lines = Vec::new();
        if report.missing_count > 0 {
            self.nodes_missing += 1;
            if self.shown < NODES_SHOWN {
                self.shown += 1;
                lines.push(node_line(report));
            }
        }
        for group in report.groups.iter().filter(|group| group.arrived > 0 || group.missing_count > 0) {
            self.groups = true;
            if self.shown < NODES_SHOWN {
                self.shown += 1;
                lines.push(group_line(report, group));
            }
        }
        if self.answers == self.node_count {
            lines.extend(self.summary(report));
            *self = Stalls::new(self.node_count);
        }
        lines
    }

    fn summary(&self, report: &StallReport) -> Option<String> {
        let all = self.arrived + self.missing;
        let what = name(report);
        Some(match (self.arrived, self.missing) {
            (0, _) if self.groups => return None,
            (0, _) => {
                format!("{what}: no rank is waiting in it; the job is computing, or hangs outside of collectives")
            }
            (_, 0) => format!("{what}: all {all} ranks have arrived"),
            (arrived, _) => {
                format!("{what}: {arrived} of {all} ranks wait for ranks on {}", count(self.nodes_missing, "node"))
            }
        })
    }
}

/// `allgather 3`; if no rank is known to wait, the next collective may be a fence.
fn name(report: &StallReport) -> String {
    format!("{} {}", report.collective.unwrap_or_default(), report.epoch)
}

fn node_line(report: &StallReport) -> String {
    let StallReport { node, host, arrived, missing, missing_count, .. } = report;
    let what = name(report);
    format!("{what}: node {node} {host}: {arrived} arrived, missing {}", ranks(missing, *missing_count))
}

fn group_line(report: &StallReport, group: &GroupStall) -> String {
    let (StallReport { node, host, .. }, GroupStall { group, arrived, missing, missing_count }) = (report, group);
    let missing = match missing_count {
        0 => "no ranks missing on this node".to_owned(),
        count => format!("missing {}", ranks(missing, *count)),
    };
    format!("barrier of {group}: node {node} {host}: {arrived} arrived, {missing}")
}

/// `ranks 5-7 (pid 105, ...)`
fn ranks(missing: &[(Rank, u32)], missing_count: u32) -> String {
    let ranks = ranges(missing.iter().map(|(rank, _)| rank.0));
    let more = match missing_count.saturating_sub(missing.len() as u32) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if missing_count == 1 { "rank" } else { "ranks" };
    let pid = missing.first().map(|(_, pid)| format!(" (pid {pid}{})", if missing_count > 1 { ", ..." } else { "" }));
    let pid = pid.unwrap_or_default();
    format!("{noun} {ranks}{more}{pid}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::{Epoch, NodeId};

    fn report(node: u32, arrived: u32, missing: &[u32], missing_count: u32) -> StallReport {
        StallReport {
            node: NodeId(node),
            host: format!("node{node}"),
            epoch: Epoch(3),
            collective: None,
            arrived,
            missing: missing.iter().map(|&rank| (Rank(rank), 100 + rank)).collect(),
            missing_count,
            groups: Vec::new(),
        }
    }

    #[test]
    fn stalled_group_barriers_are_named() {
        let mut stalls = Stalls::new(2);
        let group = |arrived, missing: &[(Rank, u32)]| GroupStall {
            group: "ranks 1-3 (tag 7)".into(),
            arrived,
            missing: missing.to_vec(),
            missing_count: missing.len() as u32,
        };
        let first = StallReport { groups: vec![group(2, &[])], ..report(0, 0, &[], 0) };
        assert_eq!(
            stalls.lines(&first),
            ["barrier of ranks 1-3 (tag 7): node 0 node0: 2 arrived, no ranks missing on this node"]
        );
        let second = StallReport { groups: vec![group(0, &[(Rank(3), 103)])], ..report(1, 0, &[], 0) };
        assert_eq!(
            stalls.lines(&second),
            ["barrier of ranks 1-3 (tag 7): node 1 node1: 0 arrived, missing rank 3 (pid 103)"]
        );
    }

    #[test]
    fn stall_reports_are_shown_as_they_arrive_then_summarized() {
        let mut stalls = Stalls::new(3);
        assert!(stalls.lines(&report(0, 4, &[], 0)).is_empty());
        assert_eq!(
            stalls.lines(&report(1, 1, &[5, 6, 7], 3)),
            ["fence 3: node 1 node1: 1 arrived, missing ranks 5-7 (pid 105, ...)"]
        );
        assert_eq!(
            stalls.lines(&report(2, 3, &[9], 1)),
            [
                "fence 3: node 2 node2: 3 arrived, missing rank 9 (pid 109)",
                "fence 3: 8 of 12 ranks wait for ranks on 2 nodes"
            ]
        );
    }

    #[test]
    fn a_second_report_from_a_node_starts_a_new_round() {
        let mut stalls = Stalls::new(2);
        assert!(stalls.lines(&report(0, 4, &[], 0)).is_empty());
        assert!(stalls.lines(&report(0, 4, &[], 0)).is_empty());
        assert_eq!(stalls.lines(&report(1, 4, &[], 0)), ["fence 3: all 8 ranks have arrived"]);
    }

    #[test]
    fn a_fence_without_waiting_ranks_is_no_stall() {
        let mut stalls = Stalls::new(1);
        let lines = stalls.lines(&report(0, 0, &[0, 1], 20));
        assert_eq!(lines[0], "fence 3: node 0 node0: 0 arrived, missing ranks 0-1 and 18 more (pid 100, ...)");
        assert_eq!(
            lines[1],
            "fence 3: no rank is waiting in it; the job is computing, or hangs outside of collectives"
        );
    }

    #[test]
    fn only_some_nodes_are_listed_and_unknown_nodes_are_ignored() {
        let mut stalls = Stalls::new(100);
        let lines: Vec<String> = (0..100).flat_map(|node| stalls.lines(&report(node, 1, &[node], 1))).collect();
        assert_eq!(lines.len(), NODES_SHOWN as usize + 1);
        assert!(lines[16].ends_with("100 of 200 ranks wait for ranks on 100 nodes"));
        assert!(stalls.lines(&report(100, 1, &[], 0)).is_empty());
    }
}
