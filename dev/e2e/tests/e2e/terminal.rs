//! `--pty`: one rank on a pseudo-terminal.

use wireup_e2e::peers::tool;
use wireup_e2e::tables::prints;
use wireup_e2e::{Run, Running};

const IS_TERMINAL: &str = "test -t 0 && echo in; test -t 1 && echo out; test -t 2 && echo err; true";

#[test]
fn one_rank_has_a_terminal_with_pty_and_none_without() {
    prints(
        |script| Run::shell(script).env("IS_TERMINAL", IS_TERMINAL),
        "job -n 2 EACH sh -c \"$IS_TERMINAL\" =>
         job -n 2 EACH --pty sh -c \"$IS_TERMINAL\" | tr -d '\\r' => err, in, out",
    );
}

/// Starts a shell script in a real terminal, which the program `script` makes. The input stays open: if it ended,
/// `script` would send the end of file at an unpredictable moment.
fn in_terminal(inner: &str) -> Option<Running> {
    let script = tool("/usr/bin/script")?;
    let run = Run::tool(&script.display().to_string(), ["-qec", inner, "/dev/null"]);
    Some(run.stdin_open().start())
}

#[test]
fn the_ptys_size_is_that_of_the_users_terminal() {
    let inner = "stty rows 33 cols 77; $WIREUP run -n 1 --pty stty size";
    let Some(running) = in_terminal(inner) else { return };
    let outcome = running.finish_with_open_stdin().expect_code(0);
    assert_eq!(outcome.out().replace('\r', ""), "33 77\n", "{outcome}");
}

/// Messages of the launcher begin in the first column even if the terminal is in raw mode.
#[test]
fn messages_on_a_raw_terminal_begin_in_the_first_column() {
    let Some(running) = in_terminal("$WIREUP run -n 1 --pty sh -c 'exit 3'") else { return };
    let said = running.finish_with_open_stdin().expect_code(3).out();
    let ends: Vec<&str> = said.split_inclusive('\n').collect();
    assert!(said.contains("rank 0 on") && ends.iter().all(|line| line.ends_with("\r\n")), "{said:?}");
}

/// With PMIx, ranks are in the kernel session of `wireup run`, so they could have its terminal.
#[test]
fn ranks_do_not_have_the_users_terminal() {
    for pmi in ["simple", "pmix"] {
        let rank = "(: </dev/tty) 2>/dev/null && echo has it || echo has none";
        let inner = format!("(: </dev/tty) && echo user; $WIREUP run -n 1 --pmi {pmi} sh -c '{rank}'");
        let Some(running) = in_terminal(&inner) else { return };
        let outcome = running.finish_with_open_stdin().expect_code(0);
        assert_eq!(outcome.out().replace('\r', ""), "user\nhas none\n", "--pmi {pmi}: {outcome}");
    }
}

/// `wireup run … &` and then `fg`: no signal tells the launcher that it is now in the foreground.
#[test]
fn typed_input_reaches_a_job_brought_to_the_foreground() {
    let inner = "exec bash -c 'set -m; $WIREUP run -n 1 sh -c \"echo ready; read x; echo got \\$x\" & sleep 0.4; fg'";
    let Some(mut running) = in_terminal(inner) else { return };
    running.await_out("ready", 1);
    running.write(b"hello\n");
    running.await_out("got hello", 1);
    running.succeed();
}

#[test]
fn a_terminals_input_may_end_in_the_middle_of_a_line() {
    let outcome = Run::job("-n 1 --pty 0").sh("cat >/dev/null; echo done").stdin("abc").finish();
    assert_eq!(outcome.code(), 0, "{outcome}");
}

#[test]
fn a_slow_reader_of_terminal_output_loses_nothing() {
    // More bytes than credit and pipes can hold, so that some bytes are still in the pseudo-terminal when the rank has
    // exited.
    let script =
        "$WIREUP run -n 1 --pty 0 sh -c 'head -c 600000 /dev/zero | tr \"\\0\" x' </dev/null | (sleep 1; wc -c)";
    let outcome = Run::shell(script).succeed();
    assert_eq!(outcome.out().trim(), "600000");
}
