//! Makes the command given to a remote shell, by which a node finds wireup's program, or receives it.
//!
//! ```text
//!   plain   PROGRAM agent VERSION           the path of the launcher's program; a path that needs quotes: as look
//!   look    exec /bin/sh -c '…'             in the user's caches, at that path, on the PATH;
//!                                           else exit code 89 and "wireup-needed ARCH"
//!   send    exec /bin/sh -c '…' < program   into a cache: private, verified, renamed into place
//! ```
//!
//! The lines must work in any login shell (sh, csh, fish), so they contain no single quote, no `!` and no line end;
//! `/bin/sh` interprets the rest. `own` and `[ -O … ]`: files of another user are not read or run, and neither is a
//! cache that is a symbolic link. The program itself checks, once it runs, who else may write there.

use std::ffi::OsString;
use std::fs::DirEntry;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wireup_proto::io::How;
use wireup_proto::{NEEDED, NEEDED_WORDS, SECOND_CACHE_WORDS};
use wireup_wire::peer::PROTOCOL_VERSION;

/// Exit code by which a node reports that it could not store the program.
const NOT_TAKEN: u8 = 88;
/// The user's caches, evaluated on the node after [`OWN`]. Those after the first are for a home directory where no
/// program can be stored or run: it is read-only, full, or mounted with `noexec`. [`caches`] has the same list.
const CACHES: &str = "\"${XDG_CACHE_HOME:-$HOME/.cache}\"/wireup \
     ${XDG_RUNTIME_DIR:+\"$XDG_RUNTIME_DIR\"/wireup-programs-$u} \
     $(for f in /tmp /dev/shm; do [ -k $f ] && echo $f/wireup-programs-$u; done)";
/// The beginning of the name of a cache after the first.
const SECOND_CACHE: &str = "wireup-programs-";
/// The folders in which every user may create files, and which are tried last.
const SHARED: [&str; 2] = ["/tmp", "/dev/shm"];
/// Defines for a shell: `u`, the user, and `own`, whether the cache `$h` belongs to the user. In a folder with the
/// sticky bit another user may have created `$h`, and may exchange it after its check. So there `$h` must be a
/// directory (no link) of this user with mode 0700 (in hexadecimal, with the type: `41c0`), which nobody else can
/// create or remove. `$h` must also be on the same device as its parent folder: a file system that another user has
/// mounted there can report any owner.
const OWN: &str = "u=$(id -u); own() { [ -k \"${h%/*}\" ] || { [ -L \"$h\" ] && return 1; [ -O \"$h\" ]; return; }; \
     [ \"$(stat -c \"%d %u %f\" \"$h\" 2>/dev/null)\" = \"$(stat -L -c %d \"${h%/*}\" 2>/dev/null) $u 41c0\" ]; };";

/// The folders that [`CACHES`] lists, in the same order. `variable`: reads the environment.
pub fn caches(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let first = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|cache| cache.join("wireup"));
    let is_sticky = |folder: &PathBuf| std::fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o1000 != 0);
    let folders = set("XDG_RUNTIME_DIR").into_iter().chain(SHARED.map(PathBuf::from).into_iter().filter(is_sticky));
    let name = format!("{SECOND_CACHE}{}", rustix::process::geteuid().as_raw());
    first.into_iter().chain(folders.map(|folder| folder.join(&name))).collect()
}

/// The version on the command line of an agent, so that a program of another version reports that before it reads
/// anything.
pub fn version() -> String {
    format!("{}-{PROTOCOL_VERSION}", env!("CARGO_PKG_VERSION"))
}

/// The build id of this program, which names its folder in the cache.
pub fn own_build() -> String {
    wireup_os::build_id::build_id().unwrap_or_else(version)
}

/// Identifies this program: its build id, and a digest of the file that is sent to nodes, computed when it is first
/// sent.
#[derive(Default)]
pub struct OwnProgram {
    build: Option<String>,
    digest: Option<String>,
}

