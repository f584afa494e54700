//! The `wireup` program: dispatches to the subcommand, or to a program of its own (`external`).
//!
//! ```text
//!   run ──► flags/    the command line of `wireup run`, parsed and resolved to a job and a session
//!       ├─► hosts/    host lists and files, and the allocations of batch systems
//!       ├─► program/  what a program is linked to, and the files that it reads to start
//!       ├─► stage/    `--stage`, `--stage-out`, `wireup stage`
//!       └─► words/    messages for users
//!   front/            `mpiexec` and its like: other launchers' options, translated to those of `wireup run`
//!   session/          `wireup up`, `down`, `status`, `jobs`, `kill`, `logs`, `attach`, `why`
//!   configuration     `wireup config`, and the files with defaults of flags
//!   doctor/  tap/  report/  advise  pmi  replay  install  generate  clean    the commands with these names
//! ```
//!
//! It starts at C's `main` and not at Rust's, which would look up the stack's guard page in `/proc/self/maps` and
//! install handlers for stack overflow: a tenth of a short run's time.
#![cfg_attr(not(test), no_main)]

mod advise;
mod bounded_file;
mod clean;
mod configuration;
mod doctor;
mod env_file;
mod environment;
mod external;
mod flags;
mod front;
mod generate;
mod help;
mod hosts;
mod install;
mod json_output;
mod libraries;
mod linked;
mod out;
mod pmi;
mod program;
mod progress;
mod replay;
#[cfg(test)]
#[path = "../../../dev/fuzz/replay.rs"]
mod replay_corpus;
mod report;
mod run;
mod session;
mod show;
mod stage;
mod surroundings;
mod tap;
mod words;

use session::{attach, down, jobs, kill, logs, status, up, why};
use std::ffi::{OsStr, OsString};
use std::iter;
use std::os::unix::ffi::OsStrExt;
use wireup_flags::{Command, Help, Line, nearest};
use wireup_os::clock::monotonic_ns;
use wireup_os::process::Argv;
use wireup_proto::exit_code::OURS;

/// The entry point, which the C library calls once, with one thread.
// SAFETY: the program has no other symbol `main`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main(_argc: i32, argv: Argv) -> i32 {
    let process_ns = monotonic_ns();
    // Rust's runtime does this and the next step as well before its `main`. On failure there is no stream for a
    // message, only the exit code.
    if wireup_os::files::fill_standard_streams().is_err() {
        return i32::from(OURS);
    }
    // Writing to a closed pipe, or beyond the limit of a file's size, is to return an error, not to kill the process.
    let ignored = wireup_os::process::ignore_write_errors();
    let mut args = argv.arguments();
    let name = args.next().unwrap_or_default();
    if let Some(name) = front::name(&name) {
        return i32::from(out::finish(front::main(name, args, process_ns)));
    }
    let code = match args.next() {
        Some(command) if command == "tap" => tap::main(args, process_ns, ignored),
        Some(flag) if is_flag_of_run(&flag) => run::main(iter::once(flag).chain(args), process_ns),
        Some(command) => dispatch(&command.to_string_lossy(), args, process_ns),
        None => {
            out::print_err(&help::overview());
            OURS
        }
    };
    i32::from(out::finish(code))
}

/// Whether a command line that begins with this word is one of `wireup run`: `wireup -n 4 ./app`.
fn is_flag_of_run(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"-") && !["--help", "-h", "--version", "-V"].iter().any(|own| word == *own)
}

