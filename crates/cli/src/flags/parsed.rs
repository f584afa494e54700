//! The command line of `wireup run`, as typed.
//!
//! Flags end at the first word without a dash, the program; everything after it belongs to the program, up to a lone
//! `:`, where the next program's section begins.

use super::error::FlagError;
use super::interface;
use super::mapping::{self, Bind, MapBy, MapProperties, RankBy};
pub use super::section::{EnvList, Section, Variable};
use super::table as flag;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wireup_flags::{Error, Flag, Line, Value};
use wireup_stage::gather::Rule;
use wireup_wire::job::{
    EarlyWireup, ExchangeScheme, Modex, PmiFence, PmiFlavour, PmiVersion, PortRange, RankPorts, RankStdout,
};
use wireup_wire::limits::{PPN_MAX, VALUE_LEN_MAX, VIRTUAL_NODES_MAX};
use wireup_wire::peer::AgentTransport;
use wireup_wire::session::SeatOrder;

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
    pub map: MapProperties,
    pub rank_by: Option<RankBy>,
    pub rankfile: Option<PathBuf>,
    /// What a rankfile says about the processors of each rank.
    pub rank_slots: Vec<String>,
    /// The order in which a session gives its nodes to a job that names none.
    pub place: Option<SeatOrder>,
    /// The node of each rank.
    pub rank_map: Option<Vec<u32>>,
    pub slots: Option<u32>,
    pub usize: Option<u32>,
    pub memory_alloc_kinds: Option<String>,
    pub oversubscribe: bool,
    pub no_oversubscribe: bool,
    pub no_local: bool,
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
    pub genv_list: Option<EnvList>,
    pub rank_env: bool,
    pub launcher_env: bool,
    pub pmi: Option<PmiFlavour>,
    pub modex: Option<Modex>,
    pub pmix_library: Option<PathBuf>,
    pub bind: Bind,
    /// In Linux's format.
    pub cpu_set: Option<String>,
    pub report_bindings: bool,
    pub rank_ports: Option<RankPorts>,
    pub gpus_per_rank: Option<u32>,
    pub stdin: Option<Stdin>,
    pub label: bool,
    pub label_pattern: Option<String>,
    pub timestamp: bool,
    pub merge_output: bool,
    pub output_dir: Option<PathBuf>,
    pub overwrite: bool,
    pub output_files: Option<String>,
    pub error_files: Option<String>,
    pub tee: bool,
    pub line_buffered: bool,
    /// The rank that gets a terminal.
    pub pty: Option<u32>,
    /// `None`: chosen by the PMI that the programs use.
    pub stdout: Option<RankStdout>,
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
    /// What is gathered when the job is over.
    pub stage_out: Vec<Rule>,
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
    /// Only if it is worth its time.
    pub auto: bool,
    /// Paths and patterns, as typed.
    pub also: Vec<PathBuf>,
    /// Where no mount may be made, a library in each process shows them.
    pub by_library: bool,
    pub room_mib: Option<u32>,
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

const STARTS: &[(&str, Start)] = &[("ssh-tree", Start::Tree), ("ssh-flat", Start::Flat), ("serial-ssh", Start::Serial)];

const PMIS: &[(&str, Option<PmiFlavour>)] = &[
    ("auto", None),
    ("simple", Some(PmiFlavour::Simple)),
    ("pmix", Some(PmiFlavour::Pmix)),
    ("both", Some(PmiFlavour::Both)),
    ("none", Some(PmiFlavour::None)),
];

const MODEXES: &[(&str, Modex)] = &[("auto", Modex::Auto), ("full", Modex::Full), ("direct", Modex::Direct)];

const STDOUTS: &[(&str, Option<RankStdout>)] =
    &[("auto", None), ("pipe", Some(RankStdout::Pipe)), ("pty", Some(RankStdout::Pty))];
const EARLY_WIREUPS: &[(&str, EarlyWireup)] =
    &[("auto", EarlyWireup::Auto), ("yes", EarlyWireup::Yes), ("no", EarlyWireup::No)];

