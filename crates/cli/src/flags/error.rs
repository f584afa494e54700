//! Everything that can be wrong with a command line, each reported on one line with the next step.

use crate::env_file::EnvFileError;
use crate::hosts::HostsError;
use std::borrow::Cow;
use thiserror::Error;
use wireup_coll::MappingError;
use wireup_wire::limits::{JOB_SIZE_MAX, PPN_MAX};

#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum FlagError {
    #[error("{flag} {value}: write A,B:BYTESxTIMES,.. or all:BYTESxTIMES,..")]
    AgentBench { flag: String, value: String },
    #[error("unknown flag {flag}; {}", suggestion(nearest, "wireup help run lists the flags"))]
    Unknown { flag: String, nearest: Option<String> },
    #[error("{flag} needs {wants} behind it")]
    MissingValue { flag: String, wants: &'static str },
    #[error("{flag} takes no value, remove \"={value}\"")]
    UnexpectedValue { flag: String, value: String },
    #[error("{flag} {value}: give a whole number from {min} to {max}")]
    NotANumber { flag: String, value: String, min: u32, max: u32 },
    #[error("{flag} {value}: give seconds from 0 to {max}, such as 30 or 0.5")]
    NotSeconds { flag: String, value: String, max: u32 },
    #[error("{flag} 0 would give up at once; give more seconds")]
    ZeroSeconds { flag: String },
    #[error("{flag} {value}: {}", suggestion(nearest, choices))]
    NotAChoice { flag: String, value: String, choices: Cow<'static, str>, nearest: Option<String> },
    #[error("{flag} {value}: write NAME=VALUE, with a name that is not empty")]
    NotAVariable { flag: String, value: String },
    #[error("{flag} {value}: not valid UTF-8; use a name in UTF-8")]
    NotUtf8 { flag: String, value: String },
    #[error("{word} says nothing to wireup {command}; it takes {takes}")]
    NotOfCommand { word: String, command: &'static str, takes: String },
    #[error("wireup {command} needs a {word}; wireup help {command} says more")]
    MissingWord { command: &'static str, word: &'static str },
    #[error("--session and --no-session contradict each other; leave one of them out")]
    SessionTwice,
    #[error("{flag} is decided where a session is begun; give it to wireup up, or run with --no-session")]
    DecidedBySession { flag: String },
    #[error("--detach needs a session that the job can go on in; begin one with wireup up, or name one with --session")]
    DetachWithoutSession,
    #[error("--detach leaves nobody who could serve {flag}; leave one of them out")]
    Detached { flag: &'static str },
    #[error("--pmix-library {path}: not there; name the file of a libpmix, such as /opt/openmpi/lib/libpmix.so.2")]
    PmixLibrary { path: String },
    #[error("--remote-shell {program} reaches the nodes of {allocation}, or leave the flag out")]
    StepOutside { program: &'static str, allocation: &'static str },
    #[error("--remote-shell {program} starts all agents in one step; leave --start out")]
    StepStarts { program: &'static str },
    #[error("no program to run; try: wireup run -n 4 ./app")]
    NoProgram,
    #[error("program {section} of the command line is missing: write it before or behind the \":\"")]
    NoSectionProgram { section: usize },
    #[error("program {section} ({program}) has no -n: with \":\" every program needs its number of ranks")]
    NoSectionRanks { section: usize, program: String },

    #[error("-n 0 starts nothing; ask for at least 1 rank")]
    ZeroRanks,
    #[error("{ranks} ranks are more than a job can have ({JOB_SIZE_MAX}); lower -n")]
    TooManyRanks { ranks: u64 },
    #[error("node {node} would get {ranks} ranks, at most {PPN_MAX} fit on one node; lower -n or use more nodes")]
    NodeTooFull { node: u32, ranks: u64 },
    #[error("the ranks cannot be placed: {0}; choose another --map-by")]
    Placement(MappingError),
    #[error(
        "{ranks} ranks do not fit into {nodes} x {slots} slots; lower -n, raise --slots, use more nodes, or leave \
         --slots out (or add --oversubscribe) to let ranks share cpus"
    )]
    SlotsExceeded { ranks: u32, nodes: u32, slots: u32 },
    #[error(
        "{ranks} ranks do not fit with --map-by ppr:{per_node}:node on {nodes} node(s); lower -n or raise the number"
    )]
    PprExceeded { ranks: u32, nodes: u32, per_node: u32 },
    #[error(
        "{ranks} ranks do not fit into the {slots} slots of {hosts} host(s); lower -n, state more slots, name more hosts, \
         or add --oversubscribe to run more ranks than slots"
    )]
    HostSlotsExceeded { ranks: u32, slots: u64, hosts: u32 },
    #[error(
        "host {host} would get {ranks} ranks and has {slots} slots; lower --ppn, state more slots, or add --oversubscribe"
    )]
    HostTooFull { host: String, ranks: u32, slots: u32 },
    #[error("host {host} would get {ranks} ranks, its max_slots is {max}; lower -n, or raise max_slots")]
    HostMaxSlots { host: String, ranks: u32, max: u32 },
    #[error("--ppn {ppn} contradicts --map-by ppr:{ppr}:node; leave one of them out")]
    PpnContradicts { ppn: u32, ppr: u32 },
    #[error("{flag} {rank}: the job has ranks 0 to {last}; name one of them")]
    NoSuchRank { flag: &'static str, rank: u32, last: u32 },
    #[error("--remote-shell is empty; give a command such as ssh, or leave it out")]
    EmptyRemoteShell,
    #[error(transparent)]
    Hosts(#[from] HostsError),
    #[error(transparent)]
    EnvFile(#[from] EnvFileError),
    #[error("--hosts and --hostfile both say where to run; leave one of them out")]
    HostsTwice,
    #[error("{flag} belongs to the whole job and stands before the first program; its ranks are placed in order")]
    HostsOfOneProgram { flag: String },
    #[error("--virtual-nodes are nodes on this machine, --hosts are others; leave one of them out")]
    VirtualHosts,
    #[error(
        "--start {start} lets the root start all agents, --fanout says how many each starts; leave one of them out"
    )]
    FanoutContradicts { start: &'static str },
    #[error("--start serial-ssh starts a remote shell per rank, a session has none; leave it out")]
    SerialSession,
    #[error("--start serial-ssh starts a remote shell per rank; say where with --hosts or --hostfile")]
    SerialWithoutHosts,
    #[error("{flag} {value}: {problem}; give an interface (eth0), an address of one, or a network (10.1.0.0/16)")]
    Interface { flag: String, value: String, problem: &'static str },
    #[error("too many programs on one command line ({0}); put them into a script that looks at WIREUP_RANK")]
    TooManyPrograms(usize),
    #[error("working directory {path}: {problem}; create it or name another with --wdir")]
    WorkingDirectory { path: String, problem: String },
    #[error("the current directory is gone ({problem}); cd to one that exists or give --wdir DIR")]
    CurrentDirectory { problem: String },
}

fn suggestion(nearest: &Option<String>, otherwise: &str) -> String {
    match nearest {
        Some(name) => format!("did you mean {name}?"),
        None => otherwise.to_owned(),
    }
}
