//! One program of a command line, as typed.

use super::table as flag;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wireup_flags::{Error, Line, Value};
use wireup_wire::limits::JOB_SIZE_MAX;

/// One program with its own flags: the words between two `:`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Section {
    pub ranks: Option<u32>,
    pub wdir: Option<PathBuf>,
    pub env: Vec<Variable>,
    pub env_list: Option<EnvList>,
    /// Hosts of this program alone.
    pub hosts: Vec<String>,
    /// Program and arguments; never empty after parsing.
    pub argv: Vec<OsString>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Variable {
    /// `NAME=VALUE`.
    Set(Vec<u8>),
    /// A name; its value is taken from the launcher's environment.
    Export(OsString),
}

/// Which variables ranks get from the launcher's environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EnvList {
    All,
    None,
    /// Names; one that ends with `*` stands for all that begin so.
    Only(Vec<String>),
}

impl EnvList {
    pub fn read(value: &Value) -> Result<EnvList, Error> {
        Ok(match value.text()?.as_str() {
            "all" => EnvList::All,
            "none" => EnvList::None,
            names => EnvList::Only(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()),
        })
    }

    pub fn has(&self, name: &[u8]) -> bool {
        match self {
            EnvList::All => true,
            EnvList::None => false,
            EnvList::Only(names) => names.iter().any(|listed| match listed.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning.as_bytes()),
                None => name == listed.as_bytes(),
            }),
        }
    }
}

impl Section {
    pub fn read(line: Line) -> Result<Section, Error> {
        let env = line.given.iter().filter_map(|given| match given {
            given if given.is(flag::ENV) => Some(given.value.variable().map(Variable::Set)),
            given if given.is(flag::EXPORT) => Some(export(&given.value)),
            _ => None,
        });
        Ok(Section {
            ranks: line.last(flag::RANKS, |value| value.number_in(1, JOB_SIZE_MAX))?,
            wdir: line.last(flag::WDIR, Value::path)?,
            env: env.collect::<Result<_, _>>()?,
            env_list: line.last(flag::ENV_LIST, EnvList::read)?,
            hosts: Vec::new(),
            argv: line.words,
        })
    }
}

fn export(value: &Value) -> Result<Variable, Error> {
    if value.word.as_bytes().contains(&b'=') || value.word.is_empty() {
        return value.variable().map(Variable::Set);
    }
    Ok(Variable::Export(value.word.clone()))
}
