use super::*;
use crate::build::Names;
use std::string::{String, ToString};
use std::vec::Vec;

struct Folders(&'static [&'static str]);

impl System for Folders {
    fn working_folder(&self, into: &mut [u8]) -> Option<usize> {
        let folder = b"/nfs/env/work";
        into[..folder.len()].copy_from_slice(folder);
        Some(folder.len())
    }

    fn is_folder(&self, path: &CStr) -> bool {
        self.0.iter().any(|folder| folder.as_bytes() == path.to_bytes())
    }
}

fn map() -> Vec<u8> {
    let mut names = Names::default();
    let kinds = [
        ("/nfs", StagedKind::Open, ""),
        ("/nfs/env", StagedKind::Folder, ""),
        ("/nfs/env/su", StagedKind::Original, ""),
        ("/nfs/env/near", StagedKind::Link, "lib/x"),
        ("/nfs/env/out", StagedKind::Link, "../other"),
        ("/nfs/env/far", StagedKind::Link, "/data/far"),
        ("/nfs/env/lib/up", StagedKind::Link, "../.."),
        ("/nfs/env/loop", StagedKind::Link, "loop"),
        ("/nfs/app", StagedKind::Closed, ""),
        ("/nfs/app/run", StagedKind::File, ""),
        ("/nfs/app/latest", StagedKind::Link, "v2"),
        ("/nfs/app/v2", StagedKind::Closed, ""),
        ("/nfs/app/v2/lib", StagedKind::File, ""),
        ("/nfs/app/data", StagedKind::Other, ""),
        ("/store", StagedKind::Open, ""),
        ("/store/tree", StagedKind::Tree, ""),
    ];
    kinds.iter().for_each(|(name, kind, more)| names.add(*kind, name.as_bytes(), more.as_bytes()));
    let modes = [("/nfs/env", 0o755), ("/nfs/env/lib", 0o755), ("/nfs/env/data", 0o664), ("/nfs/env/fixed", 0o444)];
    names.add_bits(modes.iter().map(|(name, mode)| (name.as_bytes(), *mode)));
    names.map(b"/store/tree", b"/store/lib.so", b"mnt:[1]").unwrap()
}

fn found_as(path: &str, folder: Option<&str>, follows: bool) -> String {
    let bytes = map();
    let map = Map::read(&bytes).unwrap();
    let mut walk = Walk::new();
    let folders = Folders(&["/store/tree/nfs/env", "/store/tree/nfs/env/lib", "/store/tree/nfs/env/work"]);
    let found = resolve(&map, &mut walk, path.as_bytes(), folder.map(str::as_bytes), follows, &folders);
    let text = |path: &CStr| path.to_str().unwrap().to_string();
    match found {
        Found::Unknown => "?".into(),
        Found::Absent => "-".into(),
        Found::Copy => text(walk.copy()).strip_prefix("/store/tree").unwrap().replacen("/nfs", "copy:/nfs", 1),
        Found::Original => text(walk.original()),
        Found::Folder => "folder:".to_string() + &text(walk.original()),
    }
}

fn found(path: &str) -> String {
    found_as(path, None, true)
}

#[test]
fn staged_names_lead_to_their_copies_and_others_do_not() {
    for (path, expected) in [
        ("/nfs/env", "copy:/nfs/env"),
        ("//nfs/./env//a/b", "copy:/nfs/env/a/b"),
        ("/nfs/env2/a", "?"),
        ("/usr/lib", "?"),
        ("/", "folder:/"),
        ("/nfs", "folder:/nfs"),
        ("/nfs/app/run", "copy:/nfs/app/run"),
        ("/nfs/app/run2", "-"),
        ("/nfs/app/data/x", "?"),
        ("/nfs/env/su", "?"),
        ("/nfs/env/sudo", "copy:/nfs/env/sudo"),
        ("", "?"),
        ("a", "copy:/nfs/env/work/a"),
        (".", "copy:/nfs/env/work/"),
        ("libx.so", "copy:/nfs/env/work/libx.so"),
    ] {
        assert_eq!(found(path), expected, "{path}");
    }
    assert_eq!(found_as("a", Some("/nfs/app"), true), "-");
    assert_eq!(found_as("run", Some("/store/tree/nfs/app"), true), "copy:/nfs/app/run");
}

