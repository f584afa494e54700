//! Watches a rank from the start of its program to its end.

use crate::gather::{Folder, Gathered};
use crate::links::Links;
use crate::observer::Observer;
use crate::place::{Place, Socket};
use crate::port::Port;
use crate::preload::Preload;
use crate::process::{self, Effort};
use crate::record::{End, Record, Spoke, Tally};
use crate::relay::{self, Relay};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use thiserror::Error;
use wireup_os::clock::monotonic_ns;
use wireup_os::process::{
    Inherited, SavedMask, SignalFd, block_all_signals, kill, shares_group_with_parent, shorten_slice, start_bound,
};
use wireup_os::{files, inherit, socket};
use wireup_wire::pmi::{Dialect, SERVER_NAME};

/// Signals that a launcher sends to its ranks and that the tap passes on: SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2 and
/// SIGTERM.
const PASSED_ON: [i32; 6] = [1, 2, 3, 10, 12, 15];
const SIGCHLD: i32 = 17;
/// Longest time after a rank's end for which bytes that it had written are still passed on.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Longest wait for other ranks' records if this rank has failed: the launcher is ending the job.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A rank that has run for less time than this (ns) waits for rank 0 to create the folder.
const YOUNG_NS: u64 = 1_000_000_000;
/// Longest wait for rank 0 to create the folder, which it never does if it has no tap.
const FOLDER_WAIT: Duration = Duration::from_secs(2);

/// The settings of a tap.
pub struct Tap {
    pub place: Place,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// A folder on a file system that all nodes share.
    pub folder: PathBuf,
    pub preload: bool,
    /// Whether rank 0 keeps its standard output, for the profile.
    pub keeps_stdout: bool,
    /// Longest wait for the records of other ranks.
    pub wait: Duration,
    /// Time at which this process began, on the monotonic clock.
    pub process_ns: u64,
    /// SIGPIPE, SIGXFSZ, both or neither: the signals that this process ignored when it began. The program ignores them
    /// too.
    pub ignored: Vec<i32>,
}

