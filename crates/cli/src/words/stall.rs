//! Ranks that have not arrived: reports of many nodes, shown as they come and summarized when all nodes have answered.
//! Also the call stacks of ranks.

use super::{count, one_line, ranges};
use wireup_wire::ids::Rank;
use wireup_wire::peer::{GroupStall, InitStall, Stack, StallReport};

/// Most nodes that are named in one round; the summary counts the rest.
const NODES_SHOWN: u32 = 16;

const STACKS_SHOWN: usize = 16;

/// The answers of the nodes in one round of stall reports.
#[derive(Default)]
pub struct Stalls {
    node_count: u32,
    heard: Vec<bool>,
    answers: u32,
    shown: u32,
    arrived: u64,
    missing: u64,
    nodes_missing: u32,
    running: u64,
    initialised: u64,
    /// Whether some rank waits in a collective of the whole job.
    waits: bool,
    /// Whether some rank waits in the barrier of a group, or inside init.
    waits_elsewhere: bool,
    /// Lines about ranks that have not entered a collective, until it is known that others wait in it.
    held: Vec<String>,
}

impl Stalls {
    pub fn new(node_count: u32) -> Stalls {
        Stalls { node_count, heard: vec![false; node_count as usize], ..Stalls::default() }
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
        self.running += u64::from(report.running);
        self.initialised += u64::from(report.initialised);
        self.waits |= report.arrived > 0 || report.collective.is_some();
        if report.missing_count > 0 {
            self.nodes_missing += 1;
            self.held.push(node_line(report));
        }
        let mut lines = if self.waits { std::mem::take(&mut self.held) } else { Vec::new() };
        // Ranks that are missing in a collective because they have not called init are shown once.
        let is_news = |init: &&InitStall| !self.waits || init.by_other > 0 || init.missing != report.missing;
        lines.extend(report.init.iter().filter(is_news).map(|init| init_line(report, init)));
        let groups = report.groups.iter().filter(|group| group.arrived > 0 || group.missing_count > 0);
        lines.extend(groups.map(|group| group_line(report, group)));
        self.waits_elsewhere |= report.init.is_some() || !report.groups.is_empty();
        lines.truncate((NODES_SHOWN - self.shown) as usize);
        self.shown += lines.len() as u32;
        if self.answers == self.node_count {
            lines.extend(self.summary(report));
            *self = Stalls::new(self.node_count);
        }
        lines
    }

    fn summary(&self, report: &StallReport) -> Option<String> {
        let (arrived, all) = (self.arrived, self.arrived + self.missing);
        let what = name(report);
        Some(match self.missing {
            _ if !self.waits && self.waits_elsewhere => return None,
            _ if !self.waits => return Some(self.without_waits()),
            0 => format!("{what}: all {all} ranks have arrived"),
            _ => format!("{what}: {arrived} of {all} ranks wait for ranks on {}", count(self.nodes_missing, "node")),
        })
    }

    fn without_waits(&self) -> String {
        let running = count(self.running as u32, "rank");
        match (self.running, self.initialised) {
            (0, _) => "no rank is running".to_owned(),
            (1, 0) => {
                "1 rank is running and has not called MPI_Init, so wireup cannot tell what it waits for".to_owned()
            }
            (_, 0) => {
                format!("{running} are running and none has called MPI_Init, so wireup cannot tell who waits for whom")
            }
            (_, 1..) => format!(
                "{running} are running and none is waiting in a collective that wireup sees: they compute, or \
                 wait for each other's messages"
            ),
        }
    }
}

/// `allgather 3`; if no rank is known to wait, the next collective may be a fence.
fn name(report: &StallReport) -> String {
    format!("{} {}", report.collective.unwrap_or_default(), report.epoch)
}

fn node_line(report: &StallReport) -> String {
    let StallReport { host, arrived, missing, missing_count, .. } = report;
    let what = name(report);
    format!("{what}: {host}: {arrived} arrived, missing {}", ranks(missing, *missing_count))
}

fn group_line(report: &StallReport, group: &GroupStall) -> String {
    let (host, GroupStall { group, arrived, missing, missing_count }) = (&report.host, group);
    let missing = match missing_count {
        0 => "no ranks missing on this node".to_owned(),
        count => format!("missing {}", ranks(missing, *count)),
    };
    format!("barrier of {group}: {host}: {arrived} arrived, {missing}")
}

fn init_line(report: &StallReport, init: &InitStall) -> String {
    let (host, InitStall { arrived, missing, missing_count, by_other }) = (&report.host, init);
    let who = if by_other < missing_count { format!("of which {by_other}") } else { "which".to_owned() };
    let other = match by_other {
        0 => String::new(),
        _ => format!(", {who} called MPI_Init of another MPI library; all ranks must use the same MPI"),
    };
    format!("MPI_Init: {host}: {arrived} arrived, missing {}{other}", ranks(missing, *missing_count))
}

/// The ranks that are missing, as text: `ranks 5-7 (pid 105, ...)`.
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

/// The call stacks of a job's ranks, equal ones together.
pub fn stack_lines(stacks: &[Stack]) -> Vec<String> {
    let (shown, rest) = stacks.split_at(stacks.len().min(STACKS_SHOWN));
    let mut lines: Vec<String> = shown.iter().flat_map(of_stack).collect();
    if !rest.is_empty() {
        let ranks: usize = rest.iter().map(|stack| stack.ranks.len()).sum();
        let others = count(rest.len() as u32, "other stack");
        lines.push(format!("{others} of {} not shown", count(ranks as u32, "rank")));
    }
    lines
}