#[test]
fn links_are_followed_as_by_the_kernel() {
    for (path, expected) in [
        ("/nfs/env/near", "copy:/nfs/env/lib/x"),
        ("/nfs/env/near/y", "copy:/nfs/env/lib/x/y"),
        ("/nfs/env/out/y", "/nfs/other/y"),
        ("/nfs/env/out", "/nfs/other"),
        ("/nfs/env/out/", "/nfs/other/"),
        ("/nfs/env/far/./y/", "/data/far/./y/"),
        ("/nfs/env/lib/up/app/run", "copy:/nfs/app/run"),
        ("/nfs/env/lib/up/env/su", "/nfs/env/su"),
        ("/nfs/env/loop", "?"),
        ("/nfs/app/latest/lib", "copy:/nfs/app/v2/lib"),
        ("/nfs/app/latest/none", "-"),
        ("/nfs/app/latest/../run", "copy:/nfs/app/run"),
    ] {
        assert_eq!(found(path), expected, "{path}");
    }
    assert_eq!(found_as("/nfs/env/far", None, false), "copy:/nfs/env/far");
    assert_eq!(found_as("/nfs/env/far/", None, false), "/data/far/");
    assert_eq!(found_as("/nfs/env/out/y", None, false), "/nfs/other/y");
}

#[test]
fn a_step_up_is_one_from_where_the_links_have_led() {
    for (path, expected) in [
        ("/nfs/env/lib/../x", "copy:/nfs/env/x"),
        ("/nfs/env/..", "folder:/nfs"),
        ("/nfs/env/../app/run", "copy:/nfs/app/run"),
        ("/nfs/env/lib/up/../nfs/env", "copy:/nfs/env"),
        ("/../../nfs/env", "copy:/nfs/env"),
        // The kernel fails after these names, so the rest of the path is kept for it.
        ("/nfs/env/none/../lib", "copy:/nfs/env/none/../lib"),
        ("/nfs/app/run/../run", "copy:/nfs/app/run/../run"),
        ("/usr/../nfs/env", "?"),
        ("..", "copy:/nfs/env/"),
    ] {
        assert_eq!(found(path), expected, "{path}");
    }
}

#[test]
fn a_slash_at_the_end_demands_a_folder() {
    for (path, expected) in [
        ("/nfs/app/run/", "copy:/nfs/app/run/"),
        ("/nfs/app/run/.", "copy:/nfs/app/run/."),
        ("/nfs/env/lib/", "copy:/nfs/env/lib/"),
        ("/nfs/env/near/", "copy:/nfs/env/lib/x/"),
        ("/nfs/app/none/", "-"),
    ] {
        assert_eq!(found(path), expected, "{path}");
    }
}

#[test]
fn paths_into_the_copies_are_those_of_the_originals() {
    for (path, expected) in [
        ("/store/tree/nfs/env/a", "copy:/nfs/env/a"),
        ("/store//./tree/nfs/env/a", "copy:/nfs/env/a"),
        ("/store/tree/usr/lib", "/usr/lib"),
        ("/store/tree", "folder:/"),
        ("/store/other", "?"),
        ("/store/tree/nfs/env/su", "/nfs/env/su"),
    ] {
        assert_eq!(found(path), expected, "{path}");
    }
}

#[test]
fn the_originals_write_bits_are_known() {
    let bytes = map();
    let map = Map::read(&bytes).unwrap();
    let mode = |name: &str, of_copy| map.mode(name.as_bytes(), of_copy);
    assert_eq!((mode("/nfs/env", 0o40555), mode("/nfs/env/x", 0o100444)), (0o40755, 0o100644));
    assert_eq!((mode("/nfs/env/data", 0o100444), mode("/nfs/env/fixed", 0o100444)), (0o100664, 0o100444));
    assert_eq!(found("/nfs/env"), "copy:/nfs/env");
}

#[test]
fn long_paths_are_left_to_the_kernel() {
    let long = "/nfs/env/".to_string() + &"a/".repeat(600);
    assert_eq!(found(&long), "?");
    let bytes = map();
    let map = Map::read(&bytes).unwrap();
    assert_eq!((map.tree(), map.library(), map.place()), (&b"/store/tree"[..], &b"/store/lib.so"[..], &b"mnt:[1]"[..]));
    // A truncated or damaged map must not lead to reads outside of it.
    for len in 0..bytes.len() {
        if let Some(map) = Map::read(&bytes[..len]) {
            resolve(&map, &mut Walk::new(), b"/nfs/env/near", None, true, &Folders(&[]));
        }
    }
}
