//! The values of flags: their types, and how each is read from a word.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wireup_flags::table::Slot;
use wireup_flags::{Error, Value};
use wireup_node::launcher::Pattern;
use wireup_stage::gather::Rule;
use wireup_wire::ids::Rank;
use wireup_wire::job::{PortRange, StdinTarget};
use wireup_wire::limits::VALUE_LEN_MAX;

/// Longest name of an interface on Linux.
const INTERFACE_LEN_MAX: usize = 15;

/// Files that travel to the nodes before ranks start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stage {
    /// The folder in which nodes keep staged files.
    pub folder: Option<PathBuf>,
    pub required: bool,
    /// Whether to stage only if that is estimated to be faster than reading the original files.
    pub auto: bool,
    /// Whether nodes read the original files into their page caches, and nothing is copied.
    pub prefetch: bool,
    /// Further files to stage: paths and patterns, as typed.
    pub also: Vec<PathBuf>,
    /// Whether nodes that cannot make mounts show the files by a library that is loaded into each process.
    pub by_library: bool,
    pub room_mib: Option<u32>,
}

/// One of the flags that make a [`Stage`].
pub enum StageWord {
    Plain,
    Required,
    Auto,
    Prefetch,
    Folder(PathBuf),
    Also(PathBuf),
    ByLibrary,
    RoomMib(u32),
}

/// Each of the flags implies that files are staged.
impl Slot<StageWord> for Option<Stage> {
    fn put(&mut self, word: StageWord) {
        let stage = self.get_or_insert_default();
        match word {
            StageWord::Plain => {}
            StageWord::Required => stage.required = true,
            StageWord::Auto => stage.auto = true,
            StageWord::Prefetch => stage.prefetch = true,
            StageWord::Folder(folder) => stage.folder = Some(folder),
            StageWord::Also(path) => stage.also.push(path),
            StageWord::ByLibrary => stage.by_library = true,
            StageWord::RoomMib(room) => stage.room_mib = Some(room),
        }
    }
}

pub fn stage(value: &Value) -> Result<StageWord, Error> {
    match value.word.as_bytes() {
        b"" => Ok(StageWord::Plain),
        b"require" => Ok(StageWord::Required),
        b"auto" => Ok(StageWord::Auto),
        b"prefetch" => Ok(StageWord::Prefetch),
        [b'/', ..] => value.path().map(StageWord::Folder),
        _ => Err(value.refused("give an absolute folder, require, auto or prefetch")),
    }
}

/// How agents are started on the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// Each agent starts its children in the tree.
    #[default]
    Tree,
    /// The launcher starts all agents.
    Flat,
    /// The launcher starts one agent per rank, one after the other.
    Serial,
}

impl Start {
    pub const NAMED: &[(&str, Start)] =
        &[("ssh-tree", Start::Tree), ("ssh-flat", Start::Flat), ("serial-ssh", Start::Serial)];
}

/// Where ranks get a PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contain {
    /// Ranks get a PID namespace where wireup may make one without a user namespace (CAP_SYS_ADMIN).
    #[default]
    Auto,
    /// Ranks also get a PID namespace where CAP_SYS_ADMIN is missing; it is then in a user namespace.
    User,
    None,
}

impl Contain {
    pub const NAMED: &[(&str, Contain)] = &[("auto", Contain::Auto), ("user", Contain::User), ("none", Contain::None)];

    /// Whether a user namespace may be used; `None`: ranks get no PID namespace.
    pub fn by_user(self) -> Option<bool> {
        match self {
            Contain::Auto => Some(false),
            Contain::User => Some(true),
            Contain::None => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Variable {
    /// A variable with its value: `NAME=VALUE`.
    Set(Vec<u8>),
    /// The name of a variable whose value is taken from the launcher's environment.
    Export(OsString),
}

/// Which variables ranks get from the launcher's environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EnvList {
    All,
    None,
    /// Only variables of these names; a name that ends with `*` stands for all that begin so.
    Only(Vec<String>),
}

impl EnvList {
    pub fn read(value: &Value) -> Result<EnvList, Error> {
        Ok(match value.text()?.as_str() {
            "all" => EnvList::All,
            "none" => EnvList::None,
            names => EnvList::Only(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()),
        })
    }

    pub fn has(&self, name: &[u8]) -> bool {
        match self {
            EnvList::All => true,
            EnvList::None => false,
            EnvList::Only(names) => names.iter().any(|listed| match listed.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning.as_bytes()),
                None => name == listed.as_bytes(),
            }),
        }
    }
}

pub fn variable(value: &Value) -> Result<Variable, Error> {
    if value.word.as_bytes().contains(&b'=') || value.word.is_empty() {
        return value.variable().map(Variable::Set);
    }
    Ok(Variable::Export(value.word.clone()))
}

/// A text in which `%` and a letter stand for a property of the rank, such as its number or its host.
pub fn pattern(value: &Value) -> Result<Pattern, Error> {
    Pattern::parse(&value.text()?).map_err(|problem| value.refused(problem))
}

