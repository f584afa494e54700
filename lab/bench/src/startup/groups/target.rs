//! The targets of groups of ranks. Only what was run is judged; a case that has run and has no figure has missed.
use super::super::report::{Cell, Judged, Report, at_most, faster, met};
use super::scheme::{LOCATE, powers};
use super::{AGENTS, FROM_EXEC, FROM_EXEC_CORES, FROM_MAIN, HELD, HELD_SIMULATED, JOINS, PAIR, PEERS, SIMULATED};
use super::{beside, first_use, held};
use crate::metric::Metric;
use crate::verdict::Verdict;

const PAIR_MAX: f64 = 1.3;
const NOT_SLOWER: f64 = 1.0;
const SPLIT_TIMES: f64 = 20.0;
const MPI_TIMES: f64 = 20.0;
const PAIRS_TIMES: f64 = 2.0;
const AFTER_MAIN_MAX: f64 = 1e-3;

pub fn judge(report: &Report) -> Vec<Judged> {
    let mut all = Vec::new();
    let mut ask = |what: String, target: &str, source: &'static str, verdict: Verdict| {
        all.push(Judged { what, target: target.to_owned(), source, verdict });
    };
    let kind = |kind: &'static str| report.cells.iter().filter(move |cell| cell.key.exchange == kind);
    for cell in kind(PEERS) {
        let what = format!("counts of real ranks are the simulator's: {}, {}", cell.key.scheme, size(cell));
        ask(what, "every rank, every round", "", agreement(cell));
    }
    for cell in kind(PEERS).chain(kind(SIMULATED)).filter(|cell| cell.key.scheme == LOCATE.name) {
        let most = f64::from(powers(size(cell)).div_ceil(2));
        let what = format!("address requests without cache, {} ranks, {}", size(cell), cell.key.exchange);
        ask(what, &format!("<= {most}"), "log2 P", bound(cell, Metric::Questions, most));
    }
    for cell in kind(HELD).chain(kind(HELD_SIMULATED)).filter(|cell| cell.key.scheme == held::TALK.name) {
        let most = held::connections_max(size(cell));
        let what = format!("connections of a rank that talks to log2 P, {}, {}", size(cell), cell.key.exchange);
        ask(what, &format!("O(log² P): <= {most}"), "P - 1", bound(cell, Metric::Connections, most));
    }
    let of = |case: &'static str, scheme: &str| {
        report.cells.iter().find(|cell| cell.key.exchange == case && cell.key.scheme == scheme)
    };
    let has = |case: &'static str| kind(case).next().is_some();
    if has(PAIR) {
        let [ours, bare] = beside::PAIR_SCHEMES.map(|scheme| of(PAIR, scheme));
        let verdict = measured(at_most(ours, bare, Metric::Time, PAIR_MAX));
        ask("barrier of 2 ranks on 2 nodes, peers' engine, to 8 bytes by bare C".into(), "<= 1.3 x", "", verdict);
    }
    if has(AGENTS) {
        let [ours, fence] = beside::BARRIER_SCHEMES.map(|scheme| of(AGENTS, scheme));
        let verdict = measured(at_most(ours, fence, Metric::Time, NOT_SLOWER));
        ask("barrier of 64 ranks, agents' engine, to PMI2_KVS_Fence".into(), "<= 1 x", "", verdict);
    }
    if has(JOINS) {
        let [ours, init] = beside::JOINS_SCHEMES.map(|scheme| of(JOINS, scheme));
        for (metric, which) in [(Metric::JoinMedian, "median"), (Metric::JoinMax, "slowest")] {
            let verdict = measured(at_most(ours, init, metric, NOT_SLOWER));
            ask(format!("wu_open to PMI2_Init, 16x16, {which} rank"), "<= 1 x", "", verdict);
        }
    }
    if has(FROM_MAIN) {
        let [ours, _, mpich] = first_use::NODE.map(|scheme| of(FROM_MAIN, scheme));
        let verdict = measured(faster(ours, mpich, Metric::FromMain, SPLIT_TIMES));
        ask(
            "MPI_Init and MPI_Comm_split of MPICH to the node's group, 64 ranks, from main".into(),
            ">= 20 x",
            "",
            verdict,
        );
    }
    for (case, ranks) in [(FROM_EXEC, "4x4"), (FROM_EXEC_CORES, "a core each")] {
        if !has(case) {
            continue;
        }
        let [ours, _, pairs, floor, mpich] = first_use::BYTE.map(|scheme| of(case, scheme));
        let verdict = measured(faster(ours, mpich, Metric::FromExec, MPI_TIMES));
        ask(format!("MPICH to libwireup: from exec to a byte answered, {ranks}"), ">= 20 x", "", verdict);
        let verdict = measured(faster(ours, pairs, Metric::FromExec, PAIRS_TIMES));
        ask(format!("put, fence, get, connect to libwireup: the same, {ranks}"), ">= 2 x", "", verdict);
        // The floor: if it misses the target, no library can reach it.
        let verdict = measured(faster(floor, pairs, Metric::FromExec, PAIRS_TIMES));
        ask(format!("put, fence, get, connect to ranks that only start: the same, {ranks}"), ">= 2 x", "", verdict);
        let verdict = ours.map_or(missing(), |ours| bound(ours, Metric::AfterMain, AFTER_MAIN_MAX));
        ask(format!("libwireup: from the farthest rank's main to the answer, {ranks}"), "<= 1 ms", "", verdict);
    }
    all
}

