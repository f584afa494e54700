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
//! [`binding`] and [`devices`] give each rank its CPUs and GPUs; [`hosts`] reads and writes lists of hosts;
//! [`sendable`] makes the program file that is sent to nodes; [`staged_store`] finds a node's folder of staged files;
//! [`stacks`] takes the call stacks of ranks; [`record`] and [`trace`] write recordings and profiles; [`progress`]
//! shows a waiting user what is going on; `remedy` and `spawn_error` turn errors into messages.

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
pub mod stacks;
pub mod staged_store;
pub mod trace;
mod transport;

/// The user's folder for one kind of file: the value of the XDG variable, or else `in_home` in the home directory.
/// `None`: neither that variable nor `HOME` is an absolute path.
pub fn user_folder(variable: &str, in_home: &str) -> Option<std::path::PathBuf> {
    let absolute = |name| std::env::var_os(name).map(std::path::PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)))
}

/// Allows forks in processes with several threads: the test harness runs tests in threads, and tests fork.
#[cfg(test)]
mod test_forks {
    #[used]
    #[unsafe(link_section = ".init_array")]
    static BEFORE_MAIN: extern "C" fn() = allow;

    extern "C" fn allow() {
        // SAFETY: a test's child uses only data of its own test; an inconsistent copy of the harness's state could at
        // most make the test fail.
        unsafe { wireup_os::process::allow_threads_at_forks() }
    }
}
