//! The programs that a rank asks to start, and the limits that any such request must keep.

use crate::limits::{JOB_SIZE_MAX, KEY_LEN_MAX, SPAWN_COMMANDS_MAX, VALUE_LEN_MAX};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Starts these programs as one new job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpawnRequest {
    pub commands: Vec<SpawnCommand>,
    /// Pairs to put into the new job's kvs before its first rank runs.
    pub preput: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One program of a spawn.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpawnCommand {
    pub program: Vec<u8>,
    /// Arguments, without the program's name.
    pub args: Vec<Vec<u8>>,
    pub ranks: u32,
    pub info: Vec<(Vec<u8>, Vec<u8>)>,
    /// Further variables, `NAME=VALUE`. PMI has no fields for them.
    pub env: Vec<Vec<u8>>,
}

/// A request that nobody can fulfil.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    #[error("it starts no program, or more than {SPAWN_COMMANDS_MAX}")]
    Commands,
    #[error("a program has no ranks, or there are more than {JOB_SIZE_MAX} ranks")]
    Ranks,
    #[error("a pair for the new job has no key, or is longer than pairs may be")]
    Preput,
}

impl SpawnRequest {
    /// Number of ranks of all programs.
    pub fn job_size(&self) -> u32 {
        self.commands.iter().fold(0, |sum, command| sum.saturating_add(command.ranks))
    }

    /// Bytes of all texts.
    pub fn len(&self) -> usize {
        let pairs =
            |pairs: &[(Vec<u8>, Vec<u8>)]| pairs.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let of_command = |command: &SpawnCommand| {
            let words = command.args.iter().chain(&command.env).map(Vec::len);
            command.program.len() + words.sum::<usize>() + pairs(&command.info)
        };
        self.commands.iter().map(of_command).sum::<usize>() + pairs(&self.preput)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks what does not depend on the nodes.
    ///
    /// # Errors
    /// Why nobody can fulfil it.
    pub fn check(&self) -> Result<(), Unfit> {
        if self.commands.is_empty() || self.commands.len() > SPAWN_COMMANDS_MAX {
            return Err(Unfit::Commands);
        }
        if self.commands.iter().any(|command| command.ranks == 0) || self.job_size() > JOB_SIZE_MAX {
            return Err(Unfit::Ranks);
        }
        let fits = |key: &[u8], value: &[u8]| {
            // In the form of PMI-2 a text may be twice as long.
            !key.is_empty() && key.len() <= 2 * KEY_LEN_MAX && value.len() <= 2 * VALUE_LEN_MAX
        };
        match self.preput.iter().all(|(key, value)| fits(key, value)) {
            true => Ok(()),
            false => Err(Unfit::Preput),
        }
    }
}
