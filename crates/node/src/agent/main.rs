//! Runs an agent's own process, `wireup agent`: started by a remote shell, it gets all its data on standard input.

use super::driver::{AgentDriver, BeginError};
use super::link_config::LinkConfig;
use super::munge::{self, Unsealable};
use super::remote;
use super::start_methods;
use super::step::{self, Called};
use super::token::Token;
use crate::remedy::Advised;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_proto::{AgentConfig, Born, CANNOT_BEGIN, NEEDED, NEEDED_WORDS};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{BOOTSTRAP_HEADER_LEN, Bootstrap, PeerError};
use zeroize::Zeroizing;

#[derive(thiserror::Error, Debug)]
pub enum AgentError {
    #[error("cannot read the start message on standard input: {}", Advised(.0))]
    Read(io::Error),
    #[error(
        "the start message on standard input is not whole: something there has read from it, or has closed it; \
         start-up files of the shell such as ~/.bashrc must leave standard input alone (their commands get </dev/null)"
    )]
    NotWhole,
    #[error(
        "the start message on standard input did not arrive in time; is the network to this node slow, or its caller \
         stopped?"
    )]
    NoMessage,
    #[error("cannot find its own program: {}", Advised(.0))]
    NoProgram(io::Error),
    #[error("{0}")]
    Place(String),
    #[error(
        "this process was to be a task of a Slurm step, but its environment does not say on which node; does a wrapper \
         of srun clear the variables that begin with SLURM?"
    )]
    NotInStep,
    #[error("{0}")]
    NotOfRun(String),
    #[error(transparent)]
    Bootstrap(PeerError),
    #[error(transparent)]
    Begin(#[from] BeginError),
    #[error("cannot open the start message, which the launcher's node has sealed with munge: {0}")]
    Sealed(#[from] Unsealable),
    #[error(
        "the start message is not sealed, although the launcher's node has sealed it with munge: something between \
         srun and this node has replaced it; call wireup run again, and tell the administrators if that repeats"
    )]
    NotSealed,
    #[error("cannot wait for events: {}", Advised(.0))]
    Wait(io::Error),
}

impl From<PeerError> for AgentError {
    fn from(error: PeerError) -> AgentError {
        match error {
            PeerError::Version { .. } => AgentError::Bootstrap(error),
            // All processes of a session have the same version, so bytes that do not decode are not those that were
            // sent.
            PeerError::Malformed | PeerError::Misdirected | PeerError::Magic | PeerError::TooLong(_) => {
                AgentError::NotWhole
            }
        }
    }
}

impl From<io::Error> for AgentError {
    fn from(error: io::Error) -> AgentError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => AgentError::NotWhole,
            io::ErrorKind::TimedOut => AgentError::NoMessage,
            _ => AgentError::Read(error),
        }
    }
}

/// Runs an agent until its session ends. Returns the exit code. `args` are the arguments after the word `agent`.
pub fn main(args: impl IntoIterator<Item = OsString>, process_ns: u64) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().filter_map(|word| word.to_str()).collect();
    let mut is_sealed = false;
    match words[..] {
        [word] if word == remote::version() => {}
        [word, step::SEALED] if word == remote::version() => is_sealed = true,
        ["verify", digest] => return verify(digest),
        _ => {
            // A caller of another version gets this answer, and then sends its own program.
            eprintln!("{NEEDED_WORDS} {}", std::env::consts::ARCH);
            return NEEDED;
        }
    }
    run_agent(process_ns, is_sealed).map_or_else(|error| cannot_begin(&error), |()| 0)
}

/// Prints why the agent cannot begin, and what to do. Returns the exit code.
fn cannot_begin(error: &AgentError) -> u8 {
    // Nothing can be done if the remote shell is gone.
    let _ = writeln!(io::stderr(), "wireup agent: {error}");
    CANNOT_BEGIN
}

/// Checks that this program arrived as it was sent, then removes old programs from the cache in which it lies.
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

/// `is_sealed`: whether the caller has encrypted the bootstrap message.
fn run_agent(process_ns: u64, is_sealed: bool) -> Result<(), AgentError> {
    // The agent runs even if these calls fail: then fewer ranks fit, or orphans of a killed keeper are not killed.
    let _ = wireup_os::process::raise_open_files();
    let _ = wireup_os::process::set_subreaper();
    let program = std::env::current_exe().map_err(AgentError::NoProgram)?;
    let user = rustix::process::geteuid().as_raw();
    remote::check_place(&program, &remote::own_build(), user).map_err(AgentError::Place)?;
    let node = start_methods::own_node();
    let silence_max = if start_methods::is_in_step() { step::SILENCE_MAX } else { SILENCE_MAX };
    let begun = read_bootstrap(ReadTimeout::new(io::stdin(), silence_max), is_sealed);
    let ended = begun.and_then(|bootstrap| match bootstrap {
        Some(bootstrap) => {
            run_bootstrapped(bootstrap, node.as_deref(), Born { process_ns, bootstrap_ns: monotonic_ns() })
        }
        None => Ok(()),
    });
    if let Err(error) = &ended
        && let Some(node) = &node
    {
        step::announce_problem(node, &error.to_string());
    }
    ended
}

