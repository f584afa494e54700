//! Finds the PMI server through the environment, and joins the job.

use crate::server::{Failure, Gone, Server, Socket};
use crate::text::variable;
use alloc::string::String;
use core::ffi::c_int;
use wireup_client::env::{Contact, EnvError};
use wireup_client::join::Join;
use wireup_wire::pmi::Dialect;

/// The result of reading the environment.
#[allow(clippy::large_enum_variant)] // There is one in a process.
pub enum Start {
    /// No launcher started this process.
    Singleton,
    With {
        server: Server,
        join: Join,
    },
}

/// Reads `PMI_FD`, or `PMI_PORT` and `PMI_ID`. `inherited` returns the socket that `PMI_FD` names. Sends nothing yet.
pub fn find(dialect: Dialect, inherited: impl FnOnce(c_int) -> Result<Socket, Gone>) -> Result<Start, Failure> {
    let (socket, join) = match contact().map_err(|_| Failure::Broken)? {
        Contact::Singleton => return Ok(Start::Singleton),
        Contact::Fd { fd, env } => {
            let socket = inherited(fd)?;
            (socket, Join::new(env).at_once(socket.is_of_our_server()))
        }
        Contact::Port { address, id } => {
            let spawned = variable("PMI_SPAWNED").is_some_and(|value| value != b"0");
            (Socket::connect(address.as_bytes())?, Join::introduced(id, spawned))
        }
    };
    Ok(Start::With { server: Server::new(socket, dialect), join })
}

fn contact() -> Result<Contact, EnvError> {
    Contact::read(|name| variable(name).and_then(|value| String::from_utf8(value).ok()))
}

/// Whether a launcher has started this process.
pub fn has_launcher() -> bool {
    !matches!(contact(), Ok(Contact::Singleton))
}

/// Asks for what a process must know: one round trip with our own server, two with others, three with `PMI_PORT`.
pub fn join(server: &mut Server, join: &mut Join) -> Result<(), Failure> {
    while join.ask(&mut server.link)? {
        server.settle(&mut |answer| join.on_answer(answer.command, &answer.fields))?;
    }
    Ok(())
}
