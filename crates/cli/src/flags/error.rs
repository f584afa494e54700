//! Everything that can be wrong with a command line, each reported on one line with the next step.

use super::mapping::{MapBy, name_of};
use crate::env_file::EnvFileError;
use crate::hosts::HostsError;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use thiserror::Error;
use wireup_coll::MappingError;
use wireup_wire::limits::{JOB_SIZE_MAX, PPN_MAX};

#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum FlagError {
    #[error(transparent)]
    Line(#[from] wireup_flags::Error),
    #[error("--session and --no-session contradict each other; leave one of them out")]
    SessionTwice,
    #[error(
        "{flag} cannot be changed in a running session; give it to wireup up when you start the session, or run with \
         --no-session"
    )]
    DecidedBySession { flag: &'static str },
    #[error("--detach needs a running session; start one with wireup up, or name one with --session NAME")]
    DetachWithoutSession,
    #[error("--detach cannot be combined with {flag}, which needs wireup run to keep running; leave one of them out")]
    Detached { flag: &'static str },
    #[error(
        "--pmix-library {path}: file not found; give the path of a PMIx library, such as /opt/openmpi/lib/libpmix.so.2"
    )]
    PmixLibrary { path: String },
    #[error("--remote-shell {program} works only inside {allocation}, or leave the flag out")]
    StepOutside { program: &'static str, allocation: &'static str },
    #[error(
        "--start cannot be combined with --remote-shell {program}, which starts all agents in one step; leave --start \
         out"
    )]
    StepStarts { program: &'static str },
    /// `taken`: what became of the last word, if that may have been meant as the program.
    #[error("no program to run{taken}; try: wireup run -n 4 ./app")]
    NoProgram { taken: String },
    #[error("program {section} of the command line is missing; write a program before and after every \":\"")]
    NoSectionProgram { section: usize },
    #[error("program {section} ({program}) has no -n: with \":\" every program needs its number of ranks")]
    NoSectionRanks { section: usize, program: String },

    #[error(
        "{programs}: ranks of different MPI libraries cannot form one job, MPI_Init would not return; build the \
         programs with the same MPI, or start each in a job of its own (to start them nevertheless: --pmi both)"
    )]
    MixedLibraries { programs: String },

    #[error("{ranks} ranks are too many, a job can have at most {JOB_SIZE_MAX}; lower -n")]
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
        "{ranks} ranks do not fit with --map-by {map}, which has places for {per_node} on each of {nodes} node(s); \
         lower -n, or raise the number in {map}"
    )]
    PprExceeded { ranks: u32, nodes: u32, per_node: u32, map: String },
    #[error(
        "{ranks} ranks do not fit into the {slots} slots of {hosts} host(s); lower -n, give the hosts more slots \
         (n0:16), name more hosts, or add --oversubscribe to run more ranks than slots"
    )]
    HostSlotsExceeded { ranks: u32, slots: u64, hosts: u32 },
    #[error(
        "{ranks} ranks do not fit into the {slots} slots that {allocation} has on {hosts} node(s); lower -n, ask the \
         batch system for more tasks, or add --oversubscribe to run more ranks than slots"
    )]
    AllocationSlotsExceeded { ranks: u32, slots: u64, hosts: u32, allocation: String },
    #[error(
        "host {host} would get {ranks} ranks but {allocation} has only {slots} slots there; lower --ppn, ask the batch \
         system for more tasks on a node, or add --oversubscribe"
    )]
    AllocationHostTooFull { host: String, ranks: u32, slots: u32, allocation: String },
    #[error(
        "host {host} would get {ranks} ranks but has only {slots} slots; lower --ppn, give the host more slots, or add \
         --oversubscribe"
    )]
    HostTooFull { host: String, ranks: u32, slots: u32 },
    #[error("host {host} would get {ranks} ranks but its max_slots is {max}; lower -n, or raise max_slots")]
    HostMaxSlots { host: String, ranks: u32, max: u32 },
    #[error("--oversubscribe and --nooversubscribe contradict each other; leave one of them out")]
    OversubscribeTwice,
    #[error(
        "--rank-ports {low}-{high}: {ports} ports are too few for the {ranks} ranks on a machine; name at least \
         {ranks}, or start fewer ranks there"
    )]
    TooFewPorts { low: u16, high: u16, ports: u32, ranks: u32 },
    #[error("--nolocal: the job has no host but this machine; name others with --hosts or --hostfile")]
    OnlyLocal,
    #[error("{flag} cannot be applied on this machine: {problem}")]
    Topology { flag: &'static str, problem: String },
    #[error("--map-by {map} needs a list of hosts; name them with --hosts or --hostfile")]
    NoList { map: &'static str },
    #[error("--map-by {map} has places for {places} ranks, the job has {ranks}; name more hosts or lower -n")]
    ListTooShort { map: &'static str, places: usize, ranks: u32 },
    #[error("--rank-map names node {node}, the job has nodes 0 to {last}; name more hosts, or correct the list")]
    NoSuchNode { node: u32, last: u32 },
    #[error("{first} contradicts {second}; leave one of them out")]
    Contradiction { first: String, second: String },
    #[error(transparent)]
    Rankfile(#[from] RankfileError),
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
    #[error("--hosts and --hostfile exclude each other; leave one of them out")]
    HostsTwice,
    #[error("{flag} applies to the whole job; move it before the first program")]
    HostsOfOneProgram { flag: String },
    #[error(
        "--virtual-nodes (nodes on this machine) and --hosts (other machines) exclude each other; leave one of them out"
    )]
    VirtualHosts,
    #[error("--fanout has no effect with --start {start}, where the launcher starts all agents; leave one of them out")]
    FanoutContradicts { start: &'static str },
    #[error("--start serial-ssh starts one remote shell per rank, which is not possible for a session; leave it out")]
    SerialSession,
    #[error("--start serial-ssh needs hosts; name them with --hosts or --hostfile")]
    SerialWithoutHosts,
    #[error("too many programs on one command line ({0}); use one script that chooses the program by WIREUP_RANK")]
    TooManyPrograms(usize),
    #[error("working directory {path}: {problem}; create it or name another with --wdir")]
    WorkingDirectory { path: String, problem: String },
    #[error("the current directory does not exist any more ({problem}); cd to an existing one, or give --wdir DIR")]
    CurrentDirectory { problem: String },
}

/// What is wrong with a rankfile.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum RankfileError {
    #[error("rankfile {file}: {problem}; name a file that can be read")]
    Read { file: String, problem: String },
    #[error("rankfile {file}, line {line}: {problem}")]
    Line { file: String, line: usize, problem: String },
    #[error("rankfile {file}: {problem}")]
    Whole { file: String, problem: String },
}

impl FlagError {
    /// `words`: the whole command line, which may end with a program that a flag has taken as its value.
    pub fn with_words(self, words: &[OsString]) -> FlagError {
        let is_flag = |word: &OsString| word.as_bytes().starts_with(b"-");
        match (self, words) {
            (FlagError::NoProgram { .. }, [.., flag, word]) if is_flag(flag) && !is_flag(word) && !is_number(word) => {
                let taken = format!(": {} took {} as its value", flag.to_string_lossy(), word.to_string_lossy());
                FlagError::NoProgram { taken }
            }
            (error, _) => error,
        }
    }

    /// Names `--map-by` as it was typed.
    pub fn with_map(self, typed: Option<MapBy>) -> FlagError {
        match (self, typed) {
            (FlagError::PprExceeded { ranks, nodes, per_node, .. }, Some(MapBy::PprObject(each, object))) => {
                FlagError::PprExceeded { ranks, nodes, per_node, map: format!("ppr:{each}:{}", name_of(object)) }
            }
            (error, _) => error,
        }
    }

    /// Names the batch system's job, if the numbers of slots come from there.
    pub fn with_slots_of(self, allocation: Option<String>) -> FlagError {
        match (self, allocation) {
            (FlagError::HostSlotsExceeded { ranks, slots, hosts }, Some(allocation)) => {
                FlagError::AllocationSlotsExceeded { ranks, slots, hosts, allocation }
            }
            (FlagError::HostTooFull { host, ranks, slots }, Some(allocation)) => {
                FlagError::AllocationHostTooFull { host, ranks, slots, allocation }
            }
            (error, _) => error,
        }
    }
}

fn is_number(word: &OsString) -> bool {
    word.as_bytes().iter().all(u8::is_ascii_digit)
}
