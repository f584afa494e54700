//! The settings by which this machine reaches package registries, copied into the new Debian.

use crate::step::Result;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Environment variables that determine how registries are reached, and how much of this machine cargo may use.
const VARIABLES: &str = "http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY \
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE TERM CARGO_BUILD_JOBS";

/// Prefixes of further environment variables that are copied.
const BEGINNINGS: [&str; 5] = ["PIP_", "CARGO_REGISTRY_", "CARGO_REGISTRIES_", "CARGO_NET_", "CARGO_HTTP_"];

/// The files in which distributions keep all certificates.
const CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// The apt options that determine how apt reaches servers.
const APT_OPTIONS: [&str; 5] =
    ["Acquire::http", "Acquire::https", "Acquire::Retries", "Acquire::Check-Valid-Until", "Acquire::Check-Date"];

const MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";

pub struct Carried {
    suite: String,
    /// Address of the mirror of Debian's packages.
    pub mirror: String,
    security: String,
    apt_options: String,
    variables: Vec<(String, String)>,
    /// Folders that environment variables name, for example with packages for `pip`.
    pub folders: Vec<PathBuf>,
    /// Files of this machine, each with its path in the new Debian.
    files: Vec<(PathBuf, &'static str)>,
}

impl Carried {
    pub fn of_this_machine(suite: &str) -> Carried {
        let variables: Vec<_> = env::vars().filter(|(name, _)| is_carried(name)).collect();
        let named = |(_, value): &(String, String)| value.split_whitespace().map(PathBuf::from).collect::<Vec<_>>();
        let folders = variables.iter().flat_map(named).filter(|path| path.is_absolute() && path.is_dir()).collect();
        let printed = |command: &mut Command| command.output().map(|output| output.stdout).unwrap_or_default();
        let options = printed(Command::new("apt-config").arg("dump"));
        // Addresses and suites of all archives of binary packages in apt's configuration, whatever the format of its
        // lists.
        let format = ["indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"];
        let archives = printed(Command::new("apt-get").args(format));
        let archives = String::from_utf8_lossy(&archives);
        let security = archive(&archives, "/debian-security", "");
        Carried {
            suite: suite.to_owned(),
            mirror: mirror(&archives),
            security: security.unwrap_or_else(|| SECURITY.into()),
            apt_options: apt_options(&String::from_utf8_lossy(&options)),
            variables,
            folders,
            files: files(),
        }
    }

    /// The proxies as arguments of `env`: debootstrap's `wget` does not read apt's configuration.
    pub fn proxies(&self) -> Vec<String> {
        let mut words: Vec<String> = proxies_of_apt(&self.apt_options);
        let proxies = self.variables.iter().filter(|(name, _)| name.to_lowercase().ends_with("_proxy"));
        words.extend(proxies.map(|(name, value)| format!("{name}={value}")));
        words
    }

    /// Writes the settings as a folder tree that is copied onto the new root.
    pub fn write(&self, to: &Path) -> Result {
        put(to, "etc/apt/sources.list", self.sources().as_bytes())?;
        put(to, "etc/apt/apt.conf.d/90carried", self.apt_options.as_bytes())?;
        put(to, "etc/carried", exports(&self.variables).as_bytes())?;
        for (from, at) in &self.files {
            // A file that cannot be read is not needed to reach registries.
            if let Ok(content) = fs::read(from) {
                put(to, at, &content)?;
            }
        }
        Ok(())
    }

