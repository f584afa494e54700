//! Command lines: a table of flags for each command, from which words are parsed, completed and
//! explained, in help texts and manual pages.
//!
//! A [`Command`] is static data. `parse` reads the words after its name into a [`Line`]; the command then asks the line
//! for the values of its flags ([`Line::last`], [`Line::one`], [`Line::all`]), each in the form that it expects
//! ([`Value`]). Every name of a flag is accepted with one dash or two, since other launchers write `-np` and `-wdir`;
//! so words are not split as by `getopt`, which would read `-np 4` as `-n p`. A value follows as the next word or after
//! `=`; a number may follow one letter directly (`-n4`).
#![forbid(unsafe_code)]

mod command;
mod complete;
mod error;
mod help;
mod hints;
mod line;
mod man;
mod parse;
pub mod table;
mod value;

pub use command::{Command, Flag, Section, Takes, Words};
pub use complete::Completion;
pub use error::Error;
pub use help::Help;
pub use hints::nearest;
pub use line::{Given, JSON, JsonTo, Line};
pub use man::ManPage;
pub use value::Value;
