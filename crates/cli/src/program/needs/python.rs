//! The folders that a Python reads, found from its program as Python itself finds them.
//!
//! A virtual environment has the file `pyvenv.cfg` beside or above the program's folder, with the folder of the Python
//! that it was made from (`home`). It is looked for on the path as typed, because the program in it is mostly a link.
//! Any other Python has `../lib/pythonX.Y`, relative to its file after all links. A Conda environment keeps libraries
//! for its packages outside of that folder, so it counts as a whole.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file that makes a folder a virtual environment.
pub const CONFIG: &str = "pyvenv.cfg";
const LIB: [&str; 2] = ["lib", "lib64"];
/// Debian's and Fedora's Python reads packages of the administrator from below this folder, too.
const SITE_LOCAL: &str = "/usr/local";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Python {
    /// The virtual environment.
    pub venv: Option<PathBuf>,
    /// The folders of the installation.
    pub folders: Vec<PathBuf>,
    /// Names of the library folder, such as `python3.11`.
    pub names: Vec<String>,
    /// Whether packages in the user's home are read.
    pub reads_home: bool,
}

/// Whether this is the name of a Python: `python`, `python3`, `python3.13t`.
pub fn is_python(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.strip_prefix(b"python").is_some_and(|rest| rest.iter().all(|byte| b"0123456789.td".contains(byte)))
}

impl Python {
    /// The Python whose program was found at `program`; `end` is its file after all links.
    pub fn find(program: &Path, end: &Path) -> Python {
        let mut python = Python { reads_home: true, ..Python::default() };
        let near = program.ancestors().skip(1).take(2).find(|folder| folder.join(CONFIG).is_file());
        if let Some(folder) = near {
            let config = std::fs::read(folder.join(CONFIG)).unwrap_or_default();
            python.venv = Some(folder.to_path_buf());
            python.reads_home = value(&config, "include-system-site-packages").is_some_and(|value| value == b"true");
            let version = value(&config, "version_info").or_else(|| value(&config, "version"));
            if let Some(home) = value(&config, "home").filter(|home| home.starts_with(b"/")) {
                python.add_installation(Path::new(OsStr::from_bytes(home)), version.and_then(short));
            }
        }
        if is_python(end) {
            let name = end.file_name().unwrap_or_default().as_bytes();
            let version = name.strip_prefix(b"python").filter(|version| version.contains(&b'.'));
            let version = version.map(|version| String::from_utf8_lossy(version).into_owned());
            python.add_installation(end.parent().unwrap_or(Path::new("/")), version);
        }
        python
    }

    /// The installation whose programs lie in `programs`.
    fn add_installation(&mut self, programs: &Path, version: Option<String>) {
        let Some(prefix) = programs.parent() else { return };
        for lib in LIB {
            for name in library_folders(&prefix.join(lib), version.as_deref()) {
                self.folders.push(prefix.join(lib).join(&name));
                let local = Path::new(SITE_LOCAL).join(lib).join(&name);
                self.folders.extend(Some(local).filter(|local| prefix == Path::new("/usr") && has_packages(local)));
                self.names.push(name);
            }
        }
        if prefix.join("conda-meta").is_dir() {
            self.folders.push(prefix.to_path_buf());
        }
        self.names.sort();
        self.names.dedup();
        self.folders.sort();
        self.folders.dedup();
    }
}

/// The names of the library folders in `lib`: the one of a version, or all.
fn library_folders(lib: &Path, version: Option<&str>) -> Vec<String> {
    let is_it = |name: &String| lib.join(name).join("os.py").is_file();
    if let Some(version) = version {
        return Some(format!("python{version}")).filter(is_it).into_iter().collect();
    }
    let entries = std::fs::read_dir(lib).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("python")).filter(is_it).collect()
}

fn has_packages(folder: &Path) -> bool {
    let has_any = |name| std::fs::read_dir(folder.join(name)).is_ok_and(|mut entries| entries.next().is_some());
    has_any("dist-packages") || has_any("site-packages")
}

