//! A line on a terminal for a person who waits: shown after a second, written again in place, erased at the end.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use wireup_wire::session::{NodeState, Presence};

/// Shorter waits show nothing (chosen).
const QUIET: Duration = Duration::from_secs(1);
/// The time between two updates of the line (chosen).
const REFRESH: Duration = Duration::from_millis(200);
/// Nodes whose names the line shows; further ones are only counted.
const NAMED: usize = 3;

pub struct Progress {
    begun: Instant,
    due: Instant,
    is_shown: bool,
}

impl Progress {
    pub fn new() -> Progress {
        let begun = Instant::now();
        Progress { begun, due: begun + QUIET, is_shown: false }
    }

    /// Whether there is a person to see it, at a terminal that can erase a line.
    pub fn has_reader() -> bool {
        std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
    }

    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if Instant::now() < self.due || !Progress::has_reader() {
            return;
        }
        self.due = Instant::now() + REFRESH;
        self.is_shown = true;
        write(&format!("{ERASE}{}", cut(&format!("wireup: {}", text()), columns())));
    }

    /// Shows which nodes are still starting.
    pub fn show_starting(&mut self, nodes: &[NodeState]) {
        let seconds = self.begun.elapsed().as_secs();
        self.show(|| starting(nodes, seconds));
    }

    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            write(ERASE);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

const ERASE: &str = "\r\x1b[K";

/// Writes to standard error, unless that would block because the user has stopped the terminal (Ctrl-S).
fn write(text: &str) {
    let stderr = rustix::stdio::stderr();
    if wireup_os::socket::wait(stderr, false, true, Some(Duration::ZERO)).unwrap_or(false) {
        // The error is ignored: the progress line is only a convenience.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

fn columns() -> usize {
    wireup_os::pty::size(rustix::stdio::stderr())
        .map_or(80, |(_, columns)| if columns == 0 { 80 } else { usize::from(columns).max(20) })
}

/// The part of the text that fits on one line of the terminal.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns - 1).collect()
}

/// `starting nodes: 61 of 64 are up; waiting for n3, n7 and 1 more (12 s)`
fn starting(nodes: &[NodeState], seconds: u64) -> String {
    let is_starting = |node: &&NodeState| node.presence == Presence::Starting;
    let up = nodes.iter().filter(|node| node.presence == Presence::Up).count();
    let waiting = waiting_for(nodes.iter().filter(is_starting).map(|node| node.host.as_str()));
    format!("starting nodes: {up} of {} are up{waiting} ({seconds} s)", nodes.len())
}

/// `; waiting for n3, n7 and 2 more`; nothing without names.
pub fn waiting_for<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len() {
        0 => String::new(),
        len @ ..=NAMED => format!("; waiting for {}", names[..len].join(", ")),
        len => format!("; waiting for {} and {} more", names[..NAMED].join(", "), len - NAMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_nodes_are_named() {
        let waiting = |names: &[&'static str]| waiting_for(names.iter().copied());
        assert_eq!(waiting(&[]), "");
        assert_eq!(waiting(&["n1", "n2"]), "; waiting for n1, n2");
        assert_eq!(waiting(&["a", "b", "c", "d", "e"]), "; waiting for a, b, c and 2 more");
    }

    #[test]
    fn starting_nodes_are_counted_on_one_line() {
        let node = |host: &str, presence| NodeState { host: host.into(), slots: 1, presence };
        let lost = Presence::Lost { problem: "gone".into() };
        let nodes = [node("n0", Presence::Up), node("n1", Presence::Starting), node("n2", lost)];
        assert_eq!(starting(&nodes, 12), "starting nodes: 1 of 3 are up; waiting for n1 (12 s)");
        assert_eq!(cut("wireup: starting", 8), "wireup:");
    }
}
