//! The reasons why a link can fail.

use crate::transport::handshake::HandshakeError;
use crate::transport::sealed::SealError;
use std::io;
use std::time::Duration;
use wireup_wire::limits::LAUNCHER_UNREAD_BYTES_MAX;
use wireup_wire::peer::{Problem, ProblemKind};

#[derive(thiserror::Error, Debug)]
pub enum LinkError {
    #[error("closed by the other end")]
    Closed,
    #[error("closed by the other end during the handshake")]
    Refused,
    #[error("it does not read; more than {LAUNCHER_UNREAD_BYTES_MAX} bytes are waiting for it")]
    Unread,
    #[error("no answer within {} s", seconds(.0))]
    Late(Duration),
    /// `error`: the network's own error, shown if it says more than that the peer was silent for too long.
    #[error("no answer for {} s{}", seconds(.patience), network(.error))]
    Silent { patience: Duration, error: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl LinkError {
    /// The error in the form that the state machine takes.
    pub fn problem(&self) -> Problem {
        let kind = match self {
            LinkError::Late(_) | LinkError::Silent { .. } => ProblemKind::Silent,
            LinkError::Closed
            | LinkError::Refused
            | LinkError::Unread
            | LinkError::Io(_)
            | LinkError::Handshake(_)
            | LinkError::Seal(_) => ProblemKind::Other,
        };
        kind.with(self.to_string())
    }
}

fn seconds(time: &Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

fn network(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::TimedOut { String::new() } else { format!(" ({error})") }
}