    fn sources(&self) -> String {
        let (mirror, security, suite) = (&self.mirror, &self.security, &self.suite);
        let release = format!("deb {mirror} {suite} main\n");
        // `sid`, the Debian in development, has no archives of updates.
        match suite.as_str() {
            "sid" => release,
            _ => format!("{release}deb {mirror} {suite}-updates main\ndeb {security} {suite}-security main\n"),
        }
    }
}

fn is_carried(name: &str) -> bool {
    VARIABLES.split(' ').any(|one| one == name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// The mirror of Debian 12; a machine with another Debian uses a mirror that has this release too. Archives of other
/// projects have this suite as well, but by custom only the path of Debian's own archive ends with Debian's name.
/// `archives`: lines of an address and a suite.
fn mirror(archives: &str) -> String {
    let found = archive(archives, "/debian", "bookworm").or_else(|| archive(archives, "/debian", ""));
    found.unwrap_or_else(|| MIRROR.into())
}

/// The address of the archive whose address ends with `end` and that has the suite `suite`; an empty suite: any.
fn archive(archives: &str, end: &str, suite: &str) -> Option<String> {
    let lines = archives.lines().filter_map(|line| line.split_once(' '));
    let mut lines = lines.map(|(address, of)| (address.trim_end_matches('/'), of));
    let is_it = |(address, of): &(&str, &str)| {
        address.starts_with("http") && address.ends_with(end) && (suite.is_empty() || suite == *of)
    };
    lines.find(is_it).map(|(address, _)| address.to_owned())
}

fn files() -> Vec<(PathBuf, &'static str)> {
    let home = PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let cargo = env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let mut files = vec![
        (PathBuf::from("/etc/resolv.conf"), "etc/resolv.conf"),
        (PathBuf::from("/etc/hosts"), "etc/hosts"),
        (PathBuf::from("/etc/apt/auth.conf"), "etc/apt/auth.conf"),
        (PathBuf::from("/etc/pip.conf"), "etc/pip.conf"),
        (home.join(".config/pip/pip.conf"), "root/.config/pip/pip.conf"),
        (home.join(".pip/pip.conf"), "root/.pip/pip.conf"),
        (cargo.join("config"), "root/.cargo/config.toml"),
        (cargo.join("config.toml"), "root/.cargo/config.toml"),
    ];
    // Installed as an additional certificate for `update-ca-certificates`, so that it remains when
    // `update-ca-certificates` runs again.
    let bundle = CERTIFICATES.iter().map(PathBuf::from).find(|path| path.exists());
    files.extend(bundle.map(|path| (path, "usr/local/share/ca-certificates/carried.crt")));
    files
}

/// The lines of `apt-config dump` that set one of `APT_OPTIONS`.
fn apt_options(dump: &str) -> String {
    let name = |line: &str| line.split(' ').next().unwrap_or("").to_owned();
    let wanted = |name: &str| {
        APT_OPTIONS
            .iter()
            .any(|known| name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
    };
    let set = |line: &&str| wanted(&name(line)) && !line.ends_with("\"\";");
    dump.lines().filter(set).fold(String::new(), |all, line| all + line + "\n")
}

fn proxies_of_apt(options: &str) -> Vec<String> {
    let proxy = |line: &str| {
        let (name, value) = line.trim_end_matches(';').split_once(' ')?;
        let scheme = name.strip_prefix("Acquire::")?.strip_suffix("::Proxy")?;
        Some(format!("{scheme}_proxy={}", value.trim_matches('"')))
    };
    options.lines().filter_map(proxy).collect()
}

/// Shell commands that export the environment variables.
fn exports(variables: &[(String, String)]) -> String {
    let mut text = String::from(
        "export HOME=/root USER=root LANG=C.UTF-8\n\
         export PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
    );
    for (name, value) in variables {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "export {name}='{}'", value.replace('\'', "'\\''"));
    }
    text
}

fn put(root: &Path, at: impl AsRef<OsStr>, content: &[u8]) -> Result {
    let path = root.join(Path::new(at.as_ref()));
    let done = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, content));
    done.map_err(|e| format!("write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_variables_are_carried_and_cargo_run_variables_are_not() {
        for name in ["PIP_INDEX_URL", "https_proxy", "CARGO_REGISTRIES_CRATES_IO_PROTOCOL", "CARGO_NET_OFFLINE"] {
            assert!(is_carried(name), "{name}");
        }
        for name in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_BUILD_JOBS_X", "HOME", "TERMINAL", "WIREUP_BIN"] {
            assert!(!is_carried(name), "{name}");
        }
    }

    #[test]
    fn only_apt_connection_options_are_carried() {
        let dump = "APT \"\";\nAcquire::http \"\";\nAcquire::http::Proxy \"http://p:3128\";\nAcquire::httpx \"1\";\n\
                    Acquire::Check-Date \"false\";\nDPkg::Post-Invoke:: \"rm\";\n";
        let options = apt_options(dump);
        assert_eq!(options, "Acquire::http::Proxy \"http://p:3128\";\nAcquire::Check-Date \"false\";\n");
        assert_eq!(proxies_of_apt(&options), ["http_proxy=http://p:3128"]);
    }

    #[test]
    fn mirrors_are_debians_own_archives() {
        let archives = "https://p.example/debian/12/prod/ bookworm\nhttp://m.example/debian/ bookworm\n\
                        http://m.example/debian-security/ bookworm-security\n";
        assert_eq!(mirror(archives), "http://m.example/debian");
        let security = archive(archives, "/debian-security", "bookworm-security");
        assert_eq!(security.as_deref(), Some("http://m.example/debian-security"));
        assert_eq!(mirror("http://m.example/debian trixie\n"), "http://m.example/debian");
        assert_eq!(mirror("https://p.example/debian/12/prod/ bookworm\n"), MIRROR);
    }

    #[test]
    fn exported_values_survive_the_shell() {
        let variables = [("PIP_INDEX_URL".to_owned(), "https://a'b $c".to_owned())];
        let script = exports(&variables) + "printf %s \"$PIP_INDEX_URL\"";
        let output = Command::new("sh").args(["-c", &script]).output().expect("run sh");
        assert_eq!(output.stdout, b"https://a'b $c");
    }
}
