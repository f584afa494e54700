//! `wireup run --json`: how the job and each of its ranks ended, as JSON.

use crate::flags::resolved::Resolved;
use crate::show::app_of;
use crate::words::{Setting, failure_line};
use serde_json::{Value, json};
use std::collections::HashMap;
use wireup_node::launcher::RunOutcome;
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::job::NodeSpec;
use wireup_wire::peer::{ExitStatus, RankTrace};

/// The object. Fields of a rank whose end is unknown, because its node was lost or it was never
/// started, are `null`.
pub fn json(resolved: &Resolved, outcome: &RunOutcome) -> Value {
    let job = &resolved.job;
    let traces: HashMap<Rank, &RankTrace> =
        outcome.traces.iter().flat_map(|part| &part.ranks).map(|trace| (trace.rank, trace)).collect();
    let ranks = places(resolved);
    let ranks = ranks.iter().map(|(rank, node)| of_rank(*rank, &job.nodes[node.index()].name, traces.get(rank)));
    let setting = Setting::of(job, &resolved.session);
    let failure = outcome.ended.failure.as_ref().map(|failure| failure_line(failure, &setting));
    json!({ "exit_code": outcome.code, "failure": failure, "ranks": ranks.collect::<Vec<_>>() })
}

/// Where the ranks of a job that is not started would run, as one JSON object.
pub fn map(resolved: &Resolved) -> Value {
    let job = &resolved.job;
    let node = |(index, node): (usize, &NodeSpec)| {
        let ranks = resolved.mapping.local_size(NodeId(index as u32));
        json!({ "node": node.name, "ranks": ranks, "slots": resolved.slots.get(index) })
    };
    let rank = |(rank, node): &(Rank, NodeId)| {
        let program = String::from_utf8_lossy(&app_of(job, *rank).argv[0]);
        json!({ "rank": rank.0, "node": job.nodes[node.index()].name, "program": program })
    };
    let nodes: Vec<Value> = job.nodes.iter().enumerate().map(node).collect();
    let ranks: Vec<Value> = places(resolved).iter().map(rank).collect();
    json!({ "nodes": nodes, "ranks": ranks })
}

fn places(resolved: &Resolved) -> Vec<(Rank, NodeId)> {
    let nodes = (0..resolved.job.nodes.len() as u32).map(NodeId);
    let ranks_of = |node| resolved.mapping.ranks_of(node).map(move |rank| (rank, node));
    let mut ranks: Vec<_> = nodes.flat_map(ranks_of).collect();
    ranks.sort_unstable();
    ranks
}

fn of_rank(rank: Rank, node: &str, trace: Option<&&RankTrace>) -> Value {
    let (mut exit_code, mut signal, mut core_dumped) = (None, None, None);
    match trace.and_then(|trace| trace.status) {
        Some(ExitStatus::Exited(code)) => exit_code = Some(code),
        Some(ExitStatus::Signalled { signal: number, core_dumped: core }) => {
            (signal, core_dumped) = (Some(number), Some(core));
        }
        None => {}
    }
    json!({
        "rank": rank.0,
        "node": node,
        "pid": trace.map(|trace| trace.pid).filter(|pid| *pid > 0),
        "exit_code": exit_code,
        "signal": signal,
        "core_dumped": core_dumped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parsed::parsed_words;
    use crate::flags::resolved::resolve;
    use crate::surroundings::Surroundings;
    use wireup_node::launcher::Stamps;
    use wireup_wire::peer::{Cause, Ended, Failure, TracePart};

    fn resolved(line: &str) -> Resolved {
        resolve(parsed_words(line.split(' ')), Surroundings::example()).expect(line)
    }

    #[test]
    fn each_rank_is_listed_in_order_with_its_end() {
        let trace = |rank, pid, status| RankTrace { rank: Rank(rank), pid, status, ..RankTrace::default() };
        let killed = Some(ExitStatus::Signalled { signal: 11, core_dumped: false });
        let ranks = vec![trace(1, 21, killed), trace(0, 20, Some(ExitStatus::Exited(0)))];
        let cause = Cause::Signalled { signal: 11, core_dumped: false };
        let failure = Failure { node: NodeId(0), host: "node0".into(), rank: Some(Rank(1)), pid: Some(21), cause };
        let outcome = RunOutcome {
            code: 139,
            ended: Ended { failure: Some(failure), done: Default::default() },
            traces: vec![TracePart { ranks, ..TracePart::default() }],
            interrupted: false,
            has_open_line: Some(false),
            stamps: Stamps::default(),
        };
        let found = json(&resolved("-n 3 --virtual-nodes 2 --ppn 2 ./a"), &outcome);
        assert_eq!(found["exit_code"], 139);
        assert!(found["failure"].as_str().is_some_and(|line| line.starts_with("rank 1 on node0 (pid 21)")), "{found}");
        let expected = json!([
            { "rank": 0, "node": "node0", "pid": 20, "exit_code": 0, "signal": null, "core_dumped": null },
            { "rank": 1, "node": "node0", "pid": 21, "exit_code": null, "signal": 11, "core_dumped": false },
            { "rank": 2, "node": "node1", "pid": null, "exit_code": null, "signal": null, "core_dumped": null },
        ]);
        assert_eq!(found["ranks"], expected);
    }

    #[test]
    fn the_map_lists_each_node_and_the_place_of_each_rank() {
        let found = map(&resolved("--virtual-nodes 2 -n 2 ./a : -n 1 ./b"));
        let expected = json!({
            "nodes": [{ "node": "node0", "ranks": 2, "slots": null }, { "node": "node1", "ranks": 1, "slots": null }],
            "ranks": [
                { "rank": 0, "node": "node0", "program": "./a" },
                { "rank": 1, "node": "node0", "program": "./a" },
                { "rank": 2, "node": "node1", "program": "./b" },
            ],
        });
        assert_eq!(found, expected);
    }
}
