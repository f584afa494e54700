//! The Debian mirrors that this machine uses, from apt's lists in both of their formats.

use std::fs;
use std::path::Path;

const PACKAGES: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";

/// An archive of packages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    uri: String,
    suites: Vec<String>,
}

/// All sources of binary packages in `/etc/apt`.
pub fn read(apt: &Path) -> Vec<Source> {
    let mut files = vec![apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(apt.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let parse = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        match path.extension().and_then(|name| name.to_str()) {
            Some("list") => lines(&text),
            Some("sources") => stanzas(&text),
            Some(_) | None => Vec::new(),
        }
    };
    files.iter().flat_map(parse).collect()
}

/// The mirror of Debian 12; a machine with another Debian uses a mirror that has this release too. Other projects
/// publish for this suite as well, but by custom only the path of Debian's own archive ends with its name.
pub fn packages(sources: &[Source]) -> String {
    let is_debian = |source: &&Source| source.uri.ends_with("/debian");
    let found = sources.iter().filter(is_debian).find(|source| source.has("bookworm"));
    found.or_else(|| sources.iter().find(is_debian)).map_or(PACKAGES.to_owned(), |source| source.uri.clone())
}

pub fn security(sources: &[Source]) -> String {
    let found =
        sources.iter().find(|source| source.has("bookworm-security") && source.uri.ends_with("/debian-security"));
    found.map_or(SECURITY.to_owned(), |source| source.uri.clone())
}

impl Source {
    fn new(uri: &str, suites: &[&str]) -> Option<Source> {
        let suites = suites.iter().map(|suite| (*suite).to_owned()).collect();
        uri.starts_with("http").then(|| Source { uri: uri.trim_end_matches('/').to_owned(), suites })
    }

    fn has(&self, suite: &str) -> bool {
        self.suites.iter().any(|one| one == suite)
    }
}

/// The sources of lines of the form `deb [options] URI SUITE COMPONENT...`
fn lines(text: &str) -> Vec<Source> {
    let source = |line: &str| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let rest = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
        let mut words = rest.split_whitespace();
        Source::new(words.next()?, &[words.next()?])
    };
    text.lines().filter_map(source).collect()
}

/// Stanzas with `URIs:` and `Suites:`, each field on one line as all tools write them.
fn stanzas(text: &str) -> Vec<Source> {
    let without_comments: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let field = |stanza: &[&str], name: &str| -> Vec<String> {
        let value = stanza.iter().find_map(|line| line.strip_prefix(name));
        value.unwrap_or("").split_whitespace().map(str::to_owned).collect()
    };
    let of = |stanza: &[&str]| -> Vec<Source> {
        let suites = field(stanza, "Suites:");
        let suites: Vec<&str> = suites.iter().map(String::as_str).collect();
        field(stanza, "URIs:").iter().filter_map(|uri| Source::new(uri, &suites)).collect()
    };
    without_comments.split(|line| line.trim().is_empty()).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_read_from_both_source_formats() {
        let old = "# x\ndeb cdrom:[Debian]/ bookworm main\ndeb [arch=amd64] http://m.example/debian/ bookworm main\n\
                   deb http://m.example/debian-security bookworm-security main\n";
        let new = "Types: deb\n# from a snapshot\nURIs: http://m.example/debian\nSuites: bookworm bookworm-updates\n\n\
                   Types: deb\nURIs: http://m.example/debian-security/\nSuites: bookworm-security\n";
        for sources in [lines(old), stanzas(new)] {
            assert_eq!(packages(&sources), "http://m.example/debian");
            assert_eq!(security(&sources), "http://m.example/debian-security");
        }
    }

    #[test]
    fn other_archives_are_not_taken_for_debian_mirrors() {
        let sources = lines("deb https://p.example/debian/12/prod bookworm main\n");
        assert_eq!(packages(&sources), PACKAGES);
        assert_eq!(security(&sources), SECURITY);
    }

    #[test]
    fn a_mirror_of_another_debian_release_is_used() {
        assert_eq!(packages(&lines("deb http://m.example/debian trixie main\n")), "http://m.example/debian");
    }
}
