//! `wireup doctor`: a line for each subject, with ok or the cure.

mod examine;
mod finding;
mod judge;
mod program;
mod show;
mod this_machine;

use crate::flags::chosen::{self, Chosen, is_of_flags};
use crate::flags::parsed::{Parsed, Start};
use crate::flags::remote_shell::{Reach, SSH, remote_shell};
use crate::flags::table as flag;
use crate::hosts::{Host, collapse_short};
use crate::json_output;
use crate::words::shell;
use examine::{Examined, Plan, Seen, examine};
use judge::{Case, Setting};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use wireup_flags::{Command, Flag, JSON, Line, Section, Words};
use wireup_node::doctor::{Facts, facts_here};

const SEND: Flag = Flag::switch(&["--send"], "Send wireup to hosts that lack it, as a run would.");

pub const COMMAND: Command = Command {
    name: "doctor",
    purpose: "check whether machines can run jobs, and say how to fix problems",
    intro: "
  wireup doctor                                   this machine, or the batch job's hosts
  wireup doctor --hosts 'n[0-63]'                 each host by ssh, all at once, as a job would start there
  wireup doctor --hostfile hosts --interface ib0
  wireup doctor --hosts n0,n1 ./app               also whether this program can run there
  wireup doctor --json                            the same as JSON, a list of findings

For each host it checks limits, interfaces, clock and versions; whether the host can connect back to this machine, as
an agent must; and whether it can reach the next host by the same remote shell, as agents in a tree must. It changes
nothing on the hosts.
",
    words: Words::Named(&["[PROGRAM]"]),
    sections: &[Section {
        title: "Flags",
        flags: &[
            flag::HOSTS_ALONE,
            flag::HOST_FILE,
            Flag {
                help: "Command to reach hosts, as for wireup run (default: srun in a Slurm allocation, otherwise ssh).",
                ..flag::REMOTE_SHELL
            },
            Flag {
                help: "Network between agents: an interface (eth0), one of its addresses, or a network (10.1.0.0/16).",
                ..flag::INTERFACE
            },
            Flag {
                help: "Time limit for each batch of 64 hosts, which are called at once (default: 10).",
                ..flag::START_TIMEOUT
            },
            Flag { help: "Check that this directory exists on each host (default: the current one).", ..flag::WDIR },
            SEND,
            JSON,
        ],
    }],
    end: "
Exit code: 0 no problem (perhaps remarks), 1 some host has a problem, 125 no host could be examined.
",
};

/// Time limit for each host. Chosen: a person waits for the result; a login takes a second or two.
const TIMEOUT_NS: u64 = 10_000_000_000;
/// Exit code if a host has a problem.
const PROBLEM: u8 = 1;

/// Runs `wireup doctor` for the hosts and the program that the command line names.
pub fn run(line: &Line, process_ns: u64) -> Result<u8, String> {
    let parsed = Parsed::read(line)?;
    let wdir = line.last(flag::WDIR, wireup_flags::Value::path)?;
    let surroundings = chosen::look_around(&parsed)?;
    let chosen = chosen::chosen(&parsed, &surroundings)?;
    let current = surroundings.cwd.clone().unwrap_or_else(|_| PathBuf::from("/"));
    let cwd = wdir.map_or_else(|| current.clone(), |wdir| current.join(wdir));
    // The limits must be read before this process raises any of them.
    let facts = facts_here(parsed.interface.as_deref(), None, &cwd, &|name| std::env::var_os(name));
    let program = line.words.first().map(|name| program::examine(name, &cwd, &surroundings)).unwrap_or_default();
    let Some(Chosen { hosts, step, origin, .. }) = chosen else {
        let mut lines = this_machine::lines(&facts, parsed.remote_shell.as_deref().unwrap_or(SSH[0]), &surroundings);
        lines.extend(program.lines);
        let json = || Ok(this_machine::json(&lines, &facts.host).into());
        json_output::print(line, json, || this_machine::text(&lines))?;
        return Ok(if this_machine::has_problem(&lines) { PROBLEM } else { 0 });
    };
    let remote_shell =
        remote_shell(parsed.remote_shell.as_deref(), Reach::choose(true, step, Start::Tree), &surroundings)?;
    let plan = Plan {
        hosts: hosts.list.iter().filter(|host| !host.is_local).map(|host| host.name.clone()).collect(),
        cwd: cwd.clone().into_os_string().into_vec(),
        timeout_ns: parsed.start_timeout_ns.unwrap_or(TIMEOUT_NS),
        sends: line.has(SEND),
        files: program.files.into_iter().map(|file| file.into_os_string().into_vec()).collect(),
    };
    let seen = match &facts.offered {
        _ if plan.hosts.is_empty() => Vec::new(),
        Err(problem) => return Err(format!("{problem}; choose another --interface")),
        Ok(_) => match examine(&parsed, &surroundings, &plan, process_ns)? {
            Examined::Seen(seen) => seen,
            Examined::Interrupted(code) => return Ok(code),
        },
    };
    let setting = Setting {
        shell: shell(&remote_shell),
        cwd: cwd.display().to_string(),
        interface: parsed.interface,
        program_bytes: wireup_node::sendable::program_len().unwrap_or(0),
    };
    let cases = cases(&hosts.list, &facts, &seen);
    let report = show::Report::new(&cases, &facts, &setting);
    let json = || Ok(this_machine::json(&program.lines, &facts.host).into_iter().chain(report.json()).collect());
    let text = || {
        let mut text = String::new();
        if !is_of_flags(&origin) {
            let names = collapse_short(hosts.list.iter().map(|host| host.name.as_str()));
            let (slots, by) = (hosts.slots(), shell(&remote_shell));
            text += &format!("hosts from {origin}: {names}; {slots} slots; agents are started by {by}\n\n");
        }
        if !program.lines.is_empty() {
            text += &format!("{}\n", this_machine::text(&program.lines));
        }
        text + &report.text()
    };
    json_output::print(line, json, text)?;
    Ok(if report.has_problem() || this_machine::has_problem(&program.lines) { PROBLEM } else { 0 })
}

/// Hosts in the order in which they were named, with what is known about each.
fn cases<'a>(hosts: &'a [Host], local: &'a Facts, seen: &'a [Seen]) -> Vec<Case<'a>> {
    let mut seen = seen.iter();
    let case = |host: &'a Host| match host.is_local {
        true => Case { host: &host.name, facts: Some(local), seen: None },
        false => {
            let seen = seen.next();
            Case { host: &host.name, facts: seen.and_then(|seen| seen.facts.as_ref()), seen }
        }
    };
    hosts.iter().map(case).collect()
}
