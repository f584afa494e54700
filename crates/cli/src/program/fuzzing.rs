//! What must hold for files of programs and the system's list of libraries, whatever their bytes are. The fuzz target
//! `elf` searches for violations.

use super::elf::{Content, read};
use super::ld_cache::LdCache;

/// A program or library, and a list of libraries in which the name in the input's first bytes is looked for.
pub fn elf(input: &[u8]) {
    if let Ok(Content::Dynamic(found)) = read(input) {
        let longest = found.needed.iter().chain(&found.soname).map(String::len).max().unwrap_or(0);
        // A byte that is not valid UTF-8 becomes a replacement character of three bytes.
        assert!(longest <= 3 * input.len() && found.needed.len() <= input.len() / 16, "more than the file contains");
        assert!(found.rpath.iter().chain(&found.runpath).all(|path| !path.is_empty() && !path.contains(':')));
    }
    let Some((&len, rest)) = input.split_first() else { return };
    let (name, list) = rest.split_at(usize::from(len).min(rest.len()));
    let Ok(name) = std::str::from_utf8(name) else { return };
    let cache = LdCache::from(list.to_vec());
    let all = cache.find_all(name);
    assert_eq!(cache.find(name).as_ref(), all.first().map(|(path, _)| path));
    assert!(all.len() <= list.len() / 24 && all.iter().all(|(path, _)| path.is_absolute()));
    assert!(all.iter().rev().skip(1).all(|(_, is_special)| *is_special), "a path behind the one for all processors");
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_corpus_file_passes_its_target() {
        crate::replay_corpus::replay(&[("elf", super::elf)]);
    }
}
