//! The programs that a rank asks to start, the limits that any such request must keep, and what its info keys mean.

use crate::limits::{JOB_SIZE_MAX, KEY_LEN_MAX, SPAWN_COMMANDS_MAX, VALUE_LEN_MAX};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A request to start these programs as one new job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpawnRequest {
    pub commands: Vec<SpawnCommand>,
    /// Pairs to put into the new job's kvs before its first rank runs.
    pub preput: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One program of a spawn.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpawnCommand {
    pub program: Vec<u8>,
    /// Arguments, without the program's name.
    pub args: Vec<Vec<u8>>,
    pub ranks: u32,
    pub info: Vec<(Vec<u8>, Vec<u8>)>,
    /// Additional variables, `NAME=VALUE`; only PMIx requests have them, since PMI has no fields for them.
    pub env: Vec<Vec<u8>>,
}

/// A request that nobody can fulfil.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    #[error("it starts no program, or more than {SPAWN_COMMANDS_MAX}")]
    Commands,
    #[error("a program has no ranks, or there are more than {JOB_SIZE_MAX} ranks")]
    Ranks,
    #[error("a pair for the new job has no key, or is longer than pairs may be")]
    Preput,
}

impl SpawnRequest {
    /// Number of ranks of all programs.
    pub fn job_size(&self) -> u32 {
        self.commands.iter().fold(0, |sum, command| sum.saturating_add(command.ranks))
    }

    /// Total length of all texts of the request (bytes).
    pub fn len(&self) -> usize {
        let pairs =
            |pairs: &[(Vec<u8>, Vec<u8>)]| pairs.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let of_command = |command: &SpawnCommand| {
            let words = command.args.iter().chain(&command.env).map(Vec::len);
            command.program.len() + words.sum::<usize>() + pairs(&command.info)
        };
        self.commands.iter().map(of_command).sum::<usize>() + pairs(&self.preput)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks what does not depend on the nodes.
    ///
    /// # Errors
    /// Why the request cannot be fulfilled on any nodes.
    pub fn check(&self) -> Result<(), Unfit> {
        if self.commands.is_empty() || self.commands.len() > SPAWN_COMMANDS_MAX {
            return Err(Unfit::Commands);
        }
        if self.commands.iter().any(|command| command.ranks == 0) || self.job_size() > JOB_SIZE_MAX {
            return Err(Unfit::Ranks);
        }
        let fits = |key: &[u8], value: &[u8]| {
            // In the form of PMI-2, with each `;` doubled, a text may be twice as long.
            !key.is_empty() && key.len() <= 2 * KEY_LEN_MAX && value.len() <= 2 * VALUE_LEN_MAX
        };
        match self.preput.iter().all(|(key, value)| fits(key, value)) {
            true => Ok(()),
            false => Err(Unfit::Preput),
        }
    }
}

/// The host names in each file of hosts, by the file's path; or why the file cannot be read.
pub type HostFiles = BTreeMap<Vec<u8>, Result<Vec<String>, String>>;

/// How ranks are laid out on the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SpawnLayout {
    /// Ranks fill free slots first, node by node.
    #[default]
    Slots,
    /// Each node gets the same number of ranks.
    Nodes,
    /// Each node gets this many ranks, node by node.
    PerNode(u32),
}

/// A host that a request adds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddedHost {
    pub name: String,
    pub slots: Option<u32>,
}

/// The info keys of one program: where and how it is to run. Keys of MPI, MPICH and Open MPI; others are ignored, as
/// MPI demands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpawnInfo {
    /// The hosts on which the program may run; `None`: any node of the run.
    pub hosts: Option<Vec<String>>,
    /// The hosts among `hosts` that are added to the run if it does not have them.
    pub added: Vec<AddedHost>,
    /// Paths of files that name more hosts, and whether the hosts in each file are added to the run.
    pub host_files: Vec<(Vec<u8>, bool)>,
    /// The working directory; a relative path starts at the working directory of the rank that asks.
    pub cwd: Option<Vec<u8>>,
    /// Folder in which the program is looked for before the usual places.
    pub path: Option<Vec<u8>>,
    pub layout: SpawnLayout,
    /// Numbers of ranks that the requester accepts if not all can be started.
    pub soft: Option<Vec<Triplet>>,
    /// Additional environment variables, `NAME=VALUE`.
    pub env: Vec<Vec<u8>>,
}

/// The numbers `first`, `first + step`, … up to `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Triplet {
    first: u32,
    last: u32,
    step: u32,
}

