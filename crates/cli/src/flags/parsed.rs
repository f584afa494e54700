//! The command line of `wireup run`, as typed.
//!
//! Flags end at the first word without a dash, the program; everything after it belongs to the program, up to a lone `:`, where the next
//! program's section begins. Long forms with a single dash (`-np`, `-wdir`, `-env`) are accepted because other launchers use them. For the
//! same reason words are split here and not by a getopt-like lexer, which would read `-np 4` as `-n p`.

use super::error::FlagError;
use super::interface;
use super::nearest;
use super::table::{self, Flag, Id};
use super::value_reader::ValueReader;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use wireup_wire::job::{BindTo, EarlyWireup, ExchangeScheme, Modex, PmiFence, PmiFlavour, PmiVersion};
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
    pub oversubscribe: bool,
    /// All values that were given, in order.
    pub hosts: Vec<String>,
    pub host_files: Vec<PathBuf>,
    pub start: Option<Start>,
    pub fanout: Option<u32>,
    pub remote_shell: Option<String>,
    pub interface: Option<String>,
    pub encrypt: bool,
    pub start_timeout_ns: Option<u64>,
    pub node_timeout_ns: Option<u64>,
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
    pub dry_run: bool,
    pub display_map: bool,
    pub verbose: bool,
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

/// Parses the words after `wireup run`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Wish, FlagError> {
    let mut words = args.into_iter().peekable();
    let mut parsed = Parsed::default();
    loop {
        let mut section = Section::default();
        let number = parsed.sections.len() + 1;
        while let Some(word) = words.next() {
            if word == ":" {
                return Err(FlagError::NoSectionProgram { section: number });
            }
            if word == "--" {
                section.argv.extend(words.next().filter(|word| word != ":"));
                break;
            }
            if !is_flag(&word) {
                section.argv.push(word);
                break;
            }
            let (flag, name, value) = look_up(&word)?;
            if flag.id == Id::Help {
                return Ok(Wish::Help);
            }
            let mut value_reader = ValueReader { flag, name, attached: value, words: &mut words };
            parsed.apply(&mut section, &mut value_reader)?;
            value_reader.refuse_rest()?;
        }
        if section.argv.is_empty() {
            return Err(if number == 1 {
                FlagError::NoProgram
            } else {
                FlagError::NoSectionProgram { section: number }
            });
        }
        let mut more = false;
        for word in words.by_ref() {
            if word == ":" {
                more = true;
                break;
            }
            section.argv.push(word);
        }
        parsed.sections.push(section);
        if !more {
            return Ok(Wish::Run(Box::new(parsed)));
        }
    }
}

impl Parsed {
    pub fn names_hosts(&self) -> bool {
        !self.hosts.is_empty() || !self.host_files.is_empty()
    }

    /// The first given flag that says how agents are started and linked, which a standing session has already decided.
    pub fn decided_by_session(&self) -> Option<Id> {
        let given = [
            (self.start.is_some(), Id::Start),
            (self.fanout.is_some(), Id::Fanout),
            (self.remote_shell.is_some(), Id::RemoteShell),
            (self.interface.is_some(), Id::Interface),
            (self.encrypt, Id::Encrypt),
            (self.start_timeout_ns.is_some(), Id::StartTimeout),
            (self.node_timeout_ns.is_some(), Id::NodeTimeout),
            (self.transport.is_some(), Id::AgentTransport),
            (self.record.is_some(), Id::Record),
        ];
        given.into_iter().find_map(|(given, id)| given.then_some(id))
    }

