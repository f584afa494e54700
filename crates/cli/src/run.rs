//! `wireup run`: from the typed words to the exit code.

use crate::environment::Reached;
use crate::flags::chosen::look_around;
use crate::flags::parsed::{self, Parsed, Stage};
use crate::flags::rankfile;
use crate::flags::resolved::{self, Resolved};
use crate::flags::session_nodes::SessionNodes;
use crate::flags::table::RUN;
use crate::hosts::collapse_short;
use crate::json_output::JsonOutput;
use crate::progress::{Progress, show_starting};
use crate::report::{self, Report};
use crate::session;
use crate::session::detach::{self, Background, Side};
use crate::session::own_session::OwnSession;
use crate::stage;
use crate::surroundings::Surroundings;
use crate::words::{self, Setting, Voice};
use crate::{advise, configuration, linked, out, show};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wireup_coll::tree::Tree;
use wireup_flags::JsonTo;
use wireup_node::keeper::Keeper;
use wireup_node::launcher::{self, Reach, RunConfig, RunOutcome, ShowStarting, Starting};
use wireup_node::session::Attached;
use wireup_node::trace::{About, Phase, Trace};
use wireup_os::clock::monotonic_ns;
use wireup_os::output_file::{self, Existing};
use wireup_os::process::PidNamespace;
use wireup_proto::clock_offset;
use wireup_proto::exit_code::OURS;
use wireup_proto::launcher_io::Notice;
use wireup_wire::ids::AgentId;
use wireup_wire::job::{BindTo, JobSpec, Object, StdinTarget};
use wireup_wire::peer::Containment;
use wireup_wire::session::{NodeState, Presence};

/// Runs a job. `args` are the words after `run`; `process_ns` is the start time of this process.
pub fn main(args: impl IntoIterator<Item = OsString>, process_ns: u64) -> u8 {
    match configuration::load().and_then(|()| parsed::parse(args)) {
        Ok(Err(help)) => {
            out::print(&RUN.help(help));
            0
        }
        Ok(Ok(parsed)) => start_parsed(parsed, process_ns),
        Err(problem) => out::fail(&problem),
    }
}

pub fn start_parsed(mut parsed: Parsed, process_ns: u64) -> u8 {
    if parsed.session.is_none() && !parsed.no_session {
        parsed.session = session::of_variable();
    }
    rankfile::apply(parsed)
        .and_then(|parsed| prepare(parsed, process_ns, Vec::new()))
        .unwrap_or_else(|problem| out::fail(&problem))
}

/// Contacts a session first, so that it answers while the surroundings are being read.
fn prepare(parsed: Parsed, process_ns: u64, phases: Vec<Phase>) -> Result<u8, String> {
    let (detach, verbose) = (parsed.detach, parsed.verbose);
    let mut alone = None;
    let calling = session::find(&parsed)?;
    let surroundings = look_around(&parsed)?;
    if let Some(calling) = calling {
        let session = calling.finish(out::tell).map_err(|error| error.to_string())?;
        match session::session_nodes(&parsed, &surroundings, &session)? {
            Ok(session_nodes) => return in_session(parsed, surroundings, (session, session_nodes), process_ns, phases),
            Err(why) => alone = Some(why),
        }
    }
    if detach {
        let why = alone.map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(format!(
            "--detach needs a running session; start one with wireup up, or name one with --session NAME{why}"
        ));
    }
    let mut parsed = parsed;
    configuration::complete_own(&mut parsed)?;
    if let Some(stage) = parsed.stage.take_if(|stage| stage.auto && !parsed.dry_run) {
        let resolved = resolved::resolve(parsed.clone(), surroundings.clone())?;
        parsed.stage = chosen(stage, &resolved.job, verbose)?;
    }
    // Staging and gathering each run a job of their own, which needs a session: one is started for this run.
    let copies = parsed.stage.as_ref().is_some_and(|stage| !stage.prefetch) || !parsed.stage_out.is_empty();
    if copies && !parsed.dry_run {
        let (session, phase) = OwnSession::for_run(&parsed, &surroundings, process_ns)?;
        return prepare(session.flags_of_run(parsed), process_ns, vec![phase]);
    }
    let mut resolved = resolved::resolve(parsed, surroundings)?;
    if let Some(why) = alone.filter(|_| verbose) {
        out::tell(&format!("{why}; starting agents for this job only"));
    }
    if resolved.flags.verbose || resolved.flags.dry_run {
        resolved.isolates = isolates(resolved.session.containment);
    }
    let reach = Reach::OneShot(Box::new(resolved.session.clone()));
    if !announce(&resolved)? {
        return Ok(0);
    }
    prefetch(&mut resolved)?;
    Ok(start(resolved, reach, None, process_ns, phases))
}

