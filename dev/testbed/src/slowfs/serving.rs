//! The process that serves a slow file system.
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::thread;

use fuser::{Config, Session, SessionACL};

use super::meter::{Meter, Totals};
use super::server::Server;
use super::source::Source;
use super::{Spec, mounting};
use crate::sys;
use crate::testbed::StartError;

/// Timer slack of the server (ns): with the default slack, sleeps are 50 us longer than requested.
const TIMER_SLACK_NS: u64 = 1000;

/// A mounted file system that a thread of this process serves. It is unmounted when this value is dropped.
pub struct Serving {
    point: PathBuf,
    server: Server,
}

impl Serving {
    /// Mounts the file system that `spec` describes; `spec.log` must be given.
    pub fn start(spec: &Spec) -> Result<Serving, StartError> {
        mounting::clear(&spec.mount).map_err(failed(&spec.mount))?;
        let point = spec.mount.canonicalize().map_err(failed(&spec.mount))?;
        let folder = spec.source.canonicalize().map_err(failed(&spec.source))?;
        if point != folder && point.starts_with(&folder) {
            // Otherwise the server would access its own mount and wait for itself.
            let text = format!("the mount point {} is inside of the source, {}", point.display(), folder.display());
            return Err(StartError::Failed(text));
        }
        let log = spec.log.as_deref().unwrap_or(Path::new(""));
        let meter = File::options().create(true).append(true).open(log);
        let meter = Meter::new(meter.map_err(failed(log))?, spec.delay, spec.bandwidth_mb);
        // The folder is opened now, since the mount may cover it.
        let source = Source::open(&folder).map_err(failed(&folder))?;
        let server = Server::new(source, meter, spec.timeout, spec.cold).map_err(failed(&folder))?;
        let device = mounting::attach(&point, &folder)?;
        // From here on, dropping `serving` unmounts the file system.
        let serving = Serving { point, server: server.clone() };
        let session = Session::from_fd(server, device, SessionACL::All, Config::default());
        let session = session.map_err(failed(&serving.point))?;
        thread::spawn(move || {
            // The thread of the session inherits the timer slack.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
            if let Err(error) = session.run() {
                eprintln!("wireup-testbed: the slow file system has ended: {error}");
            }
        });
        Ok(serving)
    }

    pub fn totals(&self) -> Totals {
        self.server.totals()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Err(error) = mounting::detach(&self.point) {
            eprintln!("wireup-testbed: unmounting {}: {error}", self.point.display());
        }
    }
}

/// Serves until standard input ends. Writes to standard output when it is ready, or why it is not; then answers each
/// line of standard input with the totals.
pub fn serve(spec: &Spec) -> i32 {
    // Interrupts from the terminal are meant for the owner of this process, whose end is noticed as the end of standard
    // input.
    sys::ignore_interrupts(true);
    let serving = match Serving::start(spec) {
        Ok(serving) => serving,
        Err(error) => {
            let (kind, reason) = match error {
                StartError::Unavailable(reason) => ("unavailable", reason),
                StartError::Failed(reason) => ("failed", reason),
            };
            say(&format!("{kind} {reason}"));
            return 1;
        }
    };
    say("ready");
    for line in io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        say(&serving.totals().to_words());
    }
    0
}

fn say(line: &str) {
    // Errors are ignored: if nobody reads the output, standard input has ended too.
    let _ = writeln!(io::stdout(), "{line}");
}

fn failed<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> StartError {
    move |error| StartError::Failed(format!("{}: {error}", path.display()))
}