/// Keys that say how processes must run, and that wireup does not support. (Keys that only give advice are ignored.)
const NOT_OFFERED: [&str; 9] = [
    "PMIX_PREFIX", "PMIX_PRELOAD_BIN", "PMIX_PRELOAD_FILES", "PMIX_UNSET_ENVAR", "PMIX_PREPEND_ENVAR",
    "PMIX_APPEND_ENVAR", "PMIX_FIRST_ENVAR", "PMIX_JOB_TIMEOUT", "PMIX_SPAWN_TOOL",
];

impl SpawnInfo {
    /// # Errors
    /// A message about a key or value that cannot be used.
    pub fn parse(command: &SpawnCommand) -> Result<SpawnInfo, String> {
        let mut info = SpawnInfo::default();
        for (key, value) in &command.info {
            let key = String::from_utf8_lossy(key);
            let text = String::from_utf8_lossy(value);
            let bad = || format!("the value of the info key {key} cannot be used: {text}");
            match &*key {
                "host" | "hosts" => info.name_hosts(names(&text), false),
                "add-host" | "add-hosts" => info.name_hosts(names(&text), true),
                "hostfile" | "add-hostfile" => info.host_files.push((value.clone(), key == "add-hostfile")),
                "wdir" | "wd" if !value.is_empty() => info.cwd = Some(value.clone()),
                "path" if !value.is_empty() => info.path = Some(value.clone()),
                "ppn" | "ppr" | "npernode" => info.layout = SpawnLayout::PerNode(per_node(&text).ok_or_else(bad)?),
                "map_by" | "map-by" | "mapper" => info.layout = layout(&text).ok_or_else(bad)?,
                "soft" => info.soft = Some(triplets(&text).ok_or_else(bad)?),
                "env" => info.env.extend(variables(value)),
                "PMIX_REQUIRED" => return Err(not_offered(&text)),
                key if NOT_OFFERED.contains(&key) => return Err(not_offered(key)),
                _ => {}
            }
        }
        Ok(info)
    }

    /// Paths of the host files. `cwd`: the working directory of the rank that asks.
    pub fn host_files(&self, cwd: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        self.host_files.iter().map(|(path, _)| absolute(path, cwd))
    }

    /// Adds the hosts of the files that were read.
    ///
    /// # Errors
    /// The path of a file that could not be read, and why.
    pub fn name_hosts_of_files(&mut self, files: &HostFiles, cwd: &[u8]) -> Result<(), String> {
        for (path, is_added) in core::mem::take(&mut self.host_files) {
            let path = absolute(&path, cwd);
            let found = files.get(&path).cloned().unwrap_or_else(|| Err("it was not read".to_owned()));
            let found = found.map_err(|problem| {
                let path = String::from_utf8_lossy(&path);
                format!("the file of hosts {path} cannot be read where the launcher runs: {problem}")
            })?;
            self.name_hosts(found.iter().flat_map(|name| names(name)), is_added);
        }
        Ok(())
    }

    fn name_hosts(&mut self, named: impl Iterator<Item = AddedHost>, is_added: bool) {
        let hosts = self.hosts.get_or_insert_default();
        for host in named {
            hosts.push(host.name.clone());
            self.added.extend(is_added.then_some(host));
        }
    }

    /// The number of ranks to start for a program that requests `most`: the largest number that `soft` accepts.
    pub fn ranks(&self, most: u32) -> u32 {
        let Some(soft) = &self.soft else { return most };
        let of_triplet = |Triplet { first, last, step }: &Triplet| {
            let last = (*last).min(most);
            (*first <= last).then(|| last - (last - first) % step)
        };
        soft.iter().filter_map(of_triplet).filter(|ranks| *ranks > 0).max().unwrap_or(most)
    }
}

fn not_offered(key: &str) -> String {
    format!("the info key {key} is not offered; run without it")
}

fn absolute(path: &[u8], cwd: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") { path.to_owned() } else { [cwd, b"/", path].concat() }
}

/// Host names, each of which may be followed by a colon and a number of slots.
fn names(text: &str) -> impl Iterator<Item = AddedHost> {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    words.map(|word| {
        let (name, slots) = word.rsplit_once(':').unwrap_or((word, ""));
        AddedHost { name: name.to_owned(), slots: slots.parse().ok() }
    })
}

/// Ranks per node, from `4`, `ppr:4:node` or `4:node`; or from `4:n`, into which Open MPI 4 turns `npernode`.
fn per_node(text: &str) -> Option<u32> {
    let text = text.to_ascii_lowercase();
    let number = text.strip_prefix("ppr:").unwrap_or(&text);
    let number = number.strip_suffix(":node").or_else(|| number.strip_suffix(":n")).unwrap_or(number);
    number.parse().ok().filter(|ranks| *ranks > 0)
}

