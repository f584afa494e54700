//! The C libraries, `libpmi.so.0`, `libpmi2.so.0`, `libwireup.so.0` and `libwireup-staged.so.0`: built small, linked
//! with one version node each.
//!
//! rustc makes static libraries of them and the C compiler makes shared ones: the list of symbols that rustc itself
//! passes to the linker rules out a version script. Nothing but the C library is linked, whose threads are a library of
//! their own before glibc 2.34, not even the compiler's start files, so no code runs when a library is loaded.

use crate::build::cargo;
use crate::layout;
use crate::step::{Result, run_quietly, step};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{fs, process};

/// The libraries that programs are linked to or open; names without `lib` and `.so`.
pub const NAMES: [&str; 3] = ["pmi", "pmi2", "wireup"];

/// The library that shows staged files to processes that do not know of it.
pub const STAGED: &str = "wireup-staged";

/// Unwind tables, a sixth of a library, are removed where no exception passes through ([`Linking::link`]). Without them
/// debuggers need frame pointers. Poly1305 by AVX2 makes a barrier of two ranks 7 % slower, large messages 5 % faster,
/// and the library 12 KiB larger; so it is off.
pub(crate) const RUSTFLAGS: &str = "-C force-frame-pointers=yes -C force-unwind-tables=yes --cfg poly1305_force_soft";

const LINKER: [&str; 10] = [
    "--gc-sections", "--as-needed", "-z,defs", "-z,relro", "-z,now",
    // The C library keeps a pointer to the handler of forks in the library.
    "-z,nodelete", // This flag saves a page for each change of access rights.
    "-z,noseparate-code", "--hash-style=gnu",
    // This flag saves a page: with a build id the code would exceed one by a few bytes.
    "--build-id=none", "-s",
];

pub fn all() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain([STAGED])
}

/// The file name of a library.
pub fn file(name: &str) -> String {
    format!("lib{name}.so.0.0.0")
}

/// The names of the links to a library: the soname, and the name for `-lpmi`.
pub fn links(name: &str) -> [String; 2] {
    [format!("lib{name}.so.0"), format!("lib{name}.so")]
}

/// Builds all libraries in the folder of the release program; returns that folder. Several processes may call it at
/// once.
///
/// # Errors
/// They cannot be built.
pub fn build() -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // A poisoned lock means that another test failed, which is reported there.
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
            // Another process may just have created it.
            let _ = symlink(file(name), folder.join(link));
        }
    }
    Ok(folder)
}

/// Builds `libwireup_pmi.a` and `libwireup_pmi2.a`.
pub(crate) fn static_libraries() -> Command {
    let mut build = cargo();
    build.args(["build", "--quiet", "--profile", "capi"]);
    for name in all() {
        build.args(["-p", &format!("wireup-lib{name}"), "--features", &format!("wireup-lib{name}/bare")]);
    }
    build
}

/// The linker's list of a library's symbols.
pub(crate) fn map(name: &str) -> PathBuf {
    layout::root().join(format!("crates/lib{name}/abi/lib{name}.map"))
}

/// How static libraries become shared ones.
pub(crate) struct Linking {
    /// The folder of the static libraries.
    pub archives: PathBuf,
    pub compiler: PathBuf,
    pub objcopy: PathBuf,
    /// Flags of [`LINKER`] that this compiler's linker does not know.
    pub without: &'static [&'static str],
}

impl Linking {
    /// Links a shared library, unless it is newer than the files that it is made from.
    pub(crate) fn link(&self, name: &str, library: &Path) -> Result<PathBuf> {
        let archive = self.archives.join(format!("libwireup_{}.a", name.replace('-', "_")));
        let map = map(name);
        let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let newest = time(&archive).max(time(&map));
        if time(library) < newest || newest.is_none() {
            let unfinished = library.with_file_name(format!(".{name}.{}", process::id()));
            let small = library.with_file_name(format!(".lib{name}.{}.a", process::id()));
            let mut copy = Command::new(&self.objcopy);
            // A thread that is cancelled while it opens a file unwinds its stack through this one.
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
        // The loader takes this library out of a process for which nothing is staged; it has no handler of forks.
        let left_out = |flag: &&str| self.without.contains(flag) || name == STAGED && *flag == "-z,nodelete";
        let flags: Vec<&str> = LINKER.into_iter().filter(|flag| !left_out(flag)).collect();
        cc.arg(format!("-Wl,{},-soname,lib{name}.so.0", flags.join(",")));
        cc.arg(format!("-Wl,--version-script={}", map.display()));
        // `dlopen` is in libdl and threads are in libpthread before glibc 2.34.
        cc.args(["-lc", "-ldl", "-lpthread"]);
        cc
    }
}

/// Like [`build`], as an announced step.
///
/// # Errors
/// As [`build`].
pub fn announced() -> Result {
    step("libpmi, libpmi2, libwireup, libwireup-staged", || build().map(drop))
}