    pub(super) fn apply<W: Iterator<Item = OsString>>(
        &mut self,
        section: &mut Section,
        value_reader: &mut ValueReader<'_, W>,
    ) -> Result<(), FlagError> {
        match value_reader.flag.id {
            Id::Ranks => section.ranks = Some(value_reader.number(0)?),
            Id::Wdir => section.wdir = Some(value_reader.word()?.into()),
            Id::Env => section.env.push(Variable::Set(value_reader.variable()?)),
            Id::Export => section.env.push(value_reader.export()?),
            Id::Genv => self.genv.push(value_reader.variable()?),
            Id::VirtualNodes => self.virtual_nodes = Some(value_reader.number(1)?),
            Id::Ppn => self.ppn = Some(value_reader.number(1)?),
            Id::MapBy => self.map_by = Some(value_reader.map_by()?),
            Id::Slots => self.slots = Some(value_reader.number(1)?),
            Id::Oversubscribe => self.oversubscribe = true,
            Id::Hosts | Id::HostFile if !self.sections.is_empty() => {
                return Err(FlagError::HostsOfOneProgram { flag: value_reader.name.clone() });
            }
            Id::Hosts => self.hosts.push(value_reader.text()?),
            Id::HostFile => self.host_files.push(value_reader.word()?.into()),
            Id::Start => {
                self.start = Some(value_reader.choice(STARTS)?);
            }
            Id::Interface => {
                self.interface = Some(interface::checked(&value_reader.name.clone(), value_reader.text()?)?)
            }
            Id::Encrypt => self.encrypt = true,
            Id::StartTimeout => self.start_timeout_ns = Some(value_reader.some_seconds_ns()?),
            Id::Session => self.session = Some(value_reader.text()?),
            Id::NoSession => self.no_session = true,
            Id::Detach => self.detach = true,
            Id::NodeTimeout => self.node_timeout_ns = Some(value_reader.some_seconds_ns()?),
            Id::EnvFile => self.env_files.push(value_reader.word()?.into()),
            Id::Fanout => self.fanout = Some(value_reader.number(1)?),
            Id::RemoteShell => self.remote_shell = Some(value_reader.text()?),
            Id::RankEnv => self.rank_env = true,
            Id::Pmi => {
                let list = [
                    ("auto", None),
                    ("simple", Some(PmiFlavour::Simple)),
                    ("pmix", Some(PmiFlavour::Pmix)),
                    ("both", Some(PmiFlavour::Both)),
                    ("none", Some(PmiFlavour::None)),
                ];
                self.pmi = value_reader.choice(&list)?;
            }
            Id::Modex => {
                let list = [("auto", Modex::Auto), ("full", Modex::Full), ("direct", Modex::Direct)];
                self.modex = Some(value_reader.choice(&list)?);
            }
            Id::PmixLibrary => self.pmix_library = Some(value_reader.word()?.into()),
            Id::Exchange => {
                let list: Vec<_> = wireup_coll::allgather::schemes().collect();
                self.exchange = Some(value_reader.choice(&list)?);
            }
            Id::EarlyWireup => {
                let list = [("auto", EarlyWireup::Auto), ("yes", EarlyWireup::Yes), ("no", EarlyWireup::No)];
                self.early_wireup = Some(value_reader.choice(&list)?);
            }
            Id::AgentTransport => {
                let list: Vec<_> = AgentTransport::named().collect();
                self.transport = Some(value_reader.choice(&list)?);
            }
            Id::ExchangeCompress => self.exchange_compress = Some(value_reader.number(0)?),
            Id::PmiFence => {
                let list = [("strict", PmiFence::Strict), ("lazy", PmiFence::Lazy)];
                self.pmi_fence = Some(value_reader.choice(&list)?);
            }
            Id::PmiVersion => {
                let list = [("1.1", PmiVersion::Plain), ("1.2", PmiVersion::Groups)];
                self.pmi_version = Some(value_reader.choice(&list)?);
            }
            Id::BindTo => self.bind_to = Some(value_reader.choice(BINDINGS)?),
            Id::GpusPerRank => self.gpus_per_rank = Some(value_reader.number(1)?),
            Id::Stdin => self.stdin = Some(value_reader.stdin()?),
            Id::Label => self.label = true,
            Id::OutputDir => self.output_dir = Some(value_reader.word()?.into()),
            Id::LineBuffered => self.line_buffered = true,
            Id::Pty => self.pty = Some(value_reader.maybe_number()?.unwrap_or(0)),
            Id::Timeout => self.timeout_ns = Some(value_reader.seconds_ns()?),
            Id::KillGrace => self.kill_grace_ns = Some(value_reader.seconds_ns()?),
            Id::StallReport => self.stall_report_ns = Some(value_reader.seconds_ns()?),
            Id::Profile => self.profile = Some(value_reader.word()?.into()),
            Id::Record => self.record = Some(value_reader.text()?),
            Id::DryRun => self.dry_run = true,
            Id::DisplayMap => self.display_map = true,
            Id::Verbose => self.verbose = true,
            Id::Help | Id::Ignored => {}
        }
        Ok(())
    }
}

pub(super) fn is_flag(word: &OsStr) -> bool {
    word.as_bytes().first() == Some(&b'-') && word.len() > 1
}

/// The flag that a word names, the name as typed, and the attached value (`--np=4`, `-n4`).
pub(super) fn look_up(word: &OsStr) -> Result<(&'static Flag, String, Option<OsString>), FlagError> {
    let bytes = word.as_bytes();
    let dashes = if bytes.starts_with(b"--") { 2 } else { 1 };
    let (typed, attached) = match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    };
    let name = String::from_utf8_lossy(&typed[dashes..]);
    if let Some(flag) = table::find(&name) {
        return Ok((flag, String::from_utf8_lossy(typed).into_owned(), attached));
    }
    let digits = name.strip_prefix('n').filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    if let (1, None, Some(digits), Some(flag)) = (dashes, &attached, digits, table::find("n")) {
        return Ok((flag, "-n".to_owned(), Some(digits.into())));
    }
    let nearest = nearest(&name, table::known_names()).map(table::dashed);
    Err(FlagError::Unknown { flag: String::from_utf8_lossy(typed).into_owned(), nearest })
}

#[cfg(test)]
mod tests;
