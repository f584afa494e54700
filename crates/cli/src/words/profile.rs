//! Where the time of a job's startup went: a nested table made from the time stamps of all agents.
//!
//! A phase begins when the first participant enters it and ends when the last one leaves it, so phases of different
//! nodes overlap; [`phase_table`] makes them add up. `from` is the time since the launcher's start. All stamps are on
//! the launcher's clock. A phase that did not happen (no PMI, one agent) has no row.

use super::count;
use wireup_node::launcher::Stamps;
use wireup_node::trace::Phase;
use wireup_wire::peer::{FenceTrace, RankTrace, TracePart};

/// Most fences that are shown one by one; later ones are summarized.
const FENCES_SHOWN: usize = 8;

/// The table, one row per line. `phases`: what is not in the stamps of the agents, in order.
pub fn table(stamps: &Stamps, phases: &[Phase], parts: &[TracePart]) -> String {
    let Stamps { process_ns, resolved_ns, left_ns, .. } = *stamps;
    let end_ns = phases.iter().map(|phase| phase.to_ns).fold(left_ns, u64::max);
    let (before, after): (Vec<_>, Vec<_>) = phases.iter().partition(|phase| phase.from_ns < left_ns);
    // The start of a session and the staging of files precede the start of the job itself: if there is such a phase,
    // `resolve` ends when the first one begins.
    let found_ns = before.iter().map(|phase| phase.from_ns).min().unwrap_or(resolved_ns);
    let ranks: Vec<(&TracePart, &RankTrace)> =
        parts.iter().flat_map(|part| part.ranks.iter().map(move |rank| (part, rank))).collect();
    let of_ranks =
        |stamp: fn(&RankTrace) -> u64| ranks.iter().map(move |&(part, rank)| (stamp(rank), part, rank.rank.0));

    let mut total = Phase::new("total", process_ns, end_ns, "");
    total.parts.push(Phase::new("resolve", process_ns, found_ns, ""));
    total.parts.extend(before.into_iter().cloned());
    total.parts.extend(agents(parts, resolved_ns));

    let first = |stamp| of_ranks(stamp).map(|(at, ..)| at).filter(|&at| at > 0).min();
    let mut last = resolved_ns;
    let exec: fn(&RankTrace) -> u64 = |rank| rank.exec_ns;
    for (name, from, stamp) in
        [("spawn", first(|rank| rank.spawn_ns), exec), ("init", first(exec), |rank| rank.init_ns)]
    {
        if let (Some(from), Some((end_ns, remark))) = (from, last_of(of_ranks(stamp))) {
            total.parts.push(Phase::new(name, from, end_ns, remark));
            last = last.max(end_ns);
        }
    }
    if let Some(exchange) = exchange(parts) {
        last = last.max(exchange.to_ns);
        total.parts.push(exchange);
    }
    if let Some((end_ns, remark)) = last_of(of_ranks(|rank| rank.exit_ns)) {
        total.parts.push(Phase::new("run", last, end_ns, remark));
        last = last.max(end_ns);
    }
    total.parts.push(Phase::new("drain", last, left_ns, ""));
    total.parts.extend(after.into_iter().cloned());
    phase_table(&total) + &clocks(parts)
}

/// When the last rank left a phase, and a remark about it; the items are a stamp, the rank's node, and its number. A
/// stamp of 0 means that the rank did not enter the phase.
fn last_of<'a>(stamps: impl Iterator<Item = (u64, &'a TracePart, u32)>) -> Option<(u64, String)> {
    let mut ranks = 0;
    let happened = stamps.filter(|&(at, ..)| at > 0).inspect(|_| ranks += 1);
    let (end_ns, part, number) = happened.max_by_key(|&(at, ..)| at)?;
    let slowest = if ranks > 1 { format!(", last rank {number} on {}", part.host) } else { String::new() };
    Some((end_ns, count(ranks, "rank") + &slowest))
}

