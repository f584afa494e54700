//! `wireup pmi`: a PMI client for tests, under any launcher that gives its ranks a `PMI_FD`.
//!
//! It does what an MPI library does at start-up, without the library: a launcher that cannot run this cannot run MPI, and its measurements
//! show the launcher's part alone.

mod exchange;
mod flags;
mod session;

use exchange::Exchange;
use flags::{Action, Flags};
use session::{Outcome, Session, SessionError};
use std::ffi::OsString;
use std::io::Write;
use wireup_client::env::Contact;
use wireup_client::join::Join;
use wireup_os::clock::monotonic_ns;

pub const HELP: &str = "\
wireup pmi: a PMI test client

    wireup run -n 4 wireup pmi exchange        below this launcher
    mpiexec -n 4 wireup pmi exchange           below MPICH's or Intel's
    srun -n 4 --mpi=pmi2 wireup pmi exchange   below Slurm

ACTIONS
    exchange     init, put one key per rank, fence, get the others' keys, finalize. Every value is checked. Rank 0
                 prints one line of times in ms: of each phase the slowest rank's, the mean of all rounds.
                 fence_ms is from the last rank in to the last one out where all ranks have one clock
                 (fence_clock=shared); otherwise the shortest that a rank has waited.
    init         init, barrier, finalize: what an empty MPI program costs. Rank 0 prints the times.
    info         each rank prints what its launcher tells it: rank, size, appnum, names, limits, process mapping.
    abort CODE   init, then abort the job; the launcher should end with CODE (PMI-2 carries no code: any failure).
    leave        init, then exit 0 without finalize. In a job whose other ranks wait in a fence, the launcher
                 should notice.

OPTIONS
    --dialect 1|2      PMI-1 (MPICH, Intel MPI; default) or PMI-2 (libpmi2)
    --value-len BYTES  length of a value, 32 unless told
    --rounds N         exchanges one after another, 1 unless told
    --get all|N|none   how many ranks' keys each rank gets, all unless told
    --check            also: values of every byte that servers agree on, a key that nobody put, the
                       process mapping
    --help             this text
    CODE               0 to 255

Exit code: 0; 1 if the server or a value was wrong; 2 if the command line was.
";

/// Why the client ended early.
#[derive(Debug)]
enum Failed {
    Session(SessionError),
    /// The server sent a wrong answer.
    Wrong(String),
}

impl From<SessionError> for Failed {
    fn from(error: SessionError) -> Self {
        Failed::Session(error)
    }
}

/// Runs the client; the arguments are those after `pmi`. Returns the exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let flags = match flags::parse(args) {
        Ok(flags) => flags,
        Err(problem) => {
            eprintln!("wireup pmi: {problem}; \"wireup pmi --help\" explains");
            return 2;
        }
    };
    if flags.action == Action::Help {
        say(HELP);
        return 0;
    }
    let contact = match Contact::read(|name| std::env::var(name).ok()) {
        Ok(contact) => contact,
        Err(error) => {
            eprintln!("wireup pmi: {error}");
            return 1;
        }
    };
    let (fd, env) = match contact {
        Contact::Fd { fd, env } => (fd, env),
        Contact::Singleton => {
            say("PMI_FD is not set, so this is a singleton (rank 0 of 1); start it with a launcher: wireup run -n 4 \
                 wireup pmi exchange\n");
            return 0;
        }
        Contact::Port { address, .. } => {
            eprintln!("wireup pmi: the launcher offers PMI_PORT={address}, this client speaks only over PMI_FD");
            return 1;
        }
    };
    let result = Session::open(fd, flags.dialect, env).map_err(Failed::from).and_then(|session| act(session, &flags));
    match result {
        Ok(code) => code,
        Err(failed) => {
            let problem = match failed {
                Failed::Session(error) => error.to_string(),
                Failed::Wrong(problem) => problem,
            };
            eprintln!("wireup pmi: rank {} of {}: {problem}", env.rank, env.size);
            1
        }
    }
}

fn act(mut session: Session, flags: &Flags) -> Result<u8, Failed> {
    let started_ns = monotonic_ns();
    session.start()?;
    let init_ns = monotonic_ns() - started_ns;
    match flags.action {
        Action::Exchange => Exchange::new(&mut session, flags, init_ns).run()?,
        Action::Init => init(&mut session, init_ns)?,
        Action::Info => info(&mut session)?,
        Action::Leave => return Ok(0),
        Action::Abort { code } => {
            let rank = session.rank();
            session.abort(code.into(), &format!("rank {rank} was told to abort"))?;
            return Ok(code);
        }
        Action::Help => {}
    }
    session.finalize()?;
    Ok(0)
}

fn init(session: &mut Session, init_ns: u64) -> Result<(), Failed> {
    let entered_ns = monotonic_ns();
    session.fence()?;
    if session.rank() == 0 {
        let barrier_ns = monotonic_ns() - entered_ns;
        let (ranks, dialect) = (session.size(), flags::number(session.dialect()));
        say(&format!(
            "init ranks={ranks} dialect={dialect} init_ms={} barrier_ms={}\n",
            milliseconds(init_ns),
            milliseconds(barrier_ns)
        ));
    }
    Ok(())
}

fn info(session: &mut Session) -> Result<(), Failed> {
    let universe = session.universe_size(text_of)?;
    let mapping = session.job_attr("PMI_process_mapping", text_of)?;
    let Join { env, appnum, subversion, maxes, .. } = &session.join;
    // One write, so that lines of different ranks do not mix.
    say(&format!(
        "rank={} size={} appnum={} spawned={} dialect={} subversion={} kvsname={} universe_size={universe} \
         process_mapping={mapping} kvsname_max={} key_max={} value_max={}\n",
        env.rank,
        env.size,
        appnum.unwrap_or(-1),
        env.spawned,
        flags::number(session.dialect()),
        subversion,
        String::from_utf8_lossy(&session.kvsname),
        maxes.kvsname,
        maxes.key,
        maxes.value,
    ));
    Ok(())
}

fn text_of(outcome: Outcome<'_>) -> String {
    match outcome {
        Outcome::Value(value) => String::from_utf8_lossy(value).into_owned(),
        Outcome::NotFound => "none".into(),
        Outcome::UniverseSize(size) => size.to_string(),
        Outcome::Failed(message) => format!("refused:{message}"),
        Outcome::Done => "done".into(),
        Outcome::Strange(problem) => problem,
    }
}

/// Writes to standard output; a closed stream is not an error of the client.
fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn milliseconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}
