//! Finds the PMI server by the environment, and begins the conversation up to the answer to `init`.

use crate::ints;
use crate::server::{Failure, Server};
use crate::socket::{Gone, Socket, variable};
use alloc::string::String;
use core::ffi::c_int;
use wireup_client::env::{Contact, Env};
use wireup_wire::pmi::{Dialect, Request};

/// Where this process stands.
#[allow(clippy::large_enum_variant)] // There is one in a process.
pub enum Start {
    /// Nobody started it as part of a job.
    Alone,
    With {
        server: Server,
        env: Env,
        /// What the server speaks: 2 with PMI-1 means barriers of groups.
        subversion: u32,
    },
}

/// Reads `PMI_FD`, or `PMI_PORT` and `PMI_ID`; one round trip over a descriptor, two over a port. `inherited` hands out
/// the socket that `PMI_FD` names.
pub fn start(dialect: Dialect, inherited: impl FnOnce(c_int) -> Result<Socket, Gone>) -> Result<Start, Failure> {
    let lookup = |name: &str| variable(name).and_then(|value| String::from_utf8(value).ok());
    let (mut server, env) = match Contact::read(lookup).map_err(|_| Failure::Broken)? {
        Contact::Singleton => return Ok(Start::Alone),
        Contact::Fd { fd, env } => (Server::new(inherited(fd)?, dialect), env),
        Contact::Port { address, id } => {
            let mut server = Server::new(Socket::connect(address.as_bytes())?, dialect);
            let env = introduce(&mut server, id)?;
            (server, env)
        }
    };
    let (version, subversion) = match dialect {
        Dialect::Pmi1 => (1, 1),
        Dialect::Pmi2 => (2, 0),
    };
    let (mut answered, mut spoken) = (None, None);
    // Some servers refuse to be asked for 1.2; ours takes this for the same question.
    let extension = (dialect == Dialect::Pmi1).then_some(1);
    server.call(&Request::Init { version, subversion, extension }, &mut |fields| {
        answered = fields.get("pmi_version").and_then(ints::parse::<u32>);
        spoken = fields.get("pmi_subversion").and_then(ints::parse);
    })?;
    if answered != Some(version) {
        return Err(Failure::Refused);
    }
    if dialect == Dialect::Pmi2 {
        server.switch_to_pmi2();
    }
    Ok(Start::With { server, env, subversion: spoken.unwrap_or(0) })
}

/// Says who has come through the port; the server answers which rank that is.
fn introduce(server: &mut Server, id: u32) -> Result<Env, Failure> {
    let mut env = Env { rank: id, size: 1, spawned: false };
    let mut refused = false;
    server.ask(&Request::InitAck { pmiid: id })?;
    server.settle(&mut |_, fields| {
        refused |= !fields.succeeded();
        if let Some(rank) = fields.get("rank").and_then(ints::parse) {
            env.rank = rank;
        }
        if let Some(size) = fields.get("size").and_then(ints::parse) {
            env.size = size;
        }
    })?;
    env.spawned = variable("PMI_SPAWNED").is_some_and(|value| value != b"0");
    if refused { Err(Failure::Refused) } else { Ok(env) }
}
