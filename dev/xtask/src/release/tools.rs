//! The tools for a release: cargo-zigbuild, Zig, maturin and rpmlint from PyPI, tools for packages from crates.io, and
//! Rust's targets and objcopy.

use crate::build::{cargo, rustc};
use crate::step::{self, Result, run_quietly, show, step};
use crate::{layout, peers};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages that are installed from PyPI.
const PACKAGES: [&str; 4] = ["cargo-zigbuild==0.24.0", "ziglang==0.17.1", "maturin==1.16.0", "rpmlint==2.10.0"];

/// Programs that are installed from crates.io. The first one writes the list of dependencies into each program, for
/// `cargo audit bin`.
const CRATES: [&str; 3] = ["cargo-auditable@0.7.7", "cargo-deb@3.8.0", "cargo-generate-rpm@0.21.1"];

pub struct Tools {
    /// The folder of the virtual environment with the tools from PyPI.
    at: PathBuf,
    objcopy: PathBuf,
}

impl Tools {
    /// Installs the missing tools into the target directory.
    ///
    /// # Errors
    /// `pip` fails, or Rust does not come from rustup.
    pub fn install() -> Result<Tools> {
        let at = layout::target().join("release-tools");
        peers::installed(&at, &PACKAGES)?;
        let is_missing = |name: &&&str| !at.join("bin").join(name.split('@').next().unwrap_or(name)).exists();
        for name in CRATES.iter().filter(is_missing) {
            let mut install = cargo();
            install.args(["install", "--quiet", "--locked", name, "--root"]).arg(&at);
            step(show(&install), || run_quietly(&mut install))?;
        }
        let (sysroot, host) = (PathBuf::from(rustc("sysroot")?), rustc("host-tuple")?);
        let objcopy = sysroot.join("lib/rustlib").join(host).join("bin/rust-objcopy");
        if !objcopy.exists() {
            return Err(format!("{} is missing; is Rust from rustup and not older than 1.88?", objcopy.display()));
        }
        Ok(Tools { at, objcopy })
    }

    /// Sets variables so that cargo finds its subcommand, the subcommand finds Zig, and the embedded test programs get
    /// a compiler for the right architecture: with musl they are a few kB each.
    ///
    /// # Errors
    /// The compiler's wrapper cannot be written.
    pub fn set_environment(&self, cargo: &mut Command, architecture: &str) -> Result {
        let bin = self.at.join("bin");
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(std::iter::once(bin.clone()).chain(env::split_paths(&path)))
            .map_err(|e| format!("{}: {e}", bin.display()))?;
        cargo.env("PATH", path).env("CARGO_ZIGBUILD_PYTHON_PATH", bin.join("python"));
        cargo.env("CC", self.compiler(architecture, "musl")?);
        // Programs that load a library at run time are linked to glibc, because the library is linked to glibc too.
        let target = format!("gnu.{}", super::GLIBC);
        cargo.env("CC_SHARED", self.compiler(architecture, &target)?);
        // The variables that `cargo auditable` would set; it can start only cargo's own commands, not cargo-zigbuild.
        cargo.env("RUSTC_WORKSPACE_WRAPPER", bin.join("cargo-auditable"));
        cargo.env("CARGO_AUDITABLE_ORIG_ARGS", r#"{"offline":false,"locked":false,"frozen":false,"config":[]}"#);
        Ok(())
    }

    /// A C compiler as a script, because `CC` may only be a single word.
    pub fn compiler(&self, architecture: &str, libc: &str) -> Result<PathBuf> {
        let at = self.at.join(format!("bin/cc-{architecture}-{libc}"));
        let python = self.at.join("bin/python");
        let script =
            format!("#!/bin/sh\nexec {:?} -m ziglang cc -target {architecture}-linux-{libc} -s \"$@\"\n", python);
        write_program(&at, &script).map_err(|e| format!("write {}: {e}", at.display()))?;
        Ok(at)
    }

    /// Rust's own objcopy, which supports every architecture that Rust does.
    pub fn objcopy(&self) -> PathBuf {
        self.objcopy.clone()
    }

    /// A command that runs one of the tools.
    pub fn command(&self, name: &str) -> Command {
        Command::new(self.at.join("bin").join(name))
    }
}

/// Installs a target of Rust unless it is installed already.
///
/// # Errors
/// `rustup` is missing or fails.
pub fn add_target(target: &str) -> Result {
    let installed = step::output(Command::new("rustup").args(["target", "list", "--installed"]))?;
    if installed.lines().any(|line| line == target) {
        return Ok(());
    }
    step(format!("rustup target add {target}"), || run_quietly(Command::new("rustup").args(["target", "add", target])))
}

fn write_program(at: &Path, script: &str) -> std::io::Result<()> {
    fs::write(at, script)?;
    fs::set_permissions(at, fs::Permissions::from_mode(0o755))
}

/// Copies a file; creates the folder of the new file if needed.
pub fn copy(from: &Path, to: &Path) -> Result {
    let folder = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    fs::copy(from, to).map(drop).map_err(|e| format!("copy {} to {}: {e}", from.display(), to.display()))
}
