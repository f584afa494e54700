//! The command line of `wireup run`, as typed.
//!
//! Flags end at the first word without a dash, the program; everything after it belongs to the program, up to a lone `:`, where the next
//! program's section begins.

use super::error::FlagError;
use super::interface;
use super::table as flag;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wireup_flags::{Error, Flag, Line, Value};
use wireup_wire::job::{
    BindTo, EarlyWireup, ExchangeScheme, Modex, PmiFence, PmiFlavour, PmiVersion, PortRange, RankPorts,
};
use wireup_wire::limits::{JOB_SIZE_MAX, PPN_MAX, VIRTUAL_NODES_MAX};
use wireup_wire::peer::AgentTransport;

/// The request on a command line of `wireup run`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    Help,
    Run(Box<Parsed>),
}

/// All flags of one command line; `None` or empty if not given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parsed {
    pub sections: Vec<Section>,
    pub virtual_nodes: Option<u32>,
    pub ppn: Option<u32>,
    pub map_by: Option<MapBy>,
    pub slots: Option<u32>,
    pub usize: Option<u32>,
    pub oversubscribe: bool,
    /// All values that were given, in order.
    pub hosts: Vec<String>,
    pub host_files: Vec<PathBuf>,
    pub start: Option<Start>,
    pub fanout: Option<u32>,
    pub remote_shell: Option<String>,
    pub interface: Option<String>,
    pub plain_links: bool,
    pub early_start: bool,
    pub start_timeout_ns: Option<u64>,
    pub node_timeout_ns: Option<u64>,
    /// Whether ranks get PID namespaces.
    pub contain: Option<Contain>,
    pub session: Option<String>,
    pub no_session: bool,
    pub detach: bool,
    pub env_files: Vec<PathBuf>,
    /// `NAME=VALUE`, in the order typed.
    pub genv: Vec<Vec<u8>>,
    pub rank_env: bool,
    pub pmi: Option<PmiFlavour>,
    pub modex: Option<Modex>,
    pub pmix_library: Option<PathBuf>,
    pub bind_to: Option<BindTo>,
    pub rank_ports: Option<RankPorts>,
    pub gpus_per_rank: Option<u32>,
    pub stdin: Option<Stdin>,
    pub label: bool,
    pub output_dir: Option<PathBuf>,
    pub line_buffered: bool,
    /// The rank that gets a terminal.
    pub pty: Option<u32>,
    pub timeout_ns: Option<u64>,
    pub kill_grace_ns: Option<u64>,
    pub stall_report_ns: Option<u64>,
    pub exchange: Option<ExchangeScheme>,
    pub early_wireup: Option<EarlyWireup>,
    pub transport: Option<AgentTransport>,
    pub exchange_compress: Option<u32>,
    pub pmi_fence: Option<PmiFence>,
    pub pmi_version: Option<PmiVersion>,
    pub profile: Option<PathBuf>,
    pub record: Option<String>,
    pub stage: Option<Stage>,
    pub dry_run: bool,
    pub display_map: bool,
    pub verbose: bool,
}

/// Files that travel to the nodes before ranks start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stage {
    /// Where nodes keep them.
    pub folder: Option<PathBuf>,
    pub required: bool,
    /// Paths and patterns, as typed.
    pub also: Vec<PathBuf>,
    pub room_mib: Option<u32>,
}

/// One program with its own flags: the words between two `:`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Section {
    pub ranks: Option<u32>,
    pub wdir: Option<PathBuf>,
    pub env: Vec<Variable>,
    /// Program and arguments; never empty after parsing.
    pub argv: Vec<OsString>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Variable {
    /// `NAME=VALUE`.
    Set(Vec<u8>),
    /// A name; its value is taken from the launcher's environment.
    Export(OsString),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapBy {
    Slot,
    Node,
    /// At most this many ranks per node.
    Ppr(u32),
}

/// Which agent starts which.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// Each agent starts its children in the tree.
    #[default]
    Tree,
    /// The launcher starts all of them.
    Flat,
    /// The launcher starts one agent per rank, one after the other.
    Serial,
}

