//! A session across the hosts, and `wireup stage` in it.
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::hosts::{Agent, Hosts};
use super::tree::Tree;
use crate::bench::Bench;
use crate::command::{Failure, Invocation, wrong};
use crate::leftovers::Interrupt;
use crate::samples::{Measures, bytes, rate, seconds, value_of};

/// The sessions that take part: with encrypted links, the default, and with plain ones.
pub const SESSIONS: [&str; 2] = ["wireup", "wireup-plain"];
/// Bound on each command (s).
pub const LIMIT_S: u64 = 300;
/// Time limit for ending a session (chosen).
const DOWN_LIMIT: Duration = Duration::from_secs(30);

pub struct Session<'a> {
    wireup: &'a Path,
    bench: &'a Bench,
    name: String,
    /// On each host.
    store: PathBuf,
    /// Its agents with their memory before anything was staged.
    agents: Vec<(Agent, u64)>,
}

impl<'a> Session<'a> {
    /// # Errors
    /// It did not start on all hosts; nothing of it is left.
    pub fn begin(
        contestant: &str,
        wireup: &'a Path,
        remote_shell: &str,
        bench: &'a Bench,
        hosts: &mut Hosts,
    ) -> Result<Session<'a>, Failure> {
        let name = format!("bench-{}-{contestant}", std::process::id());
        let store = hosts.folder.join(contestant);
        let mut session = Session { wireup, bench, name, store, agents: Vec::new() };
        let others: BTreeSet<Agent> = hosts.agents()?.into_iter().map(|(agent, _)| agent).collect();
        let list = bench.hosts.join(",");
        let mut words = vec!["up", "--name", &session.name, "--remote-shell", remote_shell, "--hosts", &list];
        if contestant == SESSIONS[1] {
            words.push("--plain-links");
        }
        session.wireup(words, &bench.interrupt).map_err(|failure| match failure {
            Failure::Interrupted => failure,
            failure => wrong(format!("wireup up: {failure}")),
        })?;
        session.agents = hosts.agents()?;
        session.agents.retain(|(agent, _)| !others.contains(agent));
        match session.agents.len() < hosts.count() {
            true => Err(wrong(format!("{} agents seen on {} hosts", session.agents.len(), hosts.count()))),
            false => Ok(session),
        }
    }

    /// Stages the tree, again while it is there, and drops it.
    pub fn stage(&self, tree: &Tree, hosts: &mut Hosts) -> Result<Measures, Failure> {
        let staged = self.staged(tree, hosts);
        let dropped = self.wireup(self.words("drop", None), &Interrupt::default());
        let measures = staged?;
        dropped?;
        Ok(measures)
    }

    fn staged(&self, tree: &Tree, hosts: &mut Hosts) -> Result<Measures, Failure> {
        // Digests of an earlier round: the files are new to wireup each time.
        match fs::remove_dir_all(self.cache()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
            _ => {}
        }
        // Their peaks begin anew.
        hosts.agents()?;
        let up = || self.wireup(self.words("up", Some(&tree.folder)), &self.bench.interrupt);
        let staged_s = up()?;
        let growth = self.growth(hosts)?;
        let (stored, host) = hosts.stored_min()?;
        // The same contents are kept once, and packed.
        if stored < tree.bytes / 16 {
            return Err(wrong(format!("host {}: {stored} bytes of {} are staged", hosts.name(host), tree.bytes)));
        }
        let speed = rate("speed", tree.bytes as f64 / staged_s);
        Ok(vec![speed, seconds("time", staged_s), seconds("again", up()?), bytes("growth", growth as f64)])
    }

    /// The most that an agent has had more than before anything was staged.
    fn growth(&self, hosts: &mut Hosts) -> Result<u64, Failure> {
        let agents: Vec<Agent> = self.agents.iter().map(|(agent, _)| *agent).collect();
        let peaks = hosts.peaks(&agents)?;
        let before =
            |agent: Agent| self.agents.iter().find(|(other, _)| *other == agent).map_or(0, |(_, bytes)| *bytes);
        // The list may contain processes that an agent had just forked, which look like agents and end soon.
        let still: BTreeSet<usize> = peaks.iter().filter_map(|((host, _), _)| *host).collect();
        match still.len() == hosts.count() {
            true => Ok(peaks.iter().map(|(agent, peak)| peak.saturating_sub(before(*agent))).max().unwrap_or(0)),
            false => Err(wrong("an agent has ended")),
        }
    }

    fn words(&self, what: &str, path: Option<&Path>) -> Vec<OsString> {
        let mut stage = OsString::from("--stage=");
        stage.push(&self.store);
        let mut words: Vec<OsString> = vec!["stage".into(), what.into()];
        words.extend(path.map(OsString::from));
        words.extend(["--session".into(), (&self.name).into(), stage]);
        words
    }

    fn cache(&self) -> PathBuf {
        self.bench.scratch.file("cache")
    }

    /// How long the command took (s).
    fn wireup(&self, words: Vec<impl Into<OsString>>, interrupt: &Interrupt) -> Result<f64, Failure> {
        let measures = self.command(words, self.bench.limit_or(LIMIT_S)).run(interrupt)?;
        value_of(&measures, "wall").ok_or_else(|| wrong("no time"))
    }

    fn command(&self, words: Vec<impl Into<OsString>>, limit: Duration) -> Invocation {
        let words = words.into_iter().map(Into::into);
        Invocation {
            argv: std::iter::once(self.wireup.into()).chain(words).collect(),
            env: vec![("XDG_CACHE_HOME".into(), self.cache().into())],
            stdout: None,
            stderr: self.bench.scratch.file("session-stderr"),
            limit,
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let words = ["down", "--kill", "--session", &self.name].map(OsString::from).to_vec();
        // Also after an interrupt, which is the purpose of this.
        let _ = self.command(words, DOWN_LIMIT).run(&Interrupt::default());
    }
}
