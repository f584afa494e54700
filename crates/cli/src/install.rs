//! `wireup install --prefix DIR`: installs the program, the C libraries and their headers, manual pages, completions
//! and pkg-config files.
//!
//! The libraries are beside the program (`cargo xtask libraries` puts them there) or where an earlier `wireup install`
//! put them. They are not embedded in the program, which is sent to every node; the headers are, being only a few
//! kilobytes. Every file is written under another name and renamed, so that replacing a library in use does no harm.

pub mod flags;

use crate::front::NAMES;
use crate::libraries::{self, STAGED, real_name};
use crate::{generate, out};
use flags::{FRONT, PREFIX};
use std::fmt::Display;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use wireup_flags::{Line, Value};

const LIBRARIES: [&str; 4] = ["pmi", "pmi2", "wireup", STAGED];

/// Programs that are installed if they are next to this one.
const TOOLS: [&str; 2] = ["wireup-bench", "wireup-simulate"];

const HEADERS: [(&str, &str); 5] = [
    ("pmi.h", include_str!("../../../include/pmi.h")),
    ("pmi2.h", include_str!("../../../include/pmi2.h")),
    ("pmix_ext.h", include_str!("../../../include/pmix_ext.h")),
    ("wireup.h", include_str!("../../../include/wireup.h")),
    ("wireup_ucc.h", include_str!("../../../adapters/ucc/wireup_ucc.h")),
];

/// Files that are installed below `share`, next to the manual pages of section 1: folder, name, contents.
const SHARED: [(&str, &str, &str); 5] = [
    ("wireup", "nvshmem_bootstrap_wireup.c", include_str!("../../../adapters/nvshmem/nvshmem_bootstrap_wireup.c")),
    ("man/man3", "wireup.3", include_str!("../../../docs/man/wireup.3")),
    ("bash-completion/completions", "wireup", generate::BASH),
    ("zsh/site-functions", "_wireup", generate::ZSH),
    ("fish/vendor_completions.d", "wireup.fish", generate::FISH),
];

/// The program's file name in `bin`, to which the links next to it (`mpirun` and others) lead.
const PROGRAM: &str = "wireup";
const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

pub fn run(line: &Line) -> Result<u8, String> {
    let prefix = prefix(line)?;
    if has_the_wheel(&prefix) {
        return Err(format!(
            "install: the wireup in {} is pip's, which would not remove these files later; use another \
             --prefix, such as {}",
            prefix.display(),
            prefix.join("wireup").display()
        ));
    }
    let missing = install(&prefix).map_err(|problem| format!("install: {problem}"))?;
    if let Some((beside, names)) = missing {
        let prefix = prefix.display();
        out::tell(&format!(
            "install: without {}, which are neither in {} nor in ../lib; to add them, run in wireup's source folder: \
             cargo xtask libraries && target/release/wireup install --prefix {prefix}",
            names.join(", "),
            beside.display()
        ));
    }
    if line.has(FRONT) {
        let kept = front(&prefix.join("bin")).map_err(|problem| format!("install: {problem}"))?;
        for name in kept {
            out::tell(&format!(
                "install: {} is not a link to wireup and was kept; remove it, or use another --prefix",
                prefix.join("bin").join(name).display()
            ));
        }
    }
    out::print(&format!("installed in {}\n", prefix.display()));
    Ok(0)
}

fn prefix(line: &Line) -> Result<PathBuf, String> {
    let prefix = line.last(PREFIX, Value::path)?.filter(|prefix| !prefix.as_os_str().is_empty());
    prefix.ok_or_else(|| "install: --prefix is missing; for example: wireup install --prefix /opt/wireup".to_owned())
}

/// Whether `pip` installed this version below `prefix`.
fn has_the_wheel(prefix: &Path) -> bool {
    let installed = concat!("wireup_launcher-", env!("CARGO_PKG_VERSION"), ".dist-info");
    let python = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("python3");
    // `dist-packages` is Debian's name for `site-packages`.
    let has =
        |python: &Path| ["site-packages", "dist-packages"].iter().any(|at| python.join(at).join(installed).exists());
    // A folder that does not exist yet contains no packages.
    let entries = fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    entries.filter(python).any(|entry| has(&entry.path()))
}