const CONTAINMENTS: &[(&str, Contain)] = &[("auto", Contain::Auto), ("user", Contain::User), ("none", Contain::None)];
const PLACES: &[(&str, SeatOrder)] = &[("spread", SeatOrder::Spread), ("pack", SeatOrder::Pack)];
const PMI_FENCES: &[(&str, PmiFence)] = &[("strict", PmiFence::Strict), ("lazy", PmiFence::Lazy)];

const PMI_VERSIONS: &[(&str, PmiVersion)] = &[("1.1", PmiVersion::Plain), ("1.2", PmiVersion::Groups)];

/// Parses the words after `wireup run`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Wish, FlagError> {
    let all: Vec<OsString> = args.into_iter().collect();
    let mut words = all.iter().cloned().peekable();
    let mut lines = Vec::new();
    loop {
        let Some(line) = flag::RUN.parse_program(&mut words)? else { return Ok(Wish::Help) };
        lines.push(line);
        if words.next().is_none() {
            let parsed = Parsed::of_lines(lines).map_err(|error| error.with_words(&all))?;
            return Ok(Wish::Run(Box::new(parsed)));
        }
    }
}

impl Parsed {
    /// A line for each program.
    pub fn of_lines(lines: Vec<Line>) -> Result<Parsed, FlagError> {
        let alone = lines.len() == 1;
        let apart = lines.iter().skip(1).any(|line| line.has(flag::HOSTS));
        let (mut sections, mut whole) = (Vec::with_capacity(lines.len()), Line::default());
        for (index, line) in lines.into_iter().enumerate() {
            if line.words.is_empty() {
                let missing = FlagError::NoSectionProgram { section: index + 1 };
                return Err(if alone { FlagError::NoProgram { taken: String::new() } } else { missing });
            }
            if let Some(given) = line.given.iter().find(|given| given.is(flag::HOST_FILE)).filter(|_| index > 0) {
                return Err(FlagError::HostsOfOneProgram { flag: given.value.flag.clone() });
            }
            whole.given.extend_from_slice(&line.given);
            let hosts = if apart { line.all(flag::HOSTS, Value::text)? } else { Vec::new() };
            sections.push(Section { hosts, ..Section::read(line)? });
        }
        Ok(Parsed { sections, ..Parsed::read(&whole)? })
    }