impl OwnProgram {
    /// The words that a remote shell gets after the host. `asked`: the arguments after `agent`.
    pub fn command(&mut self, how: How, program: &str, asked: &[&str]) -> std::io::Result<Vec<Vec<u8>>> {
        if how == How::Send {
            self.digest()?;
        }
        let build = self.build.get_or_insert_with(own_build);
        Ok(command_with(how, program, build, self.digest.as_deref(), asked))
    }

    fn digest(&mut self) -> std::io::Result<&str> {
        if self.digest.is_none() {
            self.digest = Some(digest(&mut std::fs::File::from(crate::sendable::program()?))?);
        }
        Ok(self.digest.as_deref().unwrap_or_default())
    }
}

/// The environment for remote shells: this process's own variables.
pub fn environment() -> Vec<Vec<u8>> {
    std::env::vars_os().map(variable).collect()
}

/// A variable in the form of an environment: `NAME=VALUE`.
pub fn variable((name, value): (OsString, OsString)) -> Vec<u8> {
    [name.into_vec(), value.into_vec()].join(&b'=')
}

/// The words that a remote shell gets after the host. `asked`: the arguments after `agent`, the version first; they
/// need no quotes. `build`: this program's build id, `digest`: that of its file.
fn command_with(how: How, program: &str, build: &str, digest: Option<&str>, asked: &[&str]) -> Vec<Vec<u8>> {
    let words = match how {
        How::Plain if is_plain(program) => {
            let asked = asked.iter().map(|&word| word.to_owned());
            [program.to_owned(), "agent".into()].into_iter().chain(asked).collect()
        }
        // A path that a login shell could interpret is left out; then only the caches and the PATH are searched.
        How::Plain | How::Look => vec![in_shell(&look(program, build, &asked.join(" ")))],
        How::Send => vec![in_shell(&send(build, digest.unwrap_or_default()))],
    };
    words.into_iter().map(String::into_bytes).collect()
}

/// The words for a remote shell that test whether a host runs commands, so that the program could be sent to it. The
/// host answers that it needs the program.
pub fn asking() -> Vec<Vec<u8>> {
    vec![in_shell(&format!("echo {NEEDED_WORDS} $(uname -m) >&2; exit {NEEDED}")).into_bytes()]
}

fn in_shell(script: &str) -> String {
    debug_assert!(!script.contains(['\'', '!', '\n']), "{script}");
    format!("exec /bin/sh -c '{script}'")
}

fn look(program: &str, build: &str, asked: &str) -> String {
    let places = if is_plain(program) { format!("{program} wireup") } else { "wireup".to_owned() };
    format!(
        "{OWN} for h in {CACHES}; do d=\"$h\"/{build}; p=\"$d\"/wireup; \
         own && [ -O \"$d\" ] && [ -O \"$p\" ] && [ -x \"$p\" ] && exec \"$p\" agent {asked}; done; \
         for p in {places}; do p=$(command -v $p) && [ -x \"$p\" ] && exec \"$p\" agent {asked}; done; \
         echo {NEEDED_WORDS} $(uname -m) >&2; exit {NEEDED}"
    )
}