/// Installs everything that is there. Returns the names of the C libraries that are not, with the folder where they
/// should be.
fn install(prefix: &Path) -> Result<Option<(PathBuf, Vec<String>)>, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("cannot determine the path of this program: {error}"))?;
    let tools: Vec<(&str, PathBuf)> =
        TOOLS.map(|name| (name, program.with_file_name(name))).into_iter().filter(|(_, path)| path.is_file()).collect();
    // Before anything is copied, the tools are asked for their manual pages: one of another version may not have `man`.
    let tool_pages: Vec<(String, String)> =
        tools.iter().map(|(name, path)| page_of(name, path)).collect::<Result<_, _>>()?;
    let (bin, lib, include) = (prefix.join("bin"), prefix.join("lib"), prefix.join("include"));
    let (pkgconfig, share) = (lib.join("pkgconfig"), prefix.join("share"));
    for folder in [&bin, &lib, &include, &pkgconfig] {
        fs::create_dir_all(folder).map_err(tried("create", folder))?;
    }
    copy(&program, &bin.join(PROGRAM))?;
    tools.iter().try_for_each(|(name, path)| copy(path, &bin.join(name)))?;
    let mut missing: Option<(PathBuf, Vec<String>)> = None;
    for name in LIBRARIES {
        let from = match libraries::find(&program, name) {
            Ok(from) => from,
            Err(beside) => {
                missing.get_or_insert((beside, Vec::new())).1.push(real_name(name));
                continue;
            }
        };
        copy(&from, &lib.join(real_name(name)))?;
        for link in [format!("lib{name}.so.0"), format!("lib{name}.so")] {
            replace(&lib.join(link), |unfinished| symlink(real_name(name), unfinished))?;
        }
        if name != STAGED {
            write(&pkgconfig.join(format!("{}.pc", package_name(name))), &package(name))?;
        }
    }
    HEADERS.iter().try_for_each(|(name, text)| write(&include.join(name), text))?;
    let pages: Vec<(String, String)> = generate::man_pages().into_iter().chain(tool_pages).collect();
    let pages = pages.iter().map(|(name, text)| ("man/man1", &**name, &**text));
    SHARED.into_iter().chain(pages).try_for_each(|(folder, name, text)| {
        let folder = share.join(folder);
        fs::create_dir_all(&folder).map_err(tried("create", &folder))?;
        write(&folder.join(name), text)
    })?;
    Ok(missing)
}

fn page_of(name: &str, tool: &Path) -> Result<(String, String), String> {
    let page = Command::new(tool).arg("man").output().map_err(tried("run", tool))?;
    match page.status.success() {
        true => Ok((format!("{name}.1"), String::from_utf8_lossy(&page.stdout).into_owned())),
        false => Err(format!("{} man: {}; is it of the same version?", tool.display(), page.status)),
    }
}

/// Makes the links of other launchers' names; returns the names under which some other file exists.
fn front(bin: &Path) -> Result<Vec<&'static str>, String> {
    let mut kept = Vec::new();
    for name in NAMES {
        let link = bin.join(name);
        let is_ours = || fs::read_link(&link).is_ok_and(|target| target == Path::new(PROGRAM));
        match link.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                symlink(PROGRAM, &link).map_err(tried("make the link", &link))?;
            }
            Err(error) => return Err(tried("look at", &link)(error)),
            Ok(_) if is_ours() => {}
            Ok(_) => kept.push(name),
        }
    }
    Ok(kept)
}

fn package_name(library: &str) -> String {
    if library == "wireup" { library.to_owned() } else { format!("wireup-{library}") }
}

