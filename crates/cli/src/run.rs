//! `wireup run`: from the words typed to the exit code.

use crate::flags::FlagError;
use crate::flags::high::{self, High};
use crate::flags::low::{self, Low, Wish};
use crate::here::Here;
use crate::words::{self, Setting, Voice};
use crate::{help, linked, out, show};
use std::ffi::OsString;
use std::path::Path;
use wireup_coll::{Mapping, Tree};
use wireup_node::keeper::Keeper;
use wireup_node::launcher::{self, Reach, RunConfig, RunOutcome};
use wireup_node::trace;
use wireup_os::clock::monotonic_ns;
use wireup_proto::clock_offset;
use wireup_proto::exit_code::OURS;
use wireup_wire::peer::Cause;

/// Runs a job. `args` stand behind the word `run`; `process_ns` is when this process began.
pub fn main(args: impl IntoIterator<Item = OsString>, process_ns: u64) -> u8 {
    // If it fails here it is tried again, and told, when it is needed.
    let keeper = Keeper::fork().ok();
    match low::parse(args) {
        Ok(Wish::Help) => {
            out::print(&help::run());
            0
        }
        Ok(Wish::Run(low)) => match resolve(*low) {
            Ok((high, mapping)) => start(high, &mapping, keeper, process_ns),
            Err(problem) => out::fail(&problem),
        },
        Err(error) => out::fail(&error.to_string()),
    }
}

fn resolve(low: Low) -> Result<(High, Mapping), String> {
    let here = Here::read(low.names_hosts())
        .map_err(|error| format!("this machine does not answer: {error}; is /proc mounted?"))?;
    let high = high::resolve(low, here).map_err(|error| error.to_string())?;
    let nodes = high.job.nodes.len() as u32;
    let mapping = Mapping::new(&high.job.blocks, high.job.job_size(), nodes);
    let mapping = mapping.map_err(|error| FlagError::Placement(error).to_string())?;
    Ok((high, mapping))
}

fn start(high: High, mapping: &Mapping, keeper: Option<Keeper>, process_ns: u64) -> u8 {
    for warning in &high.warnings {
        out::tell(warning);
    }
    if high.dry_run {
        out::print(&format!("{}{}\n", show::map(&high, mapping), show::choices(&high, mapping)));
        return 0;
    }
    if high.display_map {
        out::print_err(&show::map(&high, mapping));
    }
    if high.verbose {
        out::tell(&show::choices(&high, mapping));
    }
    let mut voice = Voice::new(Setting::of(&high.job, &high.session));
    let job = high.job.clone();
    let tree = Tree::new(high.session.agents.len() as u32, high.session.fanout);
    let profile = high.profile;
    let config = RunConfig {
        job: high.job,
        reach: Reach::OneShot { session: high.session, keeper },
        timeout_ns: high.timeout_ns,
        output_dir: high.output_dir,
        process_start_ns: process_ns,
        resolved_ns: monotonic_ns(),
    };
    let mut outcome = match launcher::run(config, &mut |notice| voice.say(notice)) {
        Ok(outcome) => outcome,
        Err(error) => return out::fail(&error.to_string()),
    };
    // What never ran has not run alone.
    let cause = outcome.ended.failure.as_ref().map(|failure| &failure.cause);
    let ran = !matches!(cause, Some(Cause::Spawn(_) | Cause::AgentsMissing { .. }));
    if let Some(hint) = linked::hint(&job, &outcome.ended.done).filter(|_| ran) {
        out::tell(&hint);
    }
    clock_offset::align(&mut outcome.traces, &tree);
    match profile {
        Some(path) => show_profile(&path, &outcome),
        None => outcome.code,
    }
}

/// Prints the table, writes the trace. A trace that cannot be written fails a run that else did not.
fn show_profile(path: &Path, outcome: &RunOutcome) -> u8 {
    out::print_err(&words::table(&outcome.stamps, &outcome.traces));
    match trace::write(path, &outcome.stamps, &outcome.traces) {
        Ok(()) => {
            out::tell(&format!("trace written to {}; open it at https://ui.perfetto.dev", path.display()));
            outcome.code
        }
        Err(error) => {
            out::tell(&format!("trace {}: {error}; name a file that can be written", path.display()));
            if outcome.code == 0 { OURS } else { outcome.code }
        }
    }
}
