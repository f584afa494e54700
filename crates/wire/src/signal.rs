//! Signal numbers of Linux, the same on x86-64 and aarch64.

pub const SIGHUP: i32 = 1;
pub const SIGINT: i32 = 2;
pub const SIGQUIT: i32 = 3;
pub const SIGKILL: i32 = 9;
pub const SIGUSR1: i32 = 10;
pub const SIGUSR2: i32 = 12;
pub const SIGPIPE: i32 = 13;
pub const SIGALRM: i32 = 14;
pub const SIGTERM: i32 = 15;
pub const SIGCHLD: i32 = 17;
pub const SIGCONT: i32 = 18;
pub const SIGSTOP: i32 = 19;
pub const SIGTSTP: i32 = 20;
pub const SIGWINCH: i32 = 28;

/// Signals that a batch system or a user may send to all processes of a step when they are meant for ranks, which
/// receive them directly.
pub const SENT_TO_STEPS: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGTSTP];

/// Whether a signal ends a process that does not handle it; as long as a job has no ranks, it handles no signal.
pub fn is_fatal(signal: i32) -> bool {
    // Signals that do not end a process by default: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
    !matches!(signal, 17..=23 | 28)
}
