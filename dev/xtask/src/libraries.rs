//! The C libraries, `libpmi.so.0`, `libpmi2.so.0`, `libwireup.so.0` and `libwireup-staged.so.0`: built to be small,
//! each linked with one symbol version.
//!
//! rustc makes static libraries of them and the C compiler makes shared ones: the list of symbols that rustc itself
//! passes to the linker rules out a version script. The libraries are linked only to the C library (and its libpthread
//! before glibc 2.34), not even to the compiler's start files, so no code runs when one is loaded.

use crate::build::cargo;
use crate::layout;
use crate::step::{Result, run_quietly, step};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{fs, process};

/// The names, without `lib` and `.so`, of the libraries that programs are linked to or open.
pub const NAMES: [&str; 3] = ["pmi", "pmi2", "wireup"];

/// The library that shows staged files to processes that do not know of it.
pub const STAGED: &str = "wireup-staged";

/// Unwind tables, a sixth of a library's size, are removed where no stack is unwound through the library
/// ([`Linking::link`]). Without them debuggers need frame pointers. Poly1305 by AVX2 makes a barrier of two ranks 7 %
/// slower, large messages 5 % faster, and the library 12 KiB larger; so it is off.
pub(crate) const RUSTFLAGS: &str = "-C force-frame-pointers=yes -C force-unwind-tables=yes --cfg poly1305_force_soft";

const LINKER: [&str; 10] = [
    "--gc-sections", "--as-needed", "-z,defs", "-z,relro", "-z,now",
    // Not unloaded by `dlclose`: the C library keeps a pointer to this library's fork handler.
    "-z,nodelete", // This flag saves a page for each change of access rights.
    "-z,noseparate-code", "--hash-style=gnu",
    // Saves a page: with a build id, the code would exceed a page boundary by a few bytes.
    "--build-id=none", "-s",
];

pub fn all() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain([STAGED])
}

/// The file name of the library `name`.
pub fn file(name: &str) -> String {
    format!("lib{name}.so.0.0.0")
}

/// The names of the symbolic links to a library: the soname, and the name that `-lpmi` looks for.
pub fn links(name: &str) -> [String; 2] {
    [format!("lib{name}.so.0"), format!("lib{name}.so")]
}

/// Builds all libraries in the folder of the release program; returns that folder. Several processes may do so at once.
///
/// # Errors
/// A library cannot be built.
pub fn build() -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // A poisoned lock means that another test has failed while it held the lock, which that test reports.
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    run_quietly(static_libraries().env("RUSTFLAGS", RUSTFLAGS))?;
    let folder = layout::target().join("release");
    fs::create_dir_all(&folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    let linking = Linking {
        archives: layout::target().join("capi"),
        compiler: "cc".into(),
        objcopy: "objcopy".into(),
        without: &[],
    };
    for name in all() {
        linking.link(name, &folder.join(file(name)))?;
        for link in links(name) {
            // Errors are ignored: another process may just have created the link.
            let _ = symlink(file(name), folder.join(link));
        }
    }
    Ok(folder)
}

/// The cargo command that builds `libwireup_pmi.a` and the other static libraries.
pub(crate) fn static_libraries() -> Command {
    let mut build = cargo();
    build.args(["build", "--quiet", "--profile", "capi"]);
    for name in all() {
        build.args(["-p", &format!("wireup-lib{name}"), "--features", &format!("wireup-lib{name}/bare")]);
    }
    build
}

/// Path of the linker's version script, which lists a library's exported symbols.
pub(crate) fn map(name: &str) -> PathBuf {
    layout::root().join(format!("crates/lib{name}/abi/lib{name}.map"))
}

/// How shared libraries are linked from static ones.
pub(crate) struct Linking {
    /// The folder that contains the static libraries.
    pub archives: PathBuf,
    pub compiler: PathBuf,
    pub objcopy: PathBuf,
    /// Flags of [`LINKER`] that this compiler's linker does not know.
    pub without: &'static [&'static str],
}

impl Linking {
    /// Links a shared library, unless it is newer than the files that it is made from; returns its path.
    pub(crate) fn link(&self, name: &str, library: &Path) -> Result<PathBuf> {
        let archive = self.archives.join(format!("libwireup_{}.a", name.replace('-', "_")));
        let map = map(name);
        let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let newest = time(&archive).max(time(&map));
        if time(library) < newest || newest.is_none() {
            let unfinished = library.with_file_name(format!(".{name}.{}", process::id()));
            let small = library.with_file_name(format!(".lib{name}.{}.a", process::id()));
            let mut copy = Command::new(&self.objcopy);
            // `STAGED` keeps its unwind tables: the stack of a thread that is cancelled while it opens a file is
            // unwound through it.
            if name != STAGED {
                copy.args(["--remove-section", ".eh_frame"]);
            }
            run_quietly(copy.arg(&archive).arg(&small))?;
            let linked = run_quietly(&mut self.linker(name, &map, &small, &unfinished));
            fs::remove_file(&small).map_err(|e| format!("remove {}: {e}", small.display()))?;
            linked?;
            fs::rename(&unfinished, library).map_err(|e| format!("rename to {}: {e}", library.display()))?;
        }
        Ok(library.to_owned())
    }

    fn linker(&self, name: &str, map: &Path, archive: &Path, library: &Path) -> Command {
        let mut cc = Command::new(&self.compiler);
        cc.args(["-shared", "-nostartfiles", "-nodefaultlibs", "-o"]).arg(library);
        cc.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
        // The loader unloads `STAGED` from a process for which nothing is staged, so that library must not have `-z
        // nodelete`; it has no fork handler.
        let left_out = |flag: &&str| self.without.contains(flag) || name == STAGED && *flag == "-z,nodelete";
        let flags: Vec<&str> = LINKER.into_iter().filter(|flag| !left_out(flag)).collect();
        cc.arg(format!("-Wl,{},-soname,lib{name}.so.0", flags.join(",")));
        cc.arg(format!("-Wl,--version-script={}", map.display()));
        // Before glibc 2.34, `dlopen` is in libdl and threads are in libpthread.
        cc.args(["-lc", "-ldl", "-lpthread"]);
        cc
    }
}

/// Like [`build`], but announced as a step on the terminal.
///
/// # Errors
/// As [`build`].
pub fn announced() -> Result {
    step("libpmi, libpmi2, libwireup, libwireup-staged", || build().map(drop))
}
