//! The bare relays: `programs/relay.c` on each host, started before the time counts.
use std::ffi::OsString;
use std::fs;

use super::case::Shape;
use super::flags::Flags;
use super::hosts::{Hosts, wrong};
use super::report::Outcome;
use super::tree::Tree;
use crate::command::{Failure, Invocation};
use crate::programs::Program;
use crate::s4::secret::Secret;
use crate::setup::Setup;

/// One stream of the tree's bytes to all hosts; the caller ends the relays.
pub fn once(shape: Shape, tree: &Tree, flags: &Flags, setup: &Setup, hosts: &mut Hosts) -> Result<Outcome, Failure> {
    let program = setup.scratch.program(Program::Relay);
    let secret = Secret::new().map_err(wrong)?.text();
    let mut places = vec![String::new(); hosts.count()];
    // Each relay calls those below it, which are there already.
    for index in (0..hosts.count()).rev() {
        let below = shape.children(index, hosts.count()).map(|child| places[child].clone()).collect();
        places[index] = hosts.relay(index, &program, &secret, below)?;
    }
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| setup.scratch.file(name));
    let first = places.swap_remove(0);
    let argv: Vec<OsString> = vec![program.into(), "--source".into(), (&tree.stream).into(), first.into()];
    let env = vec![("RELAY_SECRET".into(), secret.into())];
    let limit = flags.common_flags.limit;
    Invocation { argv, env, stdout: Some(stdout.clone()), stderr, limit }.run(&setup.interrupt)?;
    let text = fs::read_to_string(stdout).map_err(wrong)?;
    let seconds = read(&text, hosts.count() as u64, tree.bytes).ok_or_else(|| wrong(format!("the relays: {text}")))?;
    Ok(Outcome { seconds, again_s: None, growth_bytes: None })
}

/// The time (s), if all nodes have all bytes.
fn read(text: &str, nodes: u64, bytes: u64) -> Option<f64> {
    let words: Vec<u64> =
        text.trim().strip_prefix("relayed ")?.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [to, len, ns] = words[..] else { return None };
    ((to, len) == (nodes, bytes)).then_some(ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_counts_if_all_have_it() {
        assert_eq!(read("relayed 2 100 1500000000\n", 2, 100), Some(1.5));
        for text in ["", "relayed 2 100\n", "relayed 1 100 5\n", "relayed 2 99 5\n"] {
            assert_eq!(read(text, 2, 100), None, "{text}");
        }
    }
}
