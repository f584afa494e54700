//! Connects the state machines of `proto` to this machine: processes, sockets, clock, terminal.
//!
//! ```text
//!   launcher/   `wireup run`: signals, terminal, output, and the root agent or the link to it
//!   agent/      the agent's driver: links, remote shells and steps, ranks with their pipes and PMI sockets
//!   transport/  a link over any carrier of bytes: addresses, handshake, encryption, frames by class
//!   keeper/     the process that forks ranks and remote shells, and ends them
//!   session/    standing sessions: their directories, their processes, connections of launchers
//!   doctor/     `wireup doctor`
//! ```
//!
//! [`binding`] and [`devices`] give each rank its cpus and GPUs; [`hosts`] reads and writes lists of hosts;
//! [`sendable`] and [`staged_store`] are the program that is sent to nodes and the folder of staged files there;
//! [`stacks`] takes the call stacks of ranks; [`record`] and [`trace`] write recordings and profiles; [`progress`] is
//! the line that shows a waiting user what goes on; `remedy` and `spawn_error` make messages of errors.

pub mod agent;
pub mod binding;
pub mod devices;
pub mod doctor;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod hosts;
pub mod keeper;
pub mod launcher;
pub mod progress;
pub mod record;
mod remedy;
pub mod sendable;
pub mod session;
mod spawn_error;
pub mod stacks;
pub mod staged_store;
pub mod trace;
mod transport;

/// The user's folder for one kind of file: that of the XDG variable, else `in_home` in the home directory. `None`:
/// neither variable is an absolute path.
pub fn user_folder(variable: &str, in_home: &str) -> Option<std::path::PathBuf> {
    let absolute = |name| std::env::var_os(name).map(std::path::PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)))
}

/// Allows forks in processes with several threads, since the harness runs tests in threads and tests fork.
#[cfg(test)]
mod test_forks {
    #[used]
    #[unsafe(link_section = ".init_array")]
    static BEFORE_MAIN: extern "C" fn() = allow;

    extern "C" fn allow() {
        // SAFETY: the children of tests use what their test owns; an inconsistent copy of the harness's state could
        // only fail the test.
        unsafe { wireup_os::process::allow_threads_at_forks() }
    }
}
