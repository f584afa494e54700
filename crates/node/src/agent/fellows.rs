//! Finds agents of one run that are on the same machine under different host names, so that their ranks can share a PID
//! namespace, as the ranks of virtual nodes do: MPI libraries treat such ranks as processes of one host.
//!
//! ```text
//!   first agent     listens at a name that only agents of this run can make;
//!                   when it is asked, it starts the first process of a namespace and keeps it
//!   later agents    find the name taken, ask, and get the number of that process
//! ```
//!
//! Abstract names exist once in a network namespace. The name is a digest of the run's secret, so that nobody else can
//! take it first. Once the name exists, other users can read it, so both ends ask the kernel whose process is at the
//! other end, and whether its PID namespace is this one: only then does the number mean the same process here. Cost
//! where an agent has its machine to itself: one socket.

use super::token::Token;
use blake2::{Blake2s256, Digest};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use wireup_os::local::{self, PeerProcess};
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket;
use wireup_wire::peer::Secret;

/// Longest wait of a later agent for the answer of the first one, which comes at once unless that process is stopped.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Most agents that are answered in one turn of the driver's loop. Chosen: more than one machine has host names.
const ANSWERS_PER_TURN: usize = 64;

/// What an agent finds on its machine.
pub enum Fellows {
    /// This agent is the first one of the run on this machine. Later agents connect to this socket to get the pid.
    First(OwnedFd),
    /// The pid, in this agent's PID namespace, of the first process of the PID namespace that all ranks of this machine
    /// share.
    Of(u32),
}

impl Fellows {
    /// Finds the other agents of the run on this machine; `None`: an error makes that impossible.
    pub fn meet(secret: &Secret, reactor: &Reactor) -> Option<Fellows> {
        let name = name(secret);
        match local::listen_abstract(&name) {
            Ok(listener) => {
                reactor.add(&listener, Token::Fellows.pack(), Interest::READABLE).ok()?;
                Some(Fellows::First(listener))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => ask(&name).map(Fellows::Of),
            Err(_) => None,
        }
    }

    /// Answers agents that have asked for the shared PID namespace. `process`: returns the pid of its first process,
    /// which the first call starts; `None`: it could not be started.
    pub fn answer(&self, mut process: impl FnMut() -> Option<u32>) {
        let Fellows::First(listener) = self else { return };
        for _ in 0..ANSWERS_PER_TURN {
            let Ok(asking) = local::accept(listener) else { return };
            if is_fellow(&asking)
                && let Some(process) = process()
            {
                // A few bytes always fit into a new connection's buffer.
                let _ = socket::send(&asking, &process.to_ne_bytes(), &[]);
            }
        }
    }
}

fn ask(name: &[u8]) -> Option<u32> {
    let first = local::connect_abstract(name).ok().filter(|first| is_fellow(first))?;
    let mut process = [0; 4];
    let is_answered = socket::wait(&first, true, false, Some(ANSWER_MAX)).ok()?
        && rustix::io::read(&first, &mut process).is_ok_and(|read| read == process.len());
    is_answered.then(|| u32::from_ne_bytes(process))
}

/// Whether the other end of a socket belongs to a process of this user in this agent's PID namespace.
fn is_fellow(socket: impl AsFd) -> bool {
    let Ok(PeerProcess { pid, user }) = local::peer(socket) else { return false };
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/pid"));
    let is_here = || namespace("self").is_ok_and(|own| namespace(&pid.to_string()).is_ok_and(|theirs| theirs == own));
    user == rustix::process::geteuid().as_raw() && pid != 0 && is_here()
}

fn name(secret: &Secret) -> Vec<u8> {
    let digest = Blake2s256::new().chain_update(secret.0).chain_update(b"machine").finalize();
    let digits = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("wireup-machine-{digits}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_agents_of_a_run_get_the_process_of_the_first_one() {
        let mut reactor = Reactor::new().unwrap();
        let secret = Secret(wireup_os::random::bytes().unwrap());
        let first = Fellows::meet(&secret, &reactor).unwrap();
        let of_another_run = Secret(wireup_os::random::bytes().unwrap());
        assert!(matches!(Fellows::meet(&of_another_run, &reactor), Some(Fellows::First(_))));
        let asking = std::thread::spawn(move || Fellows::meet(&secret, &Reactor::new().unwrap()));
        reactor.wait(Some(Duration::from_secs(60))).unwrap();
        first.answer(|| Some(77));
        assert!(matches!(asking.join().unwrap(), Some(Fellows::Of(77))));
    }
}
