//! Moves the agent's socket away from standard input before any other code reads from there, and leads all output to
//! the agent.

use std::io;
use std::os::fd::OwnedFd;

/// Takes the socket on standard input and puts `/dev/null` in its place.
///
/// # Errors
/// Standard input is not a socket, or no descriptor is left.
pub fn take_standard_input() -> io::Result<OwnedFd> {
    let input = rustix::stdio::stdin();
    rustix::net::sockopt::socket_type(input)?;
    let socket = wireup_os::files::duplicate_from(input, 3)?;
    rustix::stdio::dup2_stdin(wireup_os::files::null()?)?;
    // The agent reads what is written on standard error.
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    wireup_os::files::set_nonblocking(&socket, true)?;
    Ok(socket)
}
