//! The Debian and RPM packages, by cargo-deb and cargo-generate-rpm (`crates/cli/Cargo.toml` lists their files).
//!
//! Both take their files from `target/package`, where `wireup install` puts them. Only this machine's program can run
//! here: packages for another architecture contain the manual pages and completions that this machine's program has
//! written.

use super::elf::{self, Version};
use super::tools::{Tools, add_target, copy};
use crate::libraries::{self, Linking};
use crate::step::{Result, output, run_quietly, show, step};
use crate::{debian, layout};
use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of the programs in the packages' folder `bin`.
pub const PROGRAMS: [&str; 3] = ["wireup", "wireup-bench", "wireup-simulate"];

/// The folder of manual pages in `target/package`.
const PAGES: &str = "share/man/man1";

/// Fills `target/package`. `from`: function that gives the path of a program with this name.
///
/// # Errors
/// A library cannot be built or needs a newer glibc, or `wireup install` fails.
pub fn fill(tools: &Tools, architecture: &str, glibc: Version, from: impl Fn(&str) -> PathBuf) -> Result<PathBuf> {
    let (package, stage) = (layout::target().join("package"), layout::target().join("package-parts"));
    for program in PROGRAMS {
        copy(&from(program), &stage.join(program))?;
    }
    for (name, library) in libraries::all().zip(libraries_of(tools, architecture, glibc)?) {
        copy(&library, &stage.join(libraries::file(name)))?;
    }
    if architecture == ARCH {
        let mut install = Command::new(stage.join("wireup"));
        run_quietly(install.args(["install", "--prefix"]).arg(&package))?;
    } else {
        PROGRAMS.iter().try_for_each(|name| copy(&stage.join(name), &package.join("bin").join(name)))?;
        let files = libraries::all().map(libraries::file);
        files.into_iter().try_for_each(|file| copy(&stage.join(&file), &package.join("lib").join(&file)))?;
    }
    changelog(&package.join("changelog.Debian"))?;
    Ok(package)
}

fn libraries_of(tools: &Tools, architecture: &str, glibc: Version) -> Result<Vec<PathBuf>> {
    let triple = format!("{architecture}-unknown-linux-gnu");
    add_target(&triple)?;
    let linking = Linking {
        archives: layout::target().join(&triple).join("capi"),
        compiler: tools.compiler(architecture, &format!("gnu.{glibc}"))?,
        objcopy: tools.objcopy(),
        // Zig's linker does not know this option.
        without: &["-z,noseparate-code"],
    };
    let folder = layout::target().join(&triple).join("release");
    let mut archives = libraries::static_libraries();
    archives.args(["--target", &triple]).env("RUSTFLAGS", libraries::RUSTFLAGS);
    step(show(&archives), || run_quietly(&mut archives))?;
    let linked = |name| {
        let library = linking.link(name, &folder.join(libraries::file(name)))?;
        let problem = elf::read(&library)?.requires_more_than_glibc(glibc);
        problem.map_or(Ok(library), |problem| Err(format!("lib{name}: {problem}")))
    };
    libraries::all().map(linked).collect()
}

/// Debian requires a changelog with an entry for each version; its date is that of the last commit.
fn changelog(at: &Path) -> Result {
    let mut git = Command::new("git");
    let date = output(git.args(["log", "-1", "--format=%cD"]).current_dir(layout::root()))?;
    let text = format!(
        "wireup ({}-1) unstable; urgency=medium\n\n  * See the changelog in wireup's sources.\n\n -- \
         The wireup authors <wireup@packages.invalid>  {date}\n",
        env!("CARGO_PKG_VERSION")
    );
    fs::write(at, text).map_err(|e| format!("write {}: {e}", at.display()))
}

