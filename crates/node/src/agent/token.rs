//! Packs the purpose of a descriptor into the reactor's 64-bit token.
//!
//! ```text
//! bits 63..56 kind | 55..32 slot of a job | 31..0 local rank (and 31..16 number of its library), link or nothing
//! ```

use super::transports::Which;
use wireup_proto::io::{LinkId, RelayId, ShellId, StoreClient, Stream};
use wireup_wire::ids::{Client, LocalRank};

const SLOT_MAX: u32 = 0xff_ffff;

/// The short number of a job with ranks on this node, valid as long as the job has any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct JobSlot(pub u32);

impl JobSlot {
    #[cfg(test)]
    pub const LAST: JobSlot = JobSlot(SLOT_MAX);

    pub fn following(self) -> JobSlot {
        JobSlot((self.0 + 1) & SLOT_MAX)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    /// A transport: incoming connections, or events for links without a descriptor of their own.
    Transport(Which),
    Link(LinkId),
    /// The keeper of a job's ranks.
    Keeper(JobSlot),
    /// The keeper of the remote shells.
    Shells,
    /// Standard error of a remote shell.
    ShellError(ShellId),
    Output(JobSlot, LocalRank, Stream),
    Pmi(JobSlot, Client),
    Stdin(JobSlot, LocalRank),
    Relay(JobSlot, RelayId),
    /// The socket of a job's PMIx server process, and its standard error.
    PmixServer(JobSlot),
    PmixError(JobSlot),
    /// The listener of a job's store, and a connection to it.
    StoreListener(JobSlot),
    StoreClient(JobSlot, StoreClient),
    /// The output of the process that takes call stacks.
    Stacks(JobSlot),
    /// The standard input and output of a step.
    StepIn(ShellId),
    StepOut(ShellId),
    /// A descriptor of the code that runs the agent's driver (such as the launcher), by a number of its choice.
    Launcher(u32),
    /// A keeper without a job, by pid.
    IdleKeeper(u32),
    /// The socket at which secondary clients of ranks connect.
    SecondaryClients,
    /// The socket at which other agents of this run on this machine ask for the PID namespace to share.
    Fellows,
    /// A connection to the session's socket whose client has not sent its version yet, by number.
    Caller(u32),
}

impl Token {
    pub fn pack(self) -> u64 {
        let (what, slot, index) = match self {
            Token::Transport(which) => (1, JobSlot(0), which as u32),
            Token::Link(link) => (2, JobSlot(0), link.0),
            Token::Keeper(slot) => (3, slot, 0),
            Token::Shells => (4, JobSlot(0), 0),
            Token::ShellError(shell) => (5, JobSlot(0), shell.0),
            Token::Output(slot, local, Stream::Out) => (6, slot, local.0.into()),
            Token::Output(slot, local, Stream::Err) => (7, slot, local.0.into()),
            Token::Pmi(slot, Client { local, number }) => (8, slot, u32::from(number) << 16 | u32::from(local.0)),
            Token::Stdin(slot, local) => (9, slot, local.0.into()),
            Token::Launcher(number) => (10, JobSlot(0), number),
            Token::StepIn(shell) => (14, JobSlot(0), shell.0),
            Token::StepOut(shell) => (15, JobSlot(0), shell.0),
            Token::IdleKeeper(pid) => (16, JobSlot(0), pid),
            Token::SecondaryClients => (18, JobSlot(0), 0),
            Token::Fellows => (19, JobSlot(0), 0),
            Token::Caller(number) => (17, JobSlot(0), number),
            Token::Relay(slot, relay) => (13, slot, relay.0),
            Token::PmixServer(slot) => (11, slot, 0),
            Token::PmixError(slot) => (12, slot, 0),
            Token::Stacks(slot) => (20, slot, 0),
            Token::StoreListener(slot) => (21, slot, 0),
            Token::StoreClient(slot, client) => (22, slot, client.0),
        };
        (what << 56) | (u64::from(slot.0 & SLOT_MAX) << 32) | u64::from(index)
    }

    pub fn unpack(token: u64) -> Option<Token> {
        let slot = JobSlot((token >> 32) as u32 & SLOT_MAX);
        let index = token as u32;
        let local = LocalRank(index as u16);
        Some(match token >> 56 {
            1 => Token::Transport(*Which::ALL.get(index as usize)?),
            2 => Token::Link(LinkId(index)),
            3 => Token::Keeper(slot),
            4 => Token::Shells,
            5 => Token::ShellError(ShellId(index)),
            6 => Token::Output(slot, local, Stream::Out),
            7 => Token::Output(slot, local, Stream::Err),
            8 => Token::Pmi(slot, Client { local, number: (index >> 16) as u16 }),
            9 => Token::Stdin(slot, local),
            10 => Token::Launcher(index),
            14 => Token::StepIn(ShellId(index)),
            15 => Token::StepOut(ShellId(index)),
            16 => Token::IdleKeeper(index),
            17 => Token::Caller(index),
            18 => Token::SecondaryClients,
            19 => Token::Fellows,
            11 => Token::PmixServer(slot),
            12 => Token::PmixError(slot),
            20 => Token::Stacks(slot),
            21 => Token::StoreListener(slot),
            22 => Token::StoreClient(slot, StoreClient(index)),
            13 => Token::Relay(slot, RelayId(index)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        let (slot, local) = (JobSlot(5), LocalRank(65_535));
        for token in [
            Token::Transport(Which::ALL[0]),
            Token::Transport(Which::ALL[1]),
            Token::Link(LinkId(u32::MAX)),
            Token::Keeper(slot),
            Token::Shells,
            Token::ShellError(ShellId(9)),
            Token::Output(slot, local, Stream::Out),
            Token::Output(slot, local, Stream::Err),
            Token::Pmi(slot, local.into()),
            Token::Pmi(slot, Client { local, number: 65_535 }),
            Token::SecondaryClients,
            Token::Stdin(slot, local),
            Token::Relay(slot, RelayId(70_000)),
            Token::Stacks(slot),
            Token::StoreListener(slot),
            Token::StoreClient(slot, StoreClient(70_001)),
            Token::Launcher(3),
            Token::StepIn(ShellId(u32::MAX)),
            Token::StepOut(ShellId(2)),
            Token::IdleKeeper(4_194_304),
            Token::Caller(7),
        ] {
            assert_eq!(Token::unpack(token.pack()), Some(token));
        }
        assert_eq!((Token::unpack(0), Token::unpack((1 << 56) | 9)), (None, None));
    }
}
