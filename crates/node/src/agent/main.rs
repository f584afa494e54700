//! An agent's own process: `wireup agent`, started by a remote shell, told everything on standard input.

use super::driver::{AgentDriver, BeginError};
use super::token::Token;
use std::io::{self, Read};
use wireup_os::clock::monotonic_ns;
use wireup_proto::Born;
use wireup_wire::peer::{self, BOOTSTRAP_HEADER_LEN, Bootstrap, PeerError};

#[derive(thiserror::Error, Debug)]
enum AgentError {
    #[error("reading the bootstrap message on standard input: {0}")]
    Read(io::Error),
    #[error(transparent)]
    Bootstrap(#[from] PeerError),
    #[error(transparent)]
    Begin(#[from] BeginError),
    #[error("waiting for events: {0}")]
    Wait(io::Error),
}

/// Runs an agent until its session ends. Returns the exit code.
pub fn main(process_ns: u64) -> u8 {
    match run(process_ns) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("wireup agent: {error}");
            125
        }
    }
}

fn run(process_ns: u64) -> Result<(), AgentError> {
    // What can be done without these is done: fewer ranks fit, orphans of a killed keeper stay.
    let _ = wireup_os::process::raise_open_files();
    let _ = wireup_os::process::set_subreaper();
    let bootstrap = read_bootstrap()?;
    let born = Born { process_ns, bootstrap_ns: monotonic_ns() };
    let mut driver = AgentDriver::new(bootstrap.session, bootstrap.agent, Some(bootstrap.secret), born)?;
    driver.dial(bootstrap.parent)?;
    for job in bootstrap.jobs {
        driver.launch(job);
    }
    driver.settle();
    while !driver.has_left() {
        let deadline_ns = driver.deadline_ns();
        for event in driver.wait(deadline_ns).map_err(AgentError::Wait)? {
            if let Some(token) = Token::unpack(event.token) {
                driver.on_event(token, event);
            }
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

fn read_bootstrap() -> Result<Bootstrap, AgentError> {
    let mut stdin = io::stdin().lock();
    let mut header = [0; BOOTSTRAP_HEADER_LEN];
    stdin.read_exact(&mut header).map_err(AgentError::Read)?;
    let length = Bootstrap::decode_header(&header)?;
    let mut body = Vec::new();
    stdin.take(length as u64).read_to_end(&mut body).map_err(AgentError::Read)?;
    Ok(peer::decode(&body)?)
}