/// Makes both packages from the files in `target/package`, and checks them.
///
/// # Errors
/// A tool fails, `lintian` or `rpmlint` finds an error, or the RPM package has unexpected files or a script.
pub fn build(tools: &Tools, architecture: &str) -> Result<[PathBuf; 2]> {
    debian::ensure(&["lintian", "python3-rpm", "rpm"])?;
    let (dist, version) = (layout::target().join("dist"), env!("CARGO_PKG_VERSION"));
    let triple = format!("{architecture}-unknown-linux-gnu");
    let deb = dist.join(format!("wireup_{version}-1_{}.deb", debian::architecture(architecture)));
    let rpm = dist.join(format!("wireup-{version}-1.{architecture}.rpm"));
    let mut make = tools.command("cargo-deb");
    make.args(["deb", "--quiet", "--no-build", "--no-strip", "-p", "wireup", "--target", &triple, "-o"]).arg(&deb);
    step(show(&make), || run_quietly(make.current_dir(layout::root())))?;
    let mut make = tools.command("cargo-generate-rpm");
    make.args(["generate-rpm", "-p", "crates/cli", "--target", &triple, "-o"]).arg(&rpm);
    step(show(&make), || run_quietly(make.current_dir(layout::root())))?;
    run_quietly(Command::new("lintian").args(["--allow-root", "--fail-on", "error,warning"]).arg(&deb))?;
    let settings = layout::root().join("packaging/rpmlint.toml");
    run_quietly(tools.command("rpmlint").arg("--config").arg(settings).arg(&rpm))?;
    inspect(&rpm, &layout::target().join("package"))?;
    Ok([deb, rpm])
}

/// Checks the contents of the RPM package, as Debian's `rpm` lists them.
fn inspect(rpm: &Path, package: &Path) -> Result {
    let ask = |what: &str| output(Command::new("rpm").args(["-qp", what]).arg(rpm));
    let entries = fs::read_dir(package.join(PAGES)).map_err(|e| format!("{PAGES}: {e}"))?;
    let pages: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let problem = difference(&files_of_rpm(&pages), &ask("--list")?);
    let scripts = ["--scripts", "--triggers", "--filetriggers"].map(ask);
    let script = scripts.into_iter().collect::<Result<Vec<_>>>()?.concat();
    let problem = problem.or_else(|| (!script.is_empty()).then(|| format!("it runs a script: {script}")));
    problem.map_or(Ok(()), |problem| Err(format!("{}: {problem}", rpm.display())))
}

/// The files that the RPM package must contain, given the names of its manual pages.
fn files_of_rpm(pages: &[String]) -> BTreeSet<String> {
    let programs = PROGRAMS.map(|name| format!("/usr/bin/{name}"));
    let libraries = libraries::all().map(|name| format!("/usr/lib/wireup/{}", libraries::file(name)));
    let needed = PROGRAMS.map(|name| format!("{name}.1"));
    let pages = pages.iter().chain(&needed).map(|name| format!("/usr/share/man/man1/{name}"));
    let others = [
        "bash-completion/completions/wireup", "fish/vendor_completions.d/wireup.fish", "zsh/site-functions/_wireup",
        "licenses/wireup/LICENSE-APACHE", "licenses/wireup/LICENSE-MIT", "doc/wireup/CHANGELOG.md",
    ];
    let others = others.map(|path| format!("/usr/share/{path}"));
    programs.into_iter().chain(libraries).chain(pages).chain(others).collect()
}

/// Paths that are missing from the list of a package's files (one path a line), and unexpected ones; `None`: there are
/// none.
fn difference(wanted: &BTreeSet<String>, list: &str) -> Option<String> {
    let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
    let [missing, more] = [wanted - &listed, &listed - wanted].map(|paths| Vec::from_iter(paths).join(", "));
    match (&*missing, &*more) {
        ("", "") => None,
        (_, "") => Some(format!("it lacks {missing}")),
        ("", _) => Some(format!("it must not have {more}")),
        _ => Some(format!("it lacks {missing}; it must not have {more}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_lack_or_are_too_many_are_named() {
        let wanted = files_of_rpm(&["wireup-run.1".to_owned()]);
        for path in ["/usr/bin/wireup-bench", "/usr/share/man/man1/wireup-bench.1", "/usr/share/man/man1/wireup-run.1"]
        {
            assert!(wanted.contains(path), "{path}: {wanted:?}");
        }
        let all: String = wanted.iter().map(|path| format!("{path}\n")).collect();
        assert_eq!(difference(&wanted, &all), None);
        let problem = difference(&wanted, &all.replace("/usr/bin/wireup-bench\n", "/usr/bin/other\n"));
        let expected = "it lacks /usr/bin/wireup-bench; it must not have /usr/bin/other";
        assert_eq!(problem.as_deref(), Some(expected));
    }
}
