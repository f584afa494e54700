//! `/etc/wireup.toml` and `~/.config/wireup.toml`: values of flags that a site or a user wants in every run, and flags
//! that a site forbids; and `wireup config`, which shows them.
//!
//! ```text
//!   command line ── over ── environment ── over ── the user's file ── over ── the site's file ── over ── default
//! ```
//!
//! A key is the long name of a flag. A flag takes its value from a file if neither the command line nor the environment
//! has that flag or an alternative of it. Files are read once: by commands that start jobs or sessions ([`load`]), and
//! by those about a session that nothing else names ([`session`]); in other commands and in tests there are none.

use crate::flags::table::{self, DECIDED_BY_SESSION, PRELOAD, Parsed, RUN};
use crate::{bounded_file, out};
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use wireup_flags::{Command, Flag, Given, Line, Takes, Value, Words, nearest};

pub const COMMAND: Command = Command {
    name: "config",
    purpose: "show the values that files and the environment give to flags, and where each comes from",
    intro: "
  wireup config

/etc/wireup.toml has defaults for all users, ~/.config/wireup.toml those of a user, who may change any of them:

  remote-shell = \"ssh -q\"        the long name of a flag of wireup run, without dashes
  interface = \"ib0\"
  fanout = 16
  label = true                   a switch; false in the user's file undoes true in the site's
  stage-out = [\"a=>b\", \"c=>d\"]   a flag that can be repeated

  [forbid]                       only in /etc/wireup.toml: flags that are refused, each with the reason
  plain-links = \"links between nodes must be encrypted here\"

The command line takes precedence, then the environment (WIREUP_SESSION, WIREUP_HOSTS), then these files. Flags that
apply to one program of a job (-n, --wdir, --env, -x, --envlist) can be given only on the command line.
",
    words: Words::Named(&[]),
    sections: &[],
    end: "",
};

const SITE: &str = "/etc/wireup.toml";
/// Most bytes of a file. Chosen: a thousand times more than all flags take.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Flags that apply to one program of a job; configuration files cannot set them.
const PER_PROGRAM: [Flag; 4] = [table::RANKS, table::WDIR, table::ENV, table::ENV_LIST];
/// Flags that exclude each other, and the variable that has the same meaning.
const ALTERNATIVES: [(&[Flag], &str); 2] = [
    (&[table::SESSION, table::NO_SESSION], "WIREUP_SESSION"),
    (&[table::HOSTS, table::HOST_FILE, table::VIRTUAL_NODES], "WIREUP_HOSTS"),
];

static LOADED: OnceLock<Configuration> = OnceLock::new();

#[derive(Default, Debug)]
struct Configuration {
    /// The user's settings, then the site's.
    settings: Vec<Setting>,
    forbidden: Vec<Forbidden>,
}

#[derive(Debug)]
struct Setting {
    flag: &'static Flag,
    /// The flag's values, as if it were given once for each of them; empty: a switch that is `false` in the file.
    words: Vec<OsString>,
    /// The place of the setting, `FILE:LINE`.
    from: String,
}

#[derive(Debug)]
struct Forbidden {
    flag: &'static Flag,
    why: String,
    from: String,
}

/// Reads the configuration files, once for this process.
///
/// # Errors
/// A file is wrong or not safe, or the user's file sets what the site forbids.
pub fn load() -> Result<(), String> {
    let mut loaded = Configuration::default();
    if let Some(folder) = wireup_node::user_folder("XDG_CONFIG_HOME", ".config") {
        loaded.read(&folder.join("wireup.toml"), rustix::process::geteuid().as_raw(), false)?;
    }
    let of_user = loaded.settings.len();
    loaded.read(Path::new(SITE), 0, true)?;
    for Setting { flag, from, .. } in &loaded.settings[..of_user] {
        loaded.permit(flag, &format!("{from}: {}", key(flag)))?;
    }
    let _ = LOADED.set(loaded);
    Ok(())
}

/// The command line `line`, completed with the files' values of flags that `command` has and `without` lacks.
///
/// # Errors
/// The line has a flag that the site forbids.
pub fn complete(command: &Command, line: &Line, without: &[Flag]) -> Result<Line, String> {
    let Some(loaded) = LOADED.get() else { return Ok(line.clone()) };
    loaded.complete(command, line, without)
}

/// The value of `session` in the configuration files, which applies to all commands.
///
/// # Errors
/// A file is wrong or not safe, or the value is no text.
pub fn session() -> Result<Option<String>, String> {
    load()?;
    let given = LOADED.get().and_then(|loaded| loaded.given(&table::SESSION).pop());
    Ok(given.map(|given| given.value.text()).transpose()?)
}

/// Adds values from the configuration files to a job that runs in no session: of flags that a session would decide
/// (`DECIDED_BY_SESSION`), or whose values a session would have read from the files itself (`--preload`).
pub fn complete_own(parsed: &mut Parsed) -> Result<(), String> {
    let Some(loaded) = LOADED.get() else { return Ok(()) };
    let of_session = DECIDED_BY_SESSION.iter().chain(&[PRELOAD]);
    for flag in of_session.filter(|flag| parsed.first_given(&[**flag]).is_none()).collect::<Vec<_>>() {
        for given in loaded.given(flag) {
            parsed.write(*flag, &given.value)?;
        }
    }
    Ok(())
}

pub fn run(_: &Line) -> Result<u8, String> {
    load()?;
    let loaded = LOADED.get_or_init(Configuration::default);
    Parsed::read(&loaded.complete(&RUN, &Line::default(), &[])?)?;
    out::print(&loaded.listing(|variable| std::env::var(variable).ok()));
    Ok(0)
}

fn key(flag: &Flag) -> &'static str {
    flag.name().trim_start_matches('-')
}

