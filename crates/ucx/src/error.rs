//! Why UCX cannot be used.

use crate::sys::{self, Status};
use thiserror::Error;

/// Why no worker could be made.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum UcxError {
    #[error("libucp cannot be opened ({0}); install libucx0 (Debian) or ucx")]
    Missing(String),
    #[error("libucp is version {0}, expected 1.{min} or later of 1", min = sys::API.1)]
    Version(String),
    #[error("UCX failed while {what}: status {status}")]
    Call { what: &'static str, status: Status },
}