fn send(build: &str, digest: &str) -> String {
    let arch = std::env::consts::ARCH;
    format!(
        "m=$(uname -m); [ \"$m\" = {arch} ] || {{ echo {NEEDED_WORDS} $m >&2; exit {NEEDED}; }}; \
         umask 077; k=; s=; {OWN} for h in {CACHES}; do d=\"$h\"/{build}; t=\"$d\"/.$(uname -n).$$; \
         [ -L \"$h\" ] && {{ [ -k \"${{h%/*}}\" ] || {{ \
         echo cannot store wireup in \"$h\": remove it, it is a symbolic link >&2; exit {NOT_TAKEN}; }}; }}; \
         mkdir -p \"$h\" && own && {{ mkdir -p \"$d\" && chmod 700 \"$h\" \"$d\" && \
         echo >\"$t\" && chmod 700 \"$t\" && [ -x \"$t\" ] && k=1 && break; rm -f \"$t\"; }}; s=1; done; \
         [ -n \"$k\" ] && cat >\"$t\" && chmod 700 \"$t\" && \"$t\" agent verify {digest} && \
         mv -f \"$t\" \"$d\"/wireup && {{ [ -z \"$s\" ] || echo {SECOND_CACHE_WORDS} $SLURMD_NODENAME >&2; exit 0; }}; \
         if [ -n \"$k\" ]; then rm -f \"$t\"; echo cannot store wireup in \"$h\": it did not arrive whole; \
         else echo cannot store wireup in {CACHES}: not yours, not writable, full, or mounted with noexec; fi >&2; \
         exit {NOT_TAKEN}"
    )
}

/// Whether a shell takes a path as one word, unchanged.
fn is_plain(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@%,:=".contains(&byte))
}

