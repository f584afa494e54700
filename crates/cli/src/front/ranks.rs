//! The number of ranks if the command line does not state it.
//!
//! ```text
//!   hosts, an allocation or ranks per node are given    as wireup run
//!   Open MPI, Intel MPI (I_MPI_ROOT is set), a script   one rank for each cpu
//!   Hydra, or a program of MPICH                        one rank of each program
//! ```

use super::translation::Translation;
use super::vendor::Vendor;
use crate::flags::table as flag;
use crate::hosts::allocation::{self, Env};
use crate::program::flavour::{self, Context};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use wireup_flags::{Given, Value};
use wireup_wire::job::{AppSpec, PmiFlavour};

/// A variable that is set where Intel MPI is used.
const INTEL: &str = "I_MPI_ROOT";

/// Flags that imply a number of ranks.
const IMPLIED: &[wireup_flags::Flag] =
    &[flag::HOSTS, flag::HOST_FILE, flag::PPN, flag::VIRTUAL_NODES, flag::RANKFILE, flag::SESSION];

/// Adds `-n 1` where the launcher that is replaced would start one process.
pub fn default(translation: &mut Translation, told: Option<Vendor>, variables: &[(OsString, OsString)]) {
    let is_stated = |given: &Given| given.is(flag::RANKS);
    if translation.programs.iter().all(|line| line.given.iter().any(is_stated))
        || IMPLIED.iter().any(|flag| translation.has(flag))
        || translation.maps_per_node()
        || allocation::is_likely(Env(variables))
        || variables.iter().any(|(name, _)| name == crate::flags::chosen::VARIABLE || name == INTEL)
    {
        return;
    }
    let vendor = told.or_else(|| {
        let program = translation.programs.first().map(|line| line.words.clone());
        of_program(&program.unwrap_or_default(), variables)
    });
    if vendor != Some(Vendor::Hydra) {
        return;
    }
    for line in &mut translation.programs {
        if !line.given.iter().any(is_stated) {
            line.given.push(Given { flag: &flag::RANKS, value: Value { flag: "-n".into(), word: "1".into() } });
        }
    }
}

/// The vendor of the program that a command line names. To find the program, options with two meanings are read as
/// Hydra's.
pub fn vendor_of_program(words: &[OsString]) -> Option<Vendor> {
    let variables: Vec<_> = std::env::vars_os().collect();
    let mut translation = Translation::new(Vendor::default());
    translation.read(words.to_vec()).ok()?;
    of_program(&translation.programs.first()?.words, &variables)
}

/// The vendor of the MPI library that a program is linked to; `None` if it may start any program.
fn of_program(argv: &[OsString], variables: &[(OsString, OsString)]) -> Option<Vendor> {
    let env: Vec<Vec<u8>> = variables
        .iter()
        .map(|(name, value)| [name.clone().into_vec(), b"=".to_vec(), value.clone().into_vec()].concat())
        .collect();
    let cwd = std::env::current_dir().ok()?.into_os_string().into_vec();
    let argv = argv.iter().map(|word| word.clone().into_vec()).collect();
    let app = AppSpec { ranks: 1, argv, cwd, env: Vec::new() };
    let context = Context { env: &env, own: "", local: true, library: None };
    match flavour::choose(&[app], &context).flavour {
        PmiFlavour::Pmix => Some(Vendor::OpenMpi),
        PmiFlavour::Simple => Some(Vendor::Hydra),
        PmiFlavour::Both | PmiFlavour::None => None,
    }
}
