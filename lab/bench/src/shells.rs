//! `wireup-bench shells HOST,HOST.. [--gate] PROGRAM [ARG..]`: runs PROGRAM once for each host, all at the same time,
//! and waits for all of them.
//!
//! `{host}` in a word is replaced by the host, `{node}` by its number from 0. `shells n0,n1 ssh {host} true` is the
//! bare parallel remote shell, the minimum for starting something on all hosts directly. With --gate each program gets
//! pipes as stdin and stdout: when every program has written a byte, each is sent one. This is the barrier of the echo
//! servers, a star over the remote shells.
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};

/// The first argument of this program that runs `shells`.
pub const WORD: &str = "shells";

/// Runs `shells`; `args`: the arguments after `WORD`.
pub fn run(args: &[OsString]) -> io::Result<()> {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let (hosts, is_gated, program) = match &words[..] {
        [hosts, "--gate", program @ ..] if !program.is_empty() => (hosts, true, program),
        [hosts, program @ ..] if !program.is_empty() => (hosts, false, program),
        _ => return Err(io::Error::other("HOST,HOST.. [--gate] PROGRAM [ARG..]")),
    };
    let mut all: Vec<Child> = Vec::new();
    for (node, host) in hosts.split(',').enumerate() {
        let filled = |word: &&str| word.replace("{host}", host).replace("{node}", &node.to_string());
        let mut command = Command::new(filled(&program[0]));
        command.args(program[1..].iter().map(filled));
        if is_gated {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        }
        all.push(command.spawn()?);
    }
    if is_gated {
        let none = || io::Error::other("no pipe");
        for child in &mut all {
            child.stdout.as_mut().ok_or_else(none)?.read_exact(&mut [0])?;
        }
        for child in &mut all {
            child.stdin.as_mut().ok_or_else(none)?.write_all(b"g")?;
        }
    }
    let ended =
        all.iter_mut().map(|child| child.wait().map(|status| status.success())).collect::<io::Result<Vec<_>>>()?;
    if ended.contains(&false) { Err(io::Error::other("a program has failed")) } else { Ok(()) }
}
