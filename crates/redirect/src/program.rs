//! Classifies an executable file, to decide whether its copy may be executed in its place.

/// Number of bytes at the beginning of a file from which [`program`] determines its kind: as many as the kernel reads
/// of a script to find its interpreter.
pub const BEGIN_LEN: usize = 256;
/// Longest path of a dynamic loader (bytes) that [`program`] examines.
pub const LOADER_LEN: usize = 64;

const HEADER_LEN: usize = 64;
const SEGMENT_LEN: usize = 56;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// A note of Go's linker: first the length of its name; then, after the length of its content, its type and its name.
const GO: [&[u8]; 2] = [&[4, 0, 0, 0], b"\x04\0\0\0Go\0\0"];
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// The kind of an executable file, which decides whether its copy may be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program<'a> {
    /// A program that uses glibc's dynamic loader, which reads `LD_PRELOAD` and `LD_AUDIT`.
    Dynamic,
    /// A script, with the interpreter and the argument in its first line.
    Script { interpreter: &'a [u8], argument: Option<&'a [u8]> },
    /// A static program, a program for another C library or another machine, or no program: the original must be
    /// started. The same holds for Go programs, which call the kernel directly and would look for their files next to
    /// the copy.
    Other,
}

/// Number of bytes at the beginning of a library from which [`is_library`] tells for which processor it was built.
pub const LIBRARY_LEN: usize = 20;

/// Whether a program of this machine can load a library; the loader skips a library that it cannot load.
pub fn is_library(begin: &[u8]) -> bool {
    let machine = begin.get(18..20).map(|machine| u16::from_le_bytes([machine[0], machine[1]]));
    // A 64-bit, little-endian ELF file.
    begin.starts_with(b"\x7fELF\x02\x01") && machine == Some(MACHINE)
}

/// Classifies a file. `begin`: its first bytes; `read`: reads further bytes from an offset on, as many as fit.
pub fn program<'a>(begin: &'a [u8], mut read: impl FnMut(u64, &mut [u8]) -> usize) -> Program<'a> {
    if begin.starts_with(b"#!") {
        return match interpreter(begin) {
            Some((interpreter, argument)) => Program::Script { interpreter, argument },
            None => Program::Other,
        };
    }
    match is_dynamic(begin, &mut read) {
        Some(true) => Program::Dynamic,
        _ => Program::Other,
    }
}

fn is_dynamic(begin: &[u8], read: &mut impl FnMut(u64, &mut [u8]) -> usize) -> Option<bool> {
    let header = begin.get(..HEADER_LEN)?;
    let half = |at: usize| Some(u16::from_le_bytes(*header.get(at..)?.first_chunk()?));
    // Not a 64-bit, little-endian ELF file for this machine.
    if !header.starts_with(b"\x7fELF\x02\x01") || half(18)? != MACHINE || usize::from(half(54)?) != SEGMENT_LEN {
        return None;
    }
    let segments = u64::from_le_bytes(*header.get(32..)?.first_chunk()?);
    let mut is_dynamic = false;
    for index in 0..u64::from(half(56)?) {
        let mut segment = [0; SEGMENT_LEN];
        if read(segments.checked_add(index * SEGMENT_LEN as u64)?, &mut segment) != SEGMENT_LEN {
            return None;
        }
        let at = u64::from_le_bytes(*segment.get(8..)?.first_chunk()?);
        match u32::from_le_bytes(*segment.first_chunk()?) {
            PT_INTERP => {
                let mut loader = [0; LOADER_LEN];
                let len = read(at, &mut loader);
                let name = loader.get(..len)?.split(|byte| *byte == 0).next()?;
                is_dynamic = name.rsplit(|byte| *byte == b'/').next()?.starts_with(b"ld-linux-");
            }
            PT_NOTE if is_of_go(at, read) => return Some(false),
            _ => {}
        }
    }
    Some(is_dynamic)
}