/// Whether keepers of this machine can get PID namespaces: one is forked, and ended at once.
fn isolates(containment: Containment) -> bool {
    let (Containment::EachNode { by_user } | Containment::Machine { by_user, .. }) = containment else { return false };
    let keeper = Keeper::fork_isolated(&PidNamespace::New { by_user }).and_then(|keeper| keeper.settled(Keeper::fork));
    keeper.is_ok_and(|keeper| {
        let isolates = keeper.isolates();
        // The keeper has no processes to end. An error means that it has already exited.
        let _ = keeper.close();
        isolates
    })
}

fn in_session(
    parsed: Parsed,
    surroundings: Surroundings,
    (mut session, session_nodes): (Attached, SessionNodes),
    process_ns: u64,
    mut phases: Vec<Phase>,
) -> Result<u8, String> {
    let detach = parsed.detach;
    if detach {
        refuse_detached(&parsed)?;
    }
    let (name, lost) = (session_nodes.session.name.clone(), session_nodes.lost.clone());
    let parsed = if detach { Parsed { stdin: Some(StdinTarget::None), ..parsed } } else { parsed };
    let session_nodes = match resolved::seat_request(&parsed, &surroundings, &session_nodes)? {
        Some(request) => {
            let by = request.by;
            session_nodes.limited_to(&session.seats(request).map_err(|error| error.to_string())?, by)
        }
        None => session_nodes,
    };
    let mut resolved = resolved::resolve_in(Some(session_nodes), parsed, surroundings)?;
    if !lost.is_empty() {
        let hosts = collapse_short(lost.iter().map(String::as_str));
        out::tell(&format!(
            "session {name} has lost these nodes, which are not used: {hosts}; wireup status shows why; wireup up \
             restarts them"
        ));
    }
    // Warnings are printed before detaching, while standard error is still the terminal.
    if !announce(&resolved)? {
        return Ok(0);
    }
    if let Some(stage) = resolved.flags.stage.take_if(|stage| stage.auto) {
        resolved.flags.stage = chosen(stage, &resolved.job, resolved.flags.verbose)?;
    }
    prefetch(&mut resolved)?;
    if let Some(stage) = &resolved.flags.stage {
        let look_ns = monotonic_ns();
        let plan = stage::Needed::of_job(stage, &resolved.job)?.plan()?;
        plan.tell_refused(stage, false)?;
        let look = Phase::new("look", look_ns, monotonic_ns(), plan.amount());
        let nodes = stage::Nodes { session: &resolved.session, nodes: &resolved.job.nodes };
        match stage::send(stage, &plan, &nodes, resolved.flags.timeout_ns, resolved.flags.verbose)? {
            stage::Outcome::Interrupted(code) => return Ok(code),
            stage::Outcome::Done(mut phase) => {
                phase.from_ns = look_ns;
                phase.parts.insert(0, look);
                phases.push(phase);
            }
        }
        resolved.job.options.process.staged = Some(plan.staged(stage));
    }
    let reach = Reach::Session(Box::new(session));
    if !detach {
        return Ok(start(resolved, reach, None, process_ns, phases));
    }
    let program = String::from_utf8_lossy(&resolved.job.apps[0].argv[0]).into_owned();
    match detach::detach(&name, resolved.job.job, &program)? {
        Side::Foreground { code } => Ok(code),
        Side::Background(background) => Ok(start(resolved, reach, Some(background), process_ns, phases)),
    }
}

