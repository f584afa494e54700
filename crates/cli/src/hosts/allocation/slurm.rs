//! Slurm: everything is in the environment of `sbatch`, of `salloc` and of each step.
//!
//! `SLURM_TASKS_PER_NODE` describes the allocation, except in a process of a step, where `srun` has overwritten it with
//! the step's. There the number of ranks follows from the allocation's cpus, `SLURM_CPUS_PER_TASK` of them for a rank.

use super::{Allocation, Env, Node, SLURM, names, one_of_many, wrong};

const NODES: &str = "SLURM_JOB_NODELIST";
const TASKS: &str = "SLURM_TASKS_PER_NODE";
const CPUS: &str = "SLURM_JOB_CPUS_PER_NODE";

pub fn detect(env: Env) -> Result<Option<Allocation>, String> {
    // A login to a node of a running job may set the first variable without the others.
    let (Some(job), Some(nodelist)) = (env.get("SLURM_JOB_ID"), env.get(NODES)) else { return Ok(None) };
    let names = names(NODES, nodelist)?;
    let cpus_per_task = env.number("SLURM_CPUS_PER_TASK")?.unwrap_or(1).max(1);
    let cpus = numbers(env, CPUS, names.len())?;
    let room = |cpus: u32| (cpus / cpus_per_task).max(1);
    let in_step = env.get("SLURM_STEP_ID").is_some();
    let tasks = match numbers(env, TASKS, names.len()) {
        Err(error) if !in_step => return Err(error),
        Ok(Some(tasks)) if !in_step || speaks_of_all(env, &tasks) => Some(tasks),
        Ok(_) | Err(_) => None,
    };
    let node = |(index, name): (usize, String)| {
        let room = cpus.as_ref().map(|cpus| room(cpus[index]));
        let tasks = tasks.as_ref().map(|tasks| tasks[index]).or(room).unwrap_or(1).max(1);
        Node { name, tasks, cpus: cpus.as_ref().map_or(tasks, |cpus| cpus[index]).max(tasks) }
    };
    let nodes = names.into_iter().enumerate().map(node).collect();
    let (own_name, refused) = (env.get("SLURMD_NODENAME").map(str::to_owned), refused(env)?);
    Ok(Some(Allocation { own_name, refused, ..Allocation::new(SLURM, job, NODES, nodes) }))
}

fn numbers(env: Env, variable: &str, nodes: usize) -> Result<Option<Vec<u32>>, String> {
    let Some(value) = env.get(variable) else { return Ok(None) };
    read_counts(value, nodes).map(Some).map_err(|problem| wrong(variable, value, problem))
}

/// Whether the step covers all nodes with several tasks, so that its task counts are those of the allocation: `srun -n
/// 16 --pty bash`.
fn speaks_of_all(env: Env, tasks: &[u32]) -> bool {
    env.get("SLURM_STEP_NUM_NODES").and_then(|nodes| nodes.parse().ok()) == Some(tasks.len())
        && tasks.iter().any(|tasks| *tasks > 1)
}

/// Refuses a task that is one of several, unless it is the one with the terminal.
fn refused(env: Env) -> Result<Option<String>, String> {
    let tasks = env.number("SLURM_STEP_NUM_TASKS")?.unwrap_or(1);
    let alone = tasks <= 1 || env.get("SLURM_STEP_ID").is_none() || env.get("SLURM_PTY_PORT").is_some();
    Ok((!alone).then(|| one_of_many(tasks, SLURM, "from the batch script, or by srun -n 1")))
}

/// Reads Slurm's short form of a list of numbers, which must be `places`: `4(x2),2` is 4, 4, 2. The total is checked
/// before the list is expanded.
fn read_counts(text: &str, places: usize) -> Result<Vec<u32>, String> {
    let runs: Vec<(u32, usize)> = text.split(',').map(run).collect::<Result<_, _>>()?;
    let count = runs.iter().fold(0usize, |sum, (_, times)| sum.saturating_add(*times));
    if count != places {
        return Err(format!("it has entries for {count} nodes, but the job has {places} nodes"));
    }
    Ok(runs.into_iter().flat_map(|(number, times)| std::iter::repeat_n(number, times)).collect())
}

fn run(word: &str) -> Result<(u32, usize), String> {
    let wrong = || format!("{word} is not a number such as 4 or 4(x2)");
    let (number, times) = match word.split_once("(x") {
        None => (word, "1"),
        Some((number, rest)) => (number, rest.strip_suffix(')').ok_or_else(wrong)?),
    };
    // Slurm writes no sign; `parse` would accept a "+".
    if word.contains('+') {
        return Err(wrong());
    }
    match (number.parse(), times.parse()) {
        (Ok(number), Ok(times @ 1..)) => Ok((number, times)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The list as Slurm writes it.
    fn written(numbers: &[u32]) -> String {
        let runs = numbers.chunk_by(|left, right| left == right);
        let run = |run: &[u32]| if run.len() == 1 { run[0].to_string() } else { format!("{}(x{})", run[0], run.len()) };
        runs.map(run).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn repeated_counts_are_expanded() {
        assert_eq!(read_counts("4(x2),2", 3), Ok(vec![4, 4, 2]));
        assert_eq!(read_counts("16", 1), Ok(vec![16]));
        assert_eq!(written(&[4, 4, 2]), "4(x2),2");
    }

    #[test]
    fn malformed_and_huge_repetitions_are_refused() {
        for text in [
            "", "4,", "4(x0)", "4(x)", "4(2)", "4(x2", "x", "-1", "+4", "4(x+2)", "4294967296",
            "4(x99999999999999999999)",
        ] {
            assert!(read_counts(text, 1).is_err(), "{text}");
        }
        assert_eq!(
            read_counts("4(x4000000000),1", 2),
            Err("it has entries for 4000000001 nodes, but the job has 2 nodes".into())
        );
        assert_eq!(read_counts("4(x2)", 3), Err("it has entries for 2 nodes, but the job has 3 nodes".into()));
    }

    proptest! {
        #[test]
        fn counts_in_slurms_notation_round_trip(numbers in proptest::collection::vec(0u32..4, 1..40)) {
            prop_assert_eq!(read_counts(&written(&numbers), numbers.len()), Ok(numbers));
        }

        #[test]
        fn arbitrary_text_does_not_panic_the_reader(text in "[0-9(x),]{0,24}", places in 0usize..8) {
            if let Ok(numbers) = read_counts(&text, places) {
                prop_assert_eq!(numbers.len(), places);
            }
        }
    }
}