/// A digest of a program's file, to check that it arrived as it was sent.
pub fn digest(program: &mut impl std::io::Read) -> std::io::Result<String> {
    use blake2::Digest;
    let mut hasher = blake2::Blake2s256::new();
    std::io::copy(program, &mut hasher)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a program that is in the cache, in the folder named after its build id, is safe there: no one but the user
/// (or root) can have put it there. A program that was deleted, and that an agent has started through `/proc/self/exe`,
/// cannot be exchanged any more.
pub fn check_place(program: &Path, build: &str, user: u32) -> Result<(), String> {
    match (program.parent(), program.ancestors().nth(2)) {
        _ if program.as_os_str().as_bytes().ends_with(b" (deleted)") => Ok(()),
        (Some(folder), Some(cache)) if folder.ends_with(build) => {
            check_folder(cache, user)?;
            check_folder(folder, user)
        }
        _ => Ok(()),
    }
}

/// Checks that only the user can write to a folder. If its parent folder has the sticky bit, the folder must also have
/// mode 0700 and be on the parent's file system, as [`OWN`] asks for.
pub fn check_folder(folder: &Path, user: u32) -> Result<(), String> {
    let shown = folder.display();
    let meta = std::fs::symlink_metadata(folder).map_err(|error| format!("{shown}: {error}"))?;
    if !meta.is_dir() {
        return Err(format!("{shown} is not a directory, or is a symbolic link; remove it"));
    }
    if meta.uid() != user && meta.uid() != 0 {
        return Err(format!("{shown} belongs to another user (uid {}); remove it", meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(format!("{shown} is writable by others; run chmod 700 on it, or remove it"));
    }
    let parent = folder.parent().and_then(|parent| std::fs::metadata(parent).ok());
    match parent.filter(|parent| parent.mode() & 0o1000 != 0) {
        Some(parent) if parent.dev() != meta.dev() => Err(format!("{shown} is a file system of its own; unmount it")),
        Some(_) if meta.mode() & 0o777 != 0o700 => Err(format!("{shown} is open to others; run chmod 700 on it")),
        _ => Ok(()),
    }
}

/// Age from which programs of other builds are removed from the cache; sending a program again makes its file new.
const OLD: Duration = Duration::from_secs(30 * 24 * 3600);
/// Age from which temporary files in the cache are taken for leftovers of interrupted transfers, and removed.
const LEFT_OVER: Duration = Duration::from_secs(24 * 3600);

/// Removes old builds and leftovers of interrupted transfers from the cache in which this program lies.
pub fn forget_old() {
    let Ok(program) = std::env::current_exe() else { return };
    let is_cache = |name: &str| name == "wireup" || name.starts_with(SECOND_CACHE);
    let cache = program.ancestors().nth(2);
    let cache = cache.filter(|cache| cache.file_name().and_then(|name| name.to_str()).is_some_and(is_cache));
    cache.into_iter().for_each(forget_old_in);
}

/// Removes old files in this cache; files that cannot be removed are left.
fn forget_old_in(cache: &Path) {
    for build in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        // Links are skipped: the files that they lead to are not part of the cache.
        if !build.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let mut may_be_empty = is_older(&build, LEFT_OVER);
        for file in std::fs::read_dir(build.path()).into_iter().flatten().flatten() {
            let name = file.file_name();
            let old = match name.as_bytes() {
                b"wireup" => is_older(&file, OLD),
                [b'.', ..] => is_older(&file, LEFT_OVER),
                _ => false,
            };
            may_be_empty |= old && std::fs::remove_file(file.path()).is_ok();
        }
        // Removing fails for a folder that is not empty. A younger empty folder may be about to get its program.
        if may_be_empty {
            let _ = std::fs::remove_dir(build.path());
        }
    }
}

fn is_older(entry: &DirEntry, than: Duration) -> bool {
    let modified = entry.metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > than))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output, Stdio};

    const BUILD: &str = "0123abcd";

    fn command(how: How, program: &str, build: &str, digest: Option<&str>) -> Vec<Vec<u8>> {
        command_with(how, program, build, digest, &[&version()])
    }

    struct RemoteHome(tempfile::TempDir);

    impl RemoteHome {
        /// Makes a home directory with the folders `tmp` and `shm`, which stand for the folders of [`SHARED`].
        fn new() -> RemoteHome {
            let home = RemoteHome(tempfile::tempdir().unwrap());
            for name in ["tmp", "shm"] {
                home.make(name, 0o1777);
            }
            home
        }

        fn make(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            path
        }

        /// Makes a file where a cache would be made: no folder can be made below it.
        fn close(&self, name: &str) {
            std::fs::write(self.0.path().join(name), "").unwrap();
        }

        /// The name of the user's cache in `shared`, which is `tmp`, `shm` or `run`.
        fn cache_in(&self, shared: &str) -> PathBuf {
            self.0.path().join(shared).join(format!("{SECOND_CACHE}{}", rustix::process::geteuid().as_raw()))
        }

        /// Runs the words as a login shell would, with `stdin` from a file.
        fn run(&self, shell: &str, words: &[Vec<u8>], stdin: &str) -> Output {
            let line = String::from_utf8(words.join(&b' ')).unwrap();
            let [tmp, shm] = ["tmp", "shm"].map(|name| self.0.path().join(name).display().to_string());
            let line = line.replace(&SHARED.join(" "), &format!("{tmp} {shm}"));
            let input = self.0.path().join("input");
            std::fs::write(&input, stdin).unwrap();
            let mut command = Command::new(shell);
            command
                .args(["-c", &line])
                .env_remove("XDG_CACHE_HOME")
                .env("XDG_RUNTIME_DIR", self.0.path().join("run"))
                .env("HOME", self.0.path())
                .env("PATH", "/usr/bin:/bin");
            command.stdin(Stdio::from(std::fs::File::open(input).unwrap())).output().unwrap()
        }
    }

    /// A program that accepts `agent verify DIGEST` and `agent VERSION`.
    const PROGRAM: &str =
        "#!/bin/sh\n[ \"$2\" = verify ] && exit $(test \"$3\" = right; echo $?)\necho \"$0\" \"$@\"\n";

    #[test]
    fn a_missing_program_is_requested_verified_and_cached() {
        for shell in ["sh", "bash"] {
            let home = RemoteHome::new();
            let look = command(How::Look, "/nowhere/wireup", BUILD, None);
            let out = home.run(shell, &look, "");
            assert_eq!(out.status.code(), Some(i32::from(NEEDED)));
            assert!(String::from_utf8_lossy(&out.stderr).contains(NEEDED_WORDS));

            let wrong = home.run(shell, &command(How::Send, "/nowhere/wireup", BUILD, Some("wrong")), PROGRAM);
            assert_eq!(wrong.status.code(), Some(i32::from(NOT_TAKEN)));
            let kept = home.0.path().join(".cache/wireup").join(BUILD);
            assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 0, "an unverified program must not be kept");

            let right = home.run(shell, &command(How::Send, "/nowhere/wireup", BUILD, Some("right")), PROGRAM);
            assert!(right.status.success() && right.stderr.is_empty(), "{right:?}");
            assert_eq!(std::fs::metadata(kept.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
            let out = home.run(shell, &look, "");
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert_eq!(said.trim(), format!("{} agent {}", kept.join("wireup").display(), version()));
        }
    }

    #[test]
    fn where_the_home_directory_takes_no_program_another_folder_does() {
        let home = RemoteHome::new();
        let user = rustix::process::geteuid().as_raw();
        // After each turn, one more place is closed.
        for (closed, shared) in [(".cache", "run"), ("run", "tmp"), ("tmp", "shm")] {
            let _ = std::fs::remove_dir_all(home.0.path().join(closed));
            home.close(closed);
            let send = home.run("sh", &command(How::Send, "/nowhere/wireup", BUILD, Some("right")), PROGRAM);
            assert!(send.status.success(), "{send:?}");
            let said = String::from_utf8_lossy(&send.stderr).into_owned();
            assert!(said.lines().any(|line| line == SECOND_CACHE_WORDS), "the user is told: {said}");
            let cache = home.cache_in(shared);
            assert_eq!(check_place(&cache.join(BUILD).join("wireup"), BUILD, user), Ok(()));
            let out = home.run("sh", &command(How::Look, "/nowhere/wireup", BUILD, None), "");
            assert!(String::from_utf8_lossy(&out.stdout).starts_with(cache.to_str().unwrap()), "{out:?}");
            assert_eq!(std::fs::read_dir(cache.join(BUILD)).unwrap().count(), 1, "nothing else is left");
        }
    }

    #[test]
    fn the_caches_are_those_of_the_environment_then_those_in_shared_folders() {
        let of = |set: &'static [(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(one, _)| *one == name).map(|(_, value)| value.into());
            caches(&value).iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let (shared, user) = (of(&[]), rustix::process::geteuid().as_raw());
        assert!(shared.iter().all(|path| SHARED.iter().any(|folder| path.starts_with(folder))), "{shared:?}");
        let named = ["/home/a/.cache/wireup".to_owned(), format!("/run/a/wireup-programs-{user}")];
        assert_eq!(of(&[("HOME", "/home/a"), ("XDG_RUNTIME_DIR", "/run/a")]), [&named, &shared[..]].concat());
        let other = ["/var/a/wireup".to_owned()];
        assert_eq!(of(&[("HOME", "/home/a"), ("XDG_CACHE_HOME", "/var/a")]), [&other, &shared[..]].concat());
    }

    /// In `tmp` lies what another user could have put there; the program is stored in `shm`.
    #[test]
    fn in_a_folder_of_all_users_only_a_private_folder_of_this_user_is_used() {
        const STRANGER: u32 = 61_002;
        let is_root = rustix::process::geteuid().is_root();
        for (what, mode) in [("link", 0o700), ("open", 0o755), ("stranger", 0o700), ("no sticky bit", 0o700)] {
            if what == "stranger" && !is_root {
                println!("SKIPPED: only root can make files of another user");
                continue;
            }
            let home = RemoteHome::new();
            [".cache", "run"].into_iter().for_each(|name| home.close(name));
            let planted = home.make("planted", mode);
            std::fs::create_dir(planted.join(BUILD)).unwrap();
            std::fs::write(planted.join(BUILD).join("wireup"), "#!/bin/sh\necho planted\n").unwrap();
            for path in [planted.join(BUILD).join("wireup"), planted.join(BUILD)] {
                std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
            }
            let cache = home.cache_in("tmp");
            match what {
                "link" => std::os::unix::fs::symlink(&planted, &cache).unwrap(),
                _ => std::fs::rename(&planted, &cache).unwrap(),
            }
            match what {
                "stranger" => std::os::unix::fs::chown(&cache, Some(STRANGER), None).unwrap(),
                "no sticky bit" => {
                    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                    std::fs::set_permissions(home.0.path().join("tmp"), mode).unwrap();
                }
                _ => {}
            }
            let look = home.run("sh", &command(How::Look, "/nowhere/wireup", BUILD, None), "");
            assert_eq!(look.status.code(), Some(i32::from(NEEDED)), "{what}: {look:?}");
            let send = home.run("sh", &command(How::Send, "/nowhere/wireup", "4567", Some("right")), PROGRAM);
            assert!(send.status.success() && !cache.join("4567").exists(), "{what}: {send:?}");
            assert!(home.cache_in("shm").join("4567/wireup").exists(), "{what}");
            let checked = check_folder(&cache, rustix::process::geteuid().as_raw());
            assert_eq!(checked.is_ok(), what == "no sticky bit", "{what}: {checked:?}");
        }
    }

    #[test]
    fn where_no_folder_takes_the_program_nothing_is_stored_or_run() {
        let home = RemoteHome::new();
        for place in ["tmp", "shm"] {
            std::fs::remove_dir(home.0.path().join(place)).unwrap();
        }
        [".cache", "run", "tmp"].into_iter().for_each(|place| home.close(place));
        let program = "#!/bin/sh\necho run\n";
        let send = home.run("sh", &command(How::Send, "/nowhere/wireup", BUILD, Some("right")), program);
        assert_eq!(send.status.code(), Some(i32::from(NOT_TAKEN)), "{send:?}");
        assert!(send.stdout.is_empty(), "{send:?}");
    }

    #[test]
    fn the_launchers_program_path_is_tried_before_the_search_path() {
        let home = RemoteHome::new();
        let program = home.0.path().join("wireup");
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let out = home.run("sh", &command(How::Look, program.to_str().unwrap(), BUILD, None), "");
        assert!(String::from_utf8_lossy(&out.stdout).starts_with(program.to_str().unwrap()), "{out:?}");
    }

    #[test]
    fn paths_with_shell_characters_are_not_given_to_a_shell() {
        for path in ["/a b/wireup", "/a'b/wireup", "/$(reboot)/wireup", "/a;b", "/ü"] {
            for how in [How::Plain, How::Look, How::Send] {
                let words = command(how, path, BUILD, Some("right"));
                assert!(!String::from_utf8(words.join(&b' ')).unwrap().contains(path), "{path}");
            }
        }
    }

    #[test]
    fn with_an_unsafe_launcher_path_only_the_search_path_is_used() {
        let plain = command(How::Plain, "/opt/wireup", BUILD, None);
        assert_eq!(plain, [b"/opt/wireup".to_vec(), b"agent".to_vec(), version().into_bytes()]);
        let home = RemoteHome::new();
        let out = home.run("sh", &command(How::Plain, "/a b;touch x/wireup", BUILD, None), "");
        assert_eq!(out.status.code(), Some(i32::from(NEEDED)), "{out:?}");
    }

    #[test]
    fn a_cache_that_others_may_write_is_refused() {
        for cache in [".cache/wireup", "elsewhere"] {
            let home = RemoteHome::new();
            let build = home.0.path().join(cache).join(BUILD);
            std::fs::create_dir_all(&build).unwrap();
            let cache = build.parent().unwrap();
            let mode = |folder: &Path, mode| {
                std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            };
            let user = rustix::process::geteuid().as_raw();
            let check = |user| check_place(&build.join("wireup"), BUILD, user);
            mode(cache, 0o755);
            mode(&build, 0o700);
            assert_eq!(check(user), Ok(()));
            for folder in [cache, &build] {
                for open in [0o777, 0o720, 0o702] {
                    mode(folder, open);
                    assert!(check(user).unwrap_err().contains("chmod 700"), "{open:o}");
                }
                mode(folder, 0o700);
            }
            let chown = |uid| std::os::unix::fs::chown(&build, Some(uid), None).unwrap();
            if user == 0 {
                chown(12345);
                assert!(check(user).unwrap_err().contains("another user"));
                chown(user);
            } else {
                assert!(check(user + 1).unwrap_err().contains("another user"));
            }
            std::fs::remove_dir(&build).unwrap();
            assert!(check(user).is_err(), "a folder that cannot be examined is not trusted");
            assert_eq!(check_place(&build.join("wireup (deleted)"), BUILD, user), Ok(()));
            assert_eq!(check_place(&build.join("wireup"), "another-build", user), Ok(()), "not in the cache");
        }
        assert_eq!(check_place(Path::new("/usr/bin/wireup"), BUILD, 1), Ok(()));
        assert!(check_folder(Path::new("/proc/self"), 0).unwrap_err().contains("link"));
    }

    #[test]
    fn a_cache_that_is_a_symbolic_link_is_not_used() {
        let home = RemoteHome::new();
        let elsewhere = home.0.path().join("elsewhere");
        let program = elsewhere.join(BUILD).join("wireup");
        std::fs::create_dir_all(home.0.path().join(".cache")).unwrap();
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, home.0.path().join(".cache/wireup")).unwrap();
        let out = home.run("sh", &command(How::Look, "/nowhere/wireup", BUILD, None), "");
        assert_eq!(out.status.code(), Some(i32::from(NEEDED)), "{out:?}");
        let out = home.run("sh", &command(How::Send, "/nowhere/wireup", "4567", Some("right")), PROGRAM);
        assert_eq!(out.status.code(), Some(i32::from(NOT_TAKEN)), "{out:?}");
        assert!(String::from_utf8_lossy(&out.stderr).contains("a symbolic link") && !elsewhere.join("4567").exists());
        // The parent folder of the cache may be a link.
        std::fs::remove_file(home.0.path().join(".cache/wireup")).unwrap();
        std::fs::rename(home.0.path().join(".cache"), home.0.path().join("big")).unwrap();
        std::os::unix::fs::symlink("big", home.0.path().join(".cache")).unwrap();
        let out = home.run("sh", &command(How::Send, "/nowhere/wireup", BUILD, Some("right")), PROGRAM);
        assert!(out.status.success(), "{out:?}");
    }

    #[test]
    fn only_old_builds_and_stale_leftovers_are_removed_from_the_cache() {
        let cache = tempfile::tempdir().unwrap();
        let cache = cache.path();
        let now = std::time::SystemTime::now();
        let put = |path: &str, age: Duration| {
            let path = cache.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = std::fs::File::create(path).unwrap();
            file.set_modified(now - age).unwrap();
        };
        let (old, day, new) = (2 * OLD, 2 * LEFT_OVER, Duration::from_secs(60));
        put("old/wireup", old);
        put("used/wireup", day);
        put("used/.n1.17", day);
        put("used/.n1.18", new);
        put("interrupted/.n1.19", day);
        put("arriving/.n1.20", new);
        put("strange/notes", old);
        std::fs::create_dir(cache.join("begun")).unwrap();
        std::fs::create_dir(cache.join("empty")).unwrap();
        std::fs::File::open(cache.join("empty")).unwrap().set_modified(now - day).unwrap();
        forget_old_in(cache);
        let there = |path: &str| cache.join(path).exists();
        for path in ["old", "used/.n1.17", "interrupted", "empty"] {
            assert!(!there(path), "{path}");
        }
        for path in ["used/wireup", "used/.n1.18", "arriving/.n1.20", "strange/notes", "begun"] {
            assert!(there(path), "{path}");
        }
    }
}