/// The first two parts of a version: `3.11` of `3.11.7`.
fn short(version: &[u8]) -> Option<String> {
    let mut parts = std::str::from_utf8(version).ok()?.split('.');
    Some(format!("{}.{}", parts.next()?, parts.next()?))
}

/// The value of `key = value`.
fn value<'a>(config: &'a [u8], key: &str) -> Option<&'a [u8]> {
    config.split(|&byte| byte == b'\n').find_map(|line| {
        let at = memchr::memchr(b'=', line)?;
        (line[..at].trim_ascii() == key.as_bytes()).then(|| line[at + 1..].trim_ascii())
    })
}

/// The script in a Python's arguments: a file, or a folder with a `__main__.py`. After `-m` it is an argument of the
/// module and must have the name of a script: any other file may be one that the ranks write.
pub fn script(arguments: &[Vec<u8>], cwd: &Path) -> Option<PathBuf> {
    let path = |argument: &[u8]| cwd.join(OsStr::from_bytes(argument));
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_slice() {
            b"-X" | b"-W" | b"--check-hash-based-pycs" => drop(arguments.next()),
            [b'-', b'X' | b'W' | b'-', ..] => {}
            [b'-', flags @ ..] if flags.contains(&b'c') => return None,
            [b'-', flags @ ..] if flags.contains(&b'm') => {
                let mut rest = arguments.filter(|argument| argument.ends_with(b".py")).map(|name| path(name));
                return rest.find(|path| path.is_file());
            }
            [b'-', ..] => {}
            name => return Some(path(name)).filter(|path| path.is_file() || path.join("__main__.py").is_file()),
        }
    }
    None
}

/// Whether there are modules beside a script that it may import.
pub fn has_modules_beside(script: &Path) -> bool {
    let entries = script.parent().map(std::fs::read_dir).into_iter().flatten().flatten().flatten();
    let mut others = entries.map(|entry| entry.path()).filter(|path| path != script);
    others.any(|path| path.extension().is_some_and(|name| name == "py") || path.join("__init__.py").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pythons_are_recognized_by_name() {
        let named = |name: &str| is_python(Path::new(name));
        assert!(named("/a/python") && named("python3") && named("python3.11") && named("python3.13t"));
        assert!(!named("/python/sh") && !named("python3-config") && !named("ipython"));
    }

    #[test]
    fn the_configuration_of_a_virtual_environment_is_read() {
        let config = b"home = /usr/bin\nversion = 3.11.7\nexecutable=/usr/bin/python3.11\n";
        assert_eq!(value(config, "home"), Some(&b"/usr/bin"[..]));
        assert_eq!(value(config, "version").and_then(short), Some("3.11".to_owned()));
        assert_eq!(value(config, "executable"), Some(&b"/usr/bin/python3.11"[..]));
        assert_eq!(value(config, "none"), None);
    }

    #[test]
    fn scripts_are_found_among_the_arguments() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        std::fs::create_dir_all(folder.join("app")).expect("a folder");
        for name in ["run.py", "data", "app/__main__.py"] {
            std::fs::write(folder.join(name), "").expect("a file");
        }
        let found = |line: &str| {
            let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            script(&words, folder)?.strip_prefix(folder).ok()?.to_str().map(str::to_owned)
        };
        assert_eq!(found("run.py data").as_deref(), Some("run.py"));
        assert_eq!(found("-u -X dev -Wdefault run.py").as_deref(), Some("run.py"));
        assert_eq!(found("app").as_deref(), Some("app"));
        assert_eq!(found("-m mpi4py data run.py").as_deref(), Some("run.py"));
        assert_eq!(found("-m module data"), None);
        assert_eq!(found("-c pass run.py"), None);
        assert_eq!(found("none run.py"), None);
        assert!(!has_modules_beside(&folder.join("run.py")));
        std::fs::write(folder.join("other.py"), "").expect("a file");
        assert!(has_modules_beside(&folder.join("run.py")));
    }
}
