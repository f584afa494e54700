//! Faults of a machine, of a host and of a command line: each message names the cause, where it is, and the remedy.
//!
//! Each fault is real: a file system without room, an interface that is down, a start-up file of a shell that reads
//! standard input, which it should not.

use std::thread;
use wireup_e2e::machines::{self, HiddenCopy};
use wireup_e2e::peers::{self, skip};
use wireup_e2e::{Outcome, Run};
use xtask::programs::Flavour;

/// A fault that a script makes in namespaces of its own, the exit code of the product, and the parts of its only line
/// on stderr.
struct Row {
    /// The command that runs the script, such as `unshare`: the words before `sh -c`.
    within: &'static str,
    /// Shell script that makes the fault and runs the product.
    script: &'static str,
    code: i32,
    says: &'static [&'static str],
}

const NEVER: &[&str] = &["Success", "ulimit -u", "bootstrap message"];

/// Expects one line of the product with all words of `says`, and none of the guesses in `NEVER` that `says` does not
/// have.
fn expect(outcome: &Outcome, what: &str, says: &[&str]) {
    let line = outcome.expect_err_line(says);
    for guess in NEVER {
        assert!(says.contains(guess) || !line.contains(guess), "{what}: {line}");
    }
}

const ROWS: &[Row] = &[
    Row {
        within: "unshare -m",
        script: "mount -t tmpfs none /dev && exec $WIREUP run -n 2 /bin/true",
        code: 125,
        says: &[
            "the process that runs its ranks has failed: cannot open /dev/null, which every program needs",
            "mknod -m 666 /dev/null",
            "No such file",
        ],
    },
    Row {
        within: "unshare -n",
        script: "exec $WIREUP run -n 4 --virtual-nodes 2 /bin/true",
        code: 125,
        says: &[
            "node1: ", "cannot connect to the parent agent", "the loopback interface of this machine is down",
            "ip link set lo up",
        ],
    },
    Row {
        within: "unshare -m",
        script: "mkdir -p $TMPDIR/full && mount -t tmpfs -o size=4k,mode=700 none $TMPDIR/full && head -c 4096 \
            /dev/zero >$TMPDIR/full/zeros; \
                 WIREUP_RUNTIME_DIR=$TMPDIR/full $WIREUP up --virtual-nodes 2; code=$?; umount $TMPDIR/full; rmdir \
                 $TMPDIR/full; exit $code",
        code: 125,
        says: &["writing into the session's directory ", "/full/", "No space left on device", "free some space there"],
    },
    Row {
        within: "",
        script: "$WIREUP run -n 1 --map-by slot:pe=1000 --dry-run true >&2",
        code: 0,
        says: &["each rank should get 1000 cores, but this machine has only ", "lower pe= in --map-by"],
    },
];

#[test]
fn faults_of_a_machine_are_named_with_their_remedy() {
    let has_namespaces = Run::shell("unshare -mn true").finish().code() == 0;
    for Row { within, script, code, says } in ROWS {
        if !within.is_empty() && !has_namespaces {
            let _ = skip::<()>("no namespaces can be made");
            continue;
        }
        let words = within.split_whitespace().chain(["/bin/sh", "-c", script]).collect::<Vec<_>>();
        let outcome = Run::tool(words[0], &words[1..]).finish().expect_code(*code);
        expect(&outcome, script, says);
    }
}

/// Whatever the limit is, either the session works or the message is about the limit.
#[test]
fn a_low_limit_of_open_files_is_named() {
    let with_limit = |limit: u32| {
        let script = format!(
            "(ulimit -n {limit}; exec $WIREUP up limit{limit} --virtual-nodes 3); code=$?; \
             $WIREUP down --session limit{limit} >/dev/null 2>&1; exit $code"
        );
        let unprivileged = if Run::shell("unshare -r true").finish().code() == 0 { "unshare -r" } else { "env" };
        let words: Vec<&str> = unprivileged.split(' ').chain(["/bin/sh", "-c", &script]).collect();
        let outcome = Run::tool(words[0], &words[1..]).finish();
        if outcome.code() != 0 {
            expect(&outcome, &script, &["open files", "raise", "ulimit -n"]);
        }
    };
    // Some runs wait until their time limits, so all run at the same time.
    thread::scope(|scope| (9..18).for_each(|limit| drop(scope.spawn(move || with_limit(limit)))));
}

#[test]
fn a_pmix_server_without_room_names_the_place() {
    for program in
        [Flavour::OpenMpi4, Flavour::OpenMpi5].into_iter().filter_map(|flavour| peers::program(flavour, "ring"))
    {
        let script = format!(
            "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero >/dev/shm/full; unset TMPDIR; exec \
             $WIREUP run -n 2 {}",
            program.display()
        );
        let outcome = Run::tool("unshare", ["-m", "/bin/sh", "-c", &script]).finish().expect_code(125);
        expect(&outcome, &script, &["its PMIx server", "/dev/shm is full: 0 KiB are free", "free some space there"]);
        assert!(!outcome.err().contains("--pmi simple"), "{outcome}");
    }
}

/// What the start-up file of n0's log-in shell contains (`bashrc`), what a run reports about it, and what `wireup
/// doctor` reports.
struct Shell {
    bashrc: &'static str,
    run: Option<&'static [&'static str]>,
    doctor: &'static [&'static str],
}

