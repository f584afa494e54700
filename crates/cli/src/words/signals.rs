//! Names of signals.

const SIGNAL_MAX: i32 = 64;
const NAMES: [&str; 31] = [
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV",
    "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN",
    "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
];

/// The name of a signal: `SIGSEGV` for 11; real-time and unknown signals by number.
pub fn name(signal: i32) -> String {
    let known = usize::try_from(signal).ok().and_then(|number| NAMES.get(number.checked_sub(1)?));
    known.map_or_else(|| format!("signal {signal}"), |name| (*name).to_owned())
}

/// The number of a signal: 15 for `15`, `TERM`, `SIGTERM`, `term`.
pub fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse() {
        return (1..=SIGNAL_MAX).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    NAMES.iter().position(|name| &name[3..] == bare).map(|at| at as i32 + 1)
}

/// Advice about a rank that was killed by a signal.
pub fn advice(signal: i32, core_dumped: bool) -> Option<&'static str> {
    match (name(signal).as_str(), core_dumped) {
        ("SIGKILL", _) => Some("killed by someone or out of memory: check dmesg on the node"),
        ("SIGXCPU", _) => Some("it reached its CPU time limit (ulimit -t)"),
        ("SIGXFSZ", _) => Some("it reached its file size limit (ulimit -f)"),
        ("SIGBUS", false) => Some("is /dev/shm or /tmp full?"),
        ("SIGSEGV" | "SIGBUS" | "SIGABRT" | "SIGILL" | "SIGFPE", true) => Some("open the core file with gdb"),
        ("SIGSEGV" | "SIGABRT" | "SIGILL" | "SIGFPE", false) => Some("for a core file: ulimit -c unlimited"),
        _ => None,
    }
}

/// The line for a signal that the launcher received, the first one or a later one.
/// `starting`: not all ranks run yet.
pub fn interrupt(signal: i32, first: Option<i32>, starting: bool) -> String {
    let name = name(signal);
    let by_hand = if signal == 2 { "press Ctrl-C again" } else { "send it again" };
    match first {
        None if starting => {
            format!("{name} arrived before all ranks had started: ending the job; {by_hand} to kill it")
        }
        None => format!("{name} was sent to all ranks; {by_hand} to kill them"),
        Some(first) if first == signal => format!("{name} again: killing all ranks"),
        Some(first) => format!("{name} after {}: killing all ranks", self::name(first)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_names_are_those_of_linux() {
        let named = [(1, "SIGHUP"), (9, "SIGKILL"), (11, "SIGSEGV"), (15, "SIGTERM"), (28, "SIGWINCH"), (31, "SIGSYS")];
        for (signal, expected) in named {
            assert_eq!(name(signal), expected);
        }
        assert_eq!((name(34).as_str(), name(0).as_str(), name(-1).as_str()), ("signal 34", "signal 0", "signal -1"));
    }

    #[test]
    fn signal_numbers_are_found_by_name_or_number() {
        assert_eq!(["15", "TERM", "SIGTERM", "sigterm", "64"].map(number), [15, 15, 15, 15, 64].map(Some));
        assert_eq!(["0", "65", "-9", "SIG", "x", ""].map(number), [None; 6]);
    }

    #[test]
    fn interrupt_messages_explain_the_next_interrupt() {
        assert_eq!(interrupt(2, None, false), "SIGINT was sent to all ranks; press Ctrl-C again to kill them");
        assert_eq!(interrupt(15, None, false), "SIGTERM was sent to all ranks; send it again to kill them");
        assert_eq!(interrupt(2, Some(2), false), "SIGINT again: killing all ranks");
        assert_eq!(interrupt(1, Some(2), true), "SIGHUP after SIGINT: killing all ranks");
    }
}
