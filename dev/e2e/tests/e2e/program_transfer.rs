//! wireup is sent by ssh to hosts that lack it, only once, into a private folder of the user.

use wireup_e2e::folders;
use wireup_e2e::machines::{self, HiddenCopy, Machines};

/// Reserves shared hosts, after emptying their caches of programs.
fn fresh() -> Option<Machines> {
    let machines = machines::four()?;
    forget(&machines);
    Some(machines)
}

fn forget(machines: &Machines) {
    for host in 0..machines.node_count() {
        machines.ask(host, "rm -rf ~/.cache /tmp/wireup-programs-0 /run/of-user");
    }
}

const HOSTS: [&str; 3] = ["n0", "n1", "n2"];

#[test]
fn wireup_is_sent_once_to_each_host() {
    let Some(machines) = fresh() else { return };
    let hidden = HiddenCopy::new();
    for flags in ["--start ssh-flat", "--fanout 1"] {
        let line = format!("--hosts n[0-2] --verbose {flags} hostname");
        let first = machines.job_of(&hidden.program(), &line).succeed();
        assert_eq!(first.sorted_lines(), HOSTS, "{first}");
        first.expect_err_line(&["wireup was sent to n[0-2]"]);
        for host in 0..3 {
            let found = machines.ask(host, "cd ~/.cache && stat -c '%a %u %F' wireup wireup/* wireup/*/.* wireup/*/*");
            let own = "700 0 directory";
            let lines: Vec<&str> = found.lines().filter(|line| *line != own).collect();
            assert_eq!(lines, ["700 0 regular file"], "n{host}: {found}");
        }
        let second = machines.job_of(&hidden.program(), &line).succeed();
        assert_eq!(second.sorted_lines(), HOSTS, "{second}");
        assert!(!second.err().contains("was sent"), "{second}");
        forget(&machines);
    }
}

/// With `XDG_RUNTIME_DIR`, as a login sets it, and without it, as the hosts' own sshd leaves it.
#[test]
fn one_line_says_where_wireup_is_kept_if_home_directories_take_no_program() {
    let Some(machines) = fresh() else { return };
    let hidden = HiddenCopy::new();
    let shell = hidden.program().with_file_name("shell");
    for (login, kept) in
        [("mkdir -p /run/of-user; export XDG_RUNTIME_DIR=/run/of-user;", "/run/of-user"), (":;", "/tmp")]
    {
        let script = format!("#!/bin/sh\nhost=$1; shift\nexec ssh \"$host\" '{login}' \"$@\"\n");
        folders::write_program(&shell, &script, 0o755);
        (0..2).for_each(|host| drop(machines.ask(host, "touch ~/.cache")));
        let line = format!("--hosts n0,n1 --remote-shell {} hostname", shell.display());
        let first = machines.job_of(&hidden.program(), &line).succeed();
        first.expect_err_line(&["~/.cache/wireup is read-only", "wireup-programs-UID in $XDG_RUNTIME_DIR, /tmp"]);
        assert_eq!(first.err().lines().count(), 1, "{first}");
        let second = machines.job_of(&hidden.program(), &line).succeed();
        assert_eq!(second.err(), "", "{second}");
        (0..2).for_each(|host| drop(machines.ask(host, &format!("test -x {kept}/wireup-programs-0/*/wireup"))));
        forget(&machines);
    }
}

/// Another user may have mounted it, and may claim that it belongs to this user.
#[test]
fn a_cache_for_all_users_is_not_used_if_something_is_mounted_there() {
    let Some(machines) = machines::own(1, |_| ()) else { return };
    let hidden = HiddenCopy::new();
    let cache = "/tmp/wireup-programs-0";
    machines.ask(0, &format!("touch ~/.cache; mkdir {cache}; mount -t tmpfs -o mode=700 none {cache}"));
    machines.job_of(&hidden.program(), "--hosts n0 true").succeed();
    machines.ask(0, &format!("test -x /dev/shm/wireup-programs-0/*/wireup -a -z \"$(ls {cache})\""));
}

