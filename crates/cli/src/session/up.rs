//! `wireup up`: starts a session, or restarts its lost nodes.

use super::{SESSION, attach_to, happens_within, named};
use crate::configuration;
use crate::flags::chosen::look_around;
use crate::flags::parsed::Parsed;
use crate::flags::session;
use crate::flags::session_nodes::StatedToUp;
use crate::flags::table as flag;
use crate::hosts::collapse_short;
use crate::out;
use crate::progress::{Progress, show_starting};
use crate::words::{self, Setting, count};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wireup_flags::{Command, Flag, Line, Section, Takes, Words};
use wireup_node::session::{
    Attached, CallError, Calling, Claim, DEFAULT_NAME, Facts, Owner, SessionDirectory, crash_log, daemon, unended,
};
use wireup_proto::launcher_io::Notice;
use wireup_wire::ids::AgentId;
use wireup_wire::job::PortRange;
use wireup_wire::peer::{MissingAgent, Note, SessionSpec};
use wireup_wire::session::{NodeState, PortsPerNode, Presence};
use wireup_wire::signal::SIGTERM;
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

const NAME: Flag = Flag {
    help: "Name of the session (default: WIREUP_SESSION, then that of a configuration file, then \"default\", which \
        wireup run uses).",
    ..SESSION
};
const LINGER: Flag = Flag::switch(&["--linger"], "Keep the session running after logging out, until wireup down.");

pub const COMMAND: Command = Command {
    name: "up",
    purpose: "start a session: agents that keep running, so that jobs start at once",
    intro: "
  wireup up --hosts 'n[0-63]'           agents on 64 machines; returns when they have started
  wireup up lab --hostfile hosts        a session of that name
  wireup up --virtual-nodes 4           4 nodes that are all this machine
  wireup run -n 256 ./app               runs there: no ssh, no new agents (--session lab for a named one)
  wireup up                             restarts the lost nodes of a running session
  wireup down                           ends it

The session ends with the login that started it, unless --linger is given. Only you can use it. Nodes that cannot be
started are reported; the session runs without them. If a node is lost later, only the jobs on it end.
",
    words: Words::Named(&["[NAME]"]),
    sections: &[
        Section {
            title: "The session",
            flags: &[
                NAME,
                LINGER,
                flag::VIRTUAL_NODES,
                flag::SLOTS,
                flag::AGENT_TRANSPORT,
                INSTANT_ON,
                flag::RANK_PORTS,
                PRELOAD,
            ],
        },
        Section { title: "Hosts and agents", flags: MACHINES },
        Section { title: "Diagnostics", flags: &[VERBOSE, flag::RECORD] },
    ],
    end: "
Exit code: 0 all nodes are up, 1 some are not, 125 there is no session.
",
};

const MACHINES: &[Flag] = &[
    flag::HOSTS_ALONE,
    flag::HOST_FILE,
    Flag {
        help: "ssh-tree: agents start the agents below them (default); ssh-flat: all agents are started from here.",
        ..flag::START
    },
    flag::FANOUT,
    flag::REMOTE_SHELL,
    flag::INTERFACE,
    flag::PLAIN_LINKS,
    Flag {
        help: "Report hosts that have not started by then, and go on without them (default: 60).",
        ..flag::START_TIMEOUT
    },
    flag::NODE_TIMEOUT,
    flag::CONTAIN,
];

const VERBOSE: Flag =
    Flag { help: "Show which hosts wireup was copied to, and the network of the agents.", ..flag::VERBOSE };

const INSTANT_ON: Flag = Flag {
    takes: Takes::MaybeNumber("PORTS"),
    ..Flag::switch(
        &["--instant-on"],
        "Reserve this many ports on each node for jobs with --instant-on, which then start faster (default: 256).",
    )
};

const PRELOAD: Flag = Flag {
    help: "For Python: jobs of the session are forked from an interpreter that has imported these modules \
        (numpy,scipy), and each node keeps it for the next job with the same interpreter, environment and folder.",
    ..flag::PRELOAD
};

/// Ports that a node reserves by default. Chosen: two jobs with a rank per processor on nodes with 128.
const RANK_PORTS: u16 = 256;

/// Exit code if the session runs but some node is missing.
const NOT_ALL: u8 = 1;
/// How much longer than the start timeout this program waits for the root's answer: the root reports missing nodes only
/// after that timeout.
const TELLING: Duration = Duration::from_secs(30);

/// The time between two looks at which nodes are starting (chosen).
const PROGRESS: Duration = Duration::from_millis(500);

/// The time to wait for a session that another `wireup up` is starting: its process listens within milliseconds.
const BEGINNING_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the process of a session that failed to start to exit.
const ENDING_MAX: Duration = Duration::from_secs(10);

