//! Imports modules once for all ranks of a node: one interpreter, the *importer*, imports them, and each rank is a fork
//! of it.
//!
//! The importer is the interpreter of the ranks' program, with the same options. It reads wireup's own Python program
//! (`record.py` and `importer.py`) from standard input. A rank must be a child of the keeper, so a middle process forks
//! up to 32 ranks and ends; the keeper, a subreaper, becomes their parent. Cost: one fork for each rank instead of an
//! `exec` and the imports.
//!
//! Messages are packets on a socket that the importer, the middle processes and the ranks share until they are set up.
//! The fields of a packet are separated by spaces:
//!
//! ```text
//!   no REASON                importer: the ranks cannot be forked from it
//!   declined REASON          importer kept from an earlier job: it cannot run this job, but is kept for others
//!   recorded MODULES         importer: where it has found the names of modules, and which they are
//!   ready                    importer: it has imported the modules
//!   forked SLOT PID          middle process: this rank exists
//!   up SLOT PID              rank: about to run the program
//!   failed SLOT STEP ERRNO   rank, or middle process
//! ```
//!
//! The keeper sends a packet for each rank, with its descriptors: `SLOT SESSION PMI LISTENS TRACER THREADS`, zero, its
//! CPUs separated by commas, and its variables, each after a zero. While 32 ranks are requested and not yet up, it
//! waits.
//!
//! In a session with `wireup up --preload` an importer outlives its job, and serves a later job with the same
//! [`Likeness`]: the keeper sends `job`, zero, and the fields of the job as in the first line of the Python program.
//! The importer answers `ready`; or `declined REASON` if there is no such program; or `no REASON`, for example if a
//! file of a module has changed, and then another importer is started.

mod command;

use super::protocol::{Process, Program};
use super::staged::Redirected;
use command::{Call, Runs};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use wireup_os::bind::{self, CpuSet};
use wireup_os::process::{self, Ended, own_pid};
use wireup_os::socket;
use wireup_os::spawn::Session;
use wireup_wire::job::{Limit, Preload};
use wireup_wire::secondary_client::VARIABLE;
use wireup_wire::signal::SIGKILL;

/// Most ranks that are requested and not yet set up.
pub(super) const UNDER_WAY_MAX: usize = 32;
/// Longest packet from the importer (bytes); a longer reason is truncated.
const PACKET_MAX: usize = 4096;

const IMPORTER: &str = concat!(include_str!("record.py"), include_str!("importer.py"));

/// Variables that limit OpenBLAS's number of threads, by descending precedence. The importer uses the number of its
/// first rank: if a rank changed the number, OpenBLAS would start threads at once, which poll for a while. An OpenMP
/// library starts threads when the library is first used.
const THREADS: [&str; 3] = ["OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"];

/// A variable with a secret that Open MPI's ranks share; it differs between jobs.
const TRANSPORTS_KEY: &str = "OMPI_MCA_orte_precondition_transports";

/// Least space (bytes) for the arguments of an importer that outlives its job: the ranks of later jobs store their
/// arguments in this space.
const TITLE_ROOM: usize = 1024;

/// How an importer is started, and the variables of its ranks that the importer does not have itself.
pub(super) struct Plan {
    pub program: Program,
    /// The packet that gives this job to an importer kept from an earlier job.
    pub job: Vec<u8>,
    pub likeness: Likeness,
    /// Program that the importer reads from standard input.
    pub script: Vec<u8>,
    pub for_ranks: ForRanks,
    /// OpenBLAS's number of threads in the importer.
    pub threads: usize,
}

/// Variables in which the ranks of a job differ from their importer.
#[derive(Default)]
pub(super) struct ForRanks {
    /// Variables of the program that are set in the ranks only, not in the importer.
    variables: Vec<Vec<u8>>,
    /// Variables of the program that limit OpenBLAS's number of threads.
    thread_limits: Vec<Vec<u8>>,
}

/// Properties that all jobs of an importer must share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Likeness {
    pub modules: Vec<String>,
    /// Name and options of the interpreter, without the program that the interpreter runs.
    pub interpreter: Program,
    pub umask: u32,
    pub limits: Vec<Limit>,
    pub shares_session: bool,
}

