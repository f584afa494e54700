//! `wireup` instead of other launchers: called as `mpiexec` or under another name of theirs, or as `wireup mpiexec`.
//!
//! A command line is translated into the lines of `wireup run`, by tables of the options of each launcher (`tables`).
//! Nothing here runs a job.

mod files;
mod help;
mod made_values;
#[cfg(test)]
mod page;
mod reading;
mod row;
mod tables;
#[cfg(test)]
mod tests;
mod translation;
mod variables;
mod vendor;

use crate::configuration;
use crate::flags::chosen::VARIABLE;
use crate::flags::parsed::Parsed;
use crate::flags::table as flag;
use crate::hosts::allocation::{self, Env};
use crate::program::flavour::{self, Context};
use crate::{out, run};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use translation::{Shows, Translation};
use vendor::Vendor;
use wireup_flags::{Flag, Given, Value};
use wireup_os::process;
use wireup_wire::job::{AppSpec, PmiFlavour};
use wireup_wire::signal::SIGTERM;

pub use help::{PURPOSE, man_page};

/// Names under which this program is a front; `wireup install --front` makes links of these names.
pub const NAMES: [&str; 5] = ["mpiexec", "mpirun", "mpiexec.hydra", "orterun", "prterun"];

/// A variable that is set where Intel MPI is used.
const INTEL: &str = "I_MPI_ROOT";

/// Flags that imply a number of ranks.
const IMPLIED: &[Flag] = &[flag::HOSTS, flag::HOST_FILE, flag::PPN, flag::VIRTUAL_NODES, flag::RANKFILE, flag::SESSION];

/// The launcher that this program was called as, by the name of its file.
pub fn name(program: &OsStr) -> Option<&'static str> {
    let name = Path::new(program).file_name()?;
    NAMES.into_iter().find(|known| name == *known)
}

/// The help text of the launcher with this name.
pub fn help(name: &OsStr) -> Option<String> {
    NAMES.into_iter().find(|known| name == *known).map(help::text)
}

/// Runs a job. `args` are the words after the launcher's name.
pub fn main(name: &str, args: impl Iterator<Item = OsString>, process_ns: u64) -> u8 {
    // Agents are started by the path of this file: under this name they would act as `mpiexec`.
    if std::env::current_exe().is_ok_and(|file| file.file_name() == Some(OsStr::new(name))) {
        return out::fail(&format!("{name} is a copy of wireup under this name; make it a link: ln -s wireup {name}"));
    }
    let words: Vec<OsString> = args.collect();
    match Singleton::requested(&words) {
        Ok(None) => start(name, words, process_ns),
        Ok(Some(singleton)) => {
            let code = match std::env::current_exe() {
                Ok(program) => start(name, singleton.words(program.into()), process_ns),
                Err(error) => out::fail(&format!("{name}: the path of this program: {error}")),
            };
            if code != 0 {
                singleton.end();
            }
            code
        }
        Err(error) => out::fail(&format!("{name}: {error}")),
    }
}

fn start(name: &str, words: Vec<OsString>, process_ns: u64) -> u8 {
    let translation = match translated(name, words.clone()) {
        Ok(translation) => translation,
        Err(error) => return out::fail(&format!("{name}: {error}")),
    };
    match &translation.shows {
        Some(Shows::Help(topic)) => {
            let on = topic.as_ref().and_then(|topic| help::on(topic, translation.vendor));
            out::print(&on.unwrap_or_else(|| help::text(name)));
            return 0;
        }
        Some(Shows::Version) => {
            out::print(&help::version(name));
            return 0;
        }
        None => {}
    }
    if !translation.quiet {
        translation.notes.iter().for_each(|note| out::tell(&format!("{name}: {note} (-quiet hides this)")));
    }
    let parsed = configuration::load().and_then(|()| Parsed::of_lines(translation.programs, &words, name));
    match parsed {
        Ok(parsed) => run::start_parsed(parsed, process_ns),
        Err(error) => out::fail(&format!("{name}: {error}")),
    }
}

/// The command line of the launcher `name`, translated to the words of `wireup run`.
fn translated(name: &str, words: Vec<OsString>) -> Result<Translation, String> {
    let told = Vendor::of_name(name).or_else(|| Vendor::of_options(&words));
    let vendor = match told {
        Some(vendor) => vendor,
        None if Vendor::matters(&words) => vendor_of_program(&words).unwrap_or_default(),
        None => Vendor::default(),
    };
    let mut translation = Translation::new(vendor);
    translation.read(words)?;
    if translation.shows.is_some() {
        return Ok(translation);
    }
    translation.finish();
    let variables: Vec<_> = std::env::vars_os().collect();
    variables::apply(&mut translation, &variables)?;
    add_default_ranks(&mut translation, told, &variables);
    translation.give_job(&flag::LAUNCHER_ENV, name, OsString::new());
    if told == Some(Vendor::OpenMpi) && !translation.has(&flag::STDOUT) {
        // Open MPI's own launchers give every program a pseudo-terminal.
        translation.give_job(&flag::STDOUT, name, "pty".into());
    }
    Ok(translation)
}