/// The flags that configuration files can set.
fn flags() -> impl Iterator<Item = &'static Flag> {
    RUN.flags().filter(|flag| !flag.is_hidden() && !PER_PROGRAM.contains(flag))
}

fn find(name: &str) -> Result<&'static Flag, String> {
    if let Some(flag) = flags().find(|flag| flag.names.iter().any(|one| one.strip_prefix("--") == Some(name))) {
        return Ok(flag);
    }
    if PER_PROGRAM.iter().any(|flag| flag.names.iter().any(|one| one.trim_start_matches('-') == name)) {
        return Err(format!("{name} belongs to a program and can only be given on the command line"));
    }
    let hint = nearest(name, flags().map(key)).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    Err(format!("no flag of wireup run is called {name}{hint}"))
}

impl Configuration {
    /// Adds the settings of a file, which belongs to `owner` or to root. A missing file has none.
    fn read(&mut self, path: &Path, owner: u32, is_site: bool) -> Result<(), String> {
        let shown = path.display();
        let opened = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // With another user's home directory the file may be unreadable: it then counts as missing.
            Err(error)
                if !is_site && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotADirectory) =>
            {
                return Ok(());
            }
            opened => opened.and_then(|file| Ok((file.metadata()?, file))),
        };
        let (metadata, file) = opened.map_err(|error| format!("{shown}: {error}"))?;
        // Whoever can write the configuration file decides what this user runs.
        if ![0, owner].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
            let owner = if is_site { "root" } else { "you or root" };
            return Err(format!(
                "{shown} is not used: it must belong to {owner}, and nobody else may write to it (chmod go-w {shown})"
            ));
        }
        let text = bounded_file::read_open(file, FILE_BYTES_MAX).map_err(|problem| format!("{shown}: {problem}"))?;
        let text = String::from_utf8(text).map_err(|_| format!("{shown}: not valid UTF-8"))?;
        self.parse(&text, &shown.to_string(), is_site)
    }

    fn parse(&mut self, text: &str, path: &str, is_site: bool) -> Result<(), String> {
        let at = |at: usize| format!("{path}:{}", text[..at].matches('\n').count() + 1);
        let table = DeTable::parse(text).map_err(|error| {
            format!("{}: {}", at(error.span().map_or(0, |span| span.start)), error.message().trim_end())
        })?;
        for (name, value) in table.get_ref() {
            let from = at(name.span().start);
            match (&**name.get_ref(), value.get_ref()) {
                ("forbid", DeValue::Table(_)) if !is_site => {
                    return Err(format!("{from}: only {SITE} can forbid flags"));
                }
                ("forbid", DeValue::Table(forbidden)) => self.forbid(forbidden, at)?,
                (name, value) => {
                    let setting = find(name).and_then(|flag| Ok((flag, words(flag, value)?)));
                    let (flag, words) = setting.map_err(|problem| format!("{from}: {problem}"))?;
                    self.settings.push(Setting { flag, words, from });
                }
            }
        }
        Ok(())
    }

    fn forbid(&mut self, table: &DeTable<'_>, at: impl Fn(usize) -> String) -> Result<(), String> {
        for (name, why) in table {
            let from = at(name.span().start);
            let flag = find(name.get_ref()).map_err(|problem| format!("{from}: {problem}"))?;
            let why = why.get_ref().as_str().ok_or_else(|| format!("{from}: give the reason in quotes"))?;
            self.forbidden.push(Forbidden { flag, why: why.to_owned(), from });
        }
        Ok(())
    }

    /// # Errors
    /// The site forbids the flag, which messages call `name`.
    fn permit(&self, flag: &Flag, name: &str) -> Result<(), String> {
        match self.forbidden.iter().find(|forbidden| forbidden.flag == flag) {
            Some(Forbidden { why, from, .. }) => Err(format!("{name} is not allowed on this machine: {why} ({from})")),
            None => Ok(()),
        }
    }

    fn complete(&self, command: &Command, line: &Line, without: &[Flag]) -> Result<Line, String> {
        line.given.iter().try_for_each(|given| self.permit(given.flag, &given.value.flag))?;
        let is_decided = |flag: &Flag| {
            let (alternatives, variable) =
                ALTERNATIVES.iter().find(|(flags, _)| flags.contains(flag)).copied().unwrap_or((&[], ""));
            line.has(*flag)
                || alternatives.iter().any(|flag| line.has(*flag))
                || std::env::var_os(variable).is_some_and(|value| !value.is_empty())
        };
        let mut given: Vec<Given> = command
            .flags()
            .filter(|flag| !without.contains(flag) && !is_decided(flag))
            .flat_map(|flag| self.given(flag))
            .collect();
        given.extend_from_slice(&line.given);
        Ok(Line { given, words: line.words.clone() })
    }

    /// The values that the configuration files give a flag, as if they had been typed.
    fn given(&self, flag: &'static Flag) -> Vec<Given> {
        let Some(Setting { words, from, .. }) = self.settings.iter().find(|setting| setting.flag == flag) else {
            return Vec::new();
        };
        let value = |word: &OsString| Value { flag: format!("{from}: {}", key(flag)), word: word.clone() };
        words.iter().map(|word| Given { flag, value: value(word) }).collect()
    }

    fn listing(&self, variable: impl Fn(&str) -> Option<String>) -> String {
        let mut rows: Vec<[String; 3]> = Vec::new();
        for flag in flags() {
            let of = ALTERNATIVES.iter().find(|(flags, _)| flags[0] == *flag).map(|(_, variable)| *variable);
            let set = of.and_then(|name| Some((variable(name).filter(|value| !value.is_empty())?, name)));
            let in_files = self.settings.iter().filter(|setting| setting.flag == flag);
            let in_files = in_files.map(|setting| (setting.shown(), &*setting.from));
            let default = flag.default.map(|value| (value.to_owned(), "default"));
            let all: Vec<(String, &str)> = set.into_iter().chain(in_files).chain(default).collect();
            let Some(((value, from), others)) = all.split_first() else { continue };
            let others = others.iter().map(|(value, from)| format!(", instead of {value} ({from})"));
            rows.push([key(flag).to_owned(), value.clone(), format!("{from}{}", others.collect::<String>())]);
        }
        for Forbidden { flag, why, from } in &self.forbidden {
            rows.push([key(flag).to_owned(), "forbidden".to_owned(), format!("{from}: {why}")]);
        }
        out::table(&rows)
    }
}

