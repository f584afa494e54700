//! `wireup pmi`: a PMI client for tests, under any launcher that gives its ranks a `PMI_FD`.
//!
//! It does what an MPI library does at start-up, without the library: a launcher that cannot run this cannot run MPI,
//! and its measurements show the launcher's part alone.

mod exchange;
mod flags;
mod session;
pub mod singleton;

pub use flags::COMMAND;

use crate::out;
use exchange::{Exchange, milliseconds};
use flags::{Action, Flags};
use session::Session;
use std::ffi::OsString;
use std::io::Write;
use wireup_client::env::Contact;
use wireup_client::join::Join;
use wireup_os::clock::monotonic_ns;

/// Runs the client; the arguments are those after `pmi`. Returns the exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let read = match COMMAND.parse(args) {
        Ok(Ok(line)) => flags::read(&line),
        Ok(Err(help)) => {
            say(&COMMAND.help(help));
            return 0;
        }
        Err(problem) => Err(problem),
    };
    let flags = match read {
        Ok(flags) => flags,
        Err(problem) => {
            out::tell(&problem.to_string());
            return 2;
        }
    };
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
    Session::open(fd, flags.dialect, env).and_then(|session| act(session, &flags)).unwrap_or_else(|problem| {
        eprintln!("wireup pmi: rank {} of {}: {problem}", env.rank, env.size);
        1
    })
}

fn act(mut session: Session, flags: &Flags) -> Result<u8, String> {
    let started_ns = monotonic_ns();
    session.start()?;
    let init_ns = monotonic_ns() - started_ns;
    match flags.action {
        Action::Exchange => say(&Exchange::new(&mut session, flags, init_ns).run()?),
        Action::Init => init(&mut session, init_ns)?,
        Action::Info => info(&mut session)?,
        Action::Leave => return Ok(0),
        Action::Abort { code } => {
            let rank = session.rank();
            session.abort(code.into(), &format!("rank {rank} was told to abort"))?;
            return Ok(code);
        }
    }
    session.finalize()?;
    Ok(0)
}

fn init(session: &mut Session, init_ns: u64) -> Result<(), String> {
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

fn info(session: &mut Session) -> Result<(), String> {
    let universe = session.universe_size()?.into_text();
    let mapping = session.job_attr("PMI_process_mapping")?.into_text();
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

/// Writes to standard output; a closed stream is not an error of the client.
fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
