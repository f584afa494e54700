//! `wireup stacks`: a separate process that takes the call stacks of an agent's ranks, so that a tool that hangs or
//! needs much memory does not delay the agent.
//!
//! ```text
//!   agent ── RANK:PID... ──► wireup stacks ── py-spy, eu-stack or gdb, one for each rank, few at a time
//!     ◄──── folded stacks ────────┘            ends with all tools when its standard input is closed
//! ```
//!
//! Each tool may run for [`TOOL_MAX`], all tools together for [`STACKS_NS_MAX`]. For a rank that runs Python, the stack
//! shows the Python functions. In a process with several threads only the first thread is shown. Calls inside an MPI
//! function are omitted: ranks that wait for the same thing would differ in them from moment to moment.
//!
//! With Yama (`kernel.yama.ptrace_scope` 1) a process may be traced only by its ancestors, and by a process that it
//! named with `PR_SET_PTRACER` and that process's descendants. Each rank names its agent before it executes its program
//! (`wireup_os::spawn`).

use crate::agent::tail::Stream;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use wireup_os::process::{is_stopped, kill};
use wireup_os::reactor::Reactor;
use wireup_os::socket;
use wireup_wire::ids::Rank;
use wireup_wire::limits::{STACK_CALL_LEN_MAX, STACK_CALLS_MAX, STACKS_NS_MAX};
use wireup_wire::peer::{self, Calls, Stack, folded};
use wireup_wire::signal::SIGCONT;

/// Longest time for one tool. Chosen: gdb takes one or two seconds for a program with many libraries.
const TOOL_MAX: Duration = Duration::from_secs(5);
/// Number of tools that run at the same time: each may take a CPU from a rank.
const TOOLS_AT_ONCE: usize = 4;
/// Most bytes of a tool's output that are read.
const ANSWER_LEN_MAX: usize = 256 << 10;
/// Prefixes of the names of communication functions; calls inside such a function are not shown.
const COMMUNICATION: [&str; 6] = ["MPI_", "PMPI_", "mpi_", "pmpi_", "PMIx_", "shmem_"];
/// Shells, which run another program and wait for it: the stack of that program is shown instead.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// A tool that prints the call stack of a process.
struct Tool {
    name: &'static str,
    args: fn(u32) -> Vec<String>,
    read: fn(&str) -> Vec<String>,
}

const PYTHON: Tool =
    Tool { name: "py-spy", args: |pid| ["dump", "--pid", &pid.to_string()].map(String::from).into(), read: of_py_spy };

const NATIVE: [Tool; 2] = [
    Tool { name: "eu-stack", args: |pid| ["-1", "-p", &pid.to_string()].map(String::from).into(), read: of_eu_stack },
    Tool {
        name: "gdb",
        args: |pid| ["-nx", "-batch", "-ex", "bt", "-p", &pid.to_string()].map(String::from).into(),
        read: of_gdb,
    },
];

/// Takes the stacks of ranks, given as words `RANK:PID`, and writes them to standard output.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let processes = args.filter_map(|word| {
        let (rank, pid) = word.to_str()?.split_once(':')?;
        Some((Rank(rank.parse().ok()?), pid.parse().ok()?))
    });
    // All tools are in this process's group, which `StackTaker` has created, and are killed with it.
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = rustix::process::kill_current_process_group(rustix::process::Signal::KILL);
    });
    let stacks = take(processes.collect());
    let mut out = io::stdout();
    u8::from(out.write_all(&peer::encode(&stacks)).and_then(|()| out.flush()).is_err())
}

fn take(processes: VecDeque<(Rank, u32)>) -> Vec<Stack> {
    let until = Instant::now() + Duration::from_nanos(STACKS_NS_MAX);
    let queue = Mutex::new(processes);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, stacks) = mpsc::channel();
    std::thread::scope(|scope| {
        for sender in vec![sender; TOOLS_AT_ONCE] {
            scope.spawn(move || {
                while let Some((rank, pid)) = next() {
                    let _ = sender.send(Stack { ranks: vec![rank], calls: calls(innermost(pid), until) });
                }
            });
        }
        folded(stacks)
    })
}

/// The process whose stack is of interest to the user: if `pid` is a shell that waits for its only child, that child.
pub fn innermost(pid: u32) -> u32 {
    let is_shell = SHELLS.iter().any(|shell| program_name(pid) == *shell);
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    match children.split_whitespace().collect::<Vec<_>>()[..] {
        [child] if is_shell => child.parse().map_or(pid, innermost),
        _ => pid,
    }
}

