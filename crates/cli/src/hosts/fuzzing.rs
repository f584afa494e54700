//! What must hold for names of hosts, wherever they come from. The fuzz target `hosts` searches for violations.

use super::allocation::{Env, detect};
use super::{file, list};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use wireup_node::hosts::{HOSTS_MAX, HostProblem, Pattern, collapse, collapse_short, expand, words};

/// The first byte says where the rest stands: in `--hosts`, in a host file, or line by line in the variables of Slurm
/// or LSF.
pub fn hosts(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    match first % 4 {
        0 | 1 => std::str::from_utf8(bytes).iter().for_each(|text| names(text)),
        2 => {
            let Ok(entries) = file::parse("hosts", bytes) else { return };
            assert!(!entries.is_empty() && entries.len() as u64 <= HOSTS_MAX);
            let fits = |slots: Option<u32>, max: Option<u32>| slots.zip(max).is_none_or(|(slots, max)| slots <= max);
            assert!(entries.iter().all(|entry| is_name(&entry.name) && fits(entry.slots, entry.slots_max)));
        }
        _ => allocation(bytes),
    }
}

/// Checks that a list expands to as many names as `Pattern::count` counts, and its short form to the same names.
fn names(text: &str) {
    let mut count = 0_u64;
    for word in words(text) {
        match Pattern::parse(word) {
            Ok(pattern) => count = count.saturating_add(pattern.count()),
            Err(problem) => return assert!(expand(text).is_err() && !problem.to_string().is_empty()),
        }
    }
    let (expanded, entries) = (expand(text), list(text));
    assert_eq!(expanded.as_ref().map(Vec::len), entries.as_ref().map(Vec::len));
    let names = match expanded {
        Ok(names) => names,
        Err(problem) => return assert!(problem == HostProblem::TooMany && count > HOSTS_MAX),
    };
    assert!(names.len() as u64 == count && names.iter().all(|name| is_name(name)));
    let short = collapse(names.iter().map(String::as_str));
    assert_eq!(expand(&short), Ok(names.clone()), "{short}");
    assert!(!collapse_short(names.iter().map(String::as_str)).is_empty());
}

/// Whether a text is safe as a host name in the command line of a remote shell.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && !name.contains(char::is_whitespace)
        && !name.contains([';', '$', '`', ','])
}

/// Tests how allocations are read: each line of the input is the value of one variable.
fn allocation(bytes: &[u8]) {
    const SLURM: [&str; 9] = [
        "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK",
        "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURMD_NODENAME",
    ];
    const LSF: [&str; 2] = ["LSB_JOBID", "LSB_MCPU_HOSTS"];
    const LWS: [&str; 3] = ["LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS"];
    let values = bytes.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
    let variables: Vec<_> = SLURM
        .into_iter()
        .chain(LSF)
        .chain(LWS)
        .zip(values)
        .map(|(name, value)| (name.into(), value.to_owned()))
        .collect();
    if let Ok(Some(allocation)) = detect(Env(&variables)) {
        let has_room = allocation.nodes.iter().all(|node| node.tasks > 0 && is_name(&node.name));
        assert!(!allocation.nodes.is_empty() && allocation.nodes.len() as u64 <= HOSTS_MAX && has_room);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_corpus_file_passes_its_target() {
        crate::replay_corpus::replay(&[("hosts", super::hosts)]);
    }
}
