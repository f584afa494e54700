//! Flux: the environment only shows that there is an instance; `flux` prints its resources as a resource set (Flux RFC
//! 20).
//!
//! ```text
//!   {"version": 1, "execution": {
//!      "R_lite":   [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}}, …],
//!      "nodelist": ["fluke[0-1]", …], …}}
//! ```
//!
//! "rank" in this text is the rank of a Flux broker, in node order. A node gets one of our ranks for each core.

use super::{Allocation, Env, Node, one_of_many};
use serde_json::Value;
use std::process::{Command, Stdio};

pub fn detect(env: Env) -> Result<Option<Allocation>, String> {
    if env.get("FLUX_URI").is_none() {
        return Ok(None);
    }
    // This process is either a task of a Flux job, or the script of a Flux instance that was started for a job.
    let (job, args, refused) = match (env.get("FLUX_TASK_RANK"), env.get("FLUX_JOB_ID"), env.get("FLUX_ENCLOSING_ID")) {
        (Some(_), Some(job), _) => (job, vec!["job", "info", job, "R"], refused(env)?),
        (_, _, Some(job)) | (_, Some(job), _) => (job, vec!["resource", "R"], None),
        _ => return Ok(None),
    };
    let command = format!("flux {}", args.join(" "));
    let problem =
        |problem: String| format!("cannot get the hosts from {command}: {problem}; name them with --hosts instead");
    let output =
        Command::new("flux").args(&args).stdin(Stdio::null()).output().map_err(|error| problem(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(problem(said.lines().next().unwrap_or("it failed without an error message").to_owned()));
    }
    let nodes = read(&output.stdout).map_err(problem)?;
    Ok(Some(Allocation { refused, ..Allocation::new("Flux", job, "flux resource R", nodes) }))
}

fn refused(env: Env) -> Result<Option<String>, String> {
    let tasks = env.number("FLUX_JOB_SIZE")?.unwrap_or(1);
    Ok((tasks > 1).then(|| one_of_many(tasks, "Flux", "from flux batch or flux alloc, or by flux run -n 1")))
}

/// Reads a resource set.
pub fn read(bytes: &[u8]) -> Result<Vec<Node>, String> {
    let set: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("its output is not a resource set: {error}"))?;
    let execution = &set["execution"];
    let lists = execution["nodelist"].as_array().ok_or("the resource set has no nodelist")?;
    let mut names = Vec::new();
    for list in lists {
        let list = list.as_str().ok_or("the nodelist is not a list of names")?;
        names.extend(wireup_node::hosts::expand(list).map_err(|problem| problem.to_string())?);
    }
    let parts = execution["R_lite"].as_array().ok_or("the resource set has no R_lite")?;
    let mut cores = Vec::new();
    for part in parts {
        let ranks = part["rank"].as_str().map(idset).ok_or("a part of R_lite has no rank")??;
        let of_each = part["children"]["core"].as_str().map(idset).transpose()?.map_or(1, |ids| ids.len());
        cores.extend(ranks.into_iter().map(|rank| (rank, of_each as u32)));
    }
    cores.sort_unstable();
    if cores.len() != names.len() || names.is_empty() {
        return Err(format!("the resource set has {} ranks on {} nodes", cores.len(), names.len()));
    }
    let node = |(name, (_, cores)): (String, (u32, u32))| Node { name, tasks: cores.max(1), cpus: cores.max(1) };
    Ok(names.into_iter().zip(cores).map(node).collect())
}

/// Most ids in one set. Chosen: more than any instance has.
const IDS_MAX: usize = 1 << 20;

/// The numbers in an idset of Flux, such as `0-3,7`.
fn idset(text: &str) -> Result<Vec<u32>, String> {
    let mut ids = Vec::new();
    for word in text.trim_matches(['[', ']']).split(',') {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text} is not a set of ids"));
        let (first, last) = (number(first)?, number(last)?);
        if last < first || (last - first) as usize >= IDS_MAX || ids.len() > IDS_MAX {
            return Err(format!("{word} is not a set of ids"));
        }
        ids.extend(first..=last);
    }
    Ok(ids)
}