/// Decides for `--stage=auto` whether to stage; `None`: nothing is staged.
fn chosen(stage: Stage, job: &JobSpec, verbose: bool) -> Result<Option<Stage>, String> {
    let choice = stage::Needed::of_job(&stage, job)?.choice(job.job_size());
    if verbose {
        out::tell(&choice.line());
    }
    Ok(choice.stages.then_some(Stage { auto: false, ..stage }))
}

/// `--stage=prefetch`: tells the nodes which files to read.
fn prefetch(resolved: &mut Resolved) -> Result<(), String> {
    let Some(stage) = resolved.flags.stage.take_if(|stage| stage.prefetch) else { return Ok(()) };
    let files = stage::Needed::of_job(&stage, &resolved.job)?.files();
    if resolved.flags.verbose {
        out::tell(&match files.len() {
            0 => "nothing is prefetched: the program and its libraries are part of each node's system".into(),
            count => format!("each node prefetches {}", words::count(count as u32, "file")),
        });
    }
    resolved.job.options.process.prefetch = files.into_iter().map(|file| file.into_os_string().into_vec()).collect();
    Ok(())
}

/// Refuses flags that need a person at the terminal.
fn refuse_detached(parsed: &Parsed) -> Result<(), String> {
    let refused = match () {
        () if parsed.pty.is_some() => "--pty",
        () if !matches!(parsed.stdin, None | Some(StdinTarget::None)) => "--stdin",
        () if parsed.profile.is_some() => "--profile",
        () if parsed.report.is_some() => "--report",
        () if parsed.json.is_some() => "--json",
        () => return Ok(()),
    };
    Err(format!(
        "--detach cannot be combined with {refused}, for which wireup run must keep running; leave one of them out"
    ))
}

/// Prints warnings and, if asked for, what would run; returns `false` if that is all that was asked for.
fn announce(resolved: &Resolved) -> Result<bool, String> {
    for warning in resolved.warnings.iter().chain(&shared_places(resolved)) {
        out::tell(warning);
    }
    if resolved.flags.dry_run {
        if let Some(to) = &resolved.flags.json {
            JsonOutput::open(to)?.write(&show::map_json(resolved))?;
            if *to == JsonTo::Stdout {
                return Ok(false);
            }
        }
        out::print(&format!("{}{}\n", show::map(resolved), show::choices(resolved).join("\n")));
        if let Some(stage) = &resolved.flags.stage {
            let needed = stage::Needed::of_job(stage, &resolved.job)?;
            if stage.prefetch {
                let lines = needed.files().into_iter().map(|file| format!("  {}\n", file.display()));
                out::print(&format!("prefetched on each node:\n{}", lines.collect::<String>()));
            } else {
                let choice = stage.auto.then(|| needed.choice(resolved.job.job_size()));
                if let Some(choice) = &choice {
                    out::print(&format!("{}\n", choice.line()));
                }
                if choice.is_none_or(|choice| choice.stages) {
                    out::print(&stage::listing(&needed.plan()?));
                }
            }
        }
        if !resolved.flags.stage_out.is_empty() {
            out::print(&gather(resolved, &here()).listing()?);
        }
        return Ok(false);
    }
    if resolved.flags.display_map {
        out::print_err(&show::map(resolved));
    }
    if resolved.flags.verbose {
        show::choices(resolved).iter().for_each(|line| out::tell(line));
    }
    Ok(true)
}

