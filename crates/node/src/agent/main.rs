//! An agent's own process, `wireup agent`: started by a remote shell, it gets all its data on standard input.

use super::driver::{AgentDriver, BeginError};
use super::link_config::LinkConfig;
use super::munge;
use super::read_timeout::ReadTimeout;
use super::remote;
use super::starters;
use super::step::{self, Called};
use super::token::Token;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use wireup_os::clock::monotonic_ns;
use wireup_proto::{AgentConfig, Born, NEEDED, NEEDED_WORDS};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{BOOTSTRAP_HEADER_LEN, Bootstrap, PeerError};

#[derive(thiserror::Error, Debug)]
enum AgentError {
    #[error("cannot read the bootstrap message on standard input: {0}")]
    Read(io::Error),
    #[error("{0}")]
    Place(String),
    #[error("{0}")]
    NotInStep(String),
    #[error(transparent)]
    Bootstrap(#[from] PeerError),
    #[error(transparent)]
    Begin(#[from] BeginError),
    #[error("cannot read the run's secret, which munge has sealed: {0}")]
    Sealed(String),
    #[error("cannot wait for events: {0}")]
    Wait(io::Error),
}

/// Runs an agent until its session ends. Returns the exit code. `args` are the arguments after the word `agent`.
pub fn main(args: impl IntoIterator<Item = OsString>, process_ns: u64) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().filter_map(|word| word.to_str()).collect();
    match words[..] {
        [word] if word == remote::version() => {}
        [word, "report"] if word == remote::version() => return crate::doctor::serve(),
        ["verify", digest] => return verify(digest),
        _ => {
            // A caller of another version will send its own program.
            eprintln!("{NEEDED_WORDS} {}", std::env::consts::ARCH);
            return NEEDED;
        }
    }
    match run(process_ns) {
        Ok(()) => 0,
        Err(error) => {
            // Nothing can be done if the remote shell is gone.
            let _ = writeln!(io::stderr(), "wireup agent: {error}");
            125
        }
    }
}

/// Checks that this program arrived as it was sent; then removes old ones beside it.
fn verify(digest: &str) -> u8 {
    let own = wireup_os::files::own_program().and_then(|file| remote::digest(&mut File::from(file)));
    match own {
        Ok(own) if own == digest => {
            remote::forget_old();
            0
        }
        Ok(_) => {
            eprintln!("wireup agent: the received program is damaged (wrong digest)");
            1
        }
        Err(error) => {
            eprintln!("wireup agent: reading the program: {error}");
            1
        }
    }
}

fn run(process_ns: u64) -> Result<(), AgentError> {
    // Failure is tolerated: fewer ranks fit, and orphans of a killed keeper are not collected.
    let _ = wireup_os::process::raise_open_files();
    let _ = wireup_os::process::set_subreaper();
    let program = std::env::current_exe().map_err(AgentError::Read)?;
    let user = rustix::process::geteuid().as_raw();
    remote::check_place(&program, &remote::own_build(), user).map_err(AgentError::Place)?;
    let Some(bootstrap) = read_bootstrap()? else {
        return Ok(());
    };
    let born = Born { process_ns, bootstrap_ns: monotonic_ns() };
    if let Some(system) = starters::batch_system(&bootstrap.session.remote_shell) {
        let me = step::find_self(system, &bootstrap.session).map_err(AgentError::NotInStep)?;
        let ended = serve(bootstrap, me, true, born);
        if let Err(error) = &ended {
            step::announce_problem(me, &error.to_string());
        }
        return ended;
    }
    let me = bootstrap.agent;
    serve(bootstrap, me, false, born)
}

/// Runs an agent until its session ends. `by_step`: a batch system has started it.
fn serve(bootstrap: Bootstrap, me: AgentId, by_step: bool, born: Born) -> Result<(), AgentError> {
    let Bootstrap { secret, sealed, agent: _, parent, by_parent, session, jobs, snapshot } = bootstrap;
    let secret = if sealed.is_empty() { secret } else { munge::open(&sealed).map_err(AgentError::Sealed)? };
    wireup_os::c_library::keep_freed_memory();
    let start_timeout_ns = session.start_timeout_ns;
    let ssh_connection = std::env::var("SSH_CONNECTION").ok();
    let links = LinkConfig::new(&session, me, ssh_connection.as_deref());
    // The parent's addresses as passed on to the agents below this one.
    let known = if by_parent { links.with_caller(&parent) } else { parent.clone() };
    let new_parent = snapshot.place(me).map(|place| place.parent);
    let config = AgentConfig { parent: known, snapshot, ..AgentConfig::new(me, session, born) };
    let mut driver = AgentDriver::new(config, Some(secret), None)?;
    let mut called = None;
    if by_step {
        called = Some(Called::begin(me, new_parent, &mut driver, &parent, start_timeout_ns)?);
    } else {
        driver.dial(&parent, by_parent)?;
    }
    driver.begin_standing();
    for job in jobs {
        driver.launch(job);
    }
    driver.settle();
    while !driver.has_left() {
        let deadline_ns = driver.deadline_ns().into_iter().chain(called.as_ref().and_then(Called::deadline_ns)).min();
        for event in driver.wait(deadline_ns).map_err(AgentError::Wait)? {
            let Some(token) = Token::unpack(event.token) else { continue };
            let of_step = called.as_mut().is_some_and(|called| called.on_event(token, &mut driver));
            if !of_step {
                driver.on_event(token, event);
            }
        }
        if let Some(error) = called.as_mut().and_then(Called::take_problem) {
            driver.end();
            return Err(error.into());
        }
        driver.on_tick();
        driver.settle();
        if let Some(problem) = driver.unreachable() {
            let error = BeginError::Dial(problem.to_owned());
            driver.end();
            return Err(error.into());
        }
    }
    driver.end();
    Ok(())
}

/// `None`: the call only asked whether an agent could start here (a probe).
fn read_bootstrap() -> Result<Option<Bootstrap>, AgentError> {
    let mut stdin = match starters::is_in_step() {
        true => ReadTimeout::with(io::stdin(), step::SILENCE_MAX),
        false => ReadTimeout::new(io::stdin()),
    };
    let mut header = [0; BOOTSTRAP_HEADER_LEN];
    stdin.read_exact(&mut header).map_err(AgentError::Read)?;
    let length = Bootstrap::decode_header(&header)?;
    if length == 0 {
        return Ok(None);
    }
    let mut body = Vec::new();
    stdin.take(length as u64).read_to_end(&mut body).map_err(AgentError::Read)?;
    Ok(Some(Bootstrap::decode_body(&body)?))
}
