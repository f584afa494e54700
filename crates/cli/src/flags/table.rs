//! The flags of `wireup run`: one table for the parser, the help text and the "did you mean" suggestions.

/// The identity of a flag, whatever its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Id {
    Ranks,
    VirtualNodes,
    Ppn,
    MapBy,
    Slots,
    Oversubscribe,
    Hosts,
    HostFile,
    Start,
    Fanout,
    RemoteShell,
    Interface,
    Encrypt,
    StartTimeout,
    NodeTimeout,
    Session,
    NoSession,
    Detach,
    Wdir,
    Env,
    Genv,
    Export,
    EnvFile,
    RankEnv,
    Pmi,
    Modex,
    PmixLibrary,
    Exchange,
    EarlyWireup,
    AgentTransport,
    ExchangeCompress,
    PmiFence,
    PmiVersion,
    BindTo,
    GpusPerRank,
    Stdin,
    Label,
    OutputDir,
    LineBuffered,
    Pty,
    Timeout,
    KillGrace,
    StallReport,
    Profile,
    Record,
    DryRun,
    DisplayMap,
    Verbose,
    Help,
    /// A flag of other launchers that is the default, or unnecessary, here.
    Ignored,
}

/// The value that a flag takes. The text is its name in help and messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    Nothing,
    Word(&'static str),
    /// One word `NAME=VALUE`, or two: `NAME VALUE`.
    Variable,
    /// A number, or nothing.
    MaybeNumber(&'static str),
}

/// A section of the help text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    Placement,
    Machines,
    Session,
    Environment,
    Output,
    Ends,
    Insight,
    Hidden,
}

pub struct Flag {
    pub id: Id,
    /// Without dashes; every name is accepted with one dash or two.
    pub names: &'static [&'static str],
    pub takes: Takes,
    pub group: Group,
    pub help: &'static str,
}

impl Flag {
    /// The name for messages, with its dashes.
    pub fn name(&self) -> String {
        dashed(self.names[0])
    }
}

/// A name as users write it: one dash before one letter, two before more.
pub fn dashed(name: &str) -> String {
    if name.len() == 1 || name == "np" { format!("-{name}") } else { format!("--{name}") }
}

pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.names.contains(&name))
}

/// Names worth suggesting.
pub fn known_names() -> impl Iterator<Item = &'static str> {
    let suggested = FLAGS.iter().filter(|flag| flag.id != Id::Ignored);
    suggested.flat_map(|flag| flag.names.iter().copied()).filter(|name| name.len() > 1)
}

const fn flag(id: Id, names: &'static [&'static str], takes: Takes, group: Group, help: &'static str) -> Flag {
    Flag { id, names, takes, group, help }
}

use Group::{Ends, Environment, Hidden, Insight, Machines, Output, Placement, Session};
use Takes::{MaybeNumber, Nothing, Variable, Word};

