//! Compares the agents' resources after many jobs with those before.
use serde::Serialize;

use super::snapshot::{Agent, Snapshot};
use crate::metric::Unit;
use crate::verdict::Verdict;

/// An agent's memory may grow by this much (bytes).
const MEMORY_MAX: i64 = 1 << 20;
/// New files that are named; the rest is counted.
const NAMED_MAX: usize = 3;

#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    pub before: Snapshot,
    pub after: Snapshot,
    pub judged: Vec<(String, Verdict)>,
}

pub fn judge(before: Snapshot, after: Snapshot) -> Growth {
    let pairs = pairs(&before, &after);
    let most = |of: &dyn Fn(&Agent) -> i64| pairs.iter().map(|(old, new)| of(new) - of(old)).max().unwrap_or(0);
    let met = |is_met: bool, figure: String| if is_met { Verdict::Met(figure) } else { Verdict::Missed(figure) };
    let grown = |what: &str, most: i64| (format!("{what} <= before"), met(most <= 0, format!("{most:+}")));
    let memory = most(&|agent| agent.memory_bytes as i64);
    let mut judged = vec![
        ("agents that are there still".to_owned(), {
            met(pairs.len() == before.agents.len(), format!("{} of {}", pairs.len(), before.agents.len()))
        }),
        (
            "an agent's memory <= before + 1 MiB".to_owned(),
            met(memory <= MEMORY_MAX, format!("at most {}", Unit::Bytes.show(memory as f64))),
        ),
        grown("an agent's descriptors", most(&|agent| agent.descriptors as i64)),
        grown("an agent's threads", most(&|agent| agent.threads as i64)),
        grown("an agent's children", most(&|agent| agent.children as i64)),
        grown("processes of the session", after.processes as i64 - before.processes as i64),
        ("ranks left behind: none".to_owned(), met(after.ranks == 0, after.ranks.to_string())),
    ];
    let new: Vec<String> = after.files.difference(&before.files).map(|path| path.display().to_string()).collect();
    let named = new.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = if new.len() > NAMED_MAX { ", .." } else { "" };
    judged.push(("files left behind: none".to_owned(), met(new.is_empty(), format!("{} {named}{more}", new.len()))));
    let woken = after.wake_ups;
    judged.push(("idle agents sleep".to_owned(), met(woken == 0, format!("woken {woken} times in 3 s"))));
    drop(pairs);
    Growth { before, after, judged }
}

/// Pairs of the same agent before and after, matched by process.
fn pairs<'a>(before: &'a Snapshot, after: &'a Snapshot) -> Vec<(&'a Agent, &'a Agent)> {
    let find = |old: &&'a Agent| after.agents.iter().find(|new| new.pid == old.pid);
    before.agents.iter().filter_map(|old| Some((old, find(&old)?))).collect()
}

impl Growth {
    /// Rows for display: name, before, after, difference; sums and maxima over all agents.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let (old, new) = (&self.before, &self.after);
        let head = ["", "before", "after", "difference"].map(String::from);
        let count = |what: &str, of: &dyn Fn(&Snapshot) -> u64| {
            let (old, new) = (of(old), of(new));
            [what.to_owned(), old.to_string(), new.to_string(), format!("{:+}", new as i64 - old as i64)]
        };
        let sum = |of: fn(&Agent) -> usize| move |at: &Snapshot| at.agents.iter().map(|a| of(a) as u64).sum::<u64>();
        let mut rows = vec![head];
        type Of = fn(&[u64]) -> u64;
        let largest: Of = |bytes| bytes.iter().copied().max().unwrap_or(0);
        for (what, of) in
            [("memory, all agents", (|bytes| bytes.iter().sum()) as Of), ("memory, largest agent", largest)]
        {
            let bytes =
                |at: &Snapshot| of(&at.agents.iter().map(|agent| agent.memory_bytes).collect::<Vec<_>>()) as f64;
            let (old, new) = (bytes(old), bytes(new));
            rows.push([what.to_owned(), Unit::Bytes.show(old), Unit::Bytes.show(new), Unit::Bytes.show(new - old)]);
        }
        rows.extend([
            count("descriptors", &sum(|agent| agent.descriptors)),
            count("threads", &sum(|agent| agent.threads)),
            count("processes", &|at| at.processes as u64),
            count("files", &|at| at.files.len() as u64),
            count("wake-ups in 3 s", &|at| at.wake_ups),
        ]);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(memories: &[u64]) -> Snapshot {
        let agent = |(at, memory_bytes): (usize, &u64)| Agent {
            pid: at as i32 + 10,
            memory_bytes: *memory_bytes,
            descriptors: 7,
            threads: 1,
            children: 2,
        };
        Snapshot {
            agents: memories.iter().enumerate().map(agent).collect(),
            processes: 9,
            ranks: 0,
            files: ["/tmp/a".into()].into(),
            wake_ups: 0,
        }
    }

    fn missed(before: Snapshot, after: Snapshot) -> Vec<String> {
        let judged = judge(before, after).judged.into_iter();
        judged.filter(|(_, verdict)| matches!(verdict, Verdict::Missed(_))).map(|(what, _)| what).collect()
    }

    #[test]
    fn agent_memory_may_grow_by_at_most_a_mebibyte() {
        assert!(missed(snapshot(&[100, 200]), snapshot(&[100 + (1 << 20), 100])).is_empty());
        assert_eq!(missed(snapshot(&[100, 200]), snapshot(&[101 + (1 << 20), 100])).len(), 1);
    }

    #[test]
    fn other_counts_may_not_grow() {
        type Change = fn(&mut Snapshot);
        let changes: [(&str, Change); 7] = [
            ("descriptors", |at| at.agents[0].descriptors += 1),
            ("threads", |at| at.agents[0].threads += 1),
            ("children", |at| at.agents[0].children += 1),
            ("processes", |at| at.processes += 1),
            ("ranks", |at| at.ranks += 1),
            ("files", |at| at.files.extend(["/tmp/b".into()])),
            ("idle", |at| at.wake_ups += 1),
        ];
        for (what, change) in changes {
            let mut after = snapshot(&[100]);
            change(&mut after);
            let missed = missed(snapshot(&[100]), after);
            assert!(missed.len() == 1 && missed[0].contains(what), "{what}: {missed:?}");
        }
        assert_eq!(missed(snapshot(&[100, 100]), snapshot(&[100])), ["agents that are there still"]);
        let rows = judge(snapshot(&[1 << 20]), snapshot(&[3 << 20])).rows();
        assert_eq!(rows[2][1..], ["1.00 MiB", "3.00 MiB", "2.00 MiB"]);
    }
}