fn dispatch(command: &str, args: impl Iterator<Item = OsString>, process_ns: u64) -> u8 {
    match command {
        "run" => run::main(args, process_ns),
        "mpiexec" | "mpirun" => front::main(command, args, process_ns),
        "up" => run_command(&up::COMMAND, args, |line| up::run(line, process_ns)),
        "down" => run_command(&down::COMMAND, args, down::run),
        "status" => run_command(&status::COMMAND, args, status::run),
        "jobs" | "ps" => run_command(&jobs::COMMAND, args, jobs::run),
        "kill" => run_command(&kill::COMMAND, args, kill::run),
        "logs" => run_command(&logs::COMMAND, args, logs::run),
        "attach" => run_command(&attach::COMMAND, args, attach::run),
        "why" => run_command(&why::COMMAND, args, why::run),
        "stage" => run_command(&stage::command::COMMAND, args, stage::command::run),
        "stacks" => wireup_node::stacks::main(args),
        "stage-node" => stage::node::main(args),
        "agent" => wireup_node::agent::main(args, process_ns),
        "pmix-server" => pmix_server(),
        "doctor" => run_command(&doctor::COMMAND, args, |line| doctor::run(line, process_ns)),
        "doctor-rank" => wireup_node::doctor::rank(),
        "pmi" => pmi::main(args),
        "singleton" => pmi::singleton::main(args),
        "replay" => run_command(&replay::COMMAND, args, replay::run),
        "report" => run_command(&report::COMMAND, args, report::run),
        "generate" => run_command(&generate::flags::COMMAND, args, generate::run),
        "complete" => generate::complete(args),
        "install" => run_command(&install::flags::COMMAND, args, install::run),
        "clean" => run_command(&clean::COMMAND, args, clean::run),
        "config" => run_command(&configuration::COMMAND, args, configuration::run),
        "advise" => run_command(&advise::COMMAND, args, advise::run),
        "bench" | "simulate" => external::run_of_sources(command, args),
        "help" | "--help" | "-h" => help(args),
        "version" | "--version" | "-V" => version(args),
        other => external::run(other, args).unwrap_or_else(|| out::fail(&unknown_command(other))),
    }
}

/// Parses the words after a command's name, then runs it, or shows its help if that was requested. Returns the exit
/// code.
fn run_command(
    command: &Command,
    args: impl IntoIterator<Item = OsString>,
    act: impl FnOnce(&Line) -> Result<u8, String>,
) -> u8 {
    match command.parse(args) {
        Ok(Err(help)) => {
            out::print(&command.help(help));
            0
        }
        Ok(Ok(line)) => act(&line).unwrap_or_else(|problem| out::fail(&problem)),
        Err(error) => out::fail(&error.to_string()),
    }
}

/// The server process that an agent starts for a job with PMIx.
#[cfg(not(target_env = "musl"))]
fn pmix_server() -> u8 {
    wireup_pmix::main()
}

/// A static executable cannot load C libraries.
#[cfg(target_env = "musl")]
fn pmix_server() -> u8 {
    out::fail(
        "this is the static (musl) build of wireup, which cannot open the PMIx library; \
         install the glibc build on this node, or run with --pmi simple",
    )
}

/// Explains the command that is named in `args`, or lists all.
fn help(mut args: impl Iterator<Item = OsString>) -> u8 {
    let topic = args.next().unwrap_or_default();
    if let Some(command) = ["bench", "simulate"].into_iter().find(|command| topic == *command) {
        return external::run_of_sources(command, args.chain(["--help".into()]));
    }
    if let Some(text) = front::help(&topic) {
        out::print(&text);
        return 0;
    }
    match help::find(&topic) {
        Some(command) => out::print(&command.help(Help::Usual)),
        None if topic.is_empty() || help::OTHERS.iter().any(|(name, _)| topic == *name) => {
            out::print(&help::overview())
        }
        None => return out::fail(&unknown_command(&topic.to_string_lossy())),
    }
    0
}

fn version(mut args: impl Iterator<Item = OsString>) -> u8 {
    if let Some(word) = args.next() {
        return out::fail(&format!("wireup version takes no flags or words: {}; leave it out", word.to_string_lossy()));
    }
    out::print(concat!("wireup ", env!("CARGO_PKG_VERSION"), "\n"));
    0
}

/// The likeliest mistake is a program instead of a command.
fn unknown_command(word: &str) -> String {
    if word.contains('/') {
        return format!("unknown command {word}; did you mean wireup run {word}?");
    }
    match nearest(word, help::all().map(|(name, _)| name)) {
        Some(command) => format!("unknown command {word}; did you mean wireup {command}?"),
        None => format!("unknown command {word}; see wireup help, or start a program with wireup run {word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_begins_with_a_flag_is_one_of_run() {
        assert!(["-n", "-n4", "--virtual-nodes=2", "-nonsense"].iter().all(|word| is_flag_of_run(word.as_ref())));
        assert!(!["run", "./app", "--help", "-h", "--version", "-V"].iter().any(|word| is_flag_of_run(word.as_ref())));
    }

    #[test]
    fn unknown_commands_get_a_suggestion() {
        assert_eq!(unknown_command("./app"), "unknown command ./app; did you mean wireup run ./app?");
        assert_eq!(unknown_command("rnu"), "unknown command rnu; did you mean wireup run?");
        assert!(unknown_command("hostname").contains("start a program with wireup run hostname"));
    }
}