/// The file name of the program that a process executes; empty if it cannot be determined.
fn program_name(pid: u32) -> OsString {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    exe.file_name().unwrap_or_default().to_owned()
}

fn calls(pid: u32, until: Instant) -> Calls {
    let is_python = program_name(pid).as_bytes().starts_with(b"python");
    let mut why_not = None;
    for tool in [PYTHON].iter().filter(|_| is_python).chain(&NATIVE) {
        match tool.call(pid, until) {
            Ok(calls) => return Ok(calls),
            Err(Failed::NotInstalled) => {}
            Err(Failed::Because(why)) => drop(why_not.get_or_insert(why)),
        }
    }
    Err(why_not.unwrap_or_else(|| "neither eu-stack nor gdb is installed; install elfutils or gdb".into()))
}

enum Failed {
    NotInstalled,
    Because(String),
}

impl Tool {
    fn call(&self, pid: u32, until: Instant) -> Result<Vec<String>, Failed> {
        let now = Instant::now();
        if now >= until {
            return Err(Failed::Because("the stacks of other ranks have taken too long".into()));
        }
        let was_stopped = wireup_os::process::is_stopped(pid);
        match self.answer(pid, (now + TOOL_MAX).min(until)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failed::NotInstalled),
            Err(error) => {
                // A tool that was killed may have left the process stopped.
                if !was_stopped {
                    let _ = wireup_os::process::kill(pid, SIGCONT);
                }
                Err(Failed::Because(format!("{}: {error}", self.name)))
            }
            Ok((answer, said)) => {
                let mut calls = of_interest((self.read)(&answer));
                calls.truncate(STACK_CALLS_MAX);
                calls.iter_mut().for_each(|call| *call = call.chars().take(STACK_CALL_LEN_MAX).collect());
                if calls.is_empty() { Err(Failed::Because(self.why_not(&said))) } else { Ok(calls) }
            }
        }
    }

    /// What the tool has written to its standard output and standard error.
    fn answer(&self, pid: u32, until: Instant) -> io::Result<(String, String)> {
        let mut command = Command::new(self.name);
        command.args((self.args)(pid)).env("PATH", path_for(pid)).current_dir("/");
        // Without this, the tool may fetch debug information from the network (debuginfod).
        command.env_remove("DEBUGINFOD_URLS");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Both streams are read at the same time: the tool blocks while either pipe is full.
        let read = std::thread::scope(|scope| {
            let said = scope.spawn(|| stderr.map_or(Ok(Vec::new()), |stream| read_all(stream, until)));
            let answer = stdout.map_or(Ok(Vec::new()), |stream| read_all(stream, until));
            Ok((answer?, said.join().unwrap_or_else(|_| Ok(Vec::new()))?))
        });
        if read.is_err() {
            let _ = child.kill();
        }
        match (read, child.wait()?.signal()) {
            (Ok(_), Some(signal)) => Err(io::Error::other(format!("it was ended by signal {signal}"))),
            (read, _) => read.map(|(answer, said)| (text(answer), text(said))),
        }
    }

    fn why_not(&self, said: &str) -> String {
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        match scope.trim() {
            "2" | "3" => format!("kernel.yama.ptrace_scope is {}, which forbids it; 1 would permit it", scope.trim()),
            _ => {
                let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it printed no stack");
                format!("{}: {}", self.name, line.trim())
            }
        }
    }
}

/// The `PATH` in which tools are searched. It includes the rank's own, since the rank's environment may have its own
/// Python tools. Only absolute directories are used: others are relative to the working directory, where another user
/// may have put a program of that name.
fn path_for(pid: u32) -> OsString {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let of_rank = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"PATH="));
    let own = std::env::var_os("PATH").unwrap_or_default();
    OsString::from_vec(absolute(own.as_bytes(), of_rank.unwrap_or_default()))
}

/// The absolute folders of two search paths.
fn absolute(first: &[u8], second: &[u8]) -> Vec<u8> {
    let folders = [first, second].into_iter().flat_map(|path| path.split(|byte| *byte == b':'));
    folders.filter(|folder| folder.starts_with(b"/")).collect::<Vec<_>>().join(&b':')
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until the stream ends, at the latest at `until`; the rest of a long text is dropped.
fn read_all(mut stream: impl Read + std::os::fd::AsFd, until: Instant) -> io::Result<Vec<u8>> {
    let (mut text, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        if !socket::wait(&stream, true, false, Some(until.saturating_duration_since(Instant::now())))? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long and was ended"));
        }
        match stream.read(&mut part)? {
            0 => return Ok(text),
            read => text.extend_from_slice(&part[..read.min(ANSWER_LEN_MAX - text.len())]),
        }
    }
}