fn size(cell: &Cell) -> u32 {
    cell.key.place.job_size()
}

/// All rounds count, the warm-up too.
fn agreement(cell: &Cell) -> Verdict {
    let differing: Vec<f64> = cell.runs.iter().filter_map(|run| run.get(Metric::Disagreeing)).collect();
    match differing.iter().copied().reduce(f64::max) {
        Some(most) => met(most == 0.0, format!("{most:.0} ranks differ, {} rounds", differing.len())),
        None => missing(),
    }
}

fn bound(cell: &Cell, metric: Metric, most: f64) -> Verdict {
    match cell.median(metric) {
        Some(value) => met(value <= most, metric.unit().show(value)),
        None => missing(),
    }
}

/// Both sides were to be run.
fn measured(verdict: Verdict) -> Verdict {
    if let Verdict::NotJudged(_) = verdict { missing() } else { verdict }
}

fn missing() -> Verdict {
    Verdict::Missed("nothing was measured".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Place;
    use crate::machine::Machine;
    use crate::metric::Sample;
    use crate::startup::flags::Benchmark;
    use crate::startup::report::Key;
    use crate::startup::scheme::Lengths;

    fn judged(cells: &[(&str, &str, Metric, &[f64])]) -> Vec<Judged> {
        let mut report = Report::new(Benchmark::Exchange, Machine::look());
        report.cells.extend(cells.iter().map(|(exchange, scheme, metric, values)| Cell {
            key: Key {
                place: Place { node_count: 16, ppn: 16 },
                exchange: (*exchange).into(),
                scheme: (*scheme).into(),
                lengths: Lengths { value: 18, key: 9 },
            },
            runs: values.iter().map(|value| Sample(vec![(*metric, *value)])).collect(),
        }));
        judge(&report)
    }

    fn verdict(judged: &[Judged], what: &str) -> Verdict {
        judged.iter().find(|judged| judged.what.contains(what)).unwrap_or_else(|| panic!("{what}")).verdict.clone()
    }

    #[test]
    fn one_rank_that_differs_in_any_round_misses() {
        let of = |values: &[f64]| {
            verdict(&judged(&[(PEERS, "group-barrier", Metric::Disagreeing, values)]), "group-barrier, 256")
        };
        assert_eq!(of(&[0.0, 0.0]), Verdict::Met("0 ranks differ, 2 rounds".into()));
        assert_eq!(of(&[1.0, 0.0, 0.0]), Verdict::Missed("1 ranks differ, 3 rounds".into()));
    }

    #[test]
    fn a_case_without_figures_misses_and_one_that_was_not_run_is_not_mentioned() {
        assert_eq!(judged(&[]), []);
        for (case, what) in [(PAIR, "8 bytes"), (AGENTS, "Fence"), (JOINS, "wu_open"), (FROM_MAIN, "MPI_Comm_split")] {
            assert!(matches!(verdict(&judged(&[(case, case, Metric::Time, &[])]), what), Verdict::Missed(_)), "{case}");
        }
        assert!(matches!(verdict(&judged(&[(PEERS, PEERS, Metric::Time, &[])]), "simulator"), Verdict::Missed(_)));
        assert_eq!(judged(&[(FROM_EXEC, FROM_EXEC, Metric::Time, &[])]).len(), 4);
    }

    #[test]
    fn ratios_and_bounds_have_the_right_direction() {
        let pair = |ours: f64| {
            judged(&[(PAIR, "barrier-peers", Metric::Time, &[ours]), (PAIR, "bare-8-bytes", Metric::Time, &[2.0])])
        };
        assert!(matches!(verdict(&pair(2.5), "8 bytes"), Verdict::Met(_)));
        assert!(matches!(verdict(&pair(2.7), "8 bytes"), Verdict::Missed(_)));
        let split = |ours: f64| {
            let cells = [
                (FROM_MAIN, "node-instant-on", Metric::FromMain, &[ours][..]),
                (FROM_MAIN, "mpich-split", Metric::FromMain, &[20.0][..]),
            ];
            verdict(&judged(&cells), "MPI_Comm_split")
        };
        assert!(matches!(split(1.0), Verdict::Met(_)) && matches!(split(1.1), Verdict::Missed(_)));
        let questions = |most| verdict(&judged(&[(SIMULATED, "group-locate", Metric::Questions, &[most])]), "requests");
        assert!(matches!(questions(4.0), Verdict::Met(_)) && matches!(questions(5.0), Verdict::Missed(_)));
    }
}
