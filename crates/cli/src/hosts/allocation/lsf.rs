//! LSF: `LSB_DJOB_HOSTFILE` names one host per slot, `LSB_MCPU_HOSTS` hosts with their slots, `LSB_HOSTS` the same as
//! the file.

use super::{Allocation, Env, counted, no_hosts, one_name, pbs, wrong};

const JOB: &str = "LSB_JOBID";
const FILE: &str = "LSB_DJOB_HOSTFILE";
const PAIRS: &str = "LSB_MCPU_HOSTS";
const HOSTS: &str = "LSB_HOSTS";

pub fn detect(env: Env) -> Result<Option<Allocation>, String> {
    let Some(job) = env.get(JOB) else { return Ok(None) };
    let (told_by, mentions) = if let Some(file) = env.path(FILE).filter(|file| file.exists()) {
        (FILE, pbs::mentions(FILE, &file)?)
    } else if let Some(pairs) = env.get(PAIRS) {
        (PAIRS, read_pairs(pairs)?)
    } else if let Some(hosts) = env.get(HOSTS) {
        let words = hosts.split_whitespace().map(|word| Ok((one_name(HOSTS, hosts, word)?, 1)));
        (HOSTS, words.collect::<Result<_, String>>()?)
    } else {
        return Err(no_hosts("LSF", JOB, FILE));
    };
    let nodes = counted(mentions);
    if nodes.is_empty() {
        return Err(wrong(told_by, env.get(told_by).unwrap_or_default(), "no host has a slot"));
    }
    Ok(Some(Allocation::new("LSF", job, told_by, nodes)))
}

/// Reads hosts, each followed by its number of slots: `hostA 4 hostB 2`.
fn read_pairs(text: &str) -> Result<Vec<(String, u32)>, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pair = |pair: &[&str]| match *pair {
        [host, slots] => match slots.parse() {
            Ok(slots) => Ok((one_name(PAIRS, text, host)?, slots)),
            Err(_) => Err(wrong(PAIRS, text, format!("{slots} is not a number of slots"))),
        },
        _ => Err(wrong(PAIRS, text, "the last host has no number of slots")),
    };
    words.chunks(2).map(pair).collect()
}
