//! Names in `/tmp` and `/dev/shm` that another user has created first.

use wireup_e2e::machines::{self, Machines};
use wireup_e2e::strangers::STRANGER;
use wireup_e2e::wireup;

/// What another user can create at a name: shell commands, for which `$name` is the name.
const SQUATS: [&str; 6] =
    ["mkdir $name", "mkdir -m 777 $name", "touch $name", "ln -s /root $name", "ln -s /nowhere $name", MOUNTED];
/// A directory with a mounted file system that claims that the directory belongs to the user, as a FUSE file system of
/// a stranger can; here it is a tmpfs.
const MOUNTED: &str = "mkdir $name # mounted";

/// Starts a host for this test alone, since the names are those of a whole machine.
fn host() -> Option<Machines> {
    let machines = machines::own(1, |_| ())?;
    // The kernel's own protections of links and files are switched off, because not every machine has them on.
    machines
        .ask(0, "for name in regular symlinks fifos hardlinks; do echo 0 > /proc/sys/fs/protected_$name || true; done");
    Some(machines)
}

/// Runs `script` after another user has created `name`; `$WIREUP` is the path of the product.
fn with_squat(machines: &Machines, squat: &str, name: &str, script: &str) -> String {
    machines.ask(
        0,
        &format!(
            "set -e; export WIREUP={}; unset WIREUP_RUNTIME_DIR XDG_RUNTIME_DIR; rm -rf {name}*
             setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups sh -c 'name={name}; {squat}'
             case '{squat}' in *mounted) mount -t tmpfs -o mode=700 none {name};; esac
             before=$(stat -c '%i %u %Z' {name})
             {script}
             test \"$(stat -c '%i %u %Z' {name})\" = \"$before\"
             case '{squat}' in *mounted) umount {name};; esac; rm -rf {name}*",
            wireup().display()
        ),
    )
}

#[test]
fn sessions_start_and_are_found_wherever_a_stranger_squats() {
    let Some(machines) = host() else { return };
    let session = "$WIREUP up --virtual-nodes 2 2>&1; $WIREUP run --session default -n 2 sh -c 'echo ran'
                   $WIREUP status | grep -c '^session\\|default' >/dev/null; job=$($WIREUP run --session default \
                   --detach -n 1 true)
                   $WIREUP attach $job; $WIREUP down >/dev/null 2>&1; ! ls -d /tmp/wireup-0-* 2>/dev/null";
    for squat in SQUATS {
        let out = with_squat(&machines, squat, "/tmp/wireup-0", session);
        assert_eq!(out.matches("ran\n").count(), 2, "{squat}: {out}");
        let log_in = format!("mkdir -p -m 700 /run/own; export XDG_RUNTIME_DIR=/run/own; {session}");
        let out = with_squat(&machines, squat, "/tmp/wireup-0", &log_in);
        assert_eq!(out.matches("ran\n").count(), 2, "{squat}, with XDG_RUNTIME_DIR: {out}");
    }
}

/// The stranger's entry is removed while the session runs: the session is still found, and a second session can start
/// next to it.
#[test]
fn a_session_is_found_after_the_squatter_has_left() {
    let Some(machines) = host() else { return };
    let script = "$WIREUP up --virtual-nodes 1 2>&1; rm -r /tmp/wireup-0; $WIREUP run --session default -n 1 echo ran
                  $WIREUP up other --virtual-nodes 1 2>&1; $WIREUP run --session other -n 1 echo ran
                  $WIREUP down >/dev/null 2>&1; $WIREUP down --session other >/dev/null 2>&1";
    let out = machines.ask(
        0,
        &format!(
            "set -e; export WIREUP={}; unset WIREUP_RUNTIME_DIR XDG_RUNTIME_DIR; \
         setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups mkdir /tmp/wireup-0; {script}",
            wireup().display()
        ),
    );
    assert_eq!(out.matches("ran\n").count(), 2, "{out}");
}

#[test]
fn files_are_staged_wherever_a_stranger_squats() {
    let Some(machines) = host() else { return };
    for squat in SQUATS {
        let out = with_squat(
            &machines,
            squat,
            "/dev/shm/wireup-stage-0",
            "$WIREUP run --virtual-nodes 2 -n 2 --stage=require /bin/echo ran
             ls -d /dev/shm/wireup-stage-0-*",
        );
        assert!(out.matches("ran\n").count() == 2 && out.contains("/dev/shm/wireup-stage-0-"), "{squat}: {out}");
    }
}