#[derive(Error, Debug)]
pub enum TapError {
    /// The program cannot be executed; the exit code is that of a shell: 127 or 126.
    #[error("cannot execute {program}: {error}")]
    Program { program: String, error: io::Error },
    /// The tap could not begin, and nothing has changed, so the program can be run without a tap.
    #[error("{what}: {error}")]
    NotBegun { what: &'static str, error: io::Error },
    #[error("{what}: {error}")]
    Failed { what: &'static str, error: io::Error },
}

/// This rank's place in its job, according to the environment, the open descriptors and the visible processes. `None`:
/// there is no PMI server.
pub fn place() -> Option<Place> {
    Place::read(|name| std::env::var(name).ok(), socket_of, || process::launcher("").name)
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> TapError {
    move |error| TapError::Failed { what, error }
}

/// The result of watching a rank.
pub struct Ended {
    pub end: End,
    /// The records of all ranks, on rank 0; `None` on every other rank.
    pub gathered: Option<Gathered>,
    /// Why no records were gathered, for the user.
    pub problem: Option<String>,
    /// Messages for the user about what the tap could not see of this rank, and why.
    pub notes: Vec<String>,
}

/// Starts the program, and returns after it has ended.
pub fn run(tap: Tap) -> Result<Ended, TapError> {
    let mut watch = Watch::start(tap)?;
    let status = watch.until_the_end()?;
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => End::Exit(code as u8),
        (None, signal) => End::Signal(signal.unwrap_or(9) as u8),
    };
    Ok(watch.finish(end))
}

struct Watch {
    tap: Tap,
    child: Child,
    signals: SignalFd,
    /// Whether signals must be passed on, because the launcher sends them to this process alone, not to its group.
    passes_on: bool,
    links: Links,
    preload: Option<Preload>,
    launcher: process::Launcher,
    exec_ns: u64,
    effort: Option<Effort>,
    /// The job's folder, on rank 0; created when the job's name is known.
    folder: Option<Folder>,
    problem: Option<String>,
    notes: Vec<String>,
    /// Whether the tap could not set up what it needs to watch requests.
    is_bare: bool,
}

impl Watch {
    fn start(tap: Tap) -> Result<Watch, TapError> {
        let mask = block_all_signals();
        let mut signals = PASSED_ON.to_vec();
        signals.push(SIGCHLD);
        let signals = SignalFd::new(&signals).map_err(|error| {
            mask.clone().restore();
            TapError::NotBegun { what: "no descriptor for signals", error }
        })?;
        let mut notes = Vec::new();
        let mut command = Command::new(&tap.program);
        command.args(&tap.arguments);
        // If the tap cannot watch requests, it still runs the program.
        let mut is_bare = false;
        let mut without = |what: &str, error: io::Error| {
            notes.push(format!("{what}: {error}"));
            is_bare = true;
        };
        let wanted = tap.preload && tap.place.offers.pmix;
        let preload = wanted.then(Preload::new).and_then(|made| {
            made.map_err(|error| without("PMIx calls are not seen: no memory for the library to preload", error)).ok()
        });
        if let Some(preload) = &preload {
            preload.add_to(&mut command);
        }
        let (links, ranks_end) = link(&tap.place, &mut command).unwrap_or_else(|error| {
            without("PMI requests are not seen: the link to the server cannot be relayed", error);
            (Links::default(), None)
        });
        // The time is taken before the start, since the program may run before this process continues.
        let exec_ns = monotonic_ns();
        let child = match spawn(&tap, &mut command, ranks_end, mask) {
            Ok(child) => child,
            Err(error) => {
                // The rank's own descriptor must not be closed with `links`, since the program may then be run without
                // a tap.
                std::mem::forget(links);
                return Err(error);
            }
        };
        // With a short slice, a request need not wait until a polling rank has used up its time on the CPU.
        shorten_slice();
        let mut watch = Watch {
            passes_on: shares_group_with_parent(),
            launcher: process::launcher(tap.place.launcher),
            tap,
            child,
            signals,
            links,
            preload,
            exec_ns,
            effort: None,
            folder: None,
            problem: None,
            notes,
            is_bare,
        };
        watch.close_others();
        if watch.tap.place.rank == 0 {
            watch.make_folder();
        }
        Ok(watch)
    }

    /// Closes all descriptors that the tap does not need: streams and pipes of the rank must end when the rank does.
    fn close_others(&self) {
        let mut keep = vec![self.signals.as_fd()];
        keep.extend(self.preload.iter().flat_map(Preload::fds));
        keep.extend(self.links.fds());
        let Ok(null) = files::null() else { return };
        // The standard streams become `/dev/null`; rank 0 keeps those that get the profile.
        let _ = rustix::stdio::dup2_stdin(&null);
        let is_first = self.tap.place.rank == 0;
        if !is_first || !self.tap.keeps_stdout {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        if !is_first {
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        drop(null);
        keep.extend([rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]);
        files::close_all_but(&keep);
    }

    fn until_the_end(&mut self) -> Result<std::process::ExitStatus, TapError> {
        loop {
            // No time limit: SIGCHLD reports the program's end.
            let happened = self.links.wait(Some(&self.signals), None).map_err(failed("cannot wait for the program"))?;
            if happened.first_words {
                self.effort = Some(process::effort(self.child.id()));
            }
            if happened.on_links && self.folder.is_none() && self.tap.place.rank == 0 {
                self.make_folder();
            }
            if !happened.signal {
                continue;
            }
            while let Some((signal, sender)) = self.signals.read_from() {
                if signal == SIGCHLD {
                    if let Some(status) = self.child.try_wait().map_err(failed("cannot wait for the program"))? {
                        self.links.carry_last_words(LAST_WORDS);
                        return Ok(status);
                    }
                } else if self.passes_on && sender.is_some() && sender == wireup_os::process::parent() {
                    // An error is ignored: the program may have ended.
                    let _ = kill(self.child.id(), signal);
                }
            }
        }
    }

    /// The name of the job, if it is known yet.
    fn job(&self) -> Option<String> {
        let place = &self.tap.place;
        let given = self.links.observer().filter(|observer| !observer.job.is_empty());
        let given = || given.map(|observer| String::from_utf8_lossy(&observer.job).into_owned());
        let step = place.step.clone().filter(|_| self.launcher.name == "srun");
        place.job.clone().or(step).or_else(given)
    }

    fn make_folder(&mut self) {
        let Some(job) = self.job() else { return };
        let folder = Folder::new(&self.tap.folder, &job);
        if let Err(error) = folder.create() {
            let path = folder.path().display();
            self.problem = Some(format!("{path}: {error}; name a folder that all nodes see with --dir"));
        }
        self.folder = Some(folder);
    }

    fn finish(self, end: End) -> Ended {
        let mut record = self.record(end, monotonic_ns());
        if record.check().is_err() {
            // The rank can write anything to the page, so invalid counts are dropped.
            (record.tally, record.is_lost) = (Tally::default(), true);
        }
        let failed = end != End::Exit(0);
        let wait = if failed { self.tap.wait.min(AFTER_FAILURE) } else { self.tap.wait };
        if record.rank != 0 {
            if let Some(job) = self.job() {
                // A missing folder means that rank 0 has ended; but if this job is young, rank 0 may not have created
                // it yet.
                let is_young = record.end_ns - record.tap_ns < YOUNG_NS && !matches!(end, End::Signal(_));
                let wait = if is_young { wait.min(FOLDER_WAIT) } else { Duration::ZERO };
                let _ = Folder::new(&self.tap.folder, &job).leave_within(&record, wait);
            }
            return Ended { end, gathered: None, problem: None, notes: self.notes };
        }
        let gathered = match self.folder.filter(|_| self.problem.is_none()) {
            Some(folder) => folder.collect(&record, Instant::now() + wait),
            None => Gathered::alone(record),
        };
        Ended { end, gathered: Some(gathered), problem: self.problem, notes: self.notes }
    }

    fn record(&self, end: End, end_ns: u64) -> Record {
        let by_pmi = self.links.observer().map(|observer| (observer, Tally::of(&observer.page)));
        let by_pmix = self.preload.as_ref().map(Preload::tally).filter(|tally| tally.calls() > 0);
        let (spoke, mut tally) = match (by_pmi, by_pmix) {
            (Some((observer, tally)), by_pmix) if tally.calls() > 0 || by_pmix.is_none() => {
                let spoke = match observer.dialect() {
                    _ if tally.first_ns == 0 => Spoke::Not,
                    Dialect::Pmi1 => Spoke::Pmi1,
                    Dialect::Pmi2 => Spoke::Pmi2,
                };
                (spoke, tally)
            }
            (_, Some(tally)) => (Spoke::Pmix, tally),
            (_, None) => (Spoke::Not, Tally::default()),
        };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let offset_ns = (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).saturating_sub(monotonic_ns());
        let wall = |at: u64| if at == 0 { 0 } else { at.saturating_add(offset_ns) };
        for at in [&mut tally.loaded_ns, &mut tally.first_ns, &mut tally.finalize_ns, &mut tally.last_ns] {
            *at = wall(*at);
        }
        tally.fence_times.iter_mut().for_each(|times| *times = (wall(times.0), wall(times.1)));
        let place = &self.tap.place;
        Record {
            rank: place.rank,
            size: place.size.unwrap_or(0),
            node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            launcher: self.launcher.name.clone(),
            process: self.launcher.process.clone(),
            spoke,
            end,
            is_bare: self.is_bare,
            is_lost: self.links.observer().is_some_and(|observer| observer.is_lost),
            // The kernel rounds a process's start time to ticks, so it may seem to be after the tap's.
            launcher_ns: wall(self.launcher.started_ns.min(self.tap.process_ns)),
            tap_ns: wall(self.tap.process_ns),
            exec_ns: wall(self.exec_ns),
            end_ns: wall(end_ns),
            effort: self.effort.unwrap_or_default(),
            tally,
        }
    }
}

/// The links, and the rank's end of one link with its descriptor number in the rank.
type Made = (Links, Option<(OwnedFd, i32)>);

/// The kind of the open file with that descriptor number.
fn socket_of(number: i32) -> Socket {
    let kind = inherit::ask(number, |fd| match relay::is_stream(fd) {
        Ok(true) if relay::has_name(fd, &SERVER_NAME) => Socket::Ours,
        Ok(true) => Socket::Other,
        Ok(false) | Err(_) => Socket::None,
    });
    kind.unwrap_or(Socket::None)
}

/// Sets up the links. After an error the rank's own descriptor and variables are unchanged.
fn link(place: &Place, command: &mut Command) -> io::Result<Made> {
    if let Some(number) = place.offers.fd {
        let (own, ranks) = socket::pair()?;
        let server = inherit::take(number)?;
        // wireup's own client library recognizes wireup's server by the name of the socket.
        if relay::has_name(&server, &SERVER_NAME) {
            let _ = socket::name(&own, &SERVER_NAME);
        }
        let relay = Relay::new(own, server, Observer::default());
        return Ok((Links::of_socket(relay), Some((ranks, number))));
    }
    if place.offers.port {
        let server = std::env::var("PMI_PORT").map_err(io::Error::other)?;
        let port = Port::listen(&server)?;
        command.env("PMI_PORT", port.address()?.to_string());
        return Ok((Links::of_port(port), None));
    }
    Ok((Links::default(), None))
}

fn spawn(
    tap: &Tap,
    command: &mut Command,
    ranks_end: Option<(OwnedFd, i32)>,
    mask: SavedMask,
) -> Result<Child, TapError> {
    let fd = ranks_end.as_ref().map(|(fd, number)| (fd.as_fd(), *number));
    let inherited = Inherited { mask: mask.clone(), ignored: tap.ignored.clone() };
    start_bound(command, fd, inherited).map_err(|error| {
        let errno = Errno::from_io_error(&error);
        if errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM].contains(&errno)) {
            mask.restore();
            TapError::NotBegun { what: "there is no room for one more process", error }
        } else {
            TapError::Program { program: tap.program.to_string_lossy().into_owned(), error }
        }
    })
}
