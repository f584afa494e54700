//! Libraries that connect to a rank's agent by the agent's name: another user answers instead of the agent.

use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, ChildStdout, Stdio};
use wireup_e2e::libraries::own;
use wireup_e2e::strangers::{Public, can_be_stranger, stranger};
use wireup_e2e::{Outcome, Run};
use xtask::programs::Flavour;

/// A running program of another user (`dev/programs/plain/impostor.c`).
struct Impostor {
    process: Child,
    said: BufReader<ChildStdout>,
    _folder: Public,
}

impl Impostor {
    /// Starts the program; `None`: this process cannot run programs as another user.
    fn start(test: &str, name: Option<&str>) -> Option<Impostor> {
        if !can_be_stranger() {
            return None;
        }
        let folder = Public::new(test);
        let program = folder.program(&wireup_e2e::peers::program(Flavour::Plain, "impostor").expect("a C compiler"));
        let mut command = stranger(&program);
        command.args(name).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("start the stranger's program");
        let said = BufReader::new(process.stdout.take().expect("a pipe"));
        Some(Impostor { process, said, _folder: folder })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("read from the stranger's program");
        line.trim_end().to_owned()
    }

    /// Ends the impostor, and expects that no library has sent it anything.
    fn expect_deaf(mut self) {
        drop(self.process.stdin.take());
        let left: Vec<String> = (&mut self.said).lines().map_while(Result::ok).collect();
        let status = self.process.wait().expect("wait for the stranger's program");
        assert!(status.success(), "{status}: a library has believed a stranger: {left:?}");
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a program that opens a libwireup context with a name, in a rank whose agent has the name `agent`.
fn joins(agent: &str) -> Run {
    let run = Run::tool("/usr/bin/env", [&format!("WIREUP_AGENT=1:{agent}"), "WIREUP_LOCAL_RANK=0"]);
    run.arg(own("named")).linked()
}

fn expect_not_opened(outcome: Outcome, why: &str) {
    outcome.expect_code(1).expect_out("not opened").expect_out(why);
}

#[test]
fn a_stranger_who_has_taken_the_agents_name_learns_nothing() {
    let name = format!("wireup-further-taken-{}", std::process::id());
    let Some(mut impostor) = Impostor::start("agent-taken", Some(&name)) else { return };
    assert_eq!(impostor.line(), "bound");
    expect_not_opened(joins(&name).finish(), "another user's process");
    impostor.expect_deaf();
}

/// The agent, which this test plays, answers only after the stranger has sent its own answer to the library's socket.
#[test]
fn a_stranger_who_answers_before_the_agent_is_not_heard() {
    let name = format!("wireup-further-slow-{}", std::process::id());
    let agent = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("bind");
    let Some(mut impostor) = Impostor::start("agent-slow", None) else { return };
    let library = joins(&name).start();
    let (_, from) = agent.recv_from(&mut [0; 64]).expect("a library says who it is");
    let tried = format!("tried {}", String::from_utf8_lossy(from.as_abstract_name().expect("the kernel's name")));
    while impostor.line() != tried {}
    // The agent answers that there is no such rank.
    agent.send_to_addr(&[1], &from).expect("answer");
    expect_not_opened(library.finish(), "agent does not answer");
    impostor.expect_deaf();
}

#[test]
fn a_stranger_who_answers_every_library_disturbs_no_job() {
    let Some(impostor) = Impostor::start("agent-flood", None) else { return };
    Run::job("-n 4").linked().arg(own("libraries")).succeed().expect_all_right(4);
    impostor.expect_deaf();
}