    /// The flags that apply to all programs; there may be none.
    pub fn read(line: &Line) -> Result<Parsed, Error> {
        let map = line.last(flag::MAP_BY, mapping::map_by)?.unwrap_or_default();
        Ok(Parsed {
            sections: Vec::new(),
            virtual_nodes: line.last(flag::VIRTUAL_NODES, |value| value.number_in(1, VIRTUAL_NODES_MAX))?,
            ppn: line.last(flag::PPN, |value| value.number_in(1, PPN_MAX))?,
            map_by: map.by,
            map: map.properties,
            rank_by: line.last(flag::RANK_BY, mapping::rank_by)?,
            rankfile: line.last(flag::RANKFILE, Value::path)?,
            rank_slots: Vec::new(),
            place: line.last(flag::PLACE, |value| value.choice(PLACES))?,
            rank_map: line.last(flag::RANK_MAP, mapping::rank_map)?,
            slots: line.last(flag::SLOTS, Value::at_least_one)?,
            usize: line.last(flag::USIZE, Value::at_least_one)?,
            memory_alloc_kinds: line.last(flag::MEMORY_ALLOC_KINDS, memory_kinds)?,
            oversubscribe: line.has(flag::OVERSUBSCRIBE) || map.properties.oversubscribe,
            no_oversubscribe: line.has(flag::NO_OVERSUBSCRIBE) || map.properties.no_oversubscribe,
            no_local: line.has(flag::NO_LOCAL) || map.properties.no_local,
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
            genv_list: line.last(flag::GENV_LIST, EnvList::read)?,
            rank_env: line.has(flag::RANK_ENV),
            launcher_env: line.has(flag::LAUNCHER_ENV),
            pmi: line.last(flag::PMI, |value| value.choice(PMIS))?.flatten(),
            modex: line.last(flag::MODEX, |value| value.choice(MODEXES))?,
            pmix_library: line.last(flag::PMIX_LIBRARY, Value::path)?,
            bind: line.last(flag::BIND_TO, mapping::bind_to)?.unwrap_or_default(),
            cpu_set: line.last(flag::CPU_SET, mapping::cpu_set)?,
            report_bindings: line.has(flag::REPORT_BINDINGS),
            rank_ports: rank_ports(line)?,
            gpus_per_rank: line.last(flag::GPUS_PER_RANK, Value::at_least_one)?,
            stdin: line.last(flag::STDIN, stdin)?,
            label: line.has(flag::LABEL),
            label_pattern: line.last(flag::LABEL_PATTERN, pattern)?,
            timestamp: line.has(flag::TIMESTAMP),
            merge_output: line.has(flag::MERGE_OUTPUT),
            output_dir: line.last(flag::OUTPUT_DIR, Value::path)?,
            overwrite: line.has(flag::OVERWRITE),
            output_files: line.last(flag::OUTPUT_FILES, pattern)?,
            error_files: line.last(flag::ERROR_FILES, pattern)?,
            tee: line.has(flag::TEE),
            line_buffered: line.has(flag::LINE_BUFFERED),
            pty: line.last(flag::PTY, Value::number)?,
            stdout: line.last(flag::STDOUT, |value| value.choice(STDOUTS))?.flatten(),
            timeout_ns: line.last(flag::TIMEOUT, Value::seconds_ns)?.filter(|limit| *limit > 0),
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
            stage_out: line.all(flag::STAGE_OUT, stage_out)?,
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

/// A text in which letters behind `%` stand for something of the rank.
fn pattern(value: &Value) -> Result<String, Error> {
    let text = value.text()?;
    match wireup_node::launcher::Pattern::parse(&text) {
        Ok(_) => Ok(text),
        Err(problem) => Err(value.refused(problem)),
    }
}

/// The value has to fit into one of PMI.
fn memory_kinds(value: &Value) -> Result<String, Error> {
    let text = value.text()?;
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
    match !text.is_empty() && text.len() < VALUE_LEN_MAX && is_word(&text) {
        true => Ok(text),
        false => Err(value.refused("give kinds separated by commas, such as mpi:alloc_mem,system")),
    }
}

/// `None`: nothing is staged.
pub fn stage(line: &Line) -> Result<Option<Stage>, Error> {
    let mut stage = Stage {
        also: line.all(flag::STAGE_ALSO, Value::path)?,
        by_library: line.has(flag::STAGE_LIBRARY),
        room_mib: line.last(flag::STAGE_ROOM, Value::at_least_one)?,
        ..Stage::default()
    };
    for value in line.all(flag::STAGE, |value| Ok(value.clone()))? {
        match value.word.as_bytes() {
            b"" => {}
            b"require" => stage.required = true,
            b"auto" => stage.auto = true,
            [b'/', ..] => stage.folder = Some(value.path()?),
            _ => return Err(value.refused("give an absolute folder, require or auto")),
        }
    }
    let is_wanted = line.has(flag::STAGE) || !stage.also.is_empty() || stage.by_library || stage.room_mib.is_some();
    Ok(is_wanted.then_some(stage))
}

fn stage_out(value: &Value) -> Result<Rule, Error> {
    Rule::parse(value.word.as_bytes()).map_err(|error| value.refused(error.to_string()))
}

/// The trace cannot share standard output with the ranks.
fn trace_file(value: &Value) -> Result<PathBuf, Error> {
    match value.word.as_bytes() {
        b"-" => Err(value.refused("the trace goes to a file; name one (./- for a file of that name)")),
        _ => value.path(),
    }
}

/// The ports for the sockets of ranks. Chosen: below the kernel's own range for outgoing connections, above most
/// services.
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
