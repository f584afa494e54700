//! The agent's socket is moved away from standard input before anybody reads from there.

use std::io;
use std::os::fd::OwnedFd;

/// The socket on standard input; `/dev/null` takes its place.
///
/// # Errors
/// There is none.
pub fn take_standard_input() -> io::Result<OwnedFd> {
    let input = rustix::stdio::stdin();
    rustix::net::sockopt::socket_type(input)?;
    let socket = wireup_os::files::duplicate_from(input, 3)?;
    rustix::stdio::dup2_stdin(wireup_os::files::null()?)?;
    wireup_os::files::set_nonblocking(&socket, true)?;
    Ok(socket)
}
