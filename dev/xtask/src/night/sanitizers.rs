//! The C libraries, and programs that call them, under the sanitizers of LLVM.
//!
//! rustc instruments wireup's crates, and gcc the test programs; both link the runtime that comes with rustc. Rust's
//! own `core` and `alloc` are not compiled again: of their code, only generic and inlined functions are instrumented.
//! Checks for overflow and for broken preconditions of unsafe functions are on. `-Zsanitizer` is for nightly compilers,
//! so `RUSTC_BOOTSTRAP` is set here; no installed program is built this way.

use super::{commit, launcher, prove};
use crate::build::{self, rustc};
use crate::layout;
use crate::libraries::{NAMES, links, map, static_libraries};
use crate::step::{Result, output, run_quietly, show, step};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HEAD: &str = "\
# The C libraries and programs that call them, run with 4 ranks under sanitizers, which reported nothing: the \
sanitizers, the runs (program,
# arguments), and commit and compiler. `cargo xtask night sanitizers` does it.
";

/// A sanitizer: its name for rustc, for gcc and in the file name of its runtime, and mistakes that it must report.
struct Sanitizer {
    rustc: &'static str,
    gcc: &'static str,
    runtime: &'static str,
    reports: &'static [(&'static str, &'static str)],
}

const SANITIZERS: [Sanitizer; 2] = [
    Sanitizer {
        rustc: "address",
        gcc: "address,undefined",
        runtime: "asan",
        reports: &[
            ("overflow", "AddressSanitizer: heap-buffer-overflow"),
            ("undefined", "runtime error: signed integer"),
        ],
    },
    Sanitizer { rustc: "thread", gcc: "thread", runtime: "tsan", reports: &[("race", "ThreadSanitizer: data race")] },
];

/// Programs that run as jobs, with their arguments; `=> CODE` follows a program whose exit code is not 0.
const JOBS: &str = "named, threads pmi, threads pmi2, threads pmi abort => 9, threads pmi2 abort => 1, forks pmi, \
    forks pmi2, stop pmi => 9, stop pmi2 => 1, again pmi, again pmi2, pmi1 plain, groups, left => 1, same refused, \
    extensions, outstanding, store, lengths, rounds, sealed, traffic, agents, barriers, bootstrap agents, \
    bootstrap peers, bootstrap named, libraries, lost, old, apart, leaves, few 1 2, \
    names publish a b publish a c lookup a unpublish a unpublish a";

/// Each program of `JOBS`, with its exit code.
fn jobs() -> Vec<(&'static str, i32)> {
    let job = |job: &'static str| match job.split_once(" => ") {
        Some((line, code)) => (line, code.parse().expect("an exit code")),
        None => (job, 0),
    };
    JOBS.split(", ").map(job).collect()
}

/// Programs that run without a launcher.
const ALONE: [&str; 5] = ["pmi1 alone", "same", "extensions", "gone", "bootstrap"];

/// Runs all programs under each sanitizer, and records that. The launcher is the release build, or the program that
/// `WIREUP_BIN` names.
///
/// # Errors
/// Something cannot be built, a sanitizer reports something, or it misses a mistake made on purpose.
pub fn run() -> Result {
    let wireup = launcher()?;
    let by = format!("{}, rustc {}", commit()?, version()?);
    let mut text = String::new();
    for sanitizer in &SANITIZERS {
        let built = step(format!("build with -fsanitize={}", sanitizer.gcc), || Built::new(sanitizer))?;
        step("mistakes made on purpose", || {
            sanitizer.reports.iter().try_for_each(|(mistake, report)| built.expect_report(mistake, report))
        })?;
        step(format!("{} jobs", jobs().len()), || {
            jobs().iter().try_for_each(|(line, code)| built.expect_silence(Some(&wireup), line, *code))
        })?;
        step(format!("{} programs without a launcher", ALONE.len()), || {
            ALONE.iter().try_for_each(|line| built.expect_silence(None, line, 0))
        })?;
        let jobs = jobs().into_iter().map(|(line, _)| line.to_owned());
        let runs: Vec<String> = jobs.chain(ALONE.iter().map(|line| format!("{line} (no launcher)"))).collect();
        text += &format!("{}: {}: {by}\n", sanitizer.gcc, runs.join(", "));
    }
    prove("sanitizers.txt", HEAD, &text)
}

/// The folder with the instrumented libraries and programs.
struct Built(PathBuf);

impl Built {
    fn new(sanitizer: &Sanitizer) -> Result<Built> {
        let (host, runtime) = (rustc("host-tuple")?, runtime(sanitizer)?);
        let target = layout::target().join("sanitizers").join(sanitizer.rustc);
        let flags = format!(
            "-Zsanitizer={} -Cunsafe-allow-abi-mismatch=sanitizer -Cforce-frame-pointers=yes -Cdebug-assertions=yes \
             -Coverflow-checks=yes -Cdebuginfo=1",
            sanitizer.rustc
        );
        let mut build = static_libraries();
        // With `--target`, cargo does not instrument code that runs at compile time, such as build scripts.
        build.arg("--target").arg(&host).arg("--target-dir").arg(&target);
        run_quietly(build.env("RUSTFLAGS", flags).env("RUSTC_BOOTSTRAP", "1"))?;
        let built = Built(target.join("programs"));
        fs::create_dir_all(&built.0).map_err(|e| format!("create {}: {e}", built.0.display()))?;
        for name in NAMES {
            built.link(name, &target.join(&host).join("capi"))?;
        }
        let mut programs: Vec<&str> = jobs().into_iter().map(|(line, _)| line).chain(ALONE).map(program).collect();
        programs.sort_unstable();
        programs.dedup();
        let sources = layout::sources();
        for name in programs {
            built.compile(sanitizer, &runtime, &sources.join("libpmi").join(name))?;
        }
        built.compile(sanitizer, &runtime, &sources.join("sanitizers/planted"))?;
        Ok(built)
    }

