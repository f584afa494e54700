//! The command that a remote shell is given: how a node finds wireup's program, or gets it.
//!
//! ```text
//!   plain   PROGRAM agent VERSION                 the place where the launcher's lies; a path that needs quotes: as look
//!   look    exec /bin/sh -c '…'                   in the user's cache, at that place, on the PATH; else 89, "wireup-needed ARCH"
//!   send    exec /bin/sh -c '…' < program         into the cache: private, verified, renamed into place
//! ```
//!
//! The lines are for whatever log-in shell the user has (sh, csh, fish), so they hold no single quote, no `!`, no line end;
//! all else is the business of `/bin/sh`. `[ -O … ]`: what another user put there, is not looked into or run.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use wireup_proto::io::How;
use wireup_proto::{NEEDED, NEEDED_WORDS};
use wireup_wire::peer::PROTOCOL_VERSION;

/// Exit code of a node that could not take the program.
const NOT_TAKEN: u8 = 88;
/// `$XDG_CACHE_HOME` and the home directory are the node's own.
const CACHE: &str = "h=\"${XDG_CACHE_HOME:-$HOME/.cache}\"/wireup";

/// What an agent is called with, so that another version says so before it reads anything.
pub fn version() -> String {
    format!("{}-{PROTOCOL_VERSION}", env!("CARGO_PKG_VERSION"))
}

/// The words behind `… host`. `build` names this very program among others of its version; `digest` is that of its file.
pub fn command(how: How, program: &str, build: &str, digest: Option<&str>) -> Vec<Vec<u8>> {
    command_with(how, program, build, digest, &[&version()])
}

/// The same with other words behind `agent`, the version first. They need no quotes.
pub fn command_with(how: How, program: &str, build: &str, digest: Option<&str>, asked: &[&str]) -> Vec<Vec<u8>> {
    let words = match how {
        How::Plain if is_plain(program) => {
            let asked = asked.iter().map(|&word| word.to_owned());
            [program.to_owned(), "agent".into()].into_iter().chain(asked).collect()
        }
        // A path that a log-in shell could take for something else is given to none.
        How::Plain | How::Look => vec![in_shell(&look(program, build, &asked.join(" ")))],
        How::Send => vec![in_shell(&send(build, digest.unwrap_or_default()))],
    };
    words.into_iter().map(String::into_bytes).collect()
}

fn in_shell(script: &str) -> String {
    debug_assert!(!script.contains(['\'', '!', '\n']), "{script}");
    format!("exec /bin/sh -c '{script}'")
}

fn look(program: &str, build: &str, asked: &str) -> String {
    let places = if is_plain(program) { format!("{program} wireup") } else { "wireup".to_owned() };
    format!(
        "{CACHE}; d=\"$h\"/{build}; p=\"$d\"/wireup; \
         [ -O \"$h\" ] && [ -O \"$d\" ] && [ -O \"$p\" ] && [ -x \"$p\" ] && exec \"$p\" agent {asked}; \
         for p in {places}; do p=$(command -v $p) && [ -x \"$p\" ] && exec \"$p\" agent {asked}; done; \
         echo {NEEDED_WORDS} $(uname -m) >&2; exit {NEEDED}"
    )
}

fn send(build: &str, digest: &str) -> String {
    let arch = std::env::consts::ARCH;
    format!(
        "m=$(uname -m); [ \"$m\" = {arch} ] || {{ echo {NEEDED_WORDS} $m >&2; exit {NEEDED}; }}; \
         umask 077; {CACHE}; d=\"$h\"/{build}; t=\"$d\"/.$(uname -n).$$; mkdir -p \"$d\" && [ -O \"$h\" ] && \
         chmod 700 \"$h\" \"$d\" && cat >\"$t\" && chmod 700 \"$t\" && \"$t\" agent verify {digest} && \
         mv -f \"$t\" \"$d\"/wireup && exit 0; rm -f \"$t\"; echo could not keep wireup in \"$h\" >&2; exit {NOT_TAKEN}"
    )
}

/// Whether a shell takes a path for one word that means itself.
fn is_plain(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@%,:=".contains(&byte))
}