fn is_of_go(at: u64, read: &mut impl FnMut(u64, &mut [u8]) -> usize) -> bool {
    let mut notes = [0; BEGIN_LEN];
    let len = read(at, &mut notes).min(BEGIN_LEN);
    let is_head = |note: &[u8]| note.starts_with(GO[0]) && note[8..].starts_with(GO[1]);
    notes[..len].windows(16).any(is_head)
}

/// The interpreter of a script and its argument, from the beginning of the file.
fn interpreter(begin: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let is_blank = |byte: &u8| [b' ', b'\t'].contains(byte);
    let line = begin.strip_prefix(b"#!")?;
    // Without a newline here, the kernel would truncate the line.
    let line = trim(&line[..line.iter().position(|byte| *byte == b'\n')?]);
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let (program, argument) = (&line[..end], trim(&line[end..]));
    (!program.is_empty() && !line.contains(&0)).then_some((program, (!argument.is_empty()).then_some(argument)))
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn kind(file: &[u8]) -> Program<'_> {
        let begin = &file[..file.len().min(BEGIN_LEN)];
        program(begin, |at, into| {
            let from = usize::try_from(at).ok().and_then(|at| file.get(at..)).unwrap_or_default();
            let len = from.len().min(into.len());
            into[..len].copy_from_slice(&from[..len]);
            len
        })
    }

    #[test]
    fn interpreters_of_scripts_are_read() {
        let script =
            |interpreter: &'static [u8], argument: Option<&'static [u8]>| Program::Script { interpreter, argument };
        assert_eq!(kind(b"#!/bin/sh\n"), script(b"/bin/sh", None));
        assert_eq!(kind(b"#! /usr/bin/env  python3 -u \nrest"), script(b"/usr/bin/env", Some(b"python3 -u")));
        // The kernel keeps the carriage return at the end of a line.
        assert_eq!(kind(b"#!/bin/sh\r\n"), script(b"/bin/sh\r", None));
        for bad in [&b"#!\n"[..], b"#! \n", b"", b"#!/bin/sh", b"\x7fELF", b"echo\n", b"#!/bin/\0sh\n"] {
            assert_eq!(kind(bad), Program::Other);
        }
    }

    #[test]
    fn only_libraries_for_this_processor_fit() {
        let own = std::fs::read("/proc/self/exe").expect("this program");
        assert!(is_library(&own[..LIBRARY_LEN]));
        for (at, byte) in [(0, 0), (4, 1), (5, 2), (18, 8), (19, 1)] {
            let mut other = own[..LIBRARY_LEN].to_vec();
            other[at] = byte;
            assert!(!is_library(&other), "{at}");
        }
        assert!(!is_library(&own[..LIBRARY_LEN - 1]) && !is_library(b"/* GNU ld script */"));
    }

    #[test]
    fn only_programs_of_this_machines_glibc_are_dynamic() {
        let own = std::fs::read("/proc/self/exe").expect("this program");
        assert_eq!(kind(&own), Program::Dynamic);
        let changed = |at: usize, byte: u8| {
            let mut other = own.clone();
            other[at] = byte;
            other
        };
        assert_eq!(kind(&changed(18, 8)), Program::Other);
        assert_eq!(kind(&changed(4, 1)), Program::Other);
        // No segments, as if the program were static; segments beyond the end of the file; another C library.
        assert_eq!(kind(&changed(56, 0)), Program::Other);
        assert_eq!(kind(&own[..HEADER_LEN + 10]), Program::Other);
        let at = own.windows(9).position(|window| window == b"ld-linux-").expect("its loader");
        let note = |bytes: &[u8]| own.windows(bytes.len()).position(|window| window == bytes).expect("a build id");
        let id = note(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0");
        let of_go = [&own[..id + 8], b"\x04\0\0\0Go\0\0", &own[id + 16..]].concat();
        assert_eq!(kind(&of_go), Program::Other);
        let musl: Vec<u8> = [&own[..at], b"ld-musl-x", &own[at + 9..]].concat();
        assert_eq!(kind(&musl), Program::Other);
    }
}