/// A pkg-config file with relative paths, which stays valid if the tree is moved.
fn package(name: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let what = match name {
        "pmi" => "PMI-1, client library",
        "pmi2" => "PMI-2 and startup extensions, client library",
        _ => "groups, collectives and messages between the ranks of a job",
    };
    let package = package_name(name);
    format!(
        "prefix=${{pcfiledir}}/../..\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: {package}\nDescription: {what}\nVersion: {version}\n\
         Libs: -L${{libdir}} -l{name}\nCflags: -I${{includedir}}\n"
    )
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let same = |path: &Path| fs::canonicalize(path).ok();
    if same(from).is_some() && same(from) == same(to) {
        return Ok(());
    }
    replace(to, |unfinished| {
        fs::copy(from, unfinished)?;
        fs::set_permissions(unfinished, Permissions::from_mode(PROGRAM_MODE))
    })
}

fn write(to: &Path, text: &str) -> Result<(), String> {
    replace(to, |unfinished| {
        fs::write(unfinished, text)?;
        fs::set_permissions(unfinished, Permissions::from_mode(FILE_MODE))
    })
}

/// Writes a file under a temporary name, then renames it.
fn replace(to: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), String> {
    let mut unfinished = to.as_os_str().to_owned();
    unfinished.push(format!(".{}", process::id()));
    let unfinished = PathBuf::from(unfinished);
    make(&unfinished).and_then(|()| fs::rename(&unfinished, to)).map_err(|error| {
        // An unfinished file must not be left behind; the error that is reported is the first one.
        let _ = fs::remove_file(&unfinished);
        tried("write", to)(error)
    })
}

fn tried<E: Display>(what: &str, path: &Path) -> impl Fn(E) -> String {
    move |error| format!("{what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::flags::COMMAND;
    use super::*;
    use std::ffi::OsString;

    fn prefix_of(args: &[&str]) -> Result<PathBuf, String> {
        let line = COMMAND.parse(args.iter().map(OsString::from)).map_err(|error| error.to_string())?;
        prefix(&line.expect("no help"))
    }

    #[test]
    fn install_requires_a_prefix() {
        assert_eq!(prefix_of(&["--prefix", "/x"]), Ok(PathBuf::from("/x")));
        for wrong in [&[][..], &["--prefix"], &["--prefix="], &["/x"]] {
            assert!(prefix_of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn links_are_made_beside_the_program_and_never_over_something_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let bin = folder.path();
        fs::write(bin.join("mpirun"), "theirs").expect("a file");
        symlink("/usr/bin/true", bin.join("orterun")).expect("a link");
        for _ in 0..2 {
            assert_eq!(front(bin), Ok(vec!["mpirun", "orterun"]));
            assert_eq!(fs::read_link(bin.join("mpiexec")).expect("a link"), Path::new("wireup"));
        }
        assert_eq!(fs::read(bin.join("mpirun")).expect("still there"), b"theirs");
        assert!(front(&bin.join("none")).is_err(), "there is no folder");
    }

    #[test]
    fn nothing_is_installed_among_the_files_of_pip() {
        let folder = tempfile::tempdir().expect("a folder");
        let prefix = folder.path().join("prefix");
        assert!(!has_the_wheel(&prefix), "there is no folder");
        let packages = prefix.join("lib/python3.11/site-packages");
        // A package of another project with a similar name.
        fs::create_dir_all(packages.join("wireup-2.9.0.dist-info")).expect("a folder");
        assert!(!has_the_wheel(&prefix));
        fs::create_dir_all(packages.join(format!("wireup_launcher-{}.dist-info", env!("CARGO_PKG_VERSION"))))
            .expect("a folder");
        assert!(has_the_wheel(&prefix));
        let line = COMMAND.parse(["--prefix".into(), prefix.clone().into_os_string()]);
        let line = line.expect("well-formed").expect("no help");
        assert!(run(&line).is_err_and(|why| why.contains("use another --prefix")));
        assert!(!prefix.join("bin").exists());
    }

    #[test]
    fn pkg_config_files_name_their_library() {
        assert!(package("pmi2").contains("Libs: -L${libdir} -lpmi2\n"));
    }
}