pub fn run(line: &Line, process_ns: u64) -> Result<u8, String> {
    configuration::load()?;
    let typed = line;
    let line = &configuration::complete(&COMMAND, typed, &[SESSION])?;
    let name = named(line)?.unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let parsed = Parsed::read(line)?;
    let (mut spec, told) = session::standing(&parsed, &look_around(&parsed)?, &name)?;
    if let Some(standing) = &mut spec.standing {
        standing.rank_ports = rank_ports(line, &parsed)?;
    }
    let lingers = line.has(LINGER);
    let (place, claim) = SessionDirectory::claim(&name, lingers).map_err(|error| error.to_string())?;
    let mut begun = None;
    if matches!(claim, Claim::Ours) {
        if let Some(said) = crash_log::read(&place) {
            out::tell(&format!("the previous session {name} ended unexpectedly ({said}); starting a new one"));
        }
        let owner = if lingers { None } else { Owner::of_caller(allocation(&spec).as_deref()) };
        if owner.is_none() && !lingers {
            out::tell(&format!(
                "cannot determine your login session, so session {name} will not end with it; end it with wireup down"
            ));
        }
        let pid = owner.as_ref().map(Owner::pid);
        begun = Some(start_session(&place, &name, &spec, &told, owner, process_ns)?);
        unended::write(&name, pid);
    } else {
        names_nothing_new(typed, &name)?;
    }
    drop(place);
    let session = match begun {
        Some(process) => attach_to(&name).map_err(|problem| {
            end_process(&name, process);
            short_of_files(&name).unwrap_or(problem)
        })?,
        None => attach_when_begun(&name)?,
    };
    report(session, &name, &spec, begun.is_some(), parsed.verbose)
}

