//! `--pty`: one rank on a pseudo-terminal.

use wireup_e2e::Run;
use wireup_e2e::tables::prints;

const IS_TERMINAL: &str = "test -t 0 && echo in; test -t 1 && echo out; test -t 2 && echo err; true";

#[test]
fn one_rank_has_a_terminal_with_pty_and_none_without() {
    prints(
        |script| Run::shell(script).env("IS_TERMINAL", IS_TERMINAL),
        "job -n 2 EACH sh -c \"$IS_TERMINAL\" =>
         job -n 2 EACH --pty sh -c \"$IS_TERMINAL\" | tr -d '\\r' => err, in, out",
    );
}

/// Runs in a real terminal, which the program `script` makes.
#[test]
fn the_ptys_size_is_that_of_the_users_terminal() {
    let Some(script) = wireup_e2e::peers::tool("/usr/bin/script") else { return };
    let inner = "stty rows 33 cols 77; $WIREUP run -n 1 --pty stty size";
    // The input stays open: if it ended, `script` would send the end of file at an unpredictable moment.
    let running = Run::shell(&format!("{} -qec '{inner}' /dev/null", script.display())).stdin_open().start();
    let outcome = running.finish_with_open_stdin().expect_code(0);
    assert_eq!(outcome.out().replace('\r', ""), "33 77\n", "{outcome}");
}

/// Messages of the launcher begin in the first column even if the terminal is in raw mode.
#[test]
fn messages_on_a_raw_terminal_begin_in_the_first_column() {
    let Some(script) = wireup_e2e::peers::tool("/usr/bin/script") else { return };
    let inner = "$WIREUP run -n 1 --pty sh -c \"exit 3\"";
    let running = Run::shell(&format!("{} -qec '{inner}' /dev/null", script.display())).stdin_open().start();
    let said = running.finish_with_open_stdin().expect_code(3).out();
    let ends: Vec<&str> = said.split_inclusive('\n').collect();
    assert!(said.contains("rank 0 on") && ends.iter().all(|line| line.ends_with("\r\n")), "{said:?}");
}

/// With PMIx, ranks are in the kernel session of `wireup run`, so they could have its terminal.
#[test]
fn ranks_do_not_have_the_users_terminal() {
    let Some(script) = wireup_e2e::peers::tool("/usr/bin/script") else { return };
    for pmi in ["simple", "pmix"] {
        let rank = "(: </dev/tty) 2>/dev/null && echo has it || echo has none";
        let inner = format!("(: </dev/tty) && echo user; $WIREUP run -n 1 --pmi {pmi} sh -c \"{rank}\"");
        let running = Run::shell(&format!("{} -qec '{inner}' /dev/null", script.display())).stdin_open().start();
        let outcome = running.finish_with_open_stdin().expect_code(0);
        assert_eq!(outcome.out().replace('\r', ""), "user\nhas none\n", "--pmi {pmi}: {outcome}");
    }
}

/// `wireup run … &` and then `fg`: no signal tells the launcher that it is now in the foreground.
#[test]
fn typed_input_reaches_a_job_brought_to_the_foreground() {
    let Some(script) = wireup_e2e::peers::tool("/usr/bin/script") else { return };
    let Some(bash) = wireup_e2e::peers::tool("/bin/bash") else { return };
    let job = "$WIREUP run -n 1 sh -c 'echo ready; read x; echo got $x'";
    let inner = format!("set -m; {job} & sleep 0.4; fg");
    let line = format!(
        "INNER=\"{}\" {} -qec '{} -c \"$INNER\"' /dev/null",
        inner.replace('$', "\\$"),
        script.display(),
        bash.display()
    );
    let mut running = Run::shell(&line).stdin_open().start_until("ready", 1);
    running.write(b"hello\n");
    running.await_out("got hello", 1);
    running.succeed();
}
