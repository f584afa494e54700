//! Checks that lists of infos with any contents are read back as they were written. The fuzz target `pmix_infos`
//! searches for violations. This file needs no PMIx library.

#[path = "../../../dev/fuzz/input.rs"]
mod input;

use crate::infos::{Infos, ProcLine, c_array, c_text, proc_name};
use crate::read::{Read, View, text_in};
use crate::sys::constants::key;
use input::{byte, some};
use std::ffi::CStr;

const KEYS: [&CStr; 6] =
    [key::RANK, key::HOSTNAME, key::PROC_DATA, key::GROUP_MEMBERSHIP, key::FABRIC_ENDPT, key::TIMEOUT];
/// Maximum depth of lists within lists.
const DEPTH_MAX: u8 = 3;

/// The content of an info as it was written, with which the content read back must agree.
enum Written {
    Flag(bool),
    Number(i64),
    Text(Vec<u8>),
    Proc(Vec<u8>, u32),
    Bytes(Vec<u8>),
    Procs(Vec<u32>),
    /// Content that this crate does not read.
    Opaque,
}

/// Writes infos with the kinds and values that the input says, and checks that the same values are read back.
pub fn pmix_infos(input: &[u8]) {
    let mut input = input;
    let name = some(&mut input);
    let text = CStr::from_bytes_until_nul(&[name, b"\0"].concat()).expect("a zero").to_owned();
    let in_array = c_array(&text);
    assert!(text.to_bytes().starts_with(text_in(&in_array).to_bytes()));
    let (mut infos, written) = list(&mut input, 0);
    assert_eq!(infos.len(), written.len());
    // SAFETY: the list lives as long as the view.
    let view = unsafe { View::new(infos.as_mut_ptr(), infos.len()) };
    for ((name, read), (expected_name, expected)) in view.iter().zip(&written) {
        assert_eq!(name, *expected_name);
        is_read_as(read, expected);
    }
    for key in KEYS {
        let first = written.iter().find(|(name, _)| *name == key);
        assert_eq!(view.find(key).is_some(), first.is_some());
        if let (Some(read), Some((_, expected))) = (view.find(key), first) {
            is_read_as(read, expected);
            assert_eq!(view.is_true(key), read.is_true());
        }
    }
}

fn is_read_as(read: Read<'_>, expected: &Written) {
    let (number, text, flag) = (read.number(), read.text_bytes(), read.is_flag());
    match expected {
        Written::Flag(value) => assert!(flag && read.is_true() == *value && number.is_none()),
        Written::Number(value) => assert!(number == Some(*value) && read.is_true() == (*value != 0)),
        Written::Text(value) => {
            assert!(text == Some(value) && number.is_none() && (!value.is_empty() || !read.is_true()))
        }
        Written::Proc(nspace, rank) => {
            let proc = read.proc().expect("a name");
            assert!(proc.rank == *rank && nspace.starts_with(text_in(&proc.nspace).to_bytes()));
        }
        Written::Bytes(value) => assert_eq!(read.bytes(), Some(&value[..])),
        Written::Procs(ranks) => {
            assert!(read.procs().expect("an array").iter().map(|proc| proc.rank).eq(ranks.iter().copied()));
        }
        Written::Opaque => assert!(number.is_none() && text.is_none() && read.procs().is_none()),
    }
    assert!(!flag || matches!(expected, Written::Flag(_)));
    assert!(text.is_none() || matches!(expected, Written::Text(_)));
    assert!(read.bytes().is_none() || matches!(expected, Written::Bytes(_)));
    assert!(read.proc().is_none() || matches!(expected, Written::Proc(..)));
    assert!(read.variable().is_none());
}

fn list(input: &mut &[u8], depth: u8) -> (Infos, Vec<(&'static CStr, Written)>) {
    let (mut infos, mut written) = (Infos::new(), Vec::new());
    for _ in 0..byte(input) % 16 {
        let key = KEYS[usize::from(byte(input)) % KEYS.len()];
        let expected = match byte(input) % 12 {
            0 => {
                let value = byte(input) & 1 == 1;
                infos.flag(key, value);
                Written::Flag(value)
            }
            kind @ 1..=4 => {
                let value = number(input);
                match kind {
                    1 => infos.u32(key, value),
                    2 => infos.u16(key, value as u16),
                    3 => infos.size(key, value as usize),
                    _ => infos.rank(key, value),
                };
                Written::Number(if kind == 2 { (value as u16).into() } else { value.into() })
            }
            5 => {
                let value = String::from_utf8_lossy(some(input));
                infos.text(key, &value);
                Written::Text(c_text(&*value).into_bytes())
            }
            6 => {
                let (nspace, rank) = (String::from_utf8_lossy(some(input)), number(input));
                infos.proc(key, proc_name(&nspace, rank));
                Written::Proc(c_text(&*nspace).into_bytes(), rank)
            }
            7 => {
                let value = some(input);
                infos.bytes(key, value);
                Written::Bytes(value.to_vec())
            }
            8 => {
                let values: Vec<Vec<u8>> = (0..byte(input) % 8).map(|_| some(input).to_vec()).collect();
                infos.byte_strings(key, &values);
                Written::Opaque
            }
            9 => {
                let ranks: Vec<u32> = (0..byte(input) % 8).map(|_| number(input)).collect();
                infos.procs(key, ranks.iter().map(|rank| proc_name("job", *rank)).collect());
                Written::Procs(ranks)
            }
            10 if depth < DEPTH_MAX => {
                infos.list(key, list(input, depth + 1).0);
                Written::Opaque
            }
            _ => {
                let line = |input: &mut &[u8]| ProcLine {
                    proc: proc_name("job", number(input)),
                    hostname: String::from_utf8_lossy(some(input)).into_owned(),
                    executable: String::from_utf8_lossy(some(input)).into_owned(),
                    pid: 1,
                    exit_code: 0,
                    state: byte(input),
                };
                infos.proc_table(key, (0..byte(input) % 8).map(|_| line(input)).collect());
                Written::Opaque
            }
        };
        written.push((key, expected));
    }
    (infos, written)
}

fn number(input: &mut &[u8]) -> u32 {
    u32::from_le_bytes([byte(input), byte(input), byte(input), byte(input)])
}

#[cfg(test)]
#[path = "../../../dev/fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn every_corpus_file_passes_its_target() {
        super::replay::replay(&[("pmix_infos", super::pmix_infos)]);
    }
}
