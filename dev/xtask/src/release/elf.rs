//! The requirements of a program on the machine that it runs on, read from its ELF file.

use crate::step::Result;
use object::elf::DT_NEEDED;
use object::read::elf::{Dyn as _, ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _};
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;

/// The libraries that make up glibc; since 2.34 most are empty.
const OF_GLIBC: [&str; 4] = ["libc.so.", "libm.so.", "libdl.so.", "libpthread.so."];

/// A version of glibc.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u32, pub u32);

/// The contents of an ELF file that show what the program requires.
#[derive(Clone, Default, Debug)]
pub struct Facts {
    build_id: Vec<u8>,
    interpreter: Option<String>,
    /// Names of the shared libraries that the program is linked to.
    needed: Vec<String>,
    /// Names of all symbol versions, such as `GLIBC_2.17`.
    versions: Vec<String>,
}

/// Reads a 64-bit ELF file.
///
/// # Errors
/// The file is not a valid 64-bit ELF file.
pub fn read(path: &Path) -> Result<Facts> {
    let data = fs::read(path).map_err(|e| format!("read {}: {e}", path.display()))?;
    parse(&data).map_err(|e| format!("{}: {e}", path.display()))
}

fn parse(data: &[u8]) -> object::Result<Facts> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string();
    let file = ElfFile64::<Endianness>::parse(data)?;
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let mut facts = Facts { build_id: file.build_id()?.unwrap_or_default().to_vec(), ..Facts::default() };
    let mut segments = file.elf_program_headers().iter();
    facts.interpreter = segments.find_map(|segment| segment.interpreter(endian, data).ok()?).map(text);
    if let Some((entries, strings)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
            facts.needed.push(text(entry.string(endian, strings)?));
        }
    }
    if let Some((mut files, strings)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        while let Some((_, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                facts.versions.push(text(version.name(endian, strings)?));
            }
        }
    }
    Ok(facts)
}

impl Facts {
    /// The first requirement that a glibc of version `newest` does not meet; or a note that the file has no build id.
    pub fn more_than_glibc(&self, newest: Version) -> Option<String> {
        self.requires_more_than_glibc(newest).or_else(|| self.unnamed())
    }

    /// The first requirement that a glibc of version `newest` does not meet.
    pub fn requires_more_than_glibc(&self, newest: Version) -> Option<String> {
        if let Some(foreign) = self.needed.iter().find(|library| !of_glibc(library)) {
            return Some(format!("needs {foreign}"));
        }
        // A version that cannot be parsed, such as that of a private interface, counts as too new.
        let too_new = |name: &&String| version_of(name).is_none_or(|version| version > newest);
        self.versions.iter().find(too_new).map(|version| format!("needs {version}"))
    }

    /// The first requirement other than the kernel, such as a library; or a note that the file has no build id.
    pub fn more_than_nothing(&self) -> Option<String> {
        let asks = self.interpreter.iter().chain(&self.needed).chain(&self.versions);
        asks.map(|what| format!("needs {what}")).next().or_else(|| self.unnamed())
    }

    fn unnamed(&self) -> Option<String> {
        self.build_id.is_empty().then(|| "has no build id".to_string())
    }
}

fn of_glibc(library: &str) -> bool {
    library.starts_with("ld-linux-") || OF_GLIBC.iter().any(|name| library.starts_with(name))
}

fn version_of(name: &str) -> Option<Version> {
    // Old versions of glibc have three numbers, such as 2.2.5 and 2.3.4; the third one is ignored.
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(|number| number.parse().ok());
    Some(Version(numbers.next()??, numbers.next()??))
}

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Display for Facts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "build id ")?;
        for byte in &self.build_id {
            write!(f, "{byte:02x}")?;
        }
        let newest = self.versions.iter().filter_map(|name| version_of(name)).max();
        match newest {
            Some(newest) => write!(f, ", needs {} (glibc {newest})", self.needed.join(" ")),
            None => write!(f, ", needs no library"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Version = Version(2, 28);

    fn facts(needed: &[&str], versions: &[&str]) -> Facts {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        Facts { build_id: vec![1], interpreter: None, needed: owned(needed), versions: owned(versions) }
    }

    #[test]
    fn required_libraries_and_versions_are_checked() {
        let problem = |needed, versions| facts(needed, versions).more_than_glibc(OLD);
        let glibc: &[&str] = &["libpthread.so.0", "libc.so.6", "ld-linux-x86-64.so.2"];
        assert_eq!(problem(glibc, &["GLIBC_2.2.5", "GLIBC_2.28"]), None);
        assert_eq!(problem(glibc, &["GLIBC_2.17", "GLIBC_2.29"]).unwrap(), "needs GLIBC_2.29");
        assert_eq!(problem(glibc, &["GLIBC_PRIVATE"]).unwrap(), "needs GLIBC_PRIVATE");
        assert_eq!(problem(glibc, &["GCC_3.0"]).unwrap(), "needs GCC_3.0");
        assert_eq!(problem(&["libc.so.6", "libgcc_s.so.1"], &[]).unwrap(), "needs libgcc_s.so.1");
        assert_eq!(facts(&["libc.so.6"], &[]).more_than_nothing().unwrap(), "needs libc.so.6");
        assert_eq!(facts(&[], &[]).more_than_nothing(), None);
        let unnamed = Facts { build_id: Vec::new(), ..facts(&[], &[]) };
        assert_eq!(unnamed.more_than_glibc(OLD).unwrap(), "has no build id");
    }

    /// The file that is read is this test program, which is dynamically linked unless it was built with musl.
    #[test]
    fn the_test_programs_elf_facts_are_read() {
        let facts = read(&std::env::current_exe().unwrap()).unwrap();
        if cfg!(target_env = "gnu") {
            assert!(facts.needed.iter().any(|library| library == "libc.so.6"), "{facts:?}");
            assert!(facts.versions.iter().any(|name| name.starts_with("GLIBC_2.")), "{facts:?}");
            assert!(facts.interpreter.is_some(), "{facts:?}");
        }
        assert!(parse(b"#!/bin/sh\n").is_err());
    }
}
