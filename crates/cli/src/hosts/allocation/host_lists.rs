//! Batch systems that name each host with its slots, or once for each slot, in a file or a variable.
//!
//! ```text
//!   PBS, Torque   PBS_NODEFILE        a host for each rank that was asked for (`ncpus` or `mpiprocs`, `ppn`)
//!   LSF           LSB_DJOB_HOSTFILE   a host for each slot
//!                 LSB_MCPU_HOSTS      hosts, each with its slots
//!                 LSB_HOSTS           the same as the file
//!   Grid Engine   PE_HOSTFILE         each line has a host, its slots, its queue, its processors
//! ```

use super::{Allocation, Env, counted, no_hosts, one_name, wrong, wrong_file};
use crate::hosts::{Entry, read_file};
use std::path::Path;

const PBS_JOB: &str = "PBS_JOBID";
const PBS_FILE: &str = "PBS_NODEFILE";
const LSF_JOB: &str = "LSB_JOBID";
const LSF_FILE: &str = "LSB_DJOB_HOSTFILE";
const LSF_PAIRS: &str = "LSB_MCPU_HOSTS";
const LSF_HOSTS: &str = "LSB_HOSTS";
const GRID_FILE: &str = "PE_HOSTFILE";

/// Hosts with slots; a host may occur several times.
type Mentions = Result<Vec<(String, u32)>, String>;

pub fn pbs(env: Env) -> Result<Option<Allocation>, String> {
    let Some(job) = env.get(PBS_JOB) else { return Ok(None) };
    let file = env.path(PBS_FILE).ok_or_else(|| no_hosts("PBS", PBS_JOB, PBS_FILE))?;
    Ok(Some(Allocation::new("PBS", job, PBS_FILE, counted(in_file(PBS_FILE, &file)?))))
}

pub fn lsf(env: Env) -> Result<Option<Allocation>, String> {
    let Some(job) = env.get(LSF_JOB) else { return Ok(None) };
    let (told_by, mentions) = if let Some(file) = env.path(LSF_FILE).filter(|file| file.exists()) {
        (LSF_FILE, in_file(LSF_FILE, &file)?)
    } else if let Some(pairs) = env.get(LSF_PAIRS) {
        (LSF_PAIRS, in_pairs(pairs)?)
    } else if let Some(hosts) = env.get(LSF_HOSTS) {
        let words = hosts.split_whitespace().map(|word| Ok((one_name(LSF_HOSTS, hosts, word)?, 1)));
        (LSF_HOSTS, words.collect::<Result<_, String>>()?)
    } else {
        return Err(no_hosts("LSF", LSF_JOB, LSF_FILE));
    };
    with_slots("LSF", job, told_by, env.get(told_by).unwrap_or_default(), mentions)
}

pub fn grid_engine(env: Env) -> Result<Option<Allocation>, String> {
    let (Some(job), Some(file)) = (env.get("JOB_ID"), env.path(GRID_FILE)) else { return Ok(None) };
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(&file).map_err(|error| wrong_file(GRID_FILE, &format!("{shown}: {error}")))?;
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let pair = words.next().and_then(|host| Some((host, words.next()?.parse().ok()?)));
        match pair.map(|(host, slots)| (one_name(GRID_FILE, &shown, host), slots)) {
            Some((Ok(name), slots)) => Ok((name, slots)),
            _ => Err(wrong(GRID_FILE, &shown, format!("\"{line}\" does not begin with a host and its slots"))),
        }
    };
    let mentions: Mentions = text.lines().filter(|text| !text.trim().is_empty()).map(line).collect();
    with_slots("Grid Engine", job, GRID_FILE, &shown, mentions?)
}

/// The allocation of these hosts, of which at least one must have a slot.
fn with_slots(
    scheduler: &'static str,
    job: &str,
    told_by: &'static str,
    value: &str,
    mentions: Vec<(String, u32)>,
) -> Result<Option<Allocation>, String> {
    let nodes = counted(mentions);
    match nodes.is_empty() {
        true => Err(wrong(told_by, value, "no host has a slot")),
        false => Ok(Some(Allocation::new(scheduler, job, told_by, nodes))),
    }
}

/// The hosts in a file that names a host on each line, once for each of the host's slots.
fn in_file(variable: &str, file: &Path) -> Mentions {
    let entries = read_file(file).map_err(|problem| wrong_file(variable, &problem))?;
    Ok(entries.into_iter().map(|Entry { name, slots, .. }| (name, slots.unwrap_or(1))).collect())
}

/// Hosts, each followed by its number of slots: `hostA 4 hostB 2`.
fn in_pairs(text: &str) -> Mentions {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pair = |pair: &[&str]| match *pair {
        [host, slots] => match slots.parse() {
            Ok(slots) => Ok((one_name(LSF_PAIRS, text, host)?, slots)),
            Err(_) => Err(wrong(LSF_PAIRS, text, format!("{slots} is not a number of slots"))),
        },
        _ => Err(wrong(LSF_PAIRS, text, "the last host has no number of slots")),
    };
    words.chunks(2).map(pair).collect()
}