pub const FLAGS: &[Flag] = &[
    flag(
        Id::Ranks,
        &["n", "np"],
        Word("N"),
        Placement,
        "Number of ranks. Default: nodes times --ppn; else in an allocation one per task; with hosts one per slot, or per host if no slots are stated; else one per allowed cpu. Per program.",
    ),
    flag(
        Id::VirtualNodes,
        &["virtual-nodes"],
        Word("N"),
        Placement,
        "Start N agents on this machine, each a node of its own (node0, node1, ...).",
    ),
    flag(
        Id::Ppn,
        &["ppn", "npernode", "perhost", "N"],
        Word("N"),
        Placement,
        "N consecutive ranks on each node in turn; ranks beyond that start over at node 0.",
    ),
    flag(
        Id::MapBy,
        &["map-by"],
        Word("HOW"),
        Placement,
        "slot (default): consecutive ranks together, divided evenly. node: one rank a node in turn. ppr:N:node: N a node and no more.",
    ),
    flag(
        Id::Slots,
        &["slots"],
        Word("N"),
        Placement,
        "Refuse more than N ranks on a node, and fill node after node up to N. Default: no limit, or what the list of hosts states.",
    ),
    flag(
        Id::Oversubscribe,
        &["oversubscribe"],
        Nothing,
        Placement,
        "Take more ranks than there are slots: those beyond start over at the first node. max_slots of a host file stay.",
    ),
    flag(
        Id::BindTo,
        &["bind-to"],
        Word("WHAT"),
        Placement,
        "even (default): a node's allowed cpus divided among its ranks. none, core, thread, socket. Virtual nodes share the machine unbound.",
    ),
    flag(
        Id::GpusPerRank,
        &["gpus-per-rank"],
        Word("N"),
        Placement,
        "Each rank sees N GPUs of its node: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or ZE_AFFINITY_MASK, divided where they are set, else of those that are there.",
    ),
    flag(
        Id::Hosts,
        &["hosts", "H", "host"],
        Word("LIST"),
        Machines,
        "Run on these: n0,n1:8,n[2-5],gpu[01-04,07]-ib:2,user@n6,[fd00::1]. Behind a colon: slots. No limit unless slots are stated, by a number or by naming a host more than once; then a host without a number has one for each time it is named, or --slots.",
    ),
    flag(
        Id::HostFile,
        &["hostfile", "f", "machinefile"],
        Word("FILE"),
        Machines,
        "The same from a file, a host or a range a line: n0, n0:4, n0 slots=4 max_slots=8. # begins a comment.",
    ),
    flag(
        Id::Start,
        &["start"],
        Word("HOW"),
        Machines,
        "ssh-tree (default): agents start the agents below them. ssh-flat: all are started from here. serial-ssh: one ssh per rank, one after the other; for comparisons only.",
    ),
    flag(
        Id::Fanout,
        &["fanout"],
        Word("K"),
        Machines,
        "Children of each agent in the tree. Default: as few levels as 32 allow, then the smallest that needs no more.",
    ),
    flag(
        Id::RemoteShell,
        &["remote-shell"],
        Word("CMD"),
        Machines,
        "Start agents by this command, called as CMD HOST COMMAND; words that name files here (ssh -F conf/cfg) are passed on as absolute paths. Default: in a Slurm allocation srun, one step for all; with other hosts ssh, with your configuration and without questions; else child processes of this machine.",
    ),
    flag(
        Id::Interface,
        &["interface", "iface"],
        Word("WHICH"),
        Machines,
        "Let agents use only this network among themselves: an interface (eth0), an address of one, or a network (10.1.0.0/16). Default: as the remote shell came, then any other.",
    ),
    flag(
        Id::Encrypt,
        &["encrypt"],
        Nothing,
        Machines,
        "Encrypt the links between agents. Without it both ends are still authenticated by the run's secret.",
    ),
    flag(
        Id::StartTimeout,
        &["start-timeout"],
        Word("SECONDS"),
        Machines,
        "If hosts have not started by then, the job fails with one message that names all of them. Default: 60.",
    ),
    flag(
        Id::NodeTimeout,
        &["node-timeout"],
        Word("SECONDS"),
        Machines,
        "A node that has not answered for this long is lost. Default: 30.",
    ),
    flag(
        Id::Session,
        &["session"],
        Word("NAME"),
        Session,
        "Run in this session, started by wireup up. Default: the session named default, if it is running and has the requested nodes.",
    ),
    flag(
        Id::NoSession,
        &["no-session"],
        Nothing,
        Session,
        "Start agents for this job only, even if there is a session.",
    ),
    flag(
        Id::Detach,
        &["detach"],
        Nothing,
        Session,
        "Return when the job has started and print its number; wireup attach shows its output and returns its exit code.",
    ),
    flag(
        Id::Wdir,
        &["wdir", "wd"],
        Word("DIR"),
        Environment,
        "Working directory of the ranks. Default: the current one. Per program.",
    ),
    flag(
        Id::Env,
        &["env"],
        Variable,
        Environment,
        "Set a variable for the ranks of this program; NAME=VALUE or NAME VALUE.",
    ),
    flag(
        Id::Export,
        &["x"],
        Word("NAME[=V]"),
        Environment,
        "The same; -x NAME alone takes the value from here. Per program.",
    ),
    flag(
        Id::EnvFile,
        &["env-file"],
        Word("FILE"),
        Environment,
        "Set the variables in FILE for all ranks: NAME=VALUE a line, as in a shell, but nothing is expanded.",
    ),
    flag(Id::Genv, &["genv"], Variable, Environment, "Set a variable for all ranks of all programs."),
    flag(Id::RankEnv, &["rank-env"], Nothing, Environment, "Also set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE."),
    flag(
        Id::Pmi,
        &["pmi"],
        Word("WHICH"),
        Environment,
        "auto (default): as the program's libraries tell; scripts, shells and interpreters get both. simple: PMI-1 and PMI-2. pmix: a PMIx server on each node (Open MPI). both. none: offer nothing.",
    ),
    flag(
        Id::Modex,
        &["modex"],
        Word("WHEN"),
        Environment,
        "When data committed by PMIx programs is sent to other nodes. full: with the fence that collects it. direct: when a rank first asks for it. auto (default): full while it is small.",
    ),
    flag(
        Id::PmixLibrary,
        &["pmix-library"],
        Word("PATH"),
        Environment,
        "Open this libpmix on the nodes for the PMIx server. Default: the program's own, else the system's.",
    ),
    flag(
        Id::Exchange,
        &["exchange"],
        Word("SCHEME"),
        Environment,
        "How nodes exchange what fences and allgathers bring: tree, ring, log, or auto (default): as suits nodes and bytes.",
    ),
    flag(
        Id::EarlyWireup,
        &["early-wireup"],
        Word("WHEN"),
        Environment,
        "Links that the first exchange needs are made while ranks start: yes, no, or auto (default): with --exchange ring or log.",
    ),
    flag(
        Id::AgentTransport,
        &["agent-transport"],
        Word("HOW"),
        Environment,
        "How agents that are not neighbours in the tree reach each other: tree (hop by hop), tcp, ucx, or auto (default): tcp.",
    ),
    flag(
        Id::ExchangeCompress,
        &["exchange-compress"],
        Word("BYTES"),
        Environment,
        "Compress what a node gives to an exchange from that many bytes on, if it shrinks; 0: never (default). For business \
         cards on slow links; see docs/reference/pmi.md.",
    ),
    flag(
        Id::PmiFence,
        &["pmi-fence"],
        Word("WHEN"),
        Environment,
        "strict (default): a fence ends when all ranks have entered it. lazy: it ends at once after puts, and gets wait instead; unsafe if a fence orders anything else than pairs.",
    ),
    flag(
        Id::PmiVersion,
        &["pmi-version"],
        Word("VERSION"),
        Environment,
        "The PMI-1 version offered to programs: 1.1, or 1.2 with barriers of groups. Default: the version that they ask for.",
    ),
    flag(Id::Stdin, &["stdin"], Word("WHO"), Output, "Who reads standard input: a rank (default: 0), all, none."),
    flag(
        Id::Label,
        &["label", "l", "prepend-rank", "tag-output"],
        Nothing,
        Output,
        "Begin each line of output with its rank: [3] text.",
    ),
    flag(Id::OutputDir, &["output-dir"], Word("DIR"), Output, "Write each rank's output to files in DIR instead."),
    flag(
        Id::LineBuffered,
        &["line-buffered"],
        Nothing,
        Output,
        "Never show a part of a line before its end is there. Default: after 0.2 s.",
    ),
    flag(Id::Pty, &["pty"], MaybeNumber("RANK"), Output, "Give one rank (default: 0) a pseudo-terminal."),
    flag(
        Id::Timeout,
        &["timeout"],
        Word("SECONDS"),
        Ends,
        "End the job after this time, with exit code 124. Default: never.",
    ),
    flag(
        Id::KillGrace,
        &["kill-grace"],
        Word("SECONDS"),
        Ends,
        "Time between the gentle end of ranks (SIGTERM) and the forced one (SIGKILL). Default: 2.",
    ),
    flag(
        Id::StallReport,
        &["stall-report"],
        Word("SECONDS"),
        Ends,
        "Name the ranks that others have been waiting for in a fence that long; 0: never. Default: 30.",
    ),
    flag(
        Id::Verbose,
        &["verbose", "v"],
        Nothing,
        Insight,
        "Say in one line what was chosen (PMI, binding, tree, exchange) and why.",
    ),
    flag(Id::DisplayMap, &["display-map"], Nothing, Insight, "Show which ranks go to which node, then run."),
    flag(Id::DryRun, &["dry-run"], Nothing, Insight, "Show the map and what was chosen, start nothing."),
    flag(
        Id::Profile,
        &["profile"],
        Word("FILE"),
        Insight,
        "Show where the time of the start went; write a trace for https://ui.perfetto.dev to FILE.",
    ),
    flag(Id::Record, &["record"], Word("DIR"), Insight, "Record what every agent is told, for wireup replay."),
    flag(Id::Help, &["help", "h"], Nothing, Hidden, ""),
    flag(Id::Ignored, &["genvall", "envall", "allow-run-as-root", "quiet", "q"], Nothing, Hidden, ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_belongs_to_one_flag() {
        let names: Vec<&str> = FLAGS.iter().flat_map(|flag| flag.names).copied().collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn every_flag_of_the_help_is_explained() {
        for flag in FLAGS {
            assert_eq!(flag.group == Hidden, flag.help.is_empty(), "{}", flag.name());
        }
    }

    #[test]
    fn choices_that_have_a_table_elsewhere_are_in_the_help() {
        let exchanges = wireup_coll::allgather::schemes().map(|(name, _)| ("exchange", name));
        let transports = wireup_wire::peer::AgentTransport::named().map(|(name, _)| ("agent-transport", name));
        for (flag, name) in exchanges.chain(transports) {
            let found = FLAGS.iter().find(|one| one.names.contains(&flag)).expect("there is such a flag");
            let mut words = found.help.split(|c: char| !c.is_alphanumeric() && c != '-');
            assert!(words.any(|word| word == name), "--{flag} {name}");
        }
    }
}