fn of_stack(Stack { ranks, calls }: &Stack) -> Vec<String> {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let ranks = format!("{noun} {}", ranges(ranks.iter().map(|rank| rank.0)));
    match calls {
        Err(why) => vec![format!("no call stack of {ranks}: {}", one_line(why))],
        Ok(calls) => {
            let head = format!("call stack of {ranks}, innermost first:");
            [head].into_iter().chain(calls.iter().map(|call| format!("    {}", one_line(call)))).collect()
        }
    }
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
            running: arrived + missing_count,
            initialised: arrived,
            init: None,
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
        let expected = ["barrier of ranks 1-3 (tag 7): node0: 2 arrived, no ranks missing on this node"];
        assert_eq!(stalls.lines(&first), expected);
        let second = StallReport { groups: vec![group(0, &[(Rank(3), 103)])], ..report(1, 0, &[], 0) };
        assert_eq!(stalls.lines(&second), ["barrier of ranks 1-3 (tag 7): node1: 0 arrived, missing rank 3 (pid 103)"]);
    }

    #[test]
    fn stall_reports_are_shown_as_they_arrive_then_summarized() {
        let mut stalls = Stalls::new(3);
        assert!(stalls.lines(&report(0, 4, &[], 0)).is_empty());
        let expected = ["fence 3: node1: 1 arrived, missing ranks 5-7 (pid 105, ...)"];
        assert_eq!(stalls.lines(&report(1, 1, &[5, 6, 7], 3)), expected);
        assert_eq!(
            stalls.lines(&report(2, 3, &[9], 1)),
            ["fence 3: node2: 3 arrived, missing rank 9 (pid 109)", "fence 3: 8 of 12 ranks wait for ranks on 2 nodes"]
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
    fn without_a_known_wait_the_ranks_are_counted() {
        let mut stalls = Stalls::new(2);
        assert!(stalls.lines(&report(0, 0, &[0, 1], 2)).is_empty());
        let expected = ["3 ranks are running and none has called MPI_Init, so wireup cannot tell who waits for whom"];
        assert_eq!(stalls.lines(&report(1, 0, &[2], 1)), expected);
        let last = StallReport { initialised: 2, ..report(0, 0, &[0, 1], 2) };
        let lines = Stalls::new(1).lines(&last);
        assert!(lines.len() == 1 && lines[0].starts_with("2 ranks are running and none is waiting in"), "{lines:?}");
    }

    #[test]
    fn missing_ranks_are_shown_once_it_is_known_that_others_wait() {
        let mut stalls = Stalls::new(2);
        assert!(stalls.lines(&report(0, 0, &[0], 1)).is_empty());
        assert_eq!(
            stalls.lines(&report(1, 2, &[], 0)),
            ["fence 3: node0: 0 arrived, missing rank 0 (pid 100)", "fence 3: 2 of 3 ranks wait for ranks on 1 node"]
        );
    }

    #[test]
    fn ranks_that_have_not_called_init_are_named() {
        let lines = |by_other| {
            let init = InitStall { arrived: 2, missing: vec![(Rank(0), 100)], missing_count: 1, by_other };
            Stalls::new(1).lines(&StallReport { init: Some(init), ..report(0, 0, &[0, 1, 2], 3) })
        };
        assert_eq!(lines(0), ["MPI_Init: node0: 2 arrived, missing rank 0 (pid 100)"]);
        let other = ", which called MPI_Init of another MPI library; all ranks must use the same MPI";
        assert!(lines(1)[0].ends_with(other), "{:?}", lines(1));
    }

    #[test]
    fn only_some_nodes_are_listed_and_unknown_nodes_are_ignored() {
        let mut stalls = Stalls::new(100);
        let lines: Vec<String> = (0..100).flat_map(|node| stalls.lines(&report(node, 1, &[node], 1))).collect();
        assert_eq!(lines.len(), NODES_SHOWN as usize + 1);
        assert!(lines[16].ends_with("100 of 200 ranks wait for ranks on 100 nodes"));
        assert!(stalls.lines(&report(100, 1, &[], 0)).is_empty());
    }

    fn stack(ranks: std::ops::Range<u32>, calls: &[&str]) -> Stack {
        Stack { ranks: ranks.map(Rank).collect(), calls: Ok(calls.iter().map(|&call| call.into()).collect()) }
    }

    #[test]
    fn each_stack_names_its_ranks() {
        let failed = Stack { ranks: vec![Rank(4)], calls: Err("not\u{1b}permitted".into()) };
        assert_eq!(
            stack_lines(&[stack(0..3, &["read", "main"]), stack(3..4, &["sleep\n"]), failed]),
            [
                "call stack of ranks 0-2, innermost first:", "    read", "    main",
                "call stack of rank 3, innermost first:", "    sleep ", "no call stack of rank 4: not permitted",
            ]
        );
    }

    #[test]
    fn only_some_stacks_are_shown() {
        let many: Vec<Stack> = (0..18).map(|rank| stack(rank..rank + 1, &["f"])).collect();
        let lines = stack_lines(&many);
        assert_eq!((lines.len(), &*lines[32]), (33, "2 other stacks of 2 ranks not shown"));
    }
}
