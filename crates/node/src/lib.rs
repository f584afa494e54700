//! Connects the state machines of `proto` to this machine: processes, sockets, clock, terminal.

pub mod agent;
pub mod binding;
pub mod devices;
pub mod doctor;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod hosts;
pub mod keeper;
pub mod launcher;
pub mod record;
mod remedy;
pub mod sendable;
pub mod session;
mod spawn_error;
pub mod staged_store;
pub mod trace;
mod transport;

/// Tests fork in a process that has the threads of the test harness.
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
