//! Slurm: everything is in the environment of `sbatch`, of `salloc` and of each step.
//!
//! `SLURM_TASKS_PER_NODE` describes the allocation, except in a process of a step, where `srun` has overwritten it with
//! the step's. There the number of ranks follows from the allocation's cpus, `SLURM_CPUS_PER_TASK` of them for a rank.

use super::{Allocation, Env, Node, SLURM, names, one_of_many, repeated, wrong};

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
    repeated::read(value, nodes).map(Some).map_err(|problem| wrong(variable, value, problem))
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