/// Where ranks get a PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contain {
    /// Where that needs no user namespace.
    #[default]
    Auto,
    /// Also in a user namespace.
    User,
    None,
}

impl Contain {
    /// Whether a user namespace may be used; `None`: ranks get no PID namespace.
    pub fn by_user(self) -> Option<bool> {
        match self {
            Contain::Auto => Some(false),
            Contain::User => Some(true),
            Contain::None => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stdin {
    None,
    All,
    Rank(u32),
}

const BINDINGS: &[(&str, BindTo)] = &[
    ("even", BindTo::Even),
    ("none", BindTo::None),
    ("core", BindTo::Core),
    ("thread", BindTo::Thread),
    ("socket", BindTo::Socket),
];

const STARTS: &[(&str, Start)] = &[("ssh-tree", Start::Tree), ("ssh-flat", Start::Flat), ("serial-ssh", Start::Serial)];

const PMIS: &[(&str, Option<PmiFlavour>)] = &[
    ("auto", None),
    ("simple", Some(PmiFlavour::Simple)),
    ("pmix", Some(PmiFlavour::Pmix)),
    ("both", Some(PmiFlavour::Both)),
    ("none", Some(PmiFlavour::None)),
];

const MODEXES: &[(&str, Modex)] = &[("auto", Modex::Auto), ("full", Modex::Full), ("direct", Modex::Direct)];

const EARLY_WIREUPS: &[(&str, EarlyWireup)] =
    &[("auto", EarlyWireup::Auto), ("yes", EarlyWireup::Yes), ("no", EarlyWireup::No)];

const CONTAINMENTS: &[(&str, Contain)] = &[("auto", Contain::Auto), ("user", Contain::User), ("none", Contain::None)];
const PMI_FENCES: &[(&str, PmiFence)] = &[("strict", PmiFence::Strict), ("lazy", PmiFence::Lazy)];

const PMI_VERSIONS: &[(&str, PmiVersion)] = &[("1.1", PmiVersion::Plain), ("1.2", PmiVersion::Groups)];

/// Parses the words after `wireup run`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Wish, FlagError> {
    let mut words = args.into_iter().peekable();
    let (mut sections, mut whole) = (Vec::new(), Line::default());
    loop {
        let Some(line) = flag::RUN.parse_program(&mut words)? else { return Ok(Wish::Help) };
        let more = words.next().is_some();
        if line.words.is_empty() {
            return Err(match sections.len() {
                0 if !more => FlagError::NoProgram,
                before => FlagError::NoSectionProgram { section: before + 1 },
            });
        }
        if !sections.is_empty()
            && let Some(given) = line.given.iter().find(|given| given.is(flag::HOSTS) || given.is(flag::HOST_FILE))
        {
            return Err(FlagError::HostsOfOneProgram { flag: given.value.flag.clone() });
        }
        whole.given.extend_from_slice(&line.given);
        sections.push(Section::read(line)?);
        if !more {
            return Ok(Wish::Run(Box::new(Parsed { sections, ..Parsed::read(&whole)? })));
        }
    }
}

impl Parsed {
    /// The flags that apply to all programs; there may be none.
    pub fn read(line: &Line) -> Result<Parsed, Error> {
        Ok(Parsed {
            sections: Vec::new(),
            virtual_nodes: line.last(flag::VIRTUAL_NODES, |value| value.number_in(1, VIRTUAL_NODES_MAX))?,
            ppn: line.last(flag::PPN, |value| value.number_in(1, PPN_MAX))?,
            map_by: line.last(flag::MAP_BY, map_by)?,
            slots: line.last(flag::SLOTS, Value::at_least_one)?,
            usize: line.last(flag::USIZE, Value::at_least_one)?,
            oversubscribe: line.has(flag::OVERSUBSCRIBE),
            hosts: line.all(flag::HOSTS, Value::text)?,
            host_files: line.all(flag::HOST_FILE, Value::path)?,
            start: line.last(flag::START, |value| value.choice(STARTS))?,
            fanout: line.last(flag::FANOUT, Value::at_least_one)?,
            remote_shell: line.last(flag::REMOTE_SHELL, Value::text)?,
            interface: line.last(flag::INTERFACE, interface::checked)?,
            plain_links: line.has(flag::PLAIN_LINKS),
            early_start: line.has(flag::EARLY_START),
            start_timeout_ns: line.last(flag::START_TIMEOUT, Value::some_seconds_ns)?,
            node_timeout_ns: line.last(flag::NODE_TIMEOUT, Value::some_seconds_ns)?,
            contain: line.last(flag::CONTAIN, |value| value.choice(CONTAINMENTS))?,
            session: line.last(flag::SESSION, Value::text)?,
            no_session: line.has(flag::NO_SESSION),
            detach: line.has(flag::DETACH),
            env_files: line.all(flag::ENV_FILE, Value::path)?,
            genv: line.all(flag::GENV, Value::variable)?,
            rank_env: line.has(flag::RANK_ENV),
            pmi: line.last(flag::PMI, |value| value.choice(PMIS))?.flatten(),
            modex: line.last(flag::MODEX, |value| value.choice(MODEXES))?,
            pmix_library: line.last(flag::PMIX_LIBRARY, Value::path)?,
            bind_to: line.last(flag::BIND_TO, |value| value.choice(BINDINGS))?,
            rank_ports: rank_ports(line)?,
            gpus_per_rank: line.last(flag::GPUS_PER_RANK, Value::at_least_one)?,
            stdin: line.last(flag::STDIN, stdin)?,
            label: line.has(flag::LABEL),
            output_dir: line.last(flag::OUTPUT_DIR, Value::path)?,
            line_buffered: line.has(flag::LINE_BUFFERED),
            pty: line.last(flag::PTY, Value::number)?,
            timeout_ns: line.last(flag::TIMEOUT, Value::seconds_ns)?,
            kill_grace_ns: line.last(flag::KILL_GRACE, Value::seconds_ns)?,
            stall_report_ns: line.last(flag::STALL_REPORT, Value::seconds_ns)?,
            exchange: line
                .last(flag::EXCHANGE, |value| value.choice(&wireup_coll::allgather::schemes().collect::<Vec<_>>()))?,
            early_wireup: line.last(flag::EARLY_WIREUP, |value| value.choice(EARLY_WIREUPS))?,
            transport: line
                .last(flag::AGENT_TRANSPORT, |value| value.choice(&AgentTransport::named().collect::<Vec<_>>()))?,
            exchange_compress: line.last(flag::EXCHANGE_COMPRESS, Value::number)?,
            pmi_fence: line.last(flag::PMI_FENCE, |value| value.choice(PMI_FENCES))?,
            pmi_version: line.last(flag::PMI_VERSION, |value| value.choice(PMI_VERSIONS))?,
            profile: line.last(flag::PROFILE, trace_file)?,
            record: line.last(flag::RECORD, Value::text)?,
            stage: stage(line)?,
            dry_run: line.has(flag::DRY_RUN),
            display_map: line.has(flag::DISPLAY_MAP),
            verbose: line.has(flag::VERBOSE),
        })
    }

    pub fn names_hosts(&self) -> bool {
        !self.hosts.is_empty() || !self.host_files.is_empty()
    }

    /// The first given flag that says how agents are started and linked, which a standing session has already decided.
    pub fn decided_by_session(&self) -> Option<Flag> {
        let given = [
            (self.start.is_some(), flag::START),
            (self.fanout.is_some(), flag::FANOUT),
            (self.remote_shell.is_some(), flag::REMOTE_SHELL),
            (self.interface.is_some(), flag::INTERFACE),
            (self.plain_links, flag::PLAIN_LINKS),
            (self.early_start, flag::EARLY_START),
            (self.start_timeout_ns.is_some(), flag::START_TIMEOUT),
            (self.node_timeout_ns.is_some(), flag::NODE_TIMEOUT),
            (self.contain.is_some(), flag::CONTAIN),
            (self.transport.is_some(), flag::AGENT_TRANSPORT),
            (self.record.is_some(), flag::RECORD),
        ];
        given.into_iter().find_map(|(given, flag)| given.then_some(flag))
    }
}

impl Section {
    fn read(line: Line) -> Result<Section, Error> {
        let env = line.given.iter().filter_map(|given| match given {
            given if given.is(flag::ENV) => Some(given.value.variable().map(Variable::Set)),
            given if given.is(flag::EXPORT) => Some(export(&given.value)),
            _ => None,
        });
        Ok(Section {
            ranks: line.last(flag::RANKS, |value| value.number_in(1, JOB_SIZE_MAX))?,
            wdir: line.last(flag::WDIR, Value::path)?,
            env: env.collect::<Result<_, _>>()?,
            argv: line.words,
        })
    }
}

fn export(value: &Value) -> Result<Variable, Error> {
    if value.word.as_bytes().contains(&b'=') || value.word.is_empty() {
        return value.variable().map(Variable::Set);
    }
    Ok(Variable::Export(value.word.clone()))
}

fn map_by(value: &Value) -> Result<MapBy, Error> {
    if let Some(per_node) = value.word.to_str().and_then(|text| text.strip_prefix("ppr:")?.strip_suffix(":node")) {
        return value.part(per_node).at_least_one().map(MapBy::Ppr);
    }
    value.choice_or(&[("slot", MapBy::Slot), ("node", MapBy::Node)], "choose slot, node or ppr:N:node")
}

/// `None`: nothing is staged.
pub fn stage(line: &Line) -> Result<Option<Stage>, Error> {
    let mut stage = Stage {
        also: line.all(flag::STAGE_ALSO, Value::path)?,
        room_mib: line.last(flag::STAGE_ROOM, Value::at_least_one)?,
        ..Stage::default()
    };
    for value in line.all(flag::STAGE, |value| Ok(value.clone()))? {
        match value.word.as_bytes() {
            b"" => {}
            b"require" => stage.required = true,
            [b'/', ..] => stage.folder = Some(value.path()?),
            _ => return Err(value.refused("give an absolute folder, or require")),
        }
    }
    let is_wanted = line.has(flag::STAGE) || !stage.also.is_empty() || stage.room_mib.is_some();
    Ok(is_wanted.then_some(stage))
}

/// The trace cannot share standard output with the ranks.
fn trace_file(value: &Value) -> Result<PathBuf, Error> {
    match value.word.as_bytes() {
        b"-" => Err(value.refused("the trace goes to a file; name one (./- for a file of that name)")),
        _ => value.path(),
    }
}

/// The ports for the sockets of ranks. Chosen: below the kernel's own range for outgoing connections, above most services.
const RANK_PORTS: PortRange = PortRange { low: 10_240, high: 32_767 };

/// With both flags the sockets do not listen.
fn rank_ports(line: &Line) -> Result<Option<RankPorts>, Error> {
    let (range, reserve) = (line.last(flag::RANK_PORTS, ports)?, line.has(flag::RESERVE_PORTS));
    let is_wanted = range.is_some() || reserve || line.has(flag::INSTANT_ON);
    Ok(is_wanted.then_some(RankPorts { range: range.unwrap_or(RANK_PORTS), listen: !reserve }))
}

fn ports(value: &Value) -> Result<PortRange, Error> {
    let read = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let text = value.text()?;
    let ports = text.split_once('-').and_then(|(low, high)| Some(PortRange { low: read(low)?, high: read(high)? }));
    ports
        .filter(|ports| ports.low <= ports.high)
        .ok_or_else(|| value.refused("give two port numbers, such as 20000-20999"))
}

fn stdin(value: &Value) -> Result<Stdin, Error> {
    if value.word.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return value.number().map(Stdin::Rank);
    }
    value.choice_or(&[("all", Stdin::All), ("none", Stdin::None)], "give a rank, all or none")
}

#[cfg(test)]
mod tests;
