//! A session across the hosts, and `wireup stage` in it.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::host;
use super::tree::Tree;
use crate::bench::Bench;
use crate::command::{Failure, Invocation, wrong};
use crate::leftovers::Interrupt;
use crate::remote::Remotes;
use crate::samples::{Measures, bytes, rate, seconds, value_of};

/// The sessions that take part: with encrypted links, the default, and with plain ones.
pub const SESSIONS: [&str; 2] = ["wireup", "wireup-plain"];
/// Bound on each command (s).
pub const LIMIT_S: u64 = 300;
/// Time limit for ending a session (chosen).
const DOWN_LIMIT: Duration = Duration::from_secs(30);

/// Agents by the host that sees them, none for the benchmark's own, and their number there: their memory, and the most
/// since the last look.
type Agents = BTreeMap<(Option<usize>, i32), [u64; 2]>;

/// The answer of a host.
pub fn ask(hosts: &mut Remotes, index: usize, order: &str) -> Result<String, Failure> {
    let answer = hosts.ask(index, order)?;
    match answer.strip_prefix("failed ") {
        Some(why) => Err(wrong(format!("host {}: {why}", hosts.all[index].host))),
        None => Ok(answer),
    }
}

/// All agents on all hosts and here.
fn agents(hosts: &mut Remotes) -> Result<Agents, Failure> {
    let mut told = vec![(None, host::agents())];
    for index in 0..hosts.all.len() {
        told.push((Some(index), ask(hosts, index, "agents")?));
    }
    let mut all = Agents::new();
    for (host, agent) in told.iter().flat_map(|(host, text)| text.split_whitespace().map(move |agent| (*host, agent))) {
        let numbers: Vec<u64> = agent.split(':').filter_map(|number| number.parse().ok()).collect();
        let &[pid, now, peak] = &numbers[..] else { return Err(wrong(format!("not an agent: {agent}"))) };
        all.insert((host, pid as i32), [now, peak]);
    }
    Ok(all)
}

pub struct Session<'a> {
    wireup: &'a Path,
    bench: &'a Bench,
    name: String,
    /// On each host.
    store: PathBuf,
    /// The session's agents with their memory before anything was staged.
    agents: Agents,
}

impl<'a> Session<'a> {
    /// # Errors
    /// It did not start on all hosts; nothing of it is left.
    pub fn begin(
        contestant: &str,
        wireup: &'a Path,
        remote_shell: &str,
        stores: &Path,
        bench: &'a Bench,
        hosts: &mut Remotes,
    ) -> Result<Session<'a>, Failure> {
        let name = format!("bench-{}-{contestant}", std::process::id());
        let mut session = Session { wireup, bench, name, store: stores.join(contestant), agents: Agents::new() };
        let others = agents(hosts)?;
        let list = bench.hosts.join(",");
        let mut words = vec!["up", "--name", &session.name, "--remote-shell", remote_shell, "--hosts", &list];
        if contestant == SESSIONS[1] {
            words.push("--plain-links");
        }
        session.wireup(words, &bench.interrupt).map_err(|failure| match failure {
            Failure::Interrupted => failure,
            failure => wrong(format!("wireup up: {failure}")),
        })?;
        session.agents = agents(hosts)?;
        session.agents.retain(|agent, _| !others.contains_key(agent));
        match session.agents.len() < hosts.all.len() {
            true => Err(wrong(format!("{} agents seen on {} hosts", session.agents.len(), hosts.all.len()))),
            false => Ok(session),
        }
    }

    /// Stages the tree, again while it is there, and drops it.
    pub fn stage(&self, tree: &Tree, hosts: &mut Remotes) -> Result<Measures, Failure> {
        let staged = self.staged(tree, hosts);
        let dropped = self.wireup(self.words("drop", None), &Interrupt::default());
        let measures = staged?;
        dropped.map(|_| measures)
    }

    fn staged(&self, tree: &Tree, hosts: &mut Remotes) -> Result<Measures, Failure> {
        // Digests of an earlier round: the files are new to wireup each time.
        match fs::remove_dir_all(self.cache()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
            _ => {}
        }
        // Their peaks begin anew.
        agents(hosts)?;
        let up = || self.wireup(self.words("up", Some(&tree.folder)), &self.bench.interrupt);
        let staged_s = up()?;
        let growth = self.growth(agents(hosts)?, hosts.all.len())?;
        for index in 0..hosts.all.len() {
            let stored: u64 = ask(hosts, index, "stored")?.parse().map_err(wrong)?;
            // The same contents are kept once, and packed.
            if stored < tree.bytes / 16 {
                let host = &hosts.all[index].host;
                return Err(wrong(format!("host {host}: {stored} bytes of {} are staged", tree.bytes)));
            }
        }
        let speed = rate("speed", tree.bytes as f64 / staged_s);
        Ok(vec![speed, seconds("time", staged_s), seconds("again", up()?), bytes("growth", growth as f64)])
    }

    /// The most that an agent has had more than before anything was staged.
    fn growth(&self, now: Agents, hosts: usize) -> Result<u64, Failure> {
        // The list may contain processes that an agent had just forked, which look like agents and end soon.
        let still: Vec<_> = self.agents.iter().filter(|(agent, _)| now.contains_key(*agent)).collect();
        match (0..hosts).all(|host| still.iter().any(|((on, _), _)| *on == Some(host))) {
            true => {
                Ok(still.iter().map(|(agent, [before, _])| now[*agent][1].saturating_sub(*before)).max().unwrap_or(0))
            }
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