/// The warning that ranks to be bound outnumber the cores or cpus of this machine, on which all of them run.
fn shared_places(resolved: &Resolved) -> Option<String> {
    let is_here = resolved.reached == Reached::ThisMachine;
    let binding = &resolved.job.options.binding;
    let (name, noun, object, count) = match binding.to {
        _ if resolved.in_session || !is_here || resolved.flags.bind.overload => return None,
        BindTo::To { object: Object::Core, count } => ("core", "cores", Object::Core, count),
        BindTo::To { object: Object::Thread, count } => ("thread", "cpus", Object::Thread, count),
        // No warning for sockets: it is usual that several ranks share one.
        BindTo::To { .. } | BindTo::Even | BindTo::None | BindTo::Lists(_) => return None,
    };
    let have = wireup_node::binding::objects(&resolved.machine, object).ok()?.len();
    let (each, ranks) = (count.max(1) as usize, resolved.job.job_size());
    if each > have {
        return Some(format!(
            "each rank should get {each} {noun}, but this machine has only {have}, shared by all ranks; lower pe= in \
             --map-by, or the number in --bind-to"
        ));
    }
    let with = if each > 1 { format!(" with {each} {noun} each") } else { String::new() };
    (ranks as usize > have / each).then(|| {
        format!(
            "--bind-to {name}: {ranks} ranks{with} share {have} {noun}; start fewer ranks, or do not bind them \
             (--bind-to none)"
        )
    })
}

fn gather<'a>(resolved: &'a Resolved, base: &'a Path) -> stage::Gather<'a> {
    let Resolved { flags, job, session, .. } = resolved;
    stage::Gather { rules: &flags.stage_out, job, session, base, verbose: flags.verbose }
}

/// The working directory, against which relative paths of `--stage-out` are resolved.
fn here() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."))
}

