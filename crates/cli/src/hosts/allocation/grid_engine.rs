//! Grid Engine: each line of `PE_HOSTFILE` has a host, its slots, its queue, its processors.

use super::{Allocation, Env, counted, wrong, wrong_file};
use std::path::Path;

const FILE: &str = "PE_HOSTFILE";

pub fn detect(env: Env) -> Result<Option<Allocation>, String> {
    let (Some(job), Some(file)) = (env.get("JOB_ID"), env.path(FILE)) else { return Ok(None) };
    let nodes = counted(read(&file)?);
    if nodes.is_empty() {
        return Err(wrong(FILE, &file.display().to_string(), "no host has a slot"));
    }
    Ok(Some(Allocation::new("Grid Engine", job, FILE, nodes)))
}

fn read(file: &Path) -> Result<Vec<(String, u32)>, String> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| wrong_file(FILE, &format!("{shown}: {error}")))?;
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let pair = words.next().and_then(|host| Some((host, words.next()?.parse().ok()?)));
        match pair.map(|(host, slots)| (super::names(FILE, host), slots)) {
            Some((Ok(mut names), slots)) if names.len() == 1 => Ok((names.remove(0), slots)),
            _ => Err(wrong(FILE, &shown, format!("\"{line}\" does not begin with a host and its slots"))),
        }
    };
    text.lines().filter(|text| !text.trim().is_empty()).map(line).collect()
}