impl Setting {
    fn shown(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        match (&self.words[..], self.flag.takes) {
            ([], _) => "false".to_owned(),
            (_, Takes::Nothing) => "true".to_owned(),
            _ => words.join(" "),
        }
    }
}

/// The values of a flag, as the words of a command line.
fn words(flag: &Flag, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    let wants = match flag.takes {
        Takes::Nothing => "true or false",
        Takes::Word(name) | Takes::MaybeNumber(name) | Takes::Attached(name) => name,
    };
    let word = |text: &str| match flag.takes {
        Takes::Nothing => None,
        _ => Some(vec![text.into()]),
    };
    let found = match value {
        DeValue::Array(list) => {
            let each = list.iter().map(|value: &Spanned<DeValue<'_>>| words(flag, value.get_ref()));
            return Ok(each.collect::<Result<Vec<_>, _>>()?.concat());
        }
        DeValue::Boolean(on) => match flag.takes {
            Takes::Word(_) => None,
            _ if !on => Some(Vec::new()),
            Takes::MaybeNumber(_) => Some(vec!["0".into()]),
            Takes::Nothing | Takes::Attached(_) => Some(vec![OsString::new()]),
        },
        DeValue::String(text) => word(text),
        DeValue::Integer(number) => word(&number.to_string()),
        DeValue::Float(number) => word(&number.to_string()),
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    };
    found.ok_or_else(|| format!("{} needs a value: {wants}", key(flag)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    fn configuration(user: &str, site: &str) -> Result<Configuration, String> {
        let mut configuration = Configuration::default();
        configuration.parse(user, "user.toml", false)?;
        configuration.parse(site, "site.toml", true)?;
        Ok(configuration)
    }

    fn line(typed: &str) -> Line {
        RUN.parse(typed.split_whitespace().map(OsString::from)).expect(typed).expect("no help")
    }

    fn completed(user: &str, site: &str, typed: &str) -> Result<Parsed, String> {
        let line = configuration(user, site)?.complete(&RUN, &line(typed), &[])?;
        Ok(Parsed::read(&line)?)
    }

    #[test]
    fn the_command_line_comes_before_the_user_and_the_user_before_the_site() {
        let (user, site) = ("fanout = 4\nlabel = false\n", "fanout = 8\nlabel = true\ninterface = 'ib0'");
        let parsed = completed(user, site, "./a").expect("valid");
        assert_eq!((parsed.fanout, parsed.interface.as_deref()), (Some(4), Some("ib0")));
        assert!(!parsed.options.stdio.label);
        let parsed = completed(user, site, "--fanout 2 --label ./a").expect("valid");
        assert_eq!((parsed.fanout, parsed.options.stdio.label), (Some(2), true));
        assert!(completed("", site, "./a").expect("valid").options.stdio.label);
    }

    #[test]
    fn an_alternative_on_the_command_line_replaces_what_a_file_says() {
        let user = "hosts = ['n0', 'n1']\nsession = 'lab'";
        assert_eq!(completed(user, "", "./a").expect("valid").hosts, ["n0", "n1"]);
        let parsed = completed(user, "", "--virtual-nodes 2 --no-session ./a").expect("valid");
        assert!(parsed.hosts.is_empty() && parsed.session.is_none());
    }

    #[test]
    fn mistakes_name_the_file_and_the_line() {
        let refused = |text: &str| completed(text, "", "./a").expect_err(text);
        let unknown = "user.toml:2: no flag of wireup run is called fan-out; did you mean fanout?";
        assert_eq!(refused("label = true\nfan-out = 3"), unknown);
        assert_eq!(refused("\nfanout = 'x'"), "user.toml:2: fanout x: give a whole number from 1 to 4294967295");
        assert_eq!(refused("fanout = true"), "user.toml:1: fanout needs a value: K");
        assert_eq!(refused("label = 'x'"), "user.toml:1: label needs a value: true or false");
        assert!(refused("wdir = '/'").starts_with("user.toml:1: wdir belongs to a program"));
        assert!(refused("label = true\n= 3").starts_with("user.toml:2: "));
        assert_eq!(refused("[forbid]\nlabel = 'x'"), "user.toml:1: only /etc/wireup.toml can forbid flags");
    }

    #[test]
    fn a_forbidden_flag_is_refused_with_the_reason() {
        let site = "plain-links = false\n[forbid]\nplain-links = 'encrypt here'";
        assert!(completed("", site, "./a").is_ok());
        let refused = completed("", site, "--plain-links ./a").expect_err("forbidden");
        assert_eq!(refused, "--plain-links is not allowed on this machine: encrypt here (site.toml:3)");
    }

    #[test]
    fn every_flag_that_a_session_decides_can_be_added_later() {
        for flag in DECIDED_BY_SESSION {
            let mut parsed = Parsed::default();
            let word = ["1", "yes", "tcp", "ssh-flat", "none"]
                .into_iter()
                .find(|word| parsed.write(*flag, &Value { flag: String::new(), word: word.into() }).is_ok());
            assert!(word.is_some() && parsed.first_given(&[*flag]) == Some(*flag), "{}", flag.name());
        }
    }

    #[test]
    fn the_listing_says_where_each_value_comes_from() {
        let configuration = configuration("fanout = 4", "fanout = 8\nhosts = 'n0'\n[forbid]\nrecord = 'no room'");
        let listing = configuration.expect("valid").listing(|name| (name == "WIREUP_HOSTS").then(|| "n7".into()));
        let row = |key: &str| {
            let line = listing.lines().find(|line| line.split_whitespace().next() == Some(key)).expect(key);
            line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("fanout"), "4 user.toml:1, instead of 8 (site.toml:1)");
        assert_eq!(row("hosts"), "n7 WIREUP_HOSTS, instead of n0 (site.toml:2)");
        assert_eq!(row("record"), "forbidden site.toml:4: no room");
        assert!(row("kill-grace").ends_with(" default"), "{listing}");
    }

    #[test]
    fn a_file_that_others_can_write_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("wireup.toml");
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        let user = rustix::process::geteuid().as_raw();
        let read = |owner| Configuration::default().read(&path, owner, false);
        assert_eq!(read(user), Ok(()), "a missing file");
        fs::write(&path, "label = true").expect("a file");
        for (bits, is_used) in [(0o644, true), (0o664, false), (0o646, false)] {
            mode(bits);
            assert_eq!(read(user).is_ok(), is_used, "{bits:o}");
        }
        mode(0o644);
        if user == 0 {
            chown(&path, Some(61_002), None).expect("its owner");
            assert!(read(user).is_err_and(|problem| problem.contains("must belong to you or root")));
            assert_eq!(read(61_002), Ok(()));
        }
    }
}
