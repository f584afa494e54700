//! `wireup status`: shows the nodes of one session or of all sessions.

use super::{SESSION, attach_to, named};
use crate::hosts::collapse_short;
use crate::words::{count, one_line, since};
use crate::{json_output, out};
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};
use wireup_flags::{Command, Flag, JSON, Line, Section, Words};
use wireup_node::session::spool::{self, SESSION_BYTES_MAX, SPOOL_BYTES_MAX};
use wireup_node::session::{DEFAULT_NAME, Facts, SessionDirectory, unended};
use wireup_wire::limits::KVS_BYTES_MAX;
use wireup_wire::session::{JobEntry, NodeState, Presence};

const ONLY: Flag = Flag {
    help: "Show only this session (default: WIREUP_SESSION, then that of a configuration file, then all).",
    default: None,
    ..SESSION
};

pub const COMMAND: Command = Command {
    name: "status",
    purpose: "show your sessions, their nodes, and which nodes are lost and why",
    intro: "
  wireup status                 all sessions
  wireup status lab             the session of that name
  wireup status --json          as JSON
",
    words: Words::Named(&["[NAME]"]),
    sections: &[Section { title: "Flags", flags: &[ONLY, JSON] }],
    end: "
Exit code: 0 all nodes are up, 1 some are lost or a session does not answer, 125 there is no session.
",
};

/// Exit code if a node is lost or a session cannot be contacted.
const NOT_ALL: u8 = 1;

/// The reported state of one session.
struct Status {
    name: String,
    pid: u32,
    path: String,
    facts: Facts,
    nodes: Vec<NodeState>,
    jobs: Vec<JobEntry>,
    /// Output of detached jobs that the session keeps (bytes).
    kept_bytes: u64,
}

pub fn run(line: &Line) -> Result<u8, String> {
    let asked = named(line)?;
    let names = match &asked {
        Some(name) => vec![name.clone()],
        None => SessionDirectory::names().map_err(|error| error.to_string())?,
    };
    if names.is_empty() {
        let story = unended::story(DEFAULT_NAME).unwrap_or_else(|| "no session is running".to_owned());
        return Err(format!("{story}; to start one: wireup up"));
    }
    let (mut all, mut code) = (Vec::new(), 0);
    for name in names {
        match look(&name) {
            Ok(status) => all.push(status),
            Err(problem) if asked.is_some() => return Err(problem),
            Err(problem) => {
                out::tell(&problem);
                code = NOT_ALL;
            }
        }
    }
    json_output::print(line, || Ok(all.iter().map(json).collect()), || all.iter().map(text).collect())?;
    let lost = all.iter().flat_map(|status| &status.nodes).any(|node| problem(node).is_some());
    Ok(if lost { NOT_ALL } else { code })
}

fn look(name: &str) -> Result<Status, String> {
    let mut session = attach_to(name)?;
    let jobs = super::jobs::list(&mut session)?;
    let kept_bytes = spool::kept_bytes(session.place());
    Ok(Status {
        name: name.to_owned(),
        pid: session.pid(),
        kept_bytes: kept_bytes.map_err(|error| format!("cannot read the output of detached jobs: {error}"))?,
        path: session.place().path().display().to_string(),
        facts: Facts::read(session.place()).unwrap_or_default(),
        nodes: session.welcome.nodes.clone(),
        jobs,
    })
}

fn problem(node: &NodeState) -> Option<&str> {
    match &node.presence {
        Presence::Lost { problem } => Some(problem),
        Presence::Up | Presence::Starting => None,
    }
}

fn age(facts: &Facts) -> u64 {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    now_s.saturating_sub(facts.since_s)
}

fn text(status: &Status) -> String {
    let nodes: Vec<&NodeState> = status.nodes.iter().filter(|node| node.slots > 0).collect();
    let those = |presence: &Presence| -> Vec<&NodeState> {
        nodes.iter().copied().filter(|node| node.presence == *presence).collect()
    };
    let (up, starting) = (those(&Presence::Up), those(&Presence::Starting));
    let slots: u32 = up.iter().chain(&starting).map(|node| node.slots).sum();
    let ends = match status.facts.owner {
        Some(owner) => format!("ends with process {owner}"),
        None => "ends with wireup down".to_owned(),
    };
    let mut text = format!(
        "session {}: {} of {} up{}, {}, {}; process {}, up for {}, {ends}\n",
        status.name,
        up.len(),
        count(nodes.len() as u32, "node"),
        if starting.is_empty() { String::new() } else { format!(", {} starting", starting.len()) },
        if status.facts.slots_stated { count(slots, "slot") } else { "no limit on ranks".to_owned() },
        count(status.jobs.len() as u32, "job"),
        status.pid,
        since(age(&status.facts)),
    );
    for (state, those) in [("up", &up), ("starting", &starting)] {
        if !those.is_empty() {
            let _ = writeln!(text, "  {state:8}  {}", collapse_short(those.iter().map(|node| node.host.as_str())));
        }
    }
    for node in nodes {
        if let Some(problem) = problem(node) {
            let _ = writeln!(text, "  lost      {}: {}; wireup up restarts it", node.host, one_line(problem));
        }
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let _ = writeln!(
        text,
        "  limits    PMI pairs {} MiB a job on each node; output of detached jobs {} of {} MiB used, {} MiB a job",
        mib(KVS_BYTES_MAX as u64),
        mib(status.kept_bytes),
        mib(SESSION_BYTES_MAX),
        mib(SPOOL_BYTES_MAX),
    );
    text
}

fn json(status: &Status) -> serde_json::Value {
    let node = |(agent, node): (usize, &NodeState)| {
        let state = match &node.presence {
            Presence::Up => "up",
            Presence::Starting => "starting",
            Presence::Lost { .. } => "lost",
        };
        serde_json::json!({
            "agent": agent, "host": node.host, "slots": node.slots, "state": state, "problem": problem(node),
        })
    };
    serde_json::json!({
        "session": status.name,
        "pid": status.pid,
        "directory": status.path,
        "version": status.facts.version,
        "owner": status.facts.owner,
        "up_seconds": age(&status.facts),
        "slots_stated": status.facts.slots_stated,
        "nodes": status.nodes.iter().enumerate().map(node).collect::<Vec<_>>(),
        "jobs": status.jobs.len(),
        "limits": {
            "pairs_bytes_per_job_and_node": KVS_BYTES_MAX,
            "output_bytes": SESSION_BYTES_MAX,
            "output_bytes_used": status.kept_bytes,
            "output_bytes_per_job": SPOOL_BYTES_MAX,
        },
    })
}
