//! Mentions of hosts, as `--hosts` and host files contain them.

use wireup_node::hosts::{HOSTS_MAX, HostProblem, Pattern, words};

/// One mention of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name that is passed to the remote shell; it may begin with `user@`.
    pub name: String,
    pub slots: Option<u32>,
    pub slots_max: Option<u32>,
}

/// Reads a list of hosts such as `n0,n1:8,n[2-5]`.
pub fn list(text: &str) -> Result<Vec<Entry>, HostProblem> {
    let mut entries = Vec::new();
    for word in words(text) {
        let pattern = Pattern::parse(word)?;
        expand(&mut entries, &pattern, pattern.slots, None)?;
    }
    Ok(entries)
}

/// The hosts of `--hosts`, which may be repeated.
pub fn list_of_flags(flags: &[String]) -> Result<Vec<Entry>, String> {
    list(&flags.join(",")).map_err(|problem| format!("--hosts {problem}"))
}

/// Adds all hosts of a pattern.
pub fn expand(
    entries: &mut Vec<Entry>,
    pattern: &Pattern,
    slots: Option<u32>,
    slots_max: Option<u32>,
) -> Result<(), HostProblem> {
    if (entries.len() as u64).saturating_add(pattern.count()) > HOSTS_MAX {
        return Err(HostProblem::TooMany);
    }
    entries.extend(pattern.names().into_iter().map(|name| Entry { name, slots, slots_max }));
    Ok(())
}
