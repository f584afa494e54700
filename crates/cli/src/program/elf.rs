//! Reads from a program or library what the loader reads, with whether it may start other programs.
//!
//! Only the needed tables are read, each in one piece: a few pages of a file, whatever its size. A broken file is
//! `Other`: the kernel will report what is wrong with it.

use memchr::memmem;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable};
use object::{Endianness, ReadCache, ReadRef, SectionIndex};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Functions that start a program, the last one of Go's runtime. Names with the same ending (`fexecve`) match as well.
const STARTS: &[&[u8]] = &[
    b"execv\0", b"execve\0", b"execvp\0", b"execvpe\0", b"execl\0", b"execlp\0", b"execle\0", b"posix_spawn\0",
    b"posix_spawnp\0", b"system\0", b"popen\0", b"forkExec\0",
];
const LOADS: &[&[u8]] = &[b"dlopen\0", b"dlmopen\0"];

/// The variable by which a PMIx client finds its server; a program that does not contain it does not look for one.
const PMIX_MARK: &[u8] = b"PMIX_NAMESPACE";
const SIMPLE_MARKS: &[&[u8]] = &[b"PMI_FD", b"PMI_PORT"];

/// Larger tables are not examined but treated as missing (bytes; chosen).
const TABLE_LEN_MAX: u64 = 64 << 20;

/// The kind of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Content {
    /// A dynamically linked program or a library; shared, since libraries that many objects need are looked up often.
    Dynamic(Rc<Dynamic>),
    Static(Static),
    /// A file that begins with `#!`.
    Script,
    Other,
}

/// What a dynamically linked program or library says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Dynamic {
    pub needed: Vec<String>,
    /// The name under which the loader knows a library once it is loaded.
    pub soname: Option<String>,
    /// The loader that a program names.
    pub interpreter: Option<PathBuf>,
    /// The folders of `DT_RPATH` as written, split at colons.
    pub rpath: Vec<String>,
    pub runpath: Vec<String>,
    /// Whether the program or library may start other programs or load libraries by itself.
    pub starts_others: bool,
}

/// What is known about a program without shared libraries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Static {
    pub mentions_pmix: bool,
    pub mentions_simple: bool,
    /// Whether the program may start other programs; `None` if its symbols were stripped.
    pub starts_others: Option<bool>,
}

impl Content {
    pub fn read(path: &Path) -> Content {
        let Ok(file) = File::open(path) else { return Content::Other };
        // Reading another kind of file (a FIFO, a device) might block until a writer comes, or never end.
        if !file.metadata().is_ok_and(|meta| meta.is_file()) {
            return Content::Other;
        }
        let cache = ReadCache::new(file);
        match (&cache).read_bytes_at(0, 2) {
            Ok(b"#!") => Content::Script,
            Ok(_) => read(&cache).unwrap_or(Content::Other),
            Err(()) => Content::Other,
        }
    }
}

/// What the bytes of a program file say about it.
///
/// # Errors
/// The bytes are not a program, or the program is damaged.
pub fn read<'data>(data: impl ReadRef<'data>) -> object::Result<Content> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((entries, strings)) = sections.dynamic(endian, data)? else {
        return Ok(Content::Static(read_static(endian, data, &sections)));
    };
    let mut found = Dynamic::default();
    let is_position_independent = |found: &Dynamic| found.needed.is_empty() && found.runpath.is_empty();
    let table = table(endian, data, &sections, strings);
    let string = |offset: u64| -> String {
        let text = table.get(offset as usize..).unwrap_or_default();
        let end = memchr::memchr(0, text).unwrap_or(0);
        String::from_utf8_lossy(&text[..end]).into_owned()
    };
    let paths = |text: String| text.split(':').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    for entry in entries {
        match entry.tag(endian) {
            DT_NEEDED => found.needed.push(string(entry.val(endian))),
            DT_SONAME => found.soname = Some(string(entry.val(endian))),
            DT_RPATH => found.rpath = paths(string(entry.val(endian))),
            DT_RUNPATH => found.runpath = paths(string(entry.val(endian))),
            _ => {}
        }
    }
    let mut parts = header.program_headers(endian, data)?.iter();
    let interpreter = parts.find_map(|part| part.interpreter(endian, data).ok().flatten());
    found.interpreter = interpreter.map(|path| OsStr::from_bytes(path).into());
    if is_position_independent(&found) && found.interpreter.is_none() && header.e_entry.get(endian) != 0 {
        // A static position-independent program has a dynamic section that names no library.
        return Ok(Content::Static(read_static(endian, data, &sections)));
    }
    found.starts_others = has_any(table, STARTS) || has_any(table, LOADS);
    Ok(Content::Dynamic(Rc::new(found)))
}

type Sections<'data, R> = SectionTable<'data, FileHeader64<Endianness>, R>;

fn read_static<'data, R: ReadRef<'data>>(endian: Endianness, data: R, sections: &Sections<'data, R>) -> Static {
    let named = |name: &[u8]| {
        let (_, section) = sections.section_by_name(endian, name)?;
        let short = section.sh_size.get(endian) <= TABLE_LEN_MAX;
        short.then(|| section.data(endian, data).unwrap_or_default())
    };
    let constants = named(b".rodata").unwrap_or_default();
    Static {
        mentions_pmix: memmem::find(constants, PMIX_MARK).is_some(),
        mentions_simple: has_any(constants, SIMPLE_MARKS),
        // Only functions that start programs count: a static C library contains `dlopen` for its own use.
        starts_others: named(b".strtab").map(|names| has_any(names, STARTS)),
    }
}

/// The names of the dynamic section, read in one piece: reading them one by one would take a system call each.
fn table<'data, R: ReadRef<'data>>(
    endian: Endianness,
    data: R,
    sections: &Sections<'data, R>,
    index: SectionIndex,
) -> &'data [u8] {
    let section = sections.section(index).ok().filter(|section| section.sh_size.get(endian) <= TABLE_LEN_MAX);
    section.and_then(|section| section.data(endian, data).ok()).unwrap_or_default()
}

fn has_any(text: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|name| memmem::find(text, name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_is_read_as_dynamic() {
        let own = std::env::current_exe().expect("Linux knows it");
        let Content::Dynamic(own) = Content::read(&own) else { panic!("this test program is not dynamically linked") };
        assert!(own.needed.iter().any(|library| library.starts_with("libc.so")), "{own:?}");
        assert!(own.starts_others, "the standard library can start programs");
    }

    #[test]
    fn shells_can_start_other_programs_and_true_cannot() {
        let starts = |path: &str| match Content::read(Path::new(path)) {
            Content::Dynamic(found) => found.starts_others,
            other => panic!("{path}: {other:?}"),
        };
        assert!(starts("/bin/sh") && starts("/usr/bin/env"));
        assert!(!starts("/bin/true") && !starts("/bin/sleep"));
    }

    #[test]
    fn files_that_are_no_programs_are_recognized() {
        for path in ["/proc/self/status", "/dev/null", "/no/such/file", "/", "/etc/passwd"] {
            assert_eq!(Content::read(Path::new(path)), Content::Other, "{path}");
        }
    }

    #[test]
    fn truncated_programs_do_not_panic_the_reader() {
        let whole = std::fs::read("/bin/true").expect("a small program");
        for cut in (0..whole.len()).step_by(97) {
            let _ = read(&whole[..cut]);
        }
    }
}