impl Plan {
    /// # Errors
    /// The reason why no modules can be imported once for this program.
    pub fn new(
        preload: &Preload,
        program: &Program,
        first: &Process,
        redirected: Option<&Redirected>,
    ) -> Result<Plan, String> {
        let modules = &preload.modules;
        if modules.iter().any(|module| module == "mpi4py.MPI") {
            return Err("mpi4py.MPI initialises MPI, which each rank must do itself".into());
        }
        let call = command::read(program, redirected)?;
        let (variables, mut env): (Vec<_>, Vec<_>) = program.env.iter().cloned().partition(|name| is_of_ranks(name));
        let is_limit = |variable: &&Vec<u8>| THREADS.iter().any(|name| value(variable, name).is_some());
        let thread_limits: Vec<_> = program.env.iter().filter(is_limit).cloned().collect();
        // `likeness` is without the number of threads: an importer with another number serves the job too.
        let interpreter = Program { argv: call.options.clone(), cwd: program.cwd.clone(), env: env.clone() };
        let threads = blas_threads(&thread_limits, first);
        env.push(format!("{}={threads}", THREADS[0]).into_bytes());
        let is_set = variables.iter().any(|variable| value(variable, THREADS[0]).is_some());
        let fields = fields(&call, preload, &program.cwd, if is_set { "" } else { THREADS[0] });
        let likeness =
            Likeness { modules: modules.clone(), interpreter, umask: 0, limits: Vec::new(), shares_session: false };
        let room = if preload.keep { TITLE_ROOM } else { 0 };
        let program = Program { argv: call.of_importer(room), cwd: program.cwd.clone(), env };
        let for_ranks = ForRanks { variables, thread_limits };
        let job = [b"job\0", &fields[..]].concat();
        Ok(Plan { program, job, likeness, script: script(&fields), for_ranks, threads })
    }
}

/// Whether the importer must not see a variable of the program, because the variable belongs to one job, or to the
/// command that has started the job.
fn is_of_ranks(variable: &[u8]) -> bool {
    variable.starts_with(b"PMI")
        || [VARIABLE, TRANSPORTS_KEY, THREADS[0], "_", "OLDPWD", "SHLVL"]
            .iter()
            .any(|name| value(variable, name).is_some())
}

fn value<'a>(variable: &'a [u8], name: &str) -> Option<&'a [u8]> {
    variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// The number of threads that OpenBLAS chooses in a process. `limits`: its program's variables of `THREADS`.
fn blas_threads(limits: &[Vec<u8>], process: &Process) -> usize {
    let limit = |name: &&str| {
        let text = limits.iter().chain(&process.env).rev().find_map(|variable| value(variable, name))?;
        let first = text.split(|byte| *byte == b',').next()?;
        std::str::from_utf8(first).ok()?.trim().parse().ok().filter(|threads| *threads > 0)
    };
    let cpus = process.cpus.clone().map(CpuSet::from_words).or_else(|| bind::allowed().ok());
    let cpus = cpus.map_or(1, |cpus| cpus.len());
    THREADS.iter().find_map(limit).map_or(cpus, |threads: usize| threads.min(cpus))
}

/// The facts about the job that an importer needs, separated by zeros.
fn fields(call: &Call, preload: &Preload, cwd: &[u8], unset: &str) -> Vec<u8> {
    let (kind, what) = match &call.runs {
        Runs::Script(path) => ("script", path),
        Runs::Module(name) => ("module", name),
        Runs::Code(code) => ("code", code),
    };
    let (modules, keeper, rest) = (preload.modules.join(","), own_pid().to_string(), call.rest.to_string());
    let keep = u8::from(preload.keep).to_string();
    let texts = [modules, keeper, keep];
    let fields =
        texts.iter().map(String::as_bytes).chain([cwd, kind.as_bytes(), what, rest.as_bytes(), unset.as_bytes()]);
    let fields = fields.chain([call.process_name.as_slice()]).chain(call.argv.iter().map(Vec::as_slice));
    fields.collect::<Vec<_>>().join(&0)
}

/// The importer's Python program; its first line contains `fields` in hexadecimal digits.
fn script(fields: &[u8]) -> Vec<u8> {
    let digits: String = fields.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("wireup_first_names = [*globals()]; wireup_job = bytes.fromhex('{digits}').split(b'\\0')\n{IMPORTER}")
        .into()
}

/// A packet from the importer, a middle process or a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Report {
    No(String),
    Declined(String),
    Recorded(String),
    Ready,
    Forked {
        slot: u32,
        pid: u32,
    },
    Up {
        slot: u32,
        pid: u32,
    },
    Failed {
        slot: u32,
        step: u32,
        errno: i32,
    },
    /// The importer, the middle processes and the ranks have closed the socket.
    Over,
}

impl Report {
    /// `None`: the packet is no valid report. A module may have written to the socket.
    fn read(packet: &[u8]) -> Option<Report> {
        let text = std::str::from_utf8(packet).ok()?;
        let mut words = text.split(' ');
        match words.next()? {
            "" => Some(Report::Over),
            "no" => Some(Report::No(text.get("no ".len()..)?.to_owned())),
            "declined" => Some(Report::Declined(text.get("declined ".len()..)?.to_owned())),
            "recorded" => Some(Report::Recorded(text.get("recorded ".len()..)?.to_owned())),
            "ready" => Some(Report::Ready),
            "forked" => Some(Report::Forked { slot: number(words.next())?, pid: pid(words.next())? }),
            "up" => Some(Report::Up { slot: number(words.next())?, pid: pid(words.next())? }),
            "failed" => Some(Report::Failed {
                slot: number(words.next())?,
                step: number(words.next())?,
                errno: number(words.next())?,
            }),
            _ => None,
        }
    }
}

fn number<T: FromStr>(word: Option<&str>) -> Option<T> {
    word?.parse().ok()
}

