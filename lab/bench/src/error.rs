//! Failures of the benchmark itself, as opposed to failures of the launchers that it times.
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{library} was not found beside {}, nor in ../lib from there: see --library; to build it: cargo xtask libraries", .wireup.display())]
    NoLibrary { library: &'static str, wireup: PathBuf },
    #[error("what was sent differs from the formula: {0}")]
    Formula(String),
    #[error("{0}")]
    Unmeasured(String),
}

/// For `map_err`: adds what was tried.
pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
    let what = what.into();
    move |source| BenchError::Io { what, source }
}
