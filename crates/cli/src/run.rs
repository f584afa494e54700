//! `wireup run`: from the typed words to the exit code.

use crate::flags::FlagError;
use crate::flags::chosen::may_name_hosts;
use crate::flags::ground::Ground;
use crate::flags::high::{self, High};
use crate::flags::low::{self, Low, Stdin, Wish};
use crate::here::Here;
use crate::hosts::allocation::Env;
use crate::hosts::collapse_short;
use crate::session::detach::{self, Background, Side};
use crate::session::{self, Found};
use crate::words::{self, Setting, Voice};
use crate::{help, linked, out, show};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use wireup_coll::{Mapping, Tree};
use wireup_node::keeper::Keeper;
use wireup_node::launcher::{self, Reach, RunConfig, RunOutcome};
use wireup_node::session::Attached;
use wireup_node::trace;
use wireup_os::clock::monotonic_ns;
use wireup_proto::clock_offset;
use wireup_proto::exit_code::OURS;
use wireup_proto::launcher_io::Notice;

/// Runs a job. `args` are the words after `run`; `process_ns` is the start time of this process.
pub fn main(args: impl IntoIterator<Item = OsString>, process_ns: u64) -> u8 {
    match low::parse(args) {
        Ok(Wish::Help) => {
            out::print(&help::run());
            0
        }
        Ok(Wish::Run(low)) => prepare(*low, process_ns).unwrap_or_else(|problem| out::fail(&problem)),
        Err(error) => out::fail(&error.to_string()),
    }
}

/// First contacts a session or forks a keeper, so that either gets ready while the rest is being determined.
fn prepare(low: Low, process_ns: u64) -> Result<u8, String> {
    let (detach, verbose) = (low.detach, low.verbose);
    let mut alone = None;
    if let Found::Session(calling) = session::find(&low)? {
        let here = look_around(&low)?;
        let session = calling.finish().map_err(|error| error.to_string())?;
        match session::ground(&low, &here, &session)? {
            Ok(ground) => return in_session(low, here, session, ground, process_ns),
            Err(why) => alone = Some(why),
        }
    }
    if detach {
        let why = alone.map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(format!("{}{why}", FlagError::DetachWithoutSession));
    }
    // If this fails, it is tried again when a keeper is needed, and the error is reported then.
    let keeper = Keeper::fork().ok();
    let here = look_around(&low)?;
    let high = high::resolve(low, here).map_err(|error| error.to_string())?;
    let mapping = mapping(&high)?;
    if let Some(why) = alone.filter(|_| verbose) {
        out::tell(&format!("{why}; starting agents for this job only"));
    }
    let reach = Reach::OneShot { session: Box::new(high.session.clone()), keeper };
    if !announce(&high, &mapping) {
        return Ok(0);
    }
    Ok(start(high, reach, None, process_ns))
}

/// Runs a job of a standing session.
fn in_session(low: Low, here: Here, session: Attached, ground: Ground, process_ns: u64) -> Result<u8, String> {
    let detach = low.detach;
    if detach {
        refuse_detached(&low)?;
    }
    let (name, lost) = (ground.session.name.clone(), ground.lost.clone());
    let low = if detach { Low { stdin: Some(Stdin::None), ..low } } else { low };
    let high = high::resolve_in(ground, low, here).map_err(|error| error.to_string())?;
    let mapping = mapping(&high)?;
    if !lost.is_empty() {
        let hosts = collapse_short(lost.iter().map(String::as_str));
        out::tell(&format!(
            "these nodes of session {name} are lost and not used: {hosts}; see wireup status for the reasons; wireup \
             up restarts them"
        ));
    }
    // While standard error is still the terminal.
    if !announce(&high, &mapping) {
        return Ok(0);
    }
    let reach = Reach::Session(Box::new(session));
    if !detach {
        return Ok(start(high, reach, None, process_ns));
    }
    let program = String::from_utf8_lossy(&high.job.apps[0].argv[0]).into_owned();
    match detach::detach(&name, high.job.job, &program)? {
        Side::Foreground { code } => Ok(code),
        Side::Background(background) => Ok(start(high, reach, Some(background), process_ns)),
    }
}

/// Refuses flags that need a person at the terminal.
fn refuse_detached(low: &Low) -> Result<(), String> {
    let refused = match () {
        () if low.pty.is_some() => "--pty",
        () if !matches!(low.stdin, None | Some(Stdin::None)) => "--stdin",
        () if low.profile.is_some() => "--profile",
        () => return Ok(()),
    };
    Err(FlagError::Detached { flag: refused }.to_string())
}

fn look_around(low: &Low) -> Result<Here, String> {
    Here::read(|env| may_name_hosts(low, Env(env)))
        .map_err(|error| format!("cannot read this machine's settings: {error}; is /proc mounted?"))
}

fn mapping(high: &High) -> Result<Mapping, String> {
    let nodes = high.job.nodes.len() as u32;
    let mapping = Mapping::new(&high.job.blocks, high.job.job_size(), nodes);
    mapping.map_err(|error| FlagError::Placement(error).to_string())
}

/// Prints warnings and, if asked for, what would run; returns `false` if that is all that was asked for.
fn announce(high: &High, mapping: &Mapping) -> bool {
    for warning in &high.warnings {
        out::tell(warning);
    }
    if high.dry_run {
        out::print(&format!("{}{}\n", show::map(high, mapping), show::choices(high, mapping)));
        return false;
    }
    if high.display_map {
        out::print_err(&show::map(high, mapping));
    }
    if high.verbose {
        out::tell(&show::choices(high, mapping));
    }
    true
}

fn start(high: High, reach: Reach, mut background: Option<Background>, process_ns: u64) -> u8 {
    let mut voice = Voice::new(Setting::of(&high.job, &high.session));
    let job = high.job.clone();
    let tree = Tree::new(high.session.agents.len() as u32, high.session.fanout);
    let profile = high.profile;
    let config = RunConfig {
        job: high.job,
        reach,
        timeout_ns: high.timeout_ns,
        output_dir: high.output_dir,
        spool: background.as_ref().map(|background| Arc::clone(&background.spool)),
        process_start_ns: process_ns,
        resolved_ns: monotonic_ns(),
    };
    let mut words = |notice: &Notice| {
        if let Some(background) = &mut background {
            background.on_notice(notice);
        }
        voice.say(notice)
    };
    let result = launcher::run(config, &mut words);
    let mut outcome = match (result, background) {
        (Ok(outcome), Some(background)) => return background.end(outcome.code),
        (Ok(outcome), None) => outcome,
        (Err(error), Some(background)) => return background.fail(&error.to_string()),
        (Err(error), None) => return out::fail(&error.to_string()),
    };
    if let Some(hint) = linked::hint(&job, &outcome.ended) {
        out::tell(&hint);
    }
    clock_offset::align(&mut outcome.traces, &tree);
    match profile {
        Some(path) => show_profile(&path, &outcome),
        None => outcome.code,
    }
}

/// Prints the table and writes the trace. An otherwise successful run fails if its trace cannot be written.
fn show_profile(path: &Path, outcome: &RunOutcome) -> u8 {
    out::print_err(&words::table(&outcome.stamps, &outcome.traces));
    match trace::write(path, &outcome.stamps, &outcome.traces) {
        Ok(()) => {
            out::tell(&format!("trace written to {}; open it at https://ui.perfetto.dev", path.display()));
            outcome.code
        }
        Err(error) => {
            out::tell(&format!(
                "cannot write the trace {}: {error}; give a writable file to --profile",
                path.display()
            ));
            if outcome.code == 0 { OURS } else { outcome.code }
        }
    }
}