fn layout(text: &str) -> Option<SpawnLayout> {
    let text = text.to_ascii_lowercase();
    // wireup always accepts more ranks than slots, so that this suffix changes nothing.
    let text = text.strip_suffix(":oversubscribe").unwrap_or(&text);
    match text {
        "node" => Some(SpawnLayout::Nodes),
        // wireup places ranks by node only, so smaller units have the same effect as slots.
        "slot" | "core" | "hwthread" | "numa" | "socket" | "package" | "l3cache" => Some(SpawnLayout::Slots),
        ppr if ppr.starts_with("ppr:") => per_node(ppr).map(SpawnLayout::PerNode),
        _ => None,
    }
}

/// Reads triplets of the forms `2`, `2:8` and `2:8:2`, separated by commas.
fn triplets(text: &str) -> Option<Vec<Triplet>> {
    let triplet = |word: &str| {
        let numbers: Vec<u32> = word.split(':').map(|number| number.trim().parse().ok()).collect::<Option<_>>()?;
        match numbers[..] {
            [only] => Some(Triplet { first: only, last: only, step: 1 }),
            [first, last] => Some(Triplet { first, last, step: 1 }),
            [first, last, step] if step > 0 => Some(Triplet { first, last, step }),
            _ => None,
        }
    };
    text.split(',').map(triplet).collect()
}

/// The lines of the form `NAME=VALUE`; other lines are ignored.
fn variables(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let lines = value.split(|byte| *byte == b'\n');
    lines.filter(|line| line.iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0)).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn info(pairs: &[(&str, &str)]) -> Result<SpawnInfo, String> {
        let info = pairs.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        SpawnInfo::parse(&SpawnCommand { info, ..SpawnCommand::default() })
    }

    #[test]
    fn keys_say_where_and_how_a_program_runs() {
        let read = info(&[("host", "n1,n2:4"), ("wdir", "sub"), ("path", "/p"), ("map_by", "ppr:2:node"), ("x", "y")]);
        let expected = SpawnInfo {
            hosts: Some(vec!["n1".into(), "n2".into()]),
            cwd: Some(b"sub".to_vec()),
            path: Some(b"/p".to_vec()),
            layout: SpawnLayout::PerNode(2),
            ..SpawnInfo::default()
        };
        assert_eq!(read, Ok(expected));
        assert_eq!(info(&[("map_by", "node")]).map(|info| info.layout), Ok(SpawnLayout::Nodes));
        for (key, value) in
            [("map_by", "PPR:2:NODE"), ("ppr", "2:n"), ("npernode", "2"), ("map_by", "ppr:2:node:oversubscribe")]
        {
            assert_eq!(info(&[(key, value)]).map(|info| info.layout), Ok(SpawnLayout::PerNode(2)), "{key} {value}");
        }
        assert_eq!(
            info(&[("env", "A=1\nB\n=C\nD=2")]).map(|info| info.env),
            Ok(vec![b"A=1".to_vec(), b"D=2".to_vec()])
        );
    }

    #[test]
    fn values_that_cannot_be_used_are_named() {
        let refused = info(&[("PMIX_PREFIX", "")]).expect_err("it would change what runs");
        assert_eq!(refused, "the info key PMIX_PREFIX is not offered; run without it");
        let refused = info(&[("map_by", "moon")]).expect_err("no such place");
        assert_eq!(refused, "the value of the info key map_by cannot be used: moon");
        for (key, value) in [("ppr", "0"), ("ppr", "x"), ("soft", "1:2:0"), ("soft", ""), ("soft", "1:2:3:4")] {
            assert!(info(&[(key, value)]).is_err(), "{key} {value}");
        }
    }

    #[test]
    fn the_largest_number_of_ranks_that_will_do_is_used() {
        let ranks = |soft, most| info(&[("soft", soft)]).expect(soft).ranks(most);
        assert_eq!([ranks("1:8:3", 8), ranks("1:8:3", 6), ranks("2,4", 3), ranks("9", 4)], [7, 4, 2, 4]);
        assert_eq!(SpawnInfo::default().ranks(5), 5);
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic(key in "host|ppr|map_by|soft|env|path", value in ".{0,40}", most in 1u32..100) {
            if let Ok(info) = info(&[(&key, &value)]) {
                prop_assert!((1..=most).contains(&info.ranks(most)));
            }
        }
    }
}