/// How exactly the nodes' clocks were aligned, if there are several nodes.
fn clocks(parts: &[TracePart]) -> String {
    let inexact = parts.iter().filter(|part| part.clock_error_ns > 0);
    let Some(worst) = inexact.max_by_key(|part| part.clock_error_ns) else { return String::new() };
    let host = &worst.host;
    if worst.clock_error_ns == u64::MAX {
        return format!("clocks of the nodes: the clock of {host} could not be aligned, so its times are unreliable\n");
    }
    let error_ms = worst.clock_error_ns as f64 / 1e6;
    format!("clocks of the nodes: aligned over the tree, off by {error_ms:.3} ms at most ({host})\n")
}

/// From the launcher's decision until every agent of the tree knows the job.
fn agents(parts: &[TracePart], resolved_ns: u64) -> Vec<Phase> {
    let all: Vec<&TracePart> = parts.iter().collect();
    let others: Vec<&TracePart> = parts.iter().filter(|part| part.agent.0 != 0).collect();
    let phase = |name: &str, parts: &[&TracePart], from: u64, stamp: fn(&TracePart) -> u64| {
        let last = parts.iter().filter(|part| stamp(part) > 0).max_by_key(|part| stamp(part))?;
        let slowest = if parts.len() > 1 { format!(", last {}", last.host) } else { String::new() };
        Some(Phase::new(name, from, stamp(last), format!("{}{slowest}", count(parts.len() as u32, "agent"))))
    };
    let first_started = others.iter().map(|part| part.bootstrap_ns).filter(|&at| at > 0).min();
    let rows = [
        phase("start agents", &others, resolved_ns, |part| part.bootstrap_ns),
        phase("connect", &others, first_started.unwrap_or(resolved_ns), |part| part.linked_ns),
        phase("send job", &all, resolved_ns, |part| part.job_ns),
    ];
    rows.into_iter().flatten().collect()
}

/// The row of the collectives; `None` if there were none.
fn exchange(parts: &[TracePart]) -> Option<Phase> {
    let fences = fences(parts);
    let mut whole = spanning("exchange", &fences, "collective")?;
    for fence in fences.iter().take(FENCES_SHOWN) {
        let FenceTrace { epoch, collective, first_in_ns, last_in_ns, out_ns, last_rank, bytes_down, .. } = fence.trace;
        // With direct links between agents, the result may arrive before the tree has gathered all sizes.
        let received_ns = fence.trace.received_ns.max(last_in_ns);
        let gathered_ns = fence.trace.gathered_ns.clamp(last_in_ns, received_ns);
        let remark = format!("{} in all; last in rank {last_rank} on {}", bytes(bytes_down), fence.last_host);
        let mut row = Phase::new(format!("{collective} {epoch}"), first_in_ns, out_ns, remark);
        let waiting = "from the first to the last rank that enters: time of the ranks";
        row.parts.push(Phase::new("wait", first_in_ns, last_in_ns, waiting));
        row.parts.push(Phase::new("gather", last_in_ns, gathered_ns, "until the root has the last part"));
        row.parts.push(Phase::new("broadcast", gathered_ns, received_ns, "until the last node has the result"));
        row.parts.push(Phase::new("process", fence.first_received_ns, out_ns, "nodes store it and answer their ranks"));
        whole.parts.push(row);
    }
    whole.parts.extend(spanning("later", fences.get(FENCES_SHOWN..).unwrap_or_default(), "more collective"));
    Some(whole)
}

/// From the first entry into one of the fences until the last one has ended.
fn spanning(name: &str, fences: &[Fence], noun: &str) -> Option<Phase> {
    let from = fences.iter().map(|fence| fence.trace.first_in_ns).min()?;
    let to = fences.iter().map(|fence| fence.trace.out_ns).max()?;
    Some(Phase::new(name, from, to, count(fences.len() as u32, noun)))
}

/// One fence over all nodes, the time at which the first node had the result, and the host of the rank that entered
/// last.
struct Fence<'a> {
    trace: FenceTrace,
    first_received_ns: u64,
    last_host: &'a str,
}