fn start(
    resolved: Resolved,
    reach: Reach,
    mut background: Option<Background>,
    process_ns: u64,
    mut phases: Vec<Phase>,
) -> u8 {
    let in_colour = background.is_none() && out::has_colour();
    let mut voice = Voice::new(Setting { in_colour, ..Setting::of(&resolved.job, &resolved.session) });
    let (places, growth) = (resolved.named_places(), resolved.growth());
    // A file that cannot be written is reported before the job has run.
    let profiles = match Profiles::create(&resolved.flags) {
        Ok(profiles) => profiles,
        Err(problem) => return out::fail(&problem),
    };
    let config = RunConfig {
        places,
        growth,
        job: resolved.job.clone(),
        reach,
        timeout_ns: resolved.flags.timeout_ns,
        explains_timeout: true,
        output: resolved.flags.output.clone(),
        starting: starting(&resolved),
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
    let mut result = launcher::run(config, &mut words);
    if let Ok(outcome) = &mut result
        && !resolved.flags.stage_out.is_empty()
    {
        let mut say = |line: &str| match &background {
            Some(background) => background.note(line),
            None => out::tell(line),
        };
        let (code, phase) = gather(&resolved, &here()).run(outcome.code, &mut say);
        outcome.code = code;
        phases.push(phase);
    }
    let mut outcome = match (result, background) {
        (Ok(outcome), Some(background)) => return background.end(outcome.code),
        (Ok(outcome), None) => outcome,
        (Err(error), Some(background)) => return background.fail(&error.to_string()),
        (Err(error), None) => return out::fail(&error.to_string()),
    };
    if let Some(hint) = linked::hint(&resolved.job, &outcome.ended) {
        out::tell(&hint);
    }
    clock_offset::align(&mut outcome.traces);
    match profiles.write(resolved, &outcome, &phases) {
        Ok(()) => outcome.code,
        Err(problem) => {
            out::tell(&problem);
            // An otherwise successful run fails if its profile cannot be written.
            if outcome.code == 0 { OURS } else { outcome.code }
        }
    }
}

/// Shows which nodes are starting, if a person may have to wait for them.
fn starting(resolved: &Resolved) -> Option<ShowStarting> {
    let waits = !resolved.in_session && resolved.session.agents.len() > 1 && Progress::has_reader();
    let mut progress = Progress::new();
    let has_ranks = resolved.job.nodes.iter().any(|node| node.agent == AgentId(0));
    let (agents, fanout) = (resolved.session.agents.len() as u32, resolved.session.fanout);
    // The launcher observes only the starts of its own children in the tree: these start the other agents, of which the
    // launcher learns only the losses.
    let children = Tree::new(agents, fanout).children(AgentId(0));
    let is_observed = move |(agent, node): &(u32, &NodeState)| match agent {
        0 => has_ranks,
        agent => children.contains(agent) || matches!(node.presence, Presence::Lost { .. }),
    };
    waits.then(|| -> ShowStarting {
        Box::new(move |starting| match starting {
            Starting::Nodes(nodes) => {
                let observed: Vec<_> = (0..).zip(nodes).filter(&is_observed).map(|(_, node)| node).collect();
                show_starting(&mut progress, &observed, nodes.len() - usize::from(!has_ranks));
            }
            Starting::Nothing => progress.end(),
        })
    })
}

/// The files that are written when the job has ended: results, trace, report.
struct Profiles {
    results: Option<JsonOutput>,
    trace: Option<(File, PathBuf)>,
    report: Option<Report>,
    expects: bool,
}

impl Profiles {
    fn create(flags: &Parsed) -> Result<Profiles, String> {
        let open = |path: PathBuf| match output_file::open(&path, Existing::Empty, 0o666) {
            Ok(file) => Ok((file, path)),
            Err(error) => Err(out::unwritable(&path, &error)),
        };
        match &flags.report {
            _ if !flags.expect => {}
            Some(_) => drop(report::simulator()?),
            None => return Err("--expect is shown in the page of --report; give --report FILE too".into()),
        }
        let results = flags.json.as_ref().map(JsonOutput::open).transpose()?;
        let trace = flags.profile.clone().map(open).transpose()?;
        let report = flags.report.clone().map(|path| Report::create(path, "--report")).transpose()?;
        Ok(Profiles { results, trace, report, expects: flags.expect })
    }

    /// Writes all files, even if one of them cannot be written.
    fn write(self, resolved: Resolved, outcome: &RunOutcome, phases: &[Phase]) -> Result<(), String> {
        let results = self.results.map_or(Ok(()), |to| {
            match (&to, outcome.has_open_line) {
                (JsonOutput::Stdout, None) => return Err("--json: nobody reads standard output".to_owned()),
                (JsonOutput::Stdout, Some(true)) => out::print("\n"),
                _ => {}
            }
            to.write(&show::results_json(&resolved, outcome))
        });
        if self.trace.is_none() && self.report.is_none() {
            return results;
        }
        let trace = Trace::new(about(resolved), &outcome.stamps, phases, &outcome.traces);
        let traced = self.trace.map_or(Ok(()), |(file, path)| {
            out::print_err(&words::table(&outcome.stamps, phases, &outcome.traces));
            trace.write(file).map_err(|error| out::unwritable(&path, &error))?;
            out::tell(&format!("trace written to {}; open it at https://ui.perfetto.dev", path.display()));
            Ok(())
        });
        let reported = self.report.map_or(Ok(()), |mut report| report.write_run(&trace, self.expects));
        results.and(traced).and(reported)
    }
}

fn about(mut resolved: Resolved) -> About {
    resolved.isolates = isolates(resolved.session.containment);
    About {
        wireup: env!("CARGO_PKG_VERSION").to_owned(),
        program: String::from_utf8_lossy(&resolved.job.apps[0].argv[0]).into_owned(),
        settings: show::choices(&resolved),
        fanout: resolved.session.fanout,
        start: advise::start(&resolved).to_owned(),
        in_session: resolved.in_session,
        simulated: None,
    }
}