const READS: &[&str] =
    &["n0: ", "start message on standard input is not whole", "~/.bashrc must leave standard input alone"];
const ENDS: &[&str] = &["n0: ", "ended without starting an agent", "\"ssh n0 echo ok\" must print ok", "~/.bashrc"];
const FAILS: &[&str] = &["n0: its remote shell exited with code 7", "try \"ssh n0 true\""];

const SHELLS: &[Shell] = &[
    Shell {
        bashrc: "exit 0",
        run: Some(ENDS),
        doctor: &["problem  n0: its remote shell ended without starting an agent", "echo ok"],
    },
    Shell {
        bashrc: "exec true",
        run: Some(ENDS),
        doctor: &["problem  n0: its remote shell ended without starting an agent"],
    },
    Shell {
        bashrc: "read line",
        run: Some(READS),
        doctor: &["problem  n0: ", "start message on standard input is not whole"],
    },
    Shell {
        bashrc: "cat >/dev/null",
        run: Some(READS),
        doctor: &["problem  n0: ", "start message on standard input is not whole"],
    },
    Shell { bashrc: "exit 7", run: Some(FAILS), doctor: &["problem  n0: its remote shell exited with code 7"] },
    Shell { bashrc: "exec >/dev/null", run: None, doctor: &["n0  ok ", "2 hosts: 2 ok"] },
    Shell { bashrc: "exec >/dev/null 2>&1", run: None, doctor: &["n0  ok ", "2 hosts: 2 ok"] },
    Shell { bashrc: "echo hello", run: None, doctor: &["n0  ok ", "2 hosts: 2 ok"] },
];

/// `wireup doctor` reports the faults that also affect a run, and no others.
#[test]
fn faults_of_a_log_in_shell_are_found_by_runs_and_by_the_doctor() {
    let Some(hosts) = machines::own(2, |_| ()) else { return };
    for Shell { bashrc, run, doctor } in SHELLS {
        hosts.ask(0, &format!("echo '{bashrc}' >~/.bashrc"));
        let outcome = hosts.job("--hosts n0,n1").arg("/bin/true").finish();
        match run {
            Some(says) => expect(&outcome.expect_code(125), bashrc, says),
            None => drop(outcome.expect_code(0).expect_quiet()),
        }
        let outcome = hosts.shell("exec $WIREUP doctor --hosts n0,n1").finish().expect_code(run.is_some().into());
        for part in *doctor {
            assert!(outcome.out().contains(part), "{bashrc}: {part:?} is missing in\n{outcome}");
        }
    }
}

/// Neither log-in shell runs a command: `nologin` prints a message, which a run would not show, and `false` prints
/// nothing.
#[test]
fn a_log_in_shell_that_runs_nothing_is_a_problem_for_the_doctor() {
    let Some(hosts) = machines::own(3, |_| ()) else { return };
    let passwd = std::fs::read_to_string("/etc/passwd").expect("this machine has users");
    for (host, shell) in [(0, "/usr/sbin/nologin"), (1, "/bin/false")] {
        let (first, rest) = passwd.split_once('\n').expect("a line for root");
        let (head, _) = first.rsplit_once(':').expect("a shell of root");
        hosts.shadow(host, "/etc/passwd", format!("{head}:{shell}\n{rest}"), 0o644).expect("replace a file");
    }
    let outcome = hosts.shell("exec $WIREUP doctor --hosts n[0-2]").finish().expect_code(1);
    for part in [
        "problem  n[0-1]: its remote shell exited with code 1", "fix: try \"ssh n0 true\"",
        "3 hosts: 1 ok, 2 with problems",
    ] {
        assert!(outcome.out().contains(part), "{part:?} is missing in\n{outcome}");
    }
}

/// On each of three hosts the program cannot be stored, for a different reason.
#[test]
fn a_program_that_cannot_be_stored_was_not_sent() {
    let Some(hosts) = machines::own(3, |_| ()) else { return };
    let hidden = HiddenCopy::new();
    hosts.ask(0, "mkdir -p ~/.cache && mount -t tmpfs -o size=16k none ~/.cache");
    hosts.ask(1, "mkdir -p ~/.cache; for f in ~/.cache /tmp /dev/shm; do mount -t tmpfs -o ro none $f || exit; done");
    let program = hidden.program();
    let outcome = hosts.shell(&format!("exec {} doctor --hosts n[0-2] --send --start-timeout 60", program.display()));
    let outcome = outcome.finish().expect_code(1);
    for part in [
        "problem  n0: ", "No space left", "problem  n1: ", "Read-only file system",
        "note     n2: wireup was sent there", "1 ok",
    ] {
        assert!(outcome.out().contains(part), "{part:?} is missing in\n{outcome}");
    }
}

#[test]
fn a_job_of_slurm_that_does_not_run_is_to_be_unset() {
    let Some(hosts) = machines::with_slurm() else { return };
    let script =
        "SLURM_JOB_ID=777 SLURM_JOB_NODELIST=n[0-1] SLURM_TASKS_PER_NODE='1(x2)' exec $WIREUP run --pmi none /bin/true";
    let outcome = hosts.shell(script).finish().expect_code(125);
    expect(
        &outcome,
        script,
        &["n[0-1]", "Invalid job id", "SLURM_JOB_ID names a job that is not running: unset SLURM_JOB_ID"],
    );
}
