//! The bootstrap message of a Slurm step, which srun transfers unencrypted: another user replaces it, or signs a
//! message of his own.
//!
//! A folder in front of the launcher's `PATH`, which only the launcher's host sees, has programs that do what a
//! stranger between launcher and nodes could do.

use rustix::process::{Signal, kill_process};
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::strangers::{Public, STRANGER, can_be_stranger};
use wireup_e2e::{Run, folders};
use xtask::layout;

/// A folder of programs on the launcher's host, in front of its `PATH`. In their text, `$HERE` is this folder, and
/// `PATH` does not contain it.
struct Way {
    machines: Machines,
    folder: Public,
}

impl Way {
    fn new(name: &str) -> Option<Way> {
        Some(Way { machines: machines::with_slurm()?, folder: Public::new(name) })
    }

    fn program(&self, name: &str, text: &str) {
        let here = self.folder.folder().display();
        let text = format!("#!/bin/sh\nHERE={here}\nPATH=${{PATH#*:}}\n{text}\n");
        folders::write_program(&self.folder.folder().join(name), &text, 0o755);
    }

    /// The command for a job on two nodes; `words`: further words for `wireup run`.
    fn job(&self, words: &str) -> Run {
        let here = self.folder.folder().display();
        let script = format!("PATH={here}:$PATH; exec $WIREUP run --pmi simple {words}");
        self.machines.salloc("-N 2 -n 2").args(["sh", "-c", &script])
    }

    fn has(&self, file: &str) -> bool {
        self.folder.folder().join(file).exists()
    }
}

/// A message from the recorded messages of the wire format.
fn recorded(name: &str) -> Vec<u8> {
    let record = layout::root().join("crates/wire/tests/golden/messages.txt");
    let record = std::fs::read_to_string(record).expect("the record of messages");
    let digits = record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).expect("the message");
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn a_credential_that_another_user_has_made_is_refused() {
    if !can_be_stranger() {
        return;
    }
    let Some(way) = Way::new("munge") else { return };
    way.program("munge", &format!("exec setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups munge \"$@\""));
    let outcome = way.job("touch /tmp/ran").finish().expect_code(125);
    outcome.expect_err_line(&[&format!("munge's credential was made by user {STRANGER}, not by user 0")]);
    assert_eq!(way.machines.ask(0, "ls /tmp/ran 2>/dev/null; true"), "");
}

/// Every user can write a message that is not sealed, with jobs and a secret of his own.
#[test]
fn a_message_in_the_place_of_a_sealed_one_is_refused() {
    let Some(way) = Way::new("replaced") else { return };
    for message in ["bootstrap probe", "bootstrap whole"] {
        std::fs::write(way.folder.folder().join("forged"), recorded(message)).expect("write the message");
        way.program("srun", "exec srun \"$@\" <$HERE/forged");
        let outcome = way.job("uname -n").finish().expect_code(125);
        outcome.expect_err_line(&["the start message is not sealed, although"]);
    }
}

#[test]
fn a_changed_or_repeated_message_is_refused_and_nothing_in_it_can_be_read() {
    let Some(way) = Way::new("recorded") else { return };
    // The bootstrap message is written at once; lines follow it only from agents with children.
    way.program("srun", "dd bs=1M count=1 of=$HERE/recorded 2>/dev/null; srun \"$@\" <$HERE/recorded");
    way.job("sh -c 'echo $READABLE' READABLE-WORD").env("READABLE", "READABLE-VALUE").succeed();
    let recorded = std::fs::read(way.folder.folder().join("recorded")).expect("read the message");
    let reads = |word: &[u8]| recorded.windows(word.len()).any(|part| part == word);
    assert!(reads(b"MUNGE:") && !reads(b"READABLE"), "{}", String::from_utf8_lossy(&recorded));

    way.program("srun", "exec srun \"$@\" <$HERE/recorded");
    let outcome = way.job("uname -n").finish().expect_code(125);
    outcome.expect_err_line(&["sealed with munge: unmunge: Replayed credential"]);

    let change = "dd bs=1M count=1 of=$HERE/whole 2>/dev/null; cd $HERE
        { head -c 400 whole; printf X; tail -c +402 whole; } >changed; exec srun \"$@\" <changed";
    way.program("srun", change);
    let outcome = way.job("uname -n").finish().expect_code(125);
    outcome.expect_err_line(&["sealed with munge: it was changed on its way"]);
}

/// Every user can keep munge from answering for a while: that must not make the launcher send a message unencrypted,
/// unless the user permits it.
#[test]
fn a_job_whose_munge_fails_does_not_send_its_secret_in_the_clear() {
    let Some(way) = Way::new("failing") else { return };
    way.program("munge", "echo no munged here >&2; exit 3");
    way.program("srun", "touch $HERE/called; exec srun \"$@\"");
    let outcome = way.job("uname -n").finish().expect_code(125);
    outcome.expect_err_line(&["cannot be sealed for srun", "munge: no munged here", "--plain-links"]);
    assert!(!way.has("called"), "{outcome}");
    let outcome = way.job("--plain-links -v uname -n").succeed();
    outcome.expect_err_line(&["travel through srun in the clear", "munge: no munged here"]);
}

/// The launcher continues while munge does not answer: if the job is ended in the meantime, the launcher starts no
/// step.
#[test]
fn a_munge_that_does_not_answer_holds_nothing_up() {
    let Some(way) = Way::new("silent") else { return };
    way.program("munge", "touch $HERE/asked; exec sleep 1000");
    way.program("srun", "touch $HERE/called; exec srun \"$@\"");
    let mut running = way.job("uname -n").start();
    running.await_that("munge was asked", |_| way.has("asked"));
    let salloc = running.pid().as_raw_pid();
    let launcher = running.processes().into_iter().find(|process| process.parent == salloc).expect("wireup runs");
    kill_process(launcher.pid, Signal::INT).expect("signal the launcher");
    running.await_that("the launcher has heard it", |running| running.err_text().contains("press Ctrl-C again"));
    kill_process(launcher.pid, Signal::TERM).expect("signal the launcher");
    running.finish().expect_code(130);
    assert!(!way.has("called"), "the step was called after the job had ended");
}