/// A pid above 1; a signal to 0, 1 or a negative number could reach other processes or several at once.
fn pid(word: Option<&str>) -> Option<u32> {
    number(word).filter(|pid| (2..=i32::MAX as u32).contains(pid))
}

/// The keeper's end of the socket to an importer, and the importer's pid.
pub(super) struct Importer {
    socket: OwnedFd,
    /// `None`: the importer has not been started, or has been reaped.
    pub pid: Option<u32>,
    pub for_ranks: ForRanks,
    /// OpenBLAS's number of threads in the importer.
    threads: usize,
    /// Whether the keeper waits for the socket to become readable.
    is_watched: bool,
}

impl Importer {
    /// An importer that is not started yet, and its end of the socket.
    pub fn new(for_ranks: ForRanks, threads: usize) -> io::Result<(Importer, OwnedFd)> {
        let (socket, far) = socket::packet_pair()?;
        Ok((Importer { socket, pid: None, for_ranks, threads, is_watched: false }, far))
    }

    /// The socket, if the keeper does not watch it yet.
    pub fn unwatched(&mut self) -> Option<BorrowedFd<'_>> {
        (!std::mem::replace(&mut self.is_watched, true)).then(|| self.socket.as_fd())
    }

    /// Sends a job to an importer kept from an earlier job.
    ///
    /// # Errors
    /// The importer has ended, or the job does not fit into a packet.
    pub fn give_job(&self, job: &[u8]) -> io::Result<()> {
        socket::send(&self.socket, job, &[]).map(drop)
    }

    /// Clears `pid` and returns how the importer has ended, if the importer is among these reaped processes.
    pub fn take_end(&mut self, dead: &[(u32, Ended)]) -> Option<Ended> {
        let (_, ended) = dead.iter().find(|(pid, _)| self.pid == Some(*pid))?;
        self.pid = None;
        Some(*ended)
    }

    /// The next report; `None`: nothing has arrived.
    pub fn receive(&self) -> Option<Report> {
        let mut packet = [0; PACKET_MAX];
        loop {
            match socket::receive(&self.socket, &mut packet, &mut VecDeque::new()) {
                Ok(len) => {
                    if let Some(report) = Report::read(&packet[..len]) {
                        return Some(report);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Report::Over),
            }
        }
    }

    /// Requests a rank from the importer.
    ///
    /// # Errors
    /// `WouldBlock`: try again after the next report.
    pub fn request(&self, process: &Process, session: Session, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let session = match session {
            Session::Shared => 0,
            Session::Own => 1,
            Session::OwnWithTerminal => 2,
        };
        let tracer = process::parent().unwrap_or(0);
        let (pmi, listens) = (u8::from(process.pmi), u8::from(process.listens));
        let ForRanks { variables, thread_limits } = &self.for_ranks;
        let threads = Some(blas_threads(thread_limits, process)).filter(|wanted| *wanted != self.threads).unwrap_or(0);
        let head = format!("{} {session} {pmi} {listens} {tracer} {threads}", process.slot).into_bytes();
        let cpus = process.cpus.clone().map_or_else(CpuSet::new, CpuSet::from_words);
        let cpus = cpus.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",").into_bytes();
        let fields = [&head, &cpus].into_iter().chain(variables).chain(&process.env);
        let message = fields.map(Vec::as_slice).collect::<Vec<_>>().join(&0);
        socket::send(&self.socket, &message, fds).map(drop).map_err(|error| match error.raw_os_error() {
            Some(ETOOMANYREFS) => io::ErrorKind::WouldBlock.into(),
            _ => error,
        })
    }

    /// Kills the importer. Its ranks, which are children of the keeper, are not killed.
    pub fn kill(&self) {
        self.pid.into_iter().for_each(|pid| drop(process::kill(pid, SIGKILL)));
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        self.kill();
    }
}

const ETOOMANYREFS: i32 = rustix::io::Errno::TOOMANYREFS.raw_os_error();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_and_other_packets_ignored() {
        let read = |packet: &str| Report::read(packet.as_bytes());
        assert_eq!(read("no such module"), Some(Report::No("such module".into())));
        assert_eq!(read("declined none.py: missing"), Some(Report::Declined("none.py: missing".into())));
        assert_eq!(read("recorded in a file: json"), Some(Report::Recorded("in a file: json".into())));
        assert_eq!(read("forked 3 77"), Some(Report::Forked { slot: 3, pid: 77 }));
        assert_eq!(read("up 3 77"), Some(Report::Up { slot: 3, pid: 77 }));
        assert_eq!(read("failed 3 2 9"), Some(Report::Failed { slot: 3, step: 2, errno: 9 }));
        assert_eq!((read("ready"), read("")), (Some(Report::Ready), Some(Report::Over)));
        for packet in ["up", "up x 3", "up 3 0", "up 3 1", "forked 3 4294967295", "forked 1", "hello", "recorded"] {
            assert_eq!(read(packet), None, "{packet}");
        }
    }
}
