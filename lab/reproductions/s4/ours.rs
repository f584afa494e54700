//! The same job by `wireup run`: its ranks make the same sockets, exchange their addresses by put, fence and gets of
//! PMI, and connect each to each. By itself `wireup run` starts its agents first; in a session the agents stand, as
//! those of the scheme MPD do.
//!
//! The time ends as in the other schemes: when the launcher knows of every process that it is connected. Each rank
//! prints a line then, and `wireup run` forwards these lines.
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use wireup_bench::bench::Bench;
use wireup_bench::command::{Failure, GLANCE, Invocation, await_any};
use wireup_bench::programs::fifo;
use wireup_bench::remote::address_of;
use wireup_bench::samples::{Measures, seconds};
use wireup_bench::{RunningSession, stamps};
use wireup_capi::job::{Job, JobSlot};
use wireup_capi::net::now_ns;
use wireup_os::process::raise_open_files;

use crate::s2::rank::{Connected, Get, connect_by_pairs, shown};

use super::sockets::close_all;

/// The first argument of a process that is a rank.
pub const WORD: &str = "s4-rank";

static JOB: JobSlot<()> = JobSlot::new();

/// Runs a rank. `args`: the addresses of the job's hosts, each of which has the same number of ranks.
pub fn run(args: &[OsString]) -> Result<(), String> {
    let mut clock = now_ns();
    let hosts: Option<Vec<Ipv4Addr>> = args.iter().map(|arg| arg.to_str()?.parse().ok()).collect();
    let hosts = hosts.filter(|hosts| !hosts.is_empty()).ok_or("wireup-reproduce s4 starts these processes itself")?;
    raise_open_files().map_err(shown)?;
    let mut job = Job::join(&JOB).map_err(shown)?;
    let own = hosts[job.rank as usize * hosts.len() / job.size as usize];
    let Connected { sockets, exchange_ns, connect_ns } = connect_by_pairs(&mut job, own, Get::FromMemory, &mut clock)?;
    println!("{} {exchange_ns} {connect_ns}", job.rank);
    // No rank exits before all are connected.
    let fence = job.start_fence();
    job.finish(fence).map_err(shown)?;
    close_all(sockets);
    JOB.leave(job.with).map_err(shown)
}

/// Starts a session on all hosts; returns it with its name.
pub fn raise(bench: &Bench, limit: Duration) -> Result<(RunningSession, String), Failure> {
    let name = format!("s4-{}", std::process::id());
    let hosts = format!("--hosts={}", bench.hosts.join(","));
    let shell = format!("--remote-shell={}", bench.remote_shell()?);
    let session = RunningSession::up(bench, &name, vec![hosts.into(), shell.into()], limit)?;
    bench.keep_running();
    Ok((session, name))
}

/// Runs a job of this size, in the session of this name if there is one.
pub fn by_wireup(bench: &Bench, size: u16, session: Option<&str>, limit: Duration) -> Result<Measures, Failure> {
    let used = usize::from(size).min(bench.hosts.len());
    let each = usize::from(size) / used;
    let mut argv = match session {
        None => bench.wireup_run(size.into(), used as u32, each as u32, "--pmi=simple")?,
        Some(name) => {
            let words = format!("run --session={name} -n={size} --ppn={each} --pmi=simple");
            let words = words.split(' ').map(OsString::from).chain(bench.wireup_args.iter().map(OsString::from));
            std::iter::once(bench.wireup()?.into()).chain(words).collect()
        }
    };
    argv.extend([bench.own_program()?.into(), WORD.into()]);
    for host in &bench.hosts[..used] {
        argv.push(address_of(host)?.to_string().into());
    }
    let path = bench.scratch.file("lines");
    let mut output = fifo(&path)?;
    let command = Invocation { stdout: Some(path), ..bench.command(argv, limit) };
    let (mut running, mut text) = (command.start(&bench.interrupt)?, Vec::new());
    while text.iter().filter(|byte| **byte == b'\n').count() < size.into() {
        let is_over = running.ends_within(Duration::ZERO)?;
        await_any(&mut [PollFd::new(&output, PollFlags::IN)], Instant::now() + GLANCE)?;
        let mut piece = [0; 1 << 12];
        match output.read(&mut piece) {
            Ok(count) => text.extend(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock && is_over => return Err(running.failure()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    let connected_s = running.begin.elapsed().as_secs_f64();
    running.finish()?;
    let all = stamps::lines(&String::from_utf8_lossy(&text), 3, size.into())?;
    let longest = |at: usize| all.iter().map(|line| line[at]).max().unwrap_or(0) as f64 / 1e9;
    Ok(vec![
        seconds("connected", connected_s),
        seconds("exchange-max", longest(1)),
        seconds("connecting-max", longest(2)),
    ])
}