/// Adds `-n 1` where the launcher that is replaced would start one process:
///
/// ```text
///   hosts, an allocation or ranks per node are given    as wireup run
///   Open MPI, Intel MPI (I_MPI_ROOT is set), a script   one rank for each cpu
///   Hydra, or a program of MPICH                        one rank of each program
/// ```
fn add_default_ranks(translation: &mut Translation, told: Option<Vendor>, variables: &[(OsString, OsString)]) {
    let is_stated = |given: &Given| given.is(flag::RANKS);
    if translation.programs.iter().all(|line| line.given.iter().any(is_stated))
        || IMPLIED.iter().any(|flag| translation.has(flag))
        || translation.maps_per_node()
        || allocation::is_likely(Env(variables))
        || variables.iter().any(|(name, _)| name == VARIABLE || name == INTEL)
    {
        return;
    }
    let vendor = told.or_else(|| {
        let program = translation.programs.first().map(|line| line.words.clone());
        of_program(&program.unwrap_or_default(), variables)
    });
    if vendor != Some(Vendor::Hydra) {
        return;
    }
    for line in &mut translation.programs {
        if !line.given.iter().any(is_stated) {
            line.given.push(Given { flag: &flag::RANKS, value: Value { flag: "-n".into(), word: "1".into() } });
        }
    }
}

/// The vendor of the program that a command line names. To find the program, options with two meanings are read as
/// Hydra's.
fn vendor_of_program(words: &[OsString]) -> Option<Vendor> {
    let variables: Vec<_> = std::env::vars_os().collect();
    let mut translation = Translation::new(Vendor::default());
    translation.read(words.to_vec()).ok()?;
    of_program(&translation.programs.first()?.words, &variables)
}

/// The vendor of the MPI library that a program is linked to; `None` if it may start any program.
fn of_program(argv: &[OsString], variables: &[(OsString, OsString)]) -> Option<Vendor> {
    let env: Vec<Vec<u8>> = variables
        .iter()
        .map(|(name, value)| [name.clone().into_vec(), b"=".to_vec(), value.clone().into_vec()].concat())
        .collect();
    let cwd = std::env::current_dir().ok()?.into_os_string().into_vec();
    let argv = argv.iter().map(|word| word.clone().into_vec()).collect();
    let app = AppSpec { ranks: 1, argv, cwd, env: Vec::new() };
    let context = Context { env: &env, own: "", local: true, library: None };
    match flavour::choose(&[app], &context).flavour {
        PmiFlavour::Pmix => Some(Vendor::OpenMpi),
        PmiFlavour::Simple => Some(Vendor::Hydra),
        PmiFlavour::Both | PmiFlavour::None => None,
    }
}

/// A process that was started without a launcher and asks for one: what MPICH's library starts then is `mpiexec
/// -pmi_args PORT INTERFACE KEY PID`. Rank 0 of the job becomes a process that passes on what the process at `PORT` and
/// the server say to each other (`pmi/singleton`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Singleton {
    port: u16,
    /// The process id in the option: that of the process or, from MPICH, of the child that it forked to start the
    /// launcher.
    pid: u32,
}

impl Singleton {
    /// Reads the request of a singleton from a command line; `None`: an ordinary command line.
    ///
    /// # Errors
    /// The words behind the option are not as the library writes them.
    fn requested(words: &[OsString]) -> Result<Option<Singleton>, String> {
        let Some((first, rest)) = words.split_first().filter(|(first, _)| *first == "-pmi_args") else {
            return Ok(None);
        };
        let number = |at: usize| rest.get(at).and_then(|word: &OsString| word.to_str()?.parse::<u32>().ok());
        let read = || Some(Singleton { port: number(0)?.try_into().ok()?, pid: number(3)? });
        let wants = "the four words of a library that needs a launcher: PORT INTERFACE KEY PID";
        read().map(Some).ok_or_else(|| format!("{} needs {wants}", first.to_string_lossy()))
    }

    /// The command line of the job whose rank 0 the singleton becomes. The singleton keeps its own standard input.
    /// Ranks use process ids to read each other's memory, so the other ranks must be in its PID namespace.
    fn words(self, own_program: OsString) -> Vec<OsString> {
        let options = ["-n", "1", "-s", "none", "--pmi", "simple", "--contain", "none"].map(OsString::from);
        options.into_iter().chain([own_program, "singleton".into(), self.port.to_string().into()]).collect()
    }

    /// Ends the singleton after its job has failed: it would wait forever for ranks that have exited.
    fn end(self) {
        let Some(parent) = process::parent() else { return };
        if [parent, process::own_pid()].contains(&self.pid) {
            // The singleton may just have exited by itself.
            let _ = process::kill(parent, SIGTERM);
        }
    }
}
