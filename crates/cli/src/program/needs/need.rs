//! What to stage, what to leave out and what to tell the user about it; how these lists grow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;
use wireup_stage::set::Listings;

/// Why something is not staged.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum LeftOut {
    #[error("in a system folder on a local disk: every node has its own")]
    OfTheNode,
    /// The file has such a permission bit: `set-user-ID` or `set-group-ID`.
    #[error("{0}: a copy would not have its rights")]
    Rights(&'static str),
    #[error("{0}")]
    Other(String),
}

impl From<&str> for LeftOut {
    fn from(why: &str) -> LeftOut {
        LeftOut::Other(why.to_owned())
    }
}

/// Something that the user may want to know.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Remark {
    pub text: String,
    /// Whether the ranks will lack something that they need.
    pub is_lack: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NeedKind {
    File,
    /// A folder with everything below it.
    Folder,
    /// A symbolic link itself, not its target.
    Link,
}

/// One thing to stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// Absolute; no component but the last is a symbolic link, and the last only for `NeedKind::Link`.
    pub path: PathBuf,
    pub kind: NeedKind,
    /// For messages: `the program`, `library of app`.
    pub why: String,
}

/// What to stage, and what to tell the user. Each list is sorted and has each entry once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// What to stage. Nothing in this list lies below a folder in the list.
    pub needs: Vec<Need>,
    /// What is not staged, and why.
    pub left_out: Vec<(PathBuf, LeftOut)>,
    /// Libraries that are not found, programs that cannot be examined.
    pub remarks: Vec<Remark>,
    /// The contents of the folders that were read, so that nobody has to read them again.
    pub listings: Listings,
}

#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    #[error("{0}: there is no such file")]
    NoMatch(String),
    #[error("{pattern}: {reason}")]
    Pattern { pattern: String, reason: String },
    #[error("{}: more than 40 symbolic links on the way", .0.display())]
    Links(PathBuf),
}

impl Error {
    /// The message for a user who gave the paths and patterns as values of `flag`: it names the flag if one of them is
    /// wrong.
    pub fn with_flag(&self, flag: &str) -> String {
        match self {
            Error::NoMatch(_) | Error::Pattern { .. } => format!("{flag} {self}"),
            Error::Links(_) => self.to_string(),
        }
    }
}

/// The needs that were found so far.
#[derive(Default)]
pub struct Found {
    needs: BTreeMap<PathBuf, Need>,
    left_out: BTreeMap<PathBuf, LeftOut>,
    remarks: BTreeSet<Remark>,
    /// Libraries that were not found, with the file that needs each.
    missing: BTreeMap<String, String>,
    /// The names of libraries in folders that are staged.
    in_folders: BTreeSet<String>,
    /// Links in staged folders that lead to folders elsewhere.
    led_out: BTreeMap<PathBuf, PathBuf>,
}

impl Found {
    pub fn add_need(&mut self, path: PathBuf, kind: NeedKind, why: &str) {
        self.needs.entry(path.clone()).or_insert_with(|| Need { path, kind, why: why.to_owned() });
    }

    pub fn is_needed(&self, path: &Path) -> bool {
        self.needs.contains_key(path)
    }

    pub fn leave_out(&mut self, path: &Path, why: impl Into<LeftOut>) {
        self.left_out.entry(path.to_path_buf()).or_insert_with(|| why.into());
    }

    pub fn remark(&mut self, text: String) {
        self.remarks.insert(Remark { text, is_lack: false });
    }

    /// Adds a remark about something that the ranks will lack.
    pub fn lack(&mut self, text: String) {
        self.remarks.insert(Remark { text, is_lack: true });
    }

    /// Records that the file `by` needs the library `name`, which was not found.
    pub fn add_missing(&mut self, name: &str, by: &str) {
        self.missing.entry(name.to_owned()).or_insert_with(|| by.to_owned());
    }

    /// Records that a library of this name lies in a folder that is staged.
    pub fn add_name_in_folder(&mut self, name: String) {
        self.in_folders.insert(name);
    }

    /// Records that a link in a folder that is staged leads to a folder elsewhere.
    pub fn add_led_out(&mut self, link: PathBuf, end: PathBuf) {
        self.led_out.insert(link, end);
    }

    /// The result. `has_soname`: whether one of the libraries that were found has this name as its `SONAME`; such a
    /// library is not missing.
    pub fn finish(mut self, listings: Listings, has_soname: impl Fn(&str) -> bool) -> Needs {
        let mut needs: Vec<Need> = Vec::new();
        // Paths are in order, so a folder comes before what lies below it.
        let mut folder: Option<PathBuf> = None;
        for (path, need) in std::mem::take(&mut self.needs) {
            if folder.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            if need.kind == NeedKind::Folder {
                folder = Some(path);
            }
            needs.push(need);
        }
        for (link, end) in std::mem::take(&mut self.led_out) {
            if !needs.iter().any(|need| need.kind == NeedKind::Folder && end.starts_with(&need.path)) {
                let (link, end) = (link.display(), end.display());
                self.remark(format!("{link} leads to the folder {end}, which is staged only with --stage-also"));
            }
        }
        for (name, by) in std::mem::take(&mut self.missing) {
            if !self.in_folders.contains(&name) && !has_soname(&name) {
                self.lack(format!(
                    "{name}, which {by} needs, was not found; install it, or name its folder in LD_LIBRARY_PATH"
                ));
            }
        }
        let left_out = self.left_out.into_iter().collect();
        Needs { needs, left_out, remarks: self.remarks.into_iter().collect(), listings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_staged_folder_is_not_listed_again() {
        let mut found = Found::default();
        found.add_need("/a/b/c".into(), NeedKind::File, "a library");
        found.add_need("/a/b".into(), NeedKind::Folder, "a folder");
        found.add_need("/a/b".into(), NeedKind::Folder, "once more");
        found.add_need("/a/d".into(), NeedKind::File, "the program");
        found.leave_out(Path::new("/e"), "not found");
        found.leave_out(Path::new("/e"), LeftOut::OfTheNode);
        found.add_led_out("/a/b/inside".into(), "/a/b/x".into());
        found.add_led_out("/a/b/outside".into(), "/x".into());
        let needs = found.finish(Listings::new(), |_| false);
        let whys: Vec<&str> = needs.needs.iter().map(|need| need.why.as_str()).collect();
        assert_eq!(whys, ["a folder", "the program"]);
        assert_eq!(needs.left_out, [("/e".into(), LeftOut::Other("not found".into()))]);
        assert_eq!(needs.remarks.len(), 1);
        assert!(needs.remarks[0].text.starts_with("/a/b/outside leads to the folder /x"), "{:?}", needs.remarks);
    }

    #[test]
    fn a_library_is_missing_unless_a_staged_one_has_its_name() {
        let mut found = Found::default();
        for name in ["lib1.so", "lib2.so", "lib3.so"] {
            found.add_missing(name, "app");
        }
        found.add_name_in_folder("lib2.so".into());
        let needs = found.finish(Listings::new(), |name| name == "lib3.so");
        let [Remark { text, is_lack: true }] = &needs.remarks[..] else { panic!("{:?}", needs.remarks) };
        assert!(text.starts_with("lib1.so, which app needs, was not found"), "{text}");
    }
}