/// Reads eu-stack's output: `#1 0x00007f1c2a2e7a6e epoll_wait@@GLIBC_2.3.2`.
fn of_eu_stack(answer: &str) -> Vec<String> {
    let calls = answer.lines().filter(|line| line.starts_with('#'));
    calls.map(|line| named(line.split_whitespace().nth(2).unwrap_or_default())).collect()
}

/// Reads gdb's output: `#1 0x00007f1c2a2e7a6e in epoll_wait (epfd=3) from /lib/libc.so.6`; inlined calls lack the
/// address.
fn of_gdb(answer: &str) -> Vec<String> {
    let calls = answer.lines().filter(|line| line.starts_with('#'));
    calls
        .map(|line| {
            let text = line.split_once(' ').map_or("", |(_, text)| text.trim_start());
            let text = text.strip_prefix("0x").and_then(|text| text.split_once(" in ")).map_or(text, |(_, text)| text);
            named(text.split(" (").next().unwrap_or_default())
        })
        .collect()
}

/// The calls from the outermost communication function to `main`. In programs without symbols, consecutive unnamed
/// calls count as one, and the C library's call of `main` ends the stack.
fn of_interest(mut calls: Vec<String>) -> Vec<String> {
    let main = calls.iter().position(|call| call == "main").map(|main| main + 1);
    let end = main.or_else(|| calls.iter().position(|call| call.starts_with("__libc_start")));
    calls.truncate(end.unwrap_or(calls.len()));
    calls.dedup_by(|call, before| call == "??" && before == "??");
    let communicates = |call: &String| COMMUNICATION.iter().any(|prefix| call.starts_with(prefix));
    let outermost = calls.iter().rposition(communicates).unwrap_or_default();
    calls.split_off(outermost)
}

