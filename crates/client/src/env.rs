//! How a process reaches its PMI server: the environment that its launcher gave it.

use crate::number;
use alloc::string::String;
use thiserror::Error;

/// How this process reaches its server, as the environment says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contact {
    /// No launcher has started this process: its job consists of it alone.
    Singleton,
    /// A connected stream socket is open as `fd`.
    Fd { fd: i32, env: Env },
    /// The server listens at `address`; the process says that it is number `id`.
    Port { address: String, id: u32 },
}

/// A process's place in its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Env {
    pub rank: u32,
    pub size: u32,
    /// Whether this process was started by another job's spawn.
    pub spawned: bool,
}

/// A variable whose value is not valid.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum EnvError {
    #[error("{name}={value}: not a number in range")]
    NotANumber { name: &'static str, value: String },
    #[error("PMI_FD is set, {name} is not")]
    Missing { name: &'static str },
    #[error("PMI_RANK={rank} lies outside of PMI_SIZE={size}")]
    OutsideOfJob { rank: u32, size: u32 },
}

impl Contact {
    /// Reads the environment through `lookup` (name to value). `PMI_FD` wins over `PMI_PORT`; in the absence of
    /// `PMI_RANK`, `PMI_ID` is the rank. A missing size means 1, as everywhere.
    ///
    /// # Errors
    /// [`EnvError`] names the variable.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Contact, EnvError> {
        if let Some(fd) = number(&lookup, "PMI_FD")? {
            let rank = match number(&lookup, "PMI_RANK")? {
                Some(rank) => rank,
                None => number(&lookup, "PMI_ID")?.ok_or(EnvError::Missing { name: "PMI_RANK" })?,
            };
            let size = number(&lookup, "PMI_SIZE")?.unwrap_or(1);
            if rank >= size {
                return Err(EnvError::OutsideOfJob { rank, size });
            }
            let spawned = lookup("PMI_SPAWNED").is_some_and(|value| value != "0");
            return Ok(Contact::Fd { fd, env: Env { rank, size, spawned } });
        }
        match (lookup("PMI_PORT"), number(&lookup, "PMI_ID")?) {
            (Some(address), Some(id)) => Ok(Contact::Port { address, id }),
            _ => Ok(Contact::Singleton),
        }
    }
}

fn number<T: TryFrom<i64>>(lookup: impl Fn(&str) -> Option<String>, name: &'static str) -> Result<Option<T>, EnvError> {
    match lookup(name) {
        None => Ok(None),
        Some(value) => match number::parse(value.as_bytes()) {
            Some(number) => Ok(Some(number)),
            None => Err(EnvError::NotANumber { name, value }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn read(vars: &[(&str, &str)]) -> Result<Contact, EnvError> {
        Contact::read(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn the_environment_names_the_way_to_a_server() {
        let env = Env { rank: 3, size: 4, spawned: false };
        assert_eq!(read(&[("PMI_FD", "7"), ("PMI_RANK", "3"), ("PMI_SIZE", "4")]), Ok(Contact::Fd { fd: 7, env }));
        assert_eq!(read(&[("PMI_SIZE", "4")]), Ok(Contact::Singleton));
        let port = Contact::Port { address: "n1:99".into(), id: 2 };
        assert_eq!(read(&[("PMI_PORT", "n1:99"), ("PMI_ID", "2")]), Ok(port));
    }

    #[test]
    fn invalid_variables_are_named() {
        let error = read(&[("PMI_FD", "7"), ("PMI_RANK", "x")]).unwrap_err();
        assert_eq!(error.to_string(), "PMI_RANK=x: not a number in range");
        let error = read(&[("PMI_FD", "7"), ("PMI_RANK", "4"), ("PMI_SIZE", "4")]).unwrap_err();
        assert_eq!(error, EnvError::OutsideOfJob { rank: 4, size: 4 });
        assert_eq!(read(&[("PMI_FD", "7")]), Err(EnvError::Missing { name: "PMI_RANK" }));
    }
}
