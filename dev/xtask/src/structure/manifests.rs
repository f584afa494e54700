//! Every crate inherits the workspace's lints and its oldest supported Rust version (otherwise clippy would allow newer
//! features). Every dependency on a foreign crate has its reason in a comment on its line.

use super::{Finding, Tree};

pub fn check(tree: &Tree) -> Vec<Finding> {
    // The fuzz targets are left out: they are a workspace of their own, with one crate.
    let crates = tree.ending("/Cargo.toml").filter(|path| *path != "dev/fuzz/Cargo.toml");
    let lacks = |path| {
        let manifest = tree.get(path).unwrap_or("");
        let lints = (!inherits(manifest)).then(|| format!("{path}: [lints] workspace = true"));
        let is_version = |line: &str| line.replace(' ', "").starts_with("rust-version.workspace=true");
        let version = (!manifest.lines().any(is_version)).then(|| format!("{path}: rust-version.workspace = true"));
        lints.into_iter().chain(version)
    };
    let inherited = crates.flat_map(lacks).collect();
    let manifests = tree.ending("Cargo.toml").filter_map(|path| Some((path, tree.get(path)?)));
    let reasons = manifests.flat_map(|(path, manifest)| {
        unexplained(manifest).into_iter().map(move |name| format!("{path}: {name} = … # why it is here"))
    });
    vec![
        Finding { rule: "every crate inherits the workspace's lints and oldest Rust".into(), broken: inherited },
        Finding { rule: "every dependency from elsewhere has a reason".into(), broken: reasons.collect() },
    ]
}

/// Dependencies on foreign crates that the workspace's manifest does not explain and that have no comment on their
/// line.
fn unexplained(manifest: &str) -> Vec<&str> {
    let mut within = false;
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            within = section.split(']').next().is_some_and(|section| section.ends_with("dependencies"));
        } else if within && let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            let (value, reason) = value.split_once('#').unwrap_or((value, ""));
            let is_explained =
                value.contains("path = ") || value.contains("workspace = true") || name.contains(".workspace");
            if !is_explained && reason.trim().is_empty() {
                names.push(name.trim());
            }
        }
    }
    names
}

fn inherits(manifest: &str) -> bool {
    let section = manifest.lines().skip_while(|line| line.trim() != "[lints]").skip(1);
    let mut section = section.take_while(|line| !line.starts_with('['));
    section.any(|line| line.replace(' ', "").starts_with("workspace=true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_the_workspace_lints_or_version_is_named() {
        let tree = Tree::from_files(&[
            (
                "crates/a/Cargo.toml",
                "[package]\nrust-version.workspace = true\n\n[lints]\nworkspace = true\n\n[dependencies]\n",
            ),
            ("crates/b/Cargo.toml", "[package]\nrust-version.workspace = true\nname = \"b\"\n"),
            ("crates/c/Cargo.toml", "[lints]\nworkspace = true\n[dependencies]\nworkspace = true\n"),
        ]);
        let broken = check(&tree).remove(0).broken;
        let expected =
            ["crates/b/Cargo.toml: [lints] workspace = true", "crates/c/Cargo.toml: rust-version.workspace = true"];
        assert_eq!(broken, expected);
    }

    #[test]
    fn a_dependency_without_a_reason_is_named() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nown = { path = \"b\" }\nours.workspace = true\n\
                        bytes = \"1\"\nknown = { version = \"1\" } # blobs\n# a comment\n\
                        [target.'cfg(unix)'.dev-dependencies]\nlibc = \"1\" #\n[lib]\nx = 1\n";
        assert_eq!(unexplained(manifest), ["bytes", "libc"]);
        let broken = check(&Tree::from_files(&[("Cargo.toml", manifest)])).remove(1).broken;
        assert!(broken.len() == 2 && broken[0].starts_with("Cargo.toml: bytes"), "{broken:?}");
    }
}
