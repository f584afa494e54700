//! What a descriptor is for, packed into the reactor's 64-bit token.
//!
//! ```text
//! bits 63..56 what | 55..32 job | 31..0 local rank, link or nothing
//! ```

use wireup_proto::io::{LinkId, ShellId, Stream};
use wireup_wire::ids::{JobId, LocalRank};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    Listener,
    Link(LinkId),
    /// The keeper of a job's ranks.
    Keeper(JobId),
    /// The keeper of the remote shells.
    Shells,
    /// Standard error of a remote shell.
    ShellError(ShellId),
    Output(JobId, LocalRank, Stream),
    Pmi(JobId, LocalRank),
    Stdin(JobId, LocalRank),
    /// The socket of a job's PMIx server process, and its standard error.
    PmixServer(JobId),
    PmixError(JobId),
    /// The standard input and output of a step.
    StepIn(ShellId),
    StepOut(ShellId),
    /// Something that belongs to whoever holds the driver, by number.
    Launcher(u32),
    /// UCX' worker.
    Ucx,
    /// A keeper without a job, by pid.
    IdleKeeper(u32),
    /// Who has called at the session's socket and not said its version, by number.
    Caller(u32),
}

impl Token {
    pub fn pack(self) -> u64 {
        let (what, job, index) = match self {
            Token::Listener => (1, JobId(0), 0),
            Token::Link(link) => (2, JobId(0), link.0),
            Token::Keeper(job) => (3, job, 0),
            Token::Shells => (4, JobId(0), 0),
            Token::ShellError(shell) => (5, JobId(0), shell.0),
            Token::Output(job, local, Stream::Out) => (6, job, local.0.into()),
            Token::Output(job, local, Stream::Err) => (7, job, local.0.into()),
            Token::Pmi(job, local) => (8, job, local.0.into()),
            Token::Stdin(job, local) => (9, job, local.0.into()),
            Token::Launcher(number) => (10, JobId(0), number),
            Token::Ucx => (13, JobId(0), 0),
            Token::StepIn(shell) => (14, JobId(0), shell.0),
            Token::StepOut(shell) => (15, JobId(0), shell.0),
            Token::IdleKeeper(pid) => (16, JobId(0), pid),
            Token::Caller(number) => (17, JobId(0), number),
            Token::PmixServer(job) => (11, job, 0),
            Token::PmixError(job) => (12, job, 0),
        };
        (what << 56) | (u64::from(job.0 & 0xff_ffff) << 32) | u64::from(index)
    }

    pub fn unpack(token: u64) -> Option<Token> {
        let job = JobId((token >> 32) as u32 & 0xff_ffff);
        let index = token as u32;
        let local = LocalRank(index as u16);
        Some(match token >> 56 {
            1 => Token::Listener,
            2 => Token::Link(LinkId(index)),
            3 => Token::Keeper(job),
            4 => Token::Shells,
            5 => Token::ShellError(ShellId(index)),
            6 => Token::Output(job, local, Stream::Out),
            7 => Token::Output(job, local, Stream::Err),
            8 => Token::Pmi(job, local),
            9 => Token::Stdin(job, local),
            10 => Token::Launcher(index),
            13 => Token::Ucx,
            14 => Token::StepIn(ShellId(index)),
            15 => Token::StepOut(ShellId(index)),
            16 => Token::IdleKeeper(index),
            17 => Token::Caller(index),
            11 => Token::PmixServer(job),
            12 => Token::PmixError(job),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let (job, local) = (JobId(5), LocalRank(65_535));
        for token in [
            Token::Listener,
            Token::Link(LinkId(u32::MAX)),
            Token::Keeper(job),
            Token::Shells,
            Token::ShellError(ShellId(9)),
            Token::Output(job, local, Stream::Out),
            Token::Output(job, local, Stream::Err),
            Token::Pmi(job, local),
            Token::Stdin(job, local),
            Token::Launcher(3),
            Token::StepIn(ShellId(u32::MAX)),
            Token::StepOut(ShellId(2)),
            Token::Ucx,
            Token::IdleKeeper(4_194_304),
            Token::Caller(7),
        ] {
            assert_eq!(Token::unpack(token.pack()), Some(token));
        }
        assert_eq!(Token::unpack(0), None);
    }
}