#[test]
fn several_names_of_one_host_share_one_sent_program() {
    let Some(machines) = fresh() else { return };
    let hidden = HiddenCopy::new();
    let outcome = machines.job_of(&hidden.program(), "--hosts n0,root@n0,n0-v6 hostname").succeed();
    assert_eq!(outcome.sorted_lines(), ["n0"; 3], "{outcome}");
    assert_eq!(machines.ask(0, "find ~/.cache/wireup -type f | wc -l").trim(), "1");
    forget(&machines);
}

#[test]
fn a_full_disk_on_a_host_is_named() {
    let Some(machines) = machines::own(2, |_| ()) else { return };
    let home = machines.ask(1, "echo ~");
    machines.small_disk(1, &format!("{}/.cache", home.trim()), 1 << 20).expect("mount a small disk");
    let hidden = HiddenCopy::new();
    for flags in ["", "--fanout 1"] {
        let outcome = machines.job_of(&hidden.program(), &format!("--hosts n0,n1 {flags} true")).finish();
        outcome
            .expect_code(125)
            .expect_err_line(&["no agent could be started on 1 of 2 nodes: n1", "No space left", "free some space"]);
        assert_eq!(machines.ask(1, "find ~/.cache -type f"), "", "a partial file was kept");
    }
}

/// A script that replaces the cached program as another user could have done: the replacement must not run.
const PLANTED: &str = "cd ~/.cache/wireup/*/ && printf '#!/bin/sh\\ntouch /run/planted-ran\\nexit 3\\n' >wireup";

#[test]
fn programs_in_a_cache_that_another_user_owns_or_may_write_are_not_run() {
    let Some(machines) = fresh() else { return };
    let hidden = HiddenCopy::new();
    let line = "--hosts n0 hostname";
    // Another user owns first the whole cache, then only the folder of one build, then only the program.
    for theirs in ["~/.cache/wireup", "~/.cache/wireup/*", "~/.cache/wireup/*/wireup"] {
        machines.job_of(&hidden.program(), line).succeed();
        machines.ask(0, &format!("{PLANTED}; chown -R nobody {theirs}; chmod -R 777 ~/.cache/wireup"));
        let outcome = machines.job_of(&hidden.program(), line).finish();
        assert_eq!(machines.ask(0, "ls /run/planted-ran 2>/dev/null || true"), "", "{theirs}: {outcome}");
        if outcome.code() != 0 {
            outcome.expect_code(125).expect_err_line(&["n0", ".cache/wireup"]);
        }
        forget(&machines);
    }
    machines.job_of(&hidden.program(), line).succeed();
    machines.ask(0, "chmod 777 ~/.cache/wireup");
    let outcome = machines.job_of(&hidden.program(), line).finish();
    outcome.expect_code(125).expect_err_line(&["n0", "is writable by others", "chmod 700"]);
    forget(&machines);
}

/// The program of this name that is found on the host is an older release, or an unrelated program.
#[test]
fn another_program_named_wireup_is_not_used() {
    let Some(machines) = machines::own(2, |_| ()) else { return };
    let hidden = HiddenCopy::new();
    let place = machines.path_in_node(0, "/run/wireup-testbed/bin/wireup");
    for fake in [
        "#!/bin/sh\necho wireup-needed x86_64 >&2\nexit 89\n", "#!/bin/sh\necho usage: wireup FILE >&2\nexit 2\n",
        "#!/bin/sh\nexit 1\n", "\u{7f}ELF of another machine\n",
    ] {
        folders::write_program(&place, fake, 0o755);
        let outcome = machines.job_of(&hidden.program(), "--hosts n0,n1 --fanout 1 --verbose hostname").succeed();
        assert_eq!(outcome.sorted_lines(), ["n0", "n1"], "{outcome}");
        outcome.expect_err_line(&["wireup was sent to n[0-1]"]);
        forget(&machines);
    }
}