/// The name of a function without its symbol version.
fn named(function: &str) -> String {
    match function.split('@').next() {
        None | Some("") => "??".to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// Reads py-spy's output: lines such as ` wait (queue.py:171)` below `Thread 7 (idle): "MainThread"`; first thread
/// only.
fn of_py_spy(answer: &str) -> Vec<String> {
    let lines = answer.lines().skip_while(|line| !line.starts_with("Thread")).skip(1);
    lines.take_while(|line| line.starts_with(' ')).map(|line| line.trim().to_owned()).collect()
}

/// Time that the process gets in addition to that of the tools that read the stacks (ns).
const SPARE_NS: u64 = 2_000_000_000;

/// The agent's end of a process `wireup stacks`.
pub struct StackTaker {
    /// The process `wireup stacks`, which ends when its standard input is closed.
    child: Child,
    output: Stream,
    bytes: Vec<u8>,
    ranks: Vec<Rank>,
    /// The ranks' processes that were not stopped when the tools began.
    running: Vec<u32>,
    until_ns: u64,
}

impl StackTaker {
    pub fn start(processes: &[(Rank, u32)], token: u64, now_ns: u64, reactor: &Reactor) -> io::Result<StackTaker> {
        let running = processes.iter().map(|(_, pid)| innermost(*pid)).filter(|pid| !is_stopped(*pid)).collect();
        let words = processes.iter().map(|(rank, pid)| format!("{rank}:{pid}"));
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("stacks")
            .args(words)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let output = child.stdout.take();
        output.iter().try_for_each(|output| fcntl_setfl(output, OFlags::NONBLOCK))?;
        Ok(StackTaker {
            child,
            output: Stream::watched(output.map(Into::into), token, reactor),
            bytes: Vec::new(),
            ranks: processes.iter().map(|(rank, _)| *rank).collect(),
            running,
            until_ns: now_ns + STACKS_NS_MAX + SPARE_NS,
        })
    }

    pub fn deadline_ns(&self) -> u64 {
        self.until_ns
    }

    /// Reads the process's available output. Returns the stacks at the end of the output or at the deadline.
    pub fn read(&mut self, now_ns: u64, reactor: &Reactor) -> Option<Vec<Stack>> {
        self.output.read(reactor, |piece| self.bytes.extend_from_slice(piece));
        if self.output.is_open() && now_ns < self.until_ns {
            return None;
        }
        Some(peer::decode(&self.bytes).unwrap_or_else(|_| failed(&self.ranks, "the process that takes stacks failed")))
    }

    pub fn close(mut self, reactor: &Reactor) {
        self.output.close(reactor);
    }
}

/// The result for `ranks` if no call stack could be taken, with the reason `why`.
pub fn failed(ranks: &[Rank], why: &str) -> Vec<Stack> {
    vec![Stack { ranks: ranks.to_vec(), calls: Err(why.to_owned()) }]
}

/// Ends the process and its tools.
impl Drop for StackTaker {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        // A tool that was killed may have left the rank that it examined stopped.
        if self.output.is_open() {
            self.running.iter().for_each(|pid| drop(kill(*pid, SIGCONT)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tool_is_looked_for_in_the_working_directory() {
        assert_eq!(absolute(b"/bin:.:", b":bin:/usr/bin"), b"/bin:/usr/bin");
        assert_eq!(absolute(b"", b""), b"");
    }

    #[test]
    fn the_answers_of_tools_are_read() {
        let answer = "PID 7 - process\nTID 7:\n#0  0x00007f00 epoll_wait@@GLIBC_2.3.2\n#1  0x00005500 main\n#2 0x00\n";
        assert_eq!(of_eu_stack(answer), ["epoll_wait", "main", "??"]);
        let answer = "[New LWP 9]\n0x00 in epoll_wait () from /lib/libc.so.6\n\
                      #0  0x0000 in epoll_wait (epfd=3, events=0x7f) from /lib/libc.so.6\n\
                      #1  inlined (a=<optimized out>) at a.c:3\n#2  0x55 in std::f(int) (x=1) at b.cc:7\n";
        assert_eq!(of_gdb(answer), ["epoll_wait", "inlined", "std::f(int)"]);
        let answer = "Process 7: python3 a.py\nPython v3.11.2 (/usr/bin/python3)\n\n\
                      Thread 7 (idle): \"MainThread\"\n    stuck (a.py:3)\n    <module> (a.py:5)\n\
                      Thread 8 (active): \"T\"\n    run (t.py:1)\n";
        assert_eq!(of_py_spy(answer), ["stuck (a.py:3)", "<module> (a.py:5)"]);
        let calls = ["poll", "progress", "PMPI_Wait", "MPI_Barrier", "exchange", "main", "_start"].map(String::from);
        assert_eq!(of_interest(calls.to_vec()), ["MPI_Barrier", "exchange", "main"]);
        let stripped = ["nanosleep", "??", "??", "__libc_start_main", "??"].map(String::from);
        assert_eq!(of_interest(stripped.to_vec()), ["nanosleep", "??"]);
        assert_eq!(of_interest(calls[4..].to_vec()), ["exchange", "main"]);
        assert!(of_eu_stack("eu-stack: dwfl_linux_proc_attach pid 7: Operation not permitted").is_empty());
    }

    #[test]
    fn a_tool_that_hangs_is_ended_and_its_process_goes_on() {
        let hangs = Tool { name: "sleep", args: |_| vec!["1000".into()], read: of_gdb };
        let until = Instant::now() + Duration::from_millis(20);
        let Err(Failed::Because(why)) = hangs.call(std::process::id(), until) else { panic!("it hangs") };
        assert_eq!(why, "sleep: it took too long and was ended");
        let Err(Failed::Because(why)) = hangs.call(std::process::id(), until) else { panic!("no time is left") };
        assert!(why.contains("have taken too long"), "{why}");
        let missing = Tool { name: "no-such-tool", ..hangs };
        let until = Instant::now() + Duration::from_secs(60);
        let killed = Tool { name: "sh", args: |_| ["-c", "kill -9 $$"].map(String::from).into(), read: of_gdb };
        let Err(Failed::Because(why)) = killed.call(std::process::id(), until) else { panic!("it is killed") };
        assert_eq!(why, "sh: it was ended by signal 9");
        // Before the stack, the tool writes more to standard error than fits into a pipe.
        let args = |_| ["-c", "head -c 200000 /dev/zero >&2; echo '#0 0x0 main'"].map(String::from).into();
        let says_much = Tool { name: "sh", args, read: of_eu_stack };
        assert_eq!(says_much.call(std::process::id(), until).ok(), Some(vec!["main".to_owned()]));
        assert!(matches!(missing.call(std::process::id(), until), Err(Failed::NotInstalled)));
    }

    #[test]
    fn a_shell_that_waits_is_passed_over() {
        let script = "sh -c 'echo ready; sleep 1000; :'; :";
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
        let find = || fs::read(format!("/proc/{}/comm", innermost(child.id()))).unwrap();
        while find() != b"sleep\n" {
            std::thread::yield_now();
        }
        let pid = innermost(child.id());
        child.kill().unwrap();
        wireup_os::process::kill(pid, wireup_wire::signal::SIGKILL).unwrap();
        child.wait().unwrap();
    }
}
