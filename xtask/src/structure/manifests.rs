//! Every crate inherits the workspace's lints.

use super::Finding;
use super::tree::Tree;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let lacks = |path: &&str| !inherits(tree.get(path).unwrap_or(""));
    let broken =
        tree.ending("/Cargo.toml").filter(lacks).map(|path| format!("{path}: [lints] workspace = true")).collect();
    vec![Finding { rule: "every crate inherits the workspace's lints".into(), broken }]
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
    fn a_crate_without_the_workspace_lints_is_named() {
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n\n[dependencies]\n"),
            ("crates/b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("crates/c/Cargo.toml", "[lints]\n[dependencies]\nworkspace = true\n"),
        ]);
        let broken = check(&tree).remove(0).broken;
        assert_eq!(broken, ["b", "c"].map(|name| format!("crates/{name}/Cargo.toml: [lints] workspace = true")));
    }
}
