//! Makes the file of this program that is sent to nodes: without symbols and line tables, which are not needed to run
//! it.
//!
//! The file ends with the last segment; the section table is removed. A debugger finds the symbols in the file that was
//! built, which has the same build id.

use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, pod};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use wireup_os::files;

/// A memory file with the part of this program that is loaded at run time.
pub fn program() -> io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    File::from(files::own_program()?).read_to_end(&mut bytes)?;
    if let Some(len) = loaded_len(&bytes) {
        bytes.truncate(len);
        remove_sections(&mut bytes);
    }
    files::sealed_memory(&bytes)
}

/// The length of [`program`] in bytes.
pub fn program_len() -> io::Result<u64> {
    Ok(File::from(program()?).metadata()?.len())
}

/// Offset at which the last segment ends in the file; `None`: the file is no 64-bit ELF program.
fn loaded_len(bytes: &[u8]) -> Option<usize> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let ends = segments.iter().map(|segment| segment.p_offset(endian).checked_add(segment.p_filesz(endian)));
    let table = header.e_phoff(endian) + u64::from(header.e_phnum(endian)) * u64::from(header.e_phentsize(endian));
    let len = ends.collect::<Option<Vec<u64>>>()?.into_iter().max()?.max(table);
    let is_program = segments.iter().any(|segment| segment.p_type(endian) == PT_LOAD);
    usize::try_from(len).ok().filter(|len| is_program && *len <= bytes.len())
}

fn remove_sections(bytes: &mut [u8]) {
    let Ok((header, _)) = pod::from_bytes_mut::<FileHeader64<Endianness>>(bytes) else { return };
    header.e_shoff = Default::default();
    header.e_shnum = Default::default();
    header.e_shstrndx = Default::default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    fn sendable(path: &str) -> Vec<u8> {
        let mut bytes = fs::read(path).unwrap();
        let len = loaded_len(&bytes).expect("a program");
        bytes.truncate(len);
        remove_sections(&mut bytes);
        bytes
    }

    /// This test program, which has all its line tables, can still list its tests after they were removed.
    #[test]
    fn the_sendable_program_is_smaller_and_still_runs() {
        let own = "/proc/self/exe";
        let bytes = sendable(own);
        assert!(bytes.len() < fs::metadata(own).unwrap().len() as usize, "{} bytes", bytes.len());
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("program");
        fs::write(&place, &bytes).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
        let listed = Command::new(&place).arg("--list").output().unwrap();
        assert!(String::from_utf8_lossy(&listed.stdout).contains("the_sendable_program_is_smaller_and_still_runs"));
        // Making the sendable form of the smaller program changes nothing, so a node can send it on.
        assert_eq!(sendable(place.to_str().unwrap()), bytes);
    }

    #[test]
    fn bytes_that_are_no_elf_program_have_no_loaded_part() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", &[0; 100]] {
            assert_eq!(loaded_len(bytes), None);
        }
        let cut = &fs::read("/proc/self/exe").unwrap()[..4096];
        assert_eq!(loaded_len(cut), None, "segments beyond the end of the file");
    }
}
