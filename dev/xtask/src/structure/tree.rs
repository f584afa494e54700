//! The texts that the rules of `cargo xtask check` read: sources, manifests and `clippy.toml` of all crates, and the
//! pages, by their paths in the workspace.

use crate::step::Result;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// # Errors
    /// A folder or a file cannot be read.
    pub fn read(root: &Path) -> Result<Tree> {
        let mut files = BTreeMap::new();
        for folder in ["crates", "dev", "docs", "lab", "python"] {
            walk(root, folder, &mut files)?;
        }
        for file in ["deny.toml", "Cargo.toml", "README.md", "HACKING.md", "CONTRIBUTING.md"] {
            add(root, file.to_owned(), &mut files)?;
        }
        Ok(Tree(files))
    }

    #[cfg(test)]
    pub fn from_files(files: &[(&str, &str)]) -> Tree {
        Tree(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    pub fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Paths of the files whose paths end with `end`, sorted.
    pub fn ending<'t>(&'t self, end: &'t str) -> impl Iterator<Item = &'t str> {
        self.0.keys().map(String::as_str).filter(move |path| path.ends_with(end))
    }
}

fn walk(root: &Path, folder: &str, files: &mut BTreeMap<String, String>) -> Result {
    let path = root.join(folder);
    let entries = fs::read_dir(&path).map_err(|e| format!("read {}: {e}", path.display()))?;
    for entry in entries.flatten() {
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            walk(root, &name, files)?;
        } else if [".rs", ".toml", ".md", ".py", ".c"].iter().any(|end| name.ends_with(end)) {
            add(root, name, files)?;
        }
    }
    Ok(())
}

fn add(root: &Path, name: String, files: &mut BTreeMap<String, String>) -> Result {
    let text = fs::read_to_string(root.join(&name)).map_err(|e| format!("read {name}: {e}"))?;
    files.insert(name, text);
    Ok(())
}
