//! A session on the hosts, and `wireup stage` in that session.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::host;
use super::tree::Tree;
use crate::bench::Bench;
use crate::command::{Failure, Invocation, wrong};
use crate::launch::RunningSession;
use crate::leftovers::Interrupt;
use crate::remote::Remotes;
use crate::samples::{Measures, bytes, rate, seconds, value_of};

/// The sessions that take part: `wireup` with encrypted links, the default, and `wireup-plain` with unencrypted ones.
pub const SESSIONS: [&str; 2] = ["wireup", "wireup-plain"];
/// Time limit of each command (s).
pub const LIMIT_S: u64 = 300;

/// Memory of agents (bytes) and its peak since the last reading. The key is the host that lists the agent (`None`: the
/// host of the benchmark) and the agent's pid there.
type Agents = BTreeMap<(Option<usize>, i32), [u64; 2]>;

/// Sends an order to the helper process on a host; returns the answer.
pub fn ask(hosts: &mut Remotes, index: usize, order: &str) -> Result<String, Failure> {
    let answer = hosts.ask(index, order)?;
    match answer.strip_prefix("failed ") {
        Some(why) => Err(wrong(format!("host {}: {why}", hosts.all[index].host))),
        None => Ok(answer),
    }
}

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
    bench: &'a Bench,
    name: String,
    _running: RunningSession,
    /// Folder of the store of staged files: the same path on each host.
    store: PathBuf,
    /// The session's agents, each with its memory before anything was staged.
    agents: Agents,
}

impl<'a> Session<'a> {
    /// # Errors
    /// The session did not start on all hosts; nothing of it is left.
    pub fn begin(
        contestant: &str,
        stores: &Path,
        bench: &'a Bench,
        hosts: &mut Remotes,
    ) -> Result<Session<'a>, Failure> {
        let name = format!("bench-{}-{contestant}", std::process::id());
        let others = agents(hosts)?;
        let shell = bench.remote_shell()?;
        let mut words = ["--remote-shell", &shell, "--hosts", &bench.hosts.join(",")].map(OsString::from).to_vec();
        words.extend((contestant == SESSIONS[1]).then(|| "--plain-links".into()));
        let _running = RunningSession::up(bench, &name, words, bench.limit_or(LIMIT_S))?;
        let mut of_session = agents(hosts)?;
        of_session.retain(|agent, _| !others.contains_key(agent));
        match of_session.len() < hosts.all.len() {
            true => Err(wrong(format!("{} agents seen on {} hosts", of_session.len(), hosts.all.len()))),
            false => Ok(Session { bench, name, _running, store: stores.join(contestant), agents: of_session }),
        }
    }

    /// Stages the tree, stages it again while it is in the store, and drops it.
    pub fn stage(&self, tree: &Tree, hosts: &mut Remotes) -> Result<Measures, Failure> {
        let staged = self.staged(tree, hosts);
        // The tree is dropped even after an interrupt: the next tree must find an empty store.
        let dropped = self.wireup("drop", None, &Interrupt::default());
        let measures = staged?;
        dropped.map(|_| measures)
    }

    fn staged(&self, tree: &Tree, hosts: &mut Remotes) -> Result<Measures, Failure> {
        // Removes the cached digests of an earlier round, so that the files are new to wireup each time.
        match fs::remove_dir_all(self.cache()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
            _ => {}
        }
        // Reading the agents' memory resets its peaks.
        agents(hosts)?;
        let up = || self.wireup("up", Some(&tree.folder), &self.bench.interrupt);
        let staged_s = up()?;
        let growth = self.growth(agents(hosts)?, hosts.all.len())?;
        for index in 0..hosts.all.len() {
            let stored: u64 = ask(hosts, index, "stored")?.parse().map_err(wrong)?;
            // Equal contents are stored only once and packed, but so few bytes cannot be the tree.
            if stored < tree.bytes / 16 {
                let host = &hosts.all[index].host;
                return Err(wrong(format!("host {host}: {stored} bytes of {} are staged", tree.bytes)));
            }
        }
        let speed = rate("speed", tree.bytes as f64 / staged_s);
        Ok(vec![speed, seconds("time", staged_s), seconds("again", up()?), bytes("growth", growth as f64)])
    }

    /// The largest increase of one agent's memory since before anything was staged (bytes).
    fn growth(&self, now: Agents, hosts: usize) -> Result<u64, Failure> {
        // Agents that no longer exist are left out: the list may contain processes that an agent had just forked, which
        // look like agents and end soon.
        let still: Vec<_> = self.agents.iter().filter(|(agent, _)| now.contains_key(*agent)).collect();
        match (0..hosts).all(|host| still.iter().any(|((on, _), _)| *on == Some(host))) {
            true => {
                Ok(still.iter().map(|(agent, [before, _])| now[*agent][1].saturating_sub(*before)).max().unwrap_or(0))
            }
            false => Err(wrong("an agent has ended")),
        }
    }

    fn cache(&self) -> PathBuf {
        self.bench.scratch.file("cache")
    }

    /// Runs a `wireup stage` command; returns the time that it took (s).
    fn wireup(&self, what: &str, path: Option<&Path>, interrupt: &Interrupt) -> Result<f64, Failure> {
        let mut stage = OsString::from("--stage=");
        stage.push(&self.store);
        let mut argv: Vec<OsString> = vec![self.bench.wireup()?.into(), "stage".into(), what.into()];
        argv.extend(path.map(OsString::from));
        argv.extend(["--session".into(), (&self.name).into(), stage]);
        let env = vec![("XDG_CACHE_HOME".into(), self.cache().into())];
        let command = Invocation { env, stdout: None, ..self.bench.command(argv, self.bench.limit_or(LIMIT_S)) };
        value_of(&command.run(interrupt)?, "wall").ok_or_else(|| wrong("no time"))
    }
}