fn fences(parts: &[TracePart]) -> Vec<Fence<'_>> {
    let mut fences: Vec<Fence> = Vec::new();
    let all = parts.iter().flat_map(|part| part.fences.iter().map(|fence| (&*part.host, fence)));
    let mut sorted: Vec<_> = all.filter(|(_, fence)| fence.out_ns > 0 && fence.first_in_ns > 0).collect();
    sorted.sort_by_key(|(_, fence)| fence.epoch);
    for (host, one) in sorted {
        match fences.last_mut() {
            Some(Fence { trace, first_received_ns, last_host }) if trace.epoch == one.epoch => {
                trace.first_in_ns = trace.first_in_ns.min(one.first_in_ns);
                trace.gathered_ns = trace.gathered_ns.max(one.gathered_ns);
                trace.received_ns = trace.received_ns.max(one.received_ns);
                trace.out_ns = trace.out_ns.max(one.out_ns);
                *first_received_ns = one.received_ns.min(*first_received_ns);
                trace.bytes_down = trace.bytes_down.max(one.bytes_down);
                if one.last_in_ns > trace.last_in_ns {
                    (trace.last_in_ns, trace.last_rank, *last_host) = (one.last_in_ns, one.last_rank, host);
                }
            }
            _ => fences.push(Fence { trace: *one, first_received_ns: one.received_ns, last_host: host }),
        }
    }
    fences
}

fn bytes(number: u64) -> String {
    match number {
        0..=9_999 => format!("{number} B"),
        10_000..=9_999_999 => format!("{:.1} KiB", number as f64 / 1024.0),
        _ => format!("{:.1} MiB", number as f64 / (1024.0 * 1024.0)),
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Line<'a> {
    depth: usize,
    name: &'a str,
    /// `None` for the rest that no phase covers, which may consist of several stretches.
    from_ns: Option<u64>,
    took_ns: u64,
    adds_ns: u64,
    remark: &'a str,
}

/// The table of a phase with its head, times counted from the start of the phase.
///
/// Phases may overlap, so their durations (`took`) do not add up. `adds` counts each moment once: it is the part of a
/// phase that none of the rows above it, with the same parent, covers. What no row covers is the row `other`, so the
/// `adds` of all parts sum to their parent's `took`.
pub fn phase_table(phase: &Phase) -> String {
    let mut text = format!("{:<26} {:>10} {:>10} {:>10}\n", "phase", "from ms", "took ms", "adds ms");
    let ms = |ns: u64| ns as f64 / 1e6;
    for line in lines(phase) {
        let label = format!("{}/-- {}:", "    ".repeat(line.depth), line.name);
        let from = line.from_ns.map_or(String::new(), |at| format!("{:.3}", ms(at - phase.from_ns)));
        let (took, adds) = (ms(line.took_ns), ms(line.adds_ns));
        let line = format!("{label:<26} {from:>10} {took:>10.3} {adds:>10.3}  {}", line.remark);
        text += &format!("{}\n", line.trim_end());
    }
    text
}

fn lines(phase: &Phase) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let whole = (phase.from_ns, phase.to_ns.max(phase.from_ns));
    add_lines(phase, 0, whole, whole.1 - whole.0, &mut lines);
    lines
}

/// `time` is the time of this phase within its parent: clocks of different nodes may put the end of a part behind the
/// end of the whole.
fn add_lines<'a>(phase: &'a Phase, depth: usize, time: (u64, u64), adds_ns: u64, lines: &mut Vec<Line<'a>>) {
    let took_ns = time.1 - time.0;
    let (name, remark) = (&phase.name, &phase.remark);
    lines.push(Line { depth, name, from_ns: Some(time.0), took_ns, adds_ns, remark });
    let mut above = Vec::new();
    let mut counted_ns = 0;
    for part in &phase.parts {
        let from = part.from_ns.clamp(time.0, time.1);
        let part_time = (from, part.to_ns.clamp(from, time.1));
        above.push(part_time);
        let adds_ns = covered(&above) - counted_ns;
        counted_ns += adds_ns;
        add_lines(part, depth + 1, part_time, adds_ns, lines);
    }
    let rest_ns = took_ns - counted_ns;
    if !phase.parts.is_empty() && rest_ns > 0 {
        let (depth, remark) = (depth + 1, "not in any of these phases");
        lines.push(Line { depth, name: "other", from_ns: None, took_ns: rest_ns, adds_ns: rest_ns, remark });
    }
}