/// A digest of a program's file: what was sent is what arrived.
pub fn digest(program: &mut impl std::io::Read) -> std::io::Result<String> {
    use blake2::Digest;
    let mut hasher = blake2::Blake2s256::new();
    std::io::copy(program, &mut hasher)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a program that lies in the cache is the user's own: nobody else may have put it there.
pub fn check_place(program: &Path, user: u32) -> Result<(), String> {
    let Some(cache) = program.ancestors().nth(2).filter(|cache| cache.ends_with("wireup")) else {
        return Ok(());
    };
    match std::fs::metadata(cache) {
        Ok(meta) if meta.uid() == user && meta.mode() & 0o022 == 0 => Ok(()),
        Ok(_) if cache.ends_with(".cache/wireup") => {
            Err(format!("{} may be written by others: chmod 700 it, or remove it", cache.display()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Programs of other builds that nobody brought anew for this long are removed from the cache.
const OLD: Duration = Duration::from_secs(30 * 24 * 3600);

/// Removes old builds beside the program that is running from the cache. What cannot be removed stays.
pub fn forget_old() {
    let Ok(program) = std::env::current_exe() else { return };
    let Some(cache) = program.ancestors().nth(2).filter(|cache| cache.ends_with("wireup")) else { return };
    let is_old = |path: &Path| {
        let modified = std::fs::metadata(path.join("wireup")).and_then(|meta| meta.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > OLD))
    };
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let path = entry.path();
        if is_old(&path) {
            let _ = std::fs::remove_file(path.join("wireup"));
            let _ = std::fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output, Stdio};

    const BUILD: &str = "0123abcd";

    struct Place(std::path::PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let home = std::env::temp_dir().join(format!("wireup-remote-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&home);
            std::fs::create_dir_all(&home).unwrap();
            Place(home)
        }

        /// As a log-in shell would run it, with `stdin` from a file.
        fn run(&self, shell: &str, words: &[Vec<u8>], stdin: &str) -> Output {
            let line = String::from_utf8(words.join(&b' ')).unwrap();
            let input = self.0.join("input");
            std::fs::write(&input, stdin).unwrap();
            let mut command = Command::new(shell);
            command.args(["-c", &line]).env_remove("XDG_CACHE_HOME").env("HOME", &self.0).env("PATH", "/usr/bin:/bin");
            command.stdin(Stdio::from(std::fs::File::open(input).unwrap())).output().unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A program that knows `agent verify DIGEST` and `agent VERSION`.
    const PROGRAM: &str =
        "#!/bin/sh\n[ \"$2\" = verify ] && exit $(test \"$3\" = right; echo $?)\necho \"$0\" \"$@\"\n";

    #[test]
    fn a_node_without_it_says_so_takes_it_and_finds_it_again() {
        for shell in ["sh", "bash"] {
            let home = Place::new(shell);
            let look = command(How::Look, "/nowhere/wireup", BUILD, None);
            let out = home.run(shell, &look, "");
            assert_eq!(out.status.code(), Some(i32::from(NEEDED)));
            assert!(String::from_utf8_lossy(&out.stderr).contains(NEEDED_WORDS));

            let wrong = home.run(shell, &command(How::Send, "/nowhere/wireup", BUILD, Some("wrong")), PROGRAM);
            assert_eq!(wrong.status.code(), Some(i32::from(NOT_TAKEN)));
            let kept = home.0.join(".cache/wireup").join(BUILD);
            assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 0, "nothing unverified is kept");

            let right = home.run(shell, &command(How::Send, "/nowhere/wireup", BUILD, Some("right")), PROGRAM);
            assert!(right.status.success(), "{right:?}");
            assert_eq!(std::fs::metadata(kept.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
            let out = home.run(shell, &look, "");
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert_eq!(said.trim(), format!("{} agent {}", kept.join("wireup").display(), version()));
        }
    }

    #[test]
    fn the_launchers_place_is_looked_at_before_the_path() {
        let home = Place::new("place");
        let program = home.0.join("wireup");
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let out = home.run("sh", &command(How::Look, program.to_str().unwrap(), BUILD, None), "");
        assert!(String::from_utf8_lossy(&out.stdout).starts_with(program.to_str().unwrap()), "{out:?}");
    }

    #[test]
    fn strange_paths_are_not_given_to_a_shell() {
        for path in ["/a b/wireup", "/a'b/wireup", "/$(reboot)/wireup", "/a;b", "/ü"] {
            for how in [How::Plain, How::Look, How::Send] {
                let words = command(how, path, BUILD, Some("right"));
                assert!(!String::from_utf8(words.join(&b' ')).unwrap().contains(path), "{path}");
            }
        }
    }

    #[test]
    fn where_the_launchers_place_is_strange_the_path_is_searched_at_once() {
        let plain = command(How::Plain, "/opt/wireup", BUILD, None);
        assert_eq!(plain, [b"/opt/wireup".to_vec(), b"agent".to_vec(), version().into_bytes()]);
        let home = Place::new("strange");
        let out = home.run("sh", &command(How::Plain, "/a b;touch x/wireup", BUILD, None), "");
        assert_eq!(out.status.code(), Some(i32::from(NEEDED)), "{out:?}");
    }

    #[test]
    fn a_cache_that_others_may_write_is_refused() {
        let home = Place::new("mode");
        let build = home.0.join(".cache/wireup").join(BUILD);
        std::fs::create_dir_all(&build).unwrap();
        let cache = build.parent().unwrap();
        let mode = |mode| std::fs::set_permissions(cache, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let user = rustix::process::geteuid().as_raw();
        mode(0o700);
        assert_eq!(check_place(&build.join("wireup"), user), Ok(()));
        mode(0o777);
        assert!(check_place(&build.join("wireup"), user).unwrap_err().contains("chmod 700"));
        assert_eq!(check_place(Path::new("/usr/bin/wireup"), user), Ok(()));
    }
}