    /// Links a shared library; the sanitizer's runtime is part of the program that loads it.
    fn link(&self, name: &str, archives: &Path) -> Result {
        let [soname, plain] = links(name);
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-o"]).arg(self.0.join(&soname));
        cc.arg("-Wl,--whole-archive").arg(archives.join(format!("libwireup_{name}.a"))).arg("-Wl,--no-whole-archive");
        cc.arg(format!("-Wl,--gc-sections,-soname,{soname},--version-script={}", map(name).display()));
        run_quietly(&mut cc)?;
        // Errors are ignored: the link exists unless this is the first build.
        let _ = symlink(soname, self.0.join(plain));
        Ok(())
    }

    fn compile(&self, sanitizer: &Sanitizer, runtime: &Path, source: &Path) -> Result {
        let name = source.file_name().unwrap_or_default();
        let object = self.0.join(name).with_extension("o");
        let mut cc = Command::new("cc");
        cc.args(["-c", "-g", "-O1", "-Wall", "-pthread", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]);
        cc.arg(format!("-fsanitize={}", sanitizer.gcc))
            .args(["-DOWN_HEADERS", "-I"])
            .arg(layout::root().join("include"));
        run_quietly(cc.arg("-o").arg(&object).arg(source.with_extension("c")))?;
        let mut cc = Command::new("cc");
        cc.arg("-o").arg(self.0.join(name)).arg(object);
        cc.arg("-Wl,--whole-archive").arg(runtime).args(["-Wl,--no-whole-archive,--export-dynamic", "-L"]).arg(&self.0);
        run_quietly(cc.args(["-Wl,--as-needed", "-lpmi", "-lpmi2", "-lwireup", "-pthread", "-ldl", "-lm", "-lrt"]))
    }

    /// Runs a program with its arguments, as a job or, without `wireup`, alone; returns its exit code and everything
    /// that it printed.
    fn run(&self, wireup: Option<&Path>, line: &str) -> Result<(Option<i32>, String)> {
        let mut run = Command::new("timeout");
        run.arg("120");
        if let Some(wireup) = wireup {
            // The program `rounds` inspects its agent, which it could not see from a PID namespace of the ranks.
            run.arg(wireup).args(["run", "-n", "4", "--virtual-nodes", "2", "--contain", "none"]);
        }
        run.arg(self.0.join(program(line))).args(line.split(' ').skip(1));
        run.env("LD_LIBRARY_PATH", &self.0).env("WIREUP_RUNTIME_DIR", layout::target().join("no-session"));
        for variable in ["PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE", "PMI_JOBID"] {
            run.env_remove(variable);
        }
        let done = run.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", show(&run)))?;
        let said = [done.stdout, done.stderr].concat();
        Ok((done.status.code(), String::from_utf8_lossy(&said).into_owned()))
    }

    fn expect_silence(&self, wireup: Option<&Path>, line: &str, wanted: i32) -> Result {
        let (code, said) = self.run(wireup, line)?;
        if code == Some(wanted) && !is_report(&said) {
            return Ok(());
        }
        eprint!("{said}");
        Err(format!("{line}: exit code {code:?} (right: {wanted})"))
    }

    fn expect_report(&self, mistake: &str, report: &str) -> Result {
        let (_, said) = self.run(None, &format!("planted {mistake}"))?;
        if said.contains(report) { Ok(()) } else { Err(format!("not reported: {mistake}; it says {said:?}")) }
    }
}

fn program(line: &str) -> &str {
    line.split(' ').next().unwrap_or(line)
}

fn is_report(said: &str) -> bool {
    ["Sanitizer", "runtime error:"].iter().any(|sign| said.contains(sign))
}

/// Path of the sanitizer's runtime library, which rustc links to instrumented programs.
fn runtime(sanitizer: &Sanitizer) -> Result<PathBuf> {
    let folder = PathBuf::from(rustc("target-libdir")?);
    let end = format!("_rt.{}.a", sanitizer.runtime);
    let files = fs::read_dir(&folder).map_err(|e| format!("read {}: {e}", folder.display()))?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    let found = paths.find(|path| path.to_string_lossy().ends_with(&end));
    found.ok_or_else(|| format!("this rustc has no runtime for -Zsanitizer={}", sanitizer.rustc))
}

fn version() -> Result<String> {
    let said = output(build::compiler().arg("--version"))?;
    Ok(said.split(' ').nth(1).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_recognised() {
        assert!(is_report("==1==ERROR: AddressSanitizer: heap-buffer-overflow"));
        assert!(is_report("WARNING: ThreadSanitizer: data race (pid=1)"));
        assert!(is_report("a.c:3:5: runtime error: signed integer overflow"));
        assert!(!is_report("0: all right\n"));
    }

    #[test]
    fn every_program_of_the_libraries_runs_or_is_named_here() {
        // Programs that cannot run here, in this order: one never ends; the next four need a flag, a file, or a host
        // without libfabric; a sanitizer has no second copy of itself; the ranks of the last are children.
        let left_out = ["endless", "instant", "unaccepted", "busy", "nofabric", "copies", "dies"];
        for file in fs::read_dir(layout::sources().join("libpmi")).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let runs = jobs().into_iter().map(|(line, _)| line).chain(ALONE).any(|line| program(line) == name);
            assert!(runs || left_out.contains(&name) || path.extension().unwrap() == "h", "{name}");
        }
    }
}