pub(super) fn start_session(
    place: &SessionDirectory,
    name: &str,
    spec: &SessionSpec,
    told: &StatedToUp,
    owner: Option<Owner>,
    process_ns: u64,
) -> Result<u32, String> {
    let facts = Facts {
        slots_stated: told.slots_stated,
        slots_max: told.slots_max.clone(),
        preload: told.preload.clone(),
        shell: words::shell_for_host(&spec.remote_shell),
        start_timeout_ns: spec.start_timeout_ns,
        owner: owner.as_ref().map(Owner::pid),
        since_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let result = daemon::start(place, spec.clone(), &facts, owner, process_ns);
    result.map_err(|error| format!("cannot start session {name}: {error}"))
}

/// Fewest descriptors with which a session can accept launchers.
const OPEN_FILES_MIN: u64 = 64;

/// Why a session that was just begun does not answer, if that is known.
fn short_of_files(name: &str) -> Option<String> {
    let limit = wireup_os::process::raise_open_files().ok()?.soft_now;
    (limit < OPEN_FILES_MIN)
        .then(|| format!("session {name} cannot work with at most {limit} open files; raise the limit (ulimit -n)"))
}

/// Ends a session that was just begun and is of no use, since it does not answer: it may have too few descriptors.
fn end_process(name: &str, process: u32) {
    unended::remove(name);
    // The process may have ended by itself.
    let _ = wireup_os::process::kill(process, SIGTERM);
    happens_within(ENDING_MAX, || SessionDirectory::find(name).ok().flatten().is_none_or(|place| place.is_free()));
}

/// Waits until all nodes of a session that ends with this process have started.
///
/// # Errors
/// A node is missing.
pub fn await_all(name: &str, spec: &SessionSpec, verbose: bool) -> Result<(), String> {
    let mut setting = Setting::of_session(spec);
    setting.verbose = verbose;
    let nodes = await_nodes(&mut attach_to(name)?, name, spec.start_timeout_ns, &mut telling(&setting))?;
    let missing = missing(&nodes);
    setting.node_count = nodes.iter().filter(|node| node.slots > 0).count() as u32;
    if missing.is_empty() { Ok(()) } else { Err(words::missing_sentence(&missing, &setting)) }
}

/// Tells the user what agents report about their start.
fn telling(setting: &Setting) -> impl FnMut(Note) {
    let mut voice = words::Voice::new(setting.clone());
    move |note| out::print_err(&voice.say(&Notice::Note(note)))
}

/// Waits until each node is up or known to be missing; returns the nodes.
///
/// # Errors
/// The session has ended, or does not answer.
pub fn await_nodes(
    session: &mut Attached,
    name: &str,
    start_timeout_ns: u64,
    on_note: &mut dyn FnMut(Note),
) -> Result<Vec<NodeState>, String> {
    let limit = Duration::from_nanos(start_timeout_ns) + TELLING;
    let ask = |revive| Control::FromLauncher(FromLauncher::AskNodes { revive });
    let mut progress = Progress::new();
    let interval = if Progress::has_reader() { PROGRESS } else { limit };
    let answer = session.ask_meanwhile(&ask(true), limit, (&ask(false), interval), |message| match message {
        Control::ToLauncher(ToLauncher::Nodes(nodes)) => {
            let of_jobs: Vec<&NodeState> = nodes.iter().filter(|node| node.slots > 0).collect();
            show_starting(&mut progress, &of_jobs, of_jobs.len());
            Some(Ok(nodes))
        }
        Control::ToLauncher(ToLauncher::Decided(Err(problem))) => Some(Err(problem)),
        Control::Note(note) => {
            progress.end();
            on_note(note);
            None
        }
        _ => None,
    });
    progress.end();
    match answer {
        Ok(answer) => answer,
        Err(CallError::Ended { .. }) => Err(format!("session {name} ended while it was starting; see wireup status")),
        Err(error) => Err(error.to_string()),
    }
}

/// The ports that each node reserves for the ranks of jobs.
fn rank_ports(line: &Line, parsed: &Parsed) -> Result<Option<PortsPerNode>, String> {
    let Some(range) = parsed.rank_ports().map(|ports| ports.range) else { return Ok(None) };
    let given = line.last(INSTANT_ON, |value| value.number_in(0, u16::MAX.into()))?;
    let count = given.filter(|count| *count > 0).map_or(RANK_PORTS, |count| count as u16);
    let PortRange { low, high } = range;
    match count - 1 <= high - low {
        true => Ok(Some(PortsPerNode { count, range })),
        false => {
            Err(format!("--instant-on {count}: there are fewer ports in {low}-{high}; name more with --rank-ports"))
        }
    }
}

/// The variable of the allocation whose end also ends the session's agents.
fn allocation(spec: &SessionSpec) -> Option<String> {
    let name = spec.remote_shell.start_method().batch?.job_variable;
    Some(format!("{name}={}", std::env::var(name).ok()?))
}

/// Attaches to a session that somebody else may be starting.
fn attach_when_begun(name: &str) -> Result<Attached, String> {
    // The socket of a previous session may still exist.
    let is_on_its_way = |called| matches!(called, Ok(None) | Err(CallError::Stale { .. } | CallError::Crashed { .. }));
    happens_within(BEGINNING_MAX, || !is_on_its_way(Calling::call(name)));
    attach_to(name)
}

/// Checks that an existing session is only asked for its lost nodes, not for other hosts or settings.
fn names_nothing_new(line: &Line, name: &str) -> Result<(), String> {
    match line.given.iter().any(|given| !given.is(NAME) && !given.is(flag::VERBOSE)) {
        true => Err(format!(
            "session {name} is already running; to restart its lost nodes run wireup up without hosts and other flags; \
             wireup down ends it; wireup up NAME starts another one"
        )),
        false => Ok(()),
    }
}

/// Waits until every node is up or known to be missing; reports the result on one line.
fn report(mut session: Attached, name: &str, spec: &SessionSpec, begun: bool, verbose: bool) -> Result<u8, String> {
    let had_lost = session.welcome.nodes.iter().filter(|node| is_lost(node)).count();
    let mut setting = Setting::of_session(spec);
    setting.agents = session.welcome.nodes.iter().map(|node| node.host.clone()).collect();
    setting.local = session.welcome.shared || setting.agents.len() == 1;
    setting.verbose = verbose;
    let mut start_timeout_ns = spec.start_timeout_ns;
    // The session may have been started with other settings than this command's.
    let mut ends = String::new();
    if let Ok(facts) = Facts::read(session.place()) {
        ends = if begun { end_of(name, facts.owner) } else { ends };
        (setting.shell, start_timeout_ns) = (facts.shell, facts.start_timeout_ns);
    }
    let nodes = await_nodes(&mut session, name, start_timeout_ns, &mut telling(&setting))?;
    let of_job: Vec<&NodeState> = nodes.iter().filter(|node| node.slots > 0).collect();
    let up = of_job.iter().filter(|node| !is_lost(node)).count();
    let what = match begun {
        true => "started",
        false if missing(&nodes).len() < had_lost => "is running again",
        false => "is running",
    };
    let hosts = match setting.local || up == 0 {
        true => String::new(),
        false => {
            format!(" {}", collapse_short(of_job.iter().filter(|node| !is_lost(node)).map(|node| node.host.as_str())))
        }
    };
    out::tell(&format!("session {name} {what}: {}{hosts}{ends}", count(up as u32, "node")));
    let missing = missing(&nodes);
    if missing.is_empty() {
        return Ok(0);
    }
    setting.node_count = of_job.len() as u32;
    out::tell(&format!("{}; run wireup up to try again", words::missing_sentence(&missing, &setting)));
    Ok(NOT_ALL)
}

/// Text for the user about what ends the session.
fn end_of(name: &str, owner: Option<u32>) -> String {
    let down = if name == DEFAULT_NAME { "wireup down".to_owned() } else { format!("wireup down {name}") };
    let Some(pid) = owner else { return format!("; it ends with {down}") };
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("; it ends with {down}, or with {} (process {pid})", words::one_line(program.trim()))
}

fn is_lost(node: &NodeState) -> bool {
    matches!(node.presence, Presence::Lost { .. })
}

fn missing(nodes: &[NodeState]) -> Vec<MissingAgent> {
    let lost = |(agent, node): (usize, &NodeState)| match &node.presence {
        Presence::Lost { problem } => Some(MissingAgent { agent: AgentId(agent as u32), problem: problem.clone() }),
        Presence::Up | Presence::Starting => None,
    };
    nodes.iter().enumerate().filter_map(lost).collect()
}
