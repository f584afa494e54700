//! `wireup tap`: times the start of a job under another launcher.

mod json;
mod report;
mod show;

use crate::json_output::JsonOutput;
use crate::out;
use crate::program::elf::Content;
use report::TapReport;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command as Process;
use std::time::Duration;
use wireup_flags::{Command, Error, Flag, JsonTo, Line, Section, Value, Words};
use wireup_os::output_file::{self, Existing};
use wireup_tap::{End, Gathered, Tap, TapError};

const DIR: Flag = Flag::value(
    &["--dir"],
    "DIR",
    "A folder that all nodes see: records of the ranks pass through a folder in it, which is removed (default: the \
     working directory).",
);
const OUTPUT: Flag =
    Flag::value(&["--output"], "FILE", "Write the profile to FILE instead of the standard error of rank 0.");
const JSON: Flag =
    Flag { help: "Also print the profile as a line of JSON; =FILE writes it to FILE.", ..wireup_flags::JSON };
const WAIT: Flag =
    Flag::value(&["--wait"], "SECONDS", "How long rank 0 waits for the records of other ranks after it has ended.")
        .or("10");
const NO_PRELOAD: Flag =
    Flag::switch(&["--no-preload"], "Preload nothing: PMI-1 and PMI-2 are still observed, PMIx is not.");

pub const COMMAND: Command = Command {
    name: "tap",
    purpose: "profile the start of a job under another launcher",
    intro: "
  mpiexec -n 64 wireup tap ./app                    Hydra, Intel MPI
  mpirun -n 64 wireup tap ./app                     Open MPI 4 and 5
  srun -n 4096 --mpi=pmi2 wireup tap ./app          Slurm; the same with --mpi=pmix
  srun -n 64 wireup tap --json=FILE ./app -v        flags of tap come before the program

Sits between the launcher and each rank: it relays the rank's PMI socket unchanged, or preloads a library that counts
PMIx calls. When the program has ended, rank 0 prints how long each phase of the start took, the slowest ranks and
nodes, requests and bytes, and the command that measures the same start under wireup. Without a launcher it just runs
the program.
",
    words: Words::Program,
    sections: &[Section { title: "Flags", flags: &[DIR, OUTPUT, JSON, WAIT, NO_PRELOAD] }],
    end: "
Exit code: the program's; if a signal killed it, tap dies by the same signal; 126 or 127 if it could not be executed.
",
};

/// The program behind `wireup tap FLAGS`, with its arguments; `None`: the line is another command.
pub fn behind(argv: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let [_, command, words @ ..] = argv else { return None };
    let mut words = words.iter().map(|word| OsString::from_vec(word.clone())).peekable();
    let line = COMMAND.parse_program(&mut words).ok().and_then(Result::ok).filter(|_| command == b"tap")?;
    let program: Vec<Vec<u8>> = line.words.into_iter().chain(words).map(OsString::into_vec).collect();
    (!program.is_empty()).then_some(program)
}

/// The values of the flags.
struct Settings {
    folder: PathBuf,
    wait: Duration,
    preload: bool,
    /// The places to which the profile is written.
    output: Option<PathBuf>,
    json: Option<JsonTo>,
}

/// `ignored`: those of SIGPIPE and SIGXFSZ that were ignored when this process began.
pub fn main(args: impl Iterator<Item = OsString>, process_ns: u64, ignored: Vec<i32>) -> u8 {
    let mut args = args.peekable();
    let line = match COMMAND.parse_program(&mut args) {
        Ok(Ok(line)) => line,
        Ok(Err(help)) => {
            out::print(&COMMAND.help(help));
            return 0;
        }
        Err(error) => return out::fail(&error.to_string()),
    };
    let mut words = line.words.clone().into_iter().chain(args);
    let Some(program) = words.next() else {
        return out::fail("tap: no program; give it after the flags: mpiexec -n 4 wireup tap ./app");
    };
    let arguments: Vec<OsString> = words.collect();
    let settings = match Settings::read(&line) {
        Ok(settings) => settings,
        Err(error) => return out::fail(&error.to_string()),
    };
    let Some(place) = wireup_tap::place() else {
        let dead = std::env::var("PMI_FD").map(|number| format!(" (PMI_FD={number} is no open socket)"));
        out::tell(&format!(
            "tap: no launcher has set PMI_FD, PMI_PORT or PMIX_NAMESPACE{}, so there is no start to profile; the \
             program runs without the tap",
            dead.unwrap_or_default()
        ));
        return become_program(&program, &arguments, &ignored);
    };
    let refuses = if settings.preload && place.offers.pmix { sanitizer(&program) } else { None };
    let preload = settings.preload && refuses.is_none();
    let note = refuses
        .map(|library| format!("PMIx calls are not seen: the program needs {library}, which must be loaded first"));
    let (folder, wait, keeps_stdout) = (settings.folder.clone(), settings.wait, settings.json == Some(JsonTo::Stdout));
    let tap = Tap { place, program, arguments, folder, preload, keeps_stdout, wait, process_ns, ignored };
    with_launcher(tap, note, &settings)
}

