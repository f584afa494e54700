//! Programs that use PyTorch under `wireup run`, with the versions of PyTorch in later Debian releases.
//!
//! Debian's builds have neither libuv nor GPUs. Without libuv, PyTorch's store client refuses queues.

use super::{commit, launcher, prove};
use crate::step::Result;
use crate::{fresh, layout};
use std::fs;
use std::path::PathBuf;

const HEAD: &str = "\
# Versions of PyTorch, the jobs of `wireup run` that ended well with each, and the commit. `cargo xtask night torch` \
does it.
";

const SCRIPT: &str = include_str!("torch.sh");

/// Names of Debian 13 and of Debian unstable.
const SUITES: [&str; 2] = ["trixie", "sid"];

/// Runs all jobs with each version, and records them. Each Debian is kept in the target directory for the next time.
/// The launcher is the release build, or the program that `WIREUP_BIN` names.
///
/// # Errors
/// A Debian system cannot be created, or a job fails.
pub fn run() -> Result {
    let (wireup, commit) = (launcher()?, commit()?);
    let programs = ["torch_ddp", "torch_store", "torch_restart", "store_client"];
    let program = |name| layout::sources().join(format!("python/{name}.py"));
    let modules =
        ["__init__.py", "torch.py", "torchrun.py"].map(|name| layout::root().join("python/wireup_launcher").join(name));
    let others = [layout::root().join("pyproject.toml"), wireup];
    let files: Vec<PathBuf> = programs.into_iter().map(program).chain(modules).chain(others).collect();
    let mut text = String::new();
    for suite in SUITES {
        let folder = layout::target().join("torch").join(suite);
        fresh::in_kept_debian(&folder, suite, files.clone(), ("PyTorch", SCRIPT))?;
        let path = folder.join("root/root/wireup/jobs");
        let jobs = fs::read_to_string(&path).map_err(|e| format!("read {}: {e}", path.display()))?;
        text += &format!("{}: {commit}\n", jobs.trim_end().replace('\n', ", "));
    }
    prove("torch.txt", HEAD, &text)
}