/// The kinds of memory, as text; it must fit into a value of PMI.
pub fn memory_kinds(value: &Value) -> Result<String, Error> {
    let text = value.text()?;
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
    match !text.is_empty() && text.len() < VALUE_LEN_MAX && is_word(&text) {
        true => Ok(text),
        false => Err(value.refused("give kinds separated by commas, such as mpi:alloc_mem,system")),
    }
}

pub fn stage_out(value: &Value) -> Result<Rule, Error> {
    Rule::parse(value.word.as_bytes()).map_err(|problem| value.refused(problem))
}

/// The path of a result file; `-` is refused, because standard output already carries the output of the ranks.
pub fn result_file(value: &Value) -> Result<PathBuf, Error> {
    match value.word.as_bytes() {
        b"-" => Err(value.refused("cannot be written to standard output; give a file (./- for a file named -)")),
        _ => value.path(),
    }
}

/// A time limit in ns; `None`: the value is 0 seconds, which stands for no limit.
pub fn some_time(value: &Value) -> Result<Option<u64>, Error> {
    Ok(Some(value.seconds_ns()?).filter(|limit| *limit > 0))
}

pub fn port_range(value: &Value) -> Result<PortRange, Error> {
    let read = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let text = value.text()?;
    let ports = text.split_once('-').and_then(|(low, high)| Some(PortRange { low: read(low)?, high: read(high)? }));
    ports
        .filter(|ports| ports.low <= ports.high)
        .ok_or_else(|| value.refused("give two port numbers, such as 20000-20999"))
}

/// Names of modules, separated by commas; among them may be the words `auto` and `none`.
pub fn preload(value: &Value) -> Result<Option<Vec<String>>, Error> {
    let is_name = |name: &str| {
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
        !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit()) && name.chars().all(is_letter)
    };
    let modules: Vec<String> = value.text()?.split(',').map(str::to_owned).collect();
    match modules.iter().all(|module| module.split('.').all(is_name)) {
        true => Ok(Some(modules)),
        false => Err(value.refused("name modules as \"import\" does, separated by commas, such as numpy,scipy.linalg")),
    }
}

/// The rank or ranks that read standard input. Whether such a rank exists is not checked here.
pub fn stdin(value: &Value) -> Result<StdinTarget, Error> {
    if value.word.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return value.number().map(|rank| StdinTarget::One(Rank(rank)));
    }
    value.choice_or(&[("all", StdinTarget::All), ("none", StdinTarget::None)], "give a rank, all or none")
}

/// An interface, an address, or a network: the value as typed, without surrounding white space. It is checked only as
/// text, since the machines differ. Refuses whatever agents would refuse.
pub fn interface(value: &Value) -> Result<String, Error> {
    let text = value.text()?;
    let advice = "give an interface (eth0), an address of one, or a network (10.1.0.0/16)";
    match wrong_interface(text.trim()) {
        None => Ok(text.trim().to_owned()),
        Some(problem) => Err(value.refused(format!("{problem}; {advice}"))),
    }
}

fn wrong_interface(value: &str) -> Option<&'static str> {
    if let Some((address, bits)) = value.split_once('/') {
        let Ok(address) = address.parse::<IpAddr>() else {
            return Some("the address before \"/\" is missing or invalid");
        };
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let fits = bits.parse::<u8>().is_ok_and(|bits| bits <= bits_max);
        return (!fits).then_some("the network length after \"/\" is invalid");
    }
    // An address may be written in brackets, as in a list of hosts.
    let bare = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(value);
    if bare.parse::<IpAddr>().is_ok() {
        return None;
    }
    let like_address = value.contains(':') || value.split('.').all(|part| part.parse::<u32>().is_ok());
    let odd = |letter: char| letter.is_whitespace() || letter.is_control();
    match () {
        () if value.is_empty() => Some("is empty"),
        () if like_address => Some("not a valid address"),
        () if value.len() > INTERFACE_LEN_MAX || value.contains(odd) => Some("not a valid name of an interface"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(word: &str) -> Result<String, Error> {
        super::interface(&Value { flag: "--interface".into(), word: word.into() })
    }

    #[test]
    fn interface_names_addresses_and_networks_are_accepted() {
        for good in [
            "eth0", "ib0", "enp3s0f0", "eth0.100", "10.1.2.3", "fd00::1", "[fd00::1]", "10.1.0.0/16", "10.1.0.0/+8",
            "fd00::/64", "0.0.0.0/0",
        ] {
            assert_eq!(checked(good).as_deref(), Ok(good));
        }
        assert_eq!(checked(" 10.1.2.3 ").as_deref(), Ok("10.1.2.3"));
    }

    #[test]
    fn malformed_interfaces_are_refused() {
        let refused = |value: &str| checked(value).expect_err(value).to_string();
        assert_eq!(
            refused("10.1.0.0/33"),
            "--interface 10.1.0.0/33: the network length after \"/\" is invalid; give an interface (eth0), an address \
             of one, or a network (10.1.0.0/16)"
        );
        for bad in [
            "10.1/16", "10.1.0.0/", "10.1.0.0/256", "[fd00::]/64", "[fd00::1", "10.1.0", "10.1.0.300", "fd00::zz", "",
            " ", "a b", "0123456789abcdef",
        ] {
            refused(bad);
        }
    }
}