/// The length of the union of stretches of time.
fn covered(stretches: &[(u64, u64)]) -> u64 {
    let mut sorted = stretches.to_vec();
    sorted.sort_unstable();
    let mut end = 0;
    let mut length = 0;
    for (from, to) in sorted {
        length += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wireup_wire::ids::{AgentId, Epoch, NodeId, Rank};

    const MS: u64 = 1_000_000;

    fn part(id: u32) -> TracePart {
        let late = u64::from(id) * MS;
        TracePart {
            agent: AgentId(id),
            node: NodeId(id),
            host: format!("node{id}"),
            process_ns: 100 * MS,
            bootstrap_ns: if id == 0 { 0 } else { 103 * MS + late },
            linked_ns: if id == 0 { 0 } else { 104 * MS + late },
            job_ns: 105 * MS + late,
            ranks: vec![RankTrace {
                rank: Rank(id),
                spawn_ns: 106 * MS,
                exec_ns: 107 * MS + late,
                init_ns: 110 * MS,
                exit_ns: 150 * MS + late,
                ..RankTrace::default()
            }],
            fences: vec![FenceTrace {
                first_in_ns: 111 * MS + late,
                last_in_ns: 112 * MS + late,
                gathered_ns: 114 * MS + MS / 2 - late / 4,
                received_ns: 115 * MS + late / 4,
                out_ns: 115 * MS + 3 * MS / 4 + late / 8,
                last_rank: Rank(id),
                bytes_down: 120,
                ..FenceTrace::default()
            }],
            ..TracePart::default()
        }
    }

    fn stamps() -> Stamps {
        Stamps { process_ns: 100 * MS, resolved_ns: 101 * MS, left_ns: 155 * MS, ..Stamps::default() }
    }

    #[test]
    fn the_table_lists_all_phases_and_the_slowest_rank_or_node() {
        let parts: Vec<TracePart> = (0..3).map(part).collect();
        let expected = "\
phase                         from ms    took ms    adds ms
/-- total:                      0.000     55.000     55.000
    /-- resolve:                0.000      1.000      1.000
    /-- start agents:           1.000      4.000      4.000  2 agents, last node2
    /-- connect:                4.000      2.000      1.000  2 agents, last node2
    /-- send job:               1.000      6.000      1.000  3 agents, last node2
    /-- spawn:                  6.000      3.000      2.000  3 ranks, last rank 2 on node2
    /-- init:                   7.000      3.000      1.000  3 ranks, last rank 2 on node2
    /-- exchange:              11.000      5.000      5.000  1 collective
        /-- fence 0:           11.000      5.000      5.000  120 B in all; last in rank 2 on node2
            /-- wait:          11.000      3.000      3.000  from the first to the last rank that enters: time of the \
ranks
            /-- gather:        14.000      0.500      0.500  until the root has the last part
            /-- broadcast:     14.500      1.000      1.000  until the last node has the result
            /-- process:       15.000      1.000      0.500  nodes store it and answer their ranks
    /-- run:                   16.000     36.000     36.000  3 ranks, last rank 2 on node2
    /-- drain:                 52.000      3.000      3.000
    /-- other:                             1.000      1.000  not in any of these phases
";
        assert_eq!(table(&stamps(), &[], &parts), expected);
    }

    #[test]
    fn staged_and_gathered_files_are_phases_beside_the_others() {
        let mut stage = Phase::new("stage", 100 * MS + MS / 2, 100 * MS + 3 * MS / 4, "2 nodes, last node1");
        stage.parts.push(Phase::new("send", stage.from_ns, stage.to_ns, "1 MiB"));
        let phases = [stage, Phase::new("stage out", 156 * MS, 160 * MS, "3 files")];
        let text = table(&stamps(), &phases, &[part(0), part(1)]);
        for row in [
            "/-- total:                      0.000     60.000     60.000\n",
            "    /-- resolve:                0.000      0.500      0.500\n",
            "    /-- stage:                  0.500      0.250      0.250  2 nodes, last node1\n",
            "        /-- send:               0.500      0.250      0.250  1 MiB\n",
            "    /-- stage out:             56.000      4.000      4.000  3 files\n",
        ] {
            assert!(text.contains(row), "{row}{text}");
        }
    }

    #[test]
    fn phases_that_did_not_happen_have_no_row() {
        let mut alone = part(0);
        alone.fences.clear();
        alone.ranks[0].init_ns = 0;
        let text = table(&stamps(), &[], &[alone]);
        for absent in ["start agents", "connect", "init", "exchange"] {
            assert!(!text.contains(absent), "{text}");
        }
        assert!(text.contains("/-- spawn:                  6.000      1.000      1.000  1 rank\n"), "{text}");
        let nothing = table(&stamps(), &[], &[]);
        assert_eq!(nothing.lines().count(), 4, "{nothing}");
    }

    #[test]
    fn many_fences_are_summarized() {
        let mut alone = part(0);
        let first = alone.fences[0];
        alone.fences = (0..20).map(|epoch| FenceTrace { epoch: Epoch(epoch), ..first }).collect();
        let text = table(&stamps(), &[], &[alone]);
        assert!(text.contains("/-- later:") && text.contains("12 more collectives"), "{text}");
    }

    #[test]
    fn bytes_are_shown_in_a_fitting_unit() {
        assert_eq!([bytes(12), bytes(20_480), bytes(64 << 20)], ["12 B", "20.0 KiB", "64.0 MiB"]);
    }

    /// Any rows, also ones that end before they begin, and that are longer than their parents.
    fn any_row() -> impl Strategy<Value = Phase> {
        let one = || (0..100_u64, 0..100_u64).prop_map(|(from, to)| Phase::new("phase", from, to, ""));
        one().prop_recursive(3, 40, 6, move |part| {
            (one(), proptest::collection::vec(part, 0..6)).prop_map(|(row, parts)| Phase { parts, ..row })
        })
    }

    proptest! {
        #[test]
        fn parts_add_up_to_their_parent(row in any_row()) {
            let lines = lines(&row);
            for (at, parent) in lines.iter().enumerate() {
                let below = lines[at + 1..].iter().take_while(|line| line.depth > parent.depth);
                let parts: Vec<&Line<'_>> = below.filter(|line| line.depth == parent.depth + 1).collect();
                let sum: u64 = parts.iter().map(|part| part.adds_ns).sum();
                prop_assert!(parts.is_empty() || sum == parent.took_ns, "{}", phase_table(&row));
                for part in parts {
                    prop_assert!(part.adds_ns <= part.took_ns && part.took_ns <= parent.took_ns, "{row:?}");
                }
            }
        }

        #[test]
        fn every_moment_is_counted_once(row in any_row()) {
            let within = |moment: u64| {
                let clip = |at: u64| at.clamp(row.from_ns, row.to_ns.max(row.from_ns));
                row.parts.iter().any(|part| (clip(part.from_ns)..clip(part.to_ns)).contains(&moment))
            };
            let wanted = (row.from_ns..row.to_ns).filter(|&moment| !row.parts.is_empty() && !within(moment)).count();
            let lines = lines(&row);
            let other = lines.iter().find(|line| line.depth == 1 && line.from_ns.is_none());
            prop_assert_eq!(other.map_or(0, |other| other.adds_ns), wanted as u64);
        }
    }

    #[test]
    fn what_an_earlier_row_covers_is_not_added_again() {
        let part = |name: &str, from: u64, to: u64| Phase::new(name, from * 1_000_000, to * 1_000_000, "");
        let mut total = part("total", 10, 30);
        total.parts = vec![part("one", 10, 14), part("two", 12, 16), part("three", 11, 13), part("four", 20, 99)];
        let expected = "\
phase                         from ms    took ms    adds ms
/-- total:                      0.000     20.000     20.000
    /-- one:                    0.000      4.000      4.000
    /-- two:                    2.000      4.000      2.000
    /-- three:                  1.000      2.000      0.000
    /-- four:                  10.000     10.000     10.000
    /-- other:                             4.000      4.000  not in any of these phases
";
        assert_eq!(phase_table(&total), expected);
    }
}