/// `node`: the node on which this process runs as a task of a step; `None`: no step has started it.
fn run_bootstrapped(bootstrap: Bootstrap, node: Option<&str>, born: Born) -> Result<(), AgentError> {
    if !bootstrap.session.remote_shell.start_method().by_step() {
        let me = bootstrap.agent;
        return serve(bootstrap, me, false, born);
    }
    let node = node.ok_or(AgentError::NotInStep)?;
    let me = step::find_self(node, &bootstrap.session).map_err(AgentError::NotOfRun)?;
    serve(bootstrap, me, true, born)
}

/// Runs an agent until its session ends. `by_step`: a batch system has started it.
fn serve(bootstrap: Bootstrap, me: AgentId, by_step: bool, born: Born) -> Result<(), AgentError> {
    let Bootstrap { secret, agent: _, parent, by_parent, session, jobs, snapshot } = bootstrap;
    wireup_os::c_library::keep_freed_memory();
    let start_timeout_ns = session.start_timeout_ns;
    let ssh_connection = std::env::var("SSH_CONNECTION").ok();
    let links = LinkConfig::new(&session, me, ssh_connection.as_deref());
    // The parent's addresses that this agent passes on to the agents below it.
    let known = if by_parent { links.with_caller(&parent) } else { parent.clone() };
    let new_parent = snapshot.place(me).map(|place| place.parent);
    let config = AgentConfig { parent: known, snapshot, ..AgentConfig::new(me, session, born) };
    let mut driver = AgentDriver::new(config, Some(secret))?;
    let mut called = None;
    if by_step {
        called = Some(Called::start(me, new_parent, &mut driver, &parent, start_timeout_ns)?);
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
        let mut problem = called.as_mut().and_then(Called::take_problem);
        if problem.is_none() {
            driver.on_tick();
            driver.settle();
            problem = driver.unreachable();
        }
        if let Some(error) = problem {
            driver.end();
            return Err(error.into());
        }
    }
    driver.end();
    Ok(())
}

/// Reads the bootstrap message; `None`: the message is empty, since the caller only tests whether an agent can start
/// here.
fn read_bootstrap(mut input: impl Read, is_sealed: bool) -> Result<Option<Bootstrap>, AgentError> {
    let mut header = [0; BOOTSTRAP_HEADER_LEN];
    input.read_exact(&mut header)?;
    let lengths = Bootstrap::decode_header(&header)?;
    if is_sealed && lengths.credential == 0 {
        return Err(AgentError::NotSealed);
    }
    if lengths.body == 0 {
        return Ok(None);
    }
    // The message contains the secret, of which a growing buffer would leave copies in memory.
    let mut body = Zeroizing::new(Vec::with_capacity(lengths.credential + lengths.body));
    let length = lengths.credential + lengths.body;
    if input.take(length as u64).read_to_end(&mut body)? < length {
        return Err(AgentError::NotWhole);
    }
    if is_sealed {
        let at = lengths.credential.min(body.len());
        let sealed = body.split_off(at);
        body = Zeroizing::new(munge::open(&body, sealed)?);
    } else if lengths.credential > 0 {
        return Err(AgentError::Bootstrap(PeerError::Malformed));
    }
    Ok(Some(Bootstrap::decode_body(&body)?))
}

/// Longest wait for the next byte if a remote shell has started this process. The bytes follow the command at once; if
/// the network fails in between, sshd would keep the connection open for hours.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Reads standard input with a timeout between bytes.
struct ReadTimeout<F> {
    input: F,
    silence_max: Duration,
}

impl<F: AsFd> ReadTimeout<F> {
    pub fn new(input: F, silence_max: Duration) -> Self {
        ReadTimeout { input, silence_max }
    }
}

impl<F: AsFd> Read for ReadTimeout<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match wireup_os::socket::wait(&self.input, true, false, Some(self.silence_max))? {
            true => Ok(rustix::io::read(&self.input, buffer)?),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use wireup_wire::peer::{bootstrap_message, probe};

    /// A plain message in place of a sealed one is refused before its body is read.
    #[test]
    fn only_a_sealed_message_is_accepted_where_one_was_sent() {
        for message in [probe(), bootstrap_message(&[], b"anything")] {
            assert!(matches!(read_bootstrap(&message[..], true), Err(AgentError::NotSealed)));
        }
        let sealed = bootstrap_message(b"MUNGE:", b"anything");
        assert!(matches!(read_bootstrap(&sealed[..], false), Err(AgentError::Bootstrap(PeerError::Malformed))));
        assert!(matches!(read_bootstrap(&probe()[..], false), Ok(None)));
    }

    #[test]
    fn a_silent_input_times_out_after_its_bytes_are_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = ReadTimeout { input: reader, silence_max: Duration::from_millis(1) };
        writer.write_all(b"abc").unwrap();
        let mut read = [0; 3];
        input.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"abc");
        assert_eq!(input.read(&mut read).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(writer);
        // A process forked by another test may hold the other end for a moment.
        input.silence_max = SILENCE_MAX;
        assert_eq!(input.read(&mut read).unwrap(), 0);
    }
}
