//! How the value of a flag of `wireup run` is made from the value of an option, a parameter or a variable.

use super::row::{Make, Typed};
use super::translation::shell_command;
use super::vendor::Vendor;
use crate::flags::mapping::is_object;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The value of a flag for an option, made as `make` says; `None`: the flag is not given.
pub fn made(make: Make, vendor: Vendor, typed: &Typed) -> Result<Option<OsString>, String> {
    let value = typed.value();
    let is_number = |word: &OsStr| !word.is_empty() && word.as_bytes().iter().all(u8::is_ascii_digit);
    Ok(match make {
        Make::Typed => Some(typed.pair()),
        Make::Word(word) => Some(word.into()),
        Make::IfTrue(word) => is_true(&value.word).then(|| word.into()),
        Make::IfFalse(word) => (!is_true(&value.word)).then(|| word.into()),
        Make::Unless(words) => (!words.contains(&&*value.shown())).then(|| typed.pair()),
        Make::IfNumber => is_number(&value.word).then(|| typed.pair()),
        Make::Number(before, after) => Some(format!("{before}{}{after}", value.at_least_one()?).into()),
        Make::Behind(before) => Some(behind(before, &typed.pair())),
        Make::OneOf(words) => Some(value.choice(words)?.into()),
        Make::Lowercase => Some(value.shown().to_ascii_lowercase().into()),
        Make::First => Some(value.shown().split(':').next().unwrap_or_default().trim().into()),
        // Hydra's proxy (`%p`) is a node. A job has one process group, so the numbers of groups are always 0.
        Make::Pattern => Some(value.text()?.replace("%p", "%n").replace("%g", "0").replace("%a", "0").into()),
        Make::Mapping => mapping(vendor, &value.text()?).map(OsString::from),
        Make::Binding => binding(&value.text()?).map(OsString::from),
        Make::Ranking => Some(ranking(&value.text()?.to_ascii_lowercase()).into()),
        Make::Reader if value.text()?.contains([',', '-']) => {
            return Err(value.refused("one rank, all ranks or none can read standard input").into());
        }
        Make::Reader => Some(typed.pair()),
        Make::Export => match value.word.as_bytes() {
            [name @ .., b'*'] if !name.contains(&b'=') => None,
            _ => Some(typed.pair()),
        },
        Make::EnvNames => Some(value.shown().trim_start_matches("list:").into()).filter(|names| names != "all"),
        // `srun` is the default in an allocation of Slurm, which may itself set `HYDRA_BOOTSTRAP`.
        Make::Launcher => shell_command(&value.shown()).filter(|shell| *shell != "srun").map(OsString::from),
    })
}

pub fn behind(before: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(before);
    word.push(value);
    word
}

fn is_true(value: &OsStr) -> bool {
    let value = value.to_string_lossy().to_ascii_lowercase();
    !matches!(value.as_str(), "" | "0" | "off" | "no" | "n" | "false" | "f" | "disable")
}

/// The value of `--map-by`; `None`: the flag is not given. In Hydra a number after an object is a step.
fn mapping(vendor: Vendor, text: &str) -> Option<String> {
    let word = text.to_ascii_lowercase();
    match word.split_once(':') {
        None if vendor == Vendor::Hydra && matches!(word.as_str(), "board" | "machine" | "user" | "rr") => None,
        Some((object, step)) if object != "ppr" && !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit()) => {
            Some(format!("{object}:step={step}"))
        }
        _ => Some(text.to_owned()),
    }
}

fn binding(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let word = match lower.as_str() {
        "rr" | "threads" => "thread",
        "cores" => "core",
        "sockets" => "socket",
        "ldoms" => "numa",
        "no" | "off" => "none",
        "quiet" | "verbose" | "q" | "v" => return None,
        _ => return Some(lower.strip_prefix("map_cpu:").map_or(lower.clone(), |list| format!("user:{list}"))),
    };
    Some(word.to_owned())
}

/// The value of `--rank-by`: objects within a node become `slot`, which numbers the ranks as they are mapped.
fn ranking(text: &str) -> &str {
    match text.split(':').next().unwrap_or_default() {
        "span" => "slot",
        word if is_object(word) => "slot",
        word => word,
    }
}