/// The sanitizer library of a program: it would end the program if another library was preloaded before it.
fn sanitizer(program: &OsStr) -> Option<String> {
    const NAMES: [&str; 6] =
        ["libasan.", "libtsan.", "libhwasan.", "libclang_rt.asan", "libclang_rt.tsan", "libclang_rt.hwasan"];
    let path = match program.as_bytes().contains(&b'/') {
        true => PathBuf::from(program),
        false => std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|dir| dir.join(program))
            .find(|path| path.is_file())?,
    };
    let Content::Dynamic(found) = Content::read(&path) else { return None };
    found.needed.iter().find(|library| NAMES.iter().any(|name| library.starts_with(name))).cloned()
}

impl Settings {
    fn read(line: &Line) -> Result<Settings, Error> {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        Ok(Settings {
            folder: absolute(line.last(DIR, Value::path)?.unwrap_or_else(|| PathBuf::from("."))),
            wait: Duration::from_nanos(line.one(WAIT, Value::seconds_ns)?),
            preload: !line.has(NO_PRELOAD),
            output: line.last(OUTPUT, Value::path)?.map(absolute),
            json: line.last(JSON, JsonTo::read)?.map(|to| match to {
                JsonTo::Stdout => JsonTo::Stdout,
                JsonTo::File(path) => JsonTo::File(absolute(path)),
            }),
        })
    }
}

/// Replaces this process by the program; returns the exit code if that fails.
fn become_program(program: &OsString, arguments: &[OsString], ignored: &[i32]) -> u8 {
    wireup_os::process::restore_write_errors(ignored);
    cannot_execute(program, &Process::new(program).args(arguments).exec())
}

/// Reports that the program cannot be executed; returns the exit code that shells use for it.
fn cannot_execute(program: &OsString, error: &io::Error) -> u8 {
    out::tell(&format!("tap: cannot execute {}: {error}", program.to_string_lossy()));
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

/// `note`: what the tap is already known not to see.
fn with_launcher(tap: Tap, note: Option<String>, settings: &Settings) -> u8 {
    let (program, arguments, ignored) = (tap.program.clone(), tap.arguments.clone(), tap.ignored.clone());
    let ended = match wireup_tap::run(tap) {
        Ok(ended) => ended,
        Err(TapError::Program { error, .. }) => return cannot_execute(&program, &error),
        Err(error @ TapError::NotBegun { .. }) => {
            out::tell(&format!("tap: {error}; the program runs without the tap"));
            return become_program(&program, &arguments, &ignored);
        }
        Err(error) => return out::fail(&format!("tap: {error}")),
    };
    if let Some(gathered) = ended.gathered {
        if let Some(problem) = &ended.problem {
            out::tell(&format!("tap: records of other ranks cannot be gathered: {problem}"));
        }
        for note in note.iter().chain(&ended.notes) {
            out::tell(&format!("tap: {note}"));
        }
        publish(gathered, &command(&program, &arguments), settings);
    }
    match ended.end {
        End::Exit(code) => code,
        End::Signal(signal) => {
            wireup_os::process::end_by(signal.into());
            128 + signal
        }
    }
}

fn publish(gathered: Gathered, command: &str, settings: &Settings) {
    let report = TapReport::from_gathered(gathered);
    let command = command.replacen("{N}", &report.size.to_string(), 1);
    let text = show::text(&report, &command);
    let written = match &settings.output {
        Some(path) => output_file::open(path, Existing::Empty, 0o666)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| out::unwritable(path, &error)),
        None => {
            out::print_err(&text);
            Ok(())
        }
    };
    let json = settings.json.as_ref();
    let as_json =
        json.map_or(Ok(()), |to| JsonOutput::open(to).and_then(|to| to.write(&json::value(&report, &command))));
    for problem in [written, as_json].into_iter().filter_map(Result::err) {
        out::tell(&format!("tap: {problem}"));
    }
}

/// The command line that runs the tapped job under wireup, with the tap, as a user would type it.
fn command(program: &OsString, arguments: &[OsString]) -> String {
    let quoted = |word: &OsString| {
        let word = word.to_string_lossy();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-+=:,@%".contains(c);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word.into_owned(),
            false => format!("'{}'", crate::words::one_line(&word).replace('\'', "'\\''")),
        }
    };
    let words: Vec<String> = std::iter::once(program).chain(arguments).map(quoted).collect();
    format!("wireup run -n {{N}} wireup tap {}", words.join(" "))
}
