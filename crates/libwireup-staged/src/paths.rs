//! Paths as bytes: joined, made plain, and compared with the names that were staged.

/// With the final zero; as Linux's `PATH_MAX`.
pub const LEN_MAX: usize = 4096;

/// A path in memory of its own, followed by a zero.
#[derive(Clone)]
pub struct PathBuffer {
    bytes: [u8; LEN_MAX],
    len: usize,
}

impl PathBuffer {
    pub const fn new() -> PathBuffer {
        PathBuffer { bytes: [0; LEN_MAX], len: 0 }
    }

    /// `None`: too long.
    pub fn of(parts: &[&[u8]]) -> Option<PathBuffer> {
        let mut path = PathBuffer::new();
        for part in parts {
            path.push(part)?;
        }
        Some(path)
    }

    pub fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len()).filter(|end| *end < LEN_MAX)?;
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.bytes[end] = 0;
        self.len = end;
        Some(())
    }

    fn cut(&mut self, len: usize) {
        self.len = len;
        self.bytes[len] = 0;
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub fn with_zero(&self) -> &[u8] {
        &self.bytes[..=self.len]
    }

    pub fn as_ptr(&self) -> *const core::ffi::c_char {
        self.bytes.as_ptr().cast()
    }
}

impl Default for PathBuffer {
    fn default() -> Self {
        PathBuffer::new()
    }
}

/// An absolute path without `.`, `..` and double slashes. `folder`: where a relative path begins. The second value: whether there was a `..`,
/// which means something else behind a link. `None`: too long, or empty.
pub fn plain(path: &[u8], folder: &[u8]) -> Option<(PathBuffer, bool)> {
    if path.is_empty() {
        return None;
    }
    let mut plain = PathBuffer::new();
    let mut climbs = false;
    let begin: &[u8] = if path.starts_with(b"/") { b"" } else { folder };
    for part in begin.split(|byte| *byte == b'/').chain(path.split(|byte| *byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => {
                climbs = true;
                plain.cut(parent(plain.as_bytes()).len());
            }
            name => {
                plain.push(b"/")?;
                plain.push(name)?;
            }
        }
    }
    if plain.as_bytes().is_empty() {
        plain.push(b"/")?;
    }
    Some((plain, climbs))
}

/// The folder of a plain path, without a slash at its end.
pub fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |slash| &path[..slash])
}

/// Whether a plain path is this folder, or in it.
pub fn is_within(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// What a plain path is, by the names that were staged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A file or link that was named.
    Named,
    /// A folder that was named, or something in it, whether it exists or not.
    InFolder,
    Elsewhere,
}

/// `roots`: for each name `d` (a folder), `l` (a link) or `f` (a file), its plain path, and a zero; before them those with `o`: files in staged
/// folders that are not staged.
pub fn find(roots: &[u8], path: &[u8]) -> Found {
    for root in roots.split(|byte| *byte == 0) {
        match root.split_first() {
            Some((b'o', name)) if path == name => return Found::Elsewhere,
            Some((b'd', folder)) if is_within(path, folder) => return Found::InFolder,
            Some((b'f' | b'l', name)) if path == name => return Found::Named,
            Some(_) | None => {}
        }
    }
    Found::Elsewhere
}

/// The link that was named and leads to this plain path, or is it.
pub fn link_of<'a>(roots: &'a [u8], path: &[u8]) -> Option<&'a [u8]> {
    roots.split(|byte| *byte == 0).filter_map(|root| root.strip_prefix(b"l")).find(|link| is_within(path, link))
}

/// The only file that was named and has this name in its folder; `None`: there is none, or several.
pub fn named<'a>(roots: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let files = roots.split(|byte| *byte == 0).filter_map(|root| root.strip_prefix(b"f"));
    let mut fitting = files.filter(|path| path[parent(path).len()..].strip_prefix(b"/") == Some(name));
    fitting.next().filter(|_| fitting.next().is_none())
}

/// The interpreter of a script and its argument, from the beginning of the file.
pub fn interpreter(begin: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let is_blank = |byte: &u8| [b' ', b'\t'].contains(byte);
    let line = begin.strip_prefix(b"#!")?;
    // Without an end of the line the kernel would cut it too.
    let line = &line[..line.iter().position(|byte| *byte == b'\n')?];
    let line = trim(line);
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let (program, argument) = (&line[..end], trim(&line[end..]));
    (!program.is_empty()).then_some((program, (!argument.is_empty()).then_some(argument)))
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r', rest @ ..] | [rest @ .., b' ' | b'\t' | b'\r'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn made(path: &str, folder: &str) -> (String, bool) {
        let (plain, climbs) = plain(path.as_bytes(), folder.as_bytes()).unwrap();
        (String::from_utf8_lossy(plain.as_bytes()).into_owned(), climbs)
    }

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(made("/a//b/./c", "/x"), ("/a/b/c".into(), false));
        assert_eq!(made("b/../c", "/x/y"), ("/x/y/c".into(), true));
        assert_eq!(made("../../../..", "/x"), ("/".into(), true));
        assert_eq!(made(".", "/x/y"), ("/x/y".into(), false));
        assert!(plain(b"", b"/x").is_none());
        assert!(plain(&[b'a'; LEN_MAX], b"/").is_none());
        let longest = [b'a'; LEN_MAX - 2];
        assert_eq!(plain(&longest, b"/").unwrap().0.as_bytes().len(), LEN_MAX - 1);
    }

    #[test]
    fn names_are_found_by_what_was_staged() {
        let roots = b"o/nfs/env/su\0d/nfs/env\0f/nfs/app\0l/home\0";
        let found = |path: &str| find(roots, path.as_bytes());
        assert_eq!((found("/nfs/env"), found("/nfs/env/lib/x")), (Found::InFolder, Found::InFolder));
        assert_eq!((found("/nfs/app"), found("/nfs/app/x")), (Found::Named, Found::Elsewhere));
        assert_eq!(
            (found("/nfs/env2"), found("/nfs"), found("/")),
            (Found::Elsewhere, Found::Elsewhere, Found::Elsewhere)
        );
        assert_eq!((found("/nfs/env/su"), found("/nfs/env/sudo")), (Found::Elsewhere, Found::InFolder));
        assert_eq!((found("/home"), found("/home/x")), (Found::Named, Found::Elsewhere));
        assert_eq!((link_of(roots, b"/home/x"), link_of(roots, b"/homes")), (Some(&b"/home"[..]), None));
        assert_eq!(find(b"", b"/a"), Found::Elsewhere);
    }

    #[test]
    fn a_file_is_found_by_its_name_if_there_is_one() {
        let roots = b"d/a/libx.so\0f/b/libx.so\0f/b/liby.so\0f/c/liby.so\0f/libz.so\0";
        let found = |name: &str| named(roots, name.as_bytes());
        assert_eq!((found("libx.so"), found("libz.so")), (Some(&b"/b/libx.so"[..]), Some(&b"/libz.so"[..])));
        assert_eq!((found("liby.so"), found("x.so"), found("b")), (None, None, None));
    }

    #[test]
    fn interpreters_of_scripts_are_read() {
        assert_eq!(interpreter(b"#!/bin/sh\n"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(
            interpreter(b"#! /usr/bin/env  python3 -u \nrest"),
            Some((&b"/usr/bin/env"[..], Some(&b"python3 -u"[..])))
        );
        for bad in [&b"#!\n"[..], b"#! \n", b"\x7fELF", b"", b"#!/bin/sh"] {
            assert_eq!(interpreter(bad), None);
        }
    }
}
