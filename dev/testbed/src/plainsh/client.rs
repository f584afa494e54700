//! The client side of the plain remote shell, used like `rsh` and `ssh`: `plainsh HOST COMMAND...`.
//!
//! The words are joined by spaces and passed to `/bin/sh -c` on the host. One thread moves standard input within the
//! daemon's window, the main thread moves output; if standard input is `/dev/null`, there is no second thread.
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::{COMMAND_MAX, Kind, PAYLOAD_MAX, PORT, WINDOW, first_frame, number, put_frame};

/// Exit code for failures of the remote shell itself, as for `ssh`.
pub const FAILED: i32 = 255;
/// Options of rsh and ssh that launchers pass and that are ignored, without and with a value.
const IGNORED: &str = "xXqTt46AakKvCf";
const IGNORED_WITH_VALUE: &str = "olpiFEe";

struct Call {
    host: String,
    command: Vec<u8>,
    no_input: bool,
}

/// Runs one remote command with the standard streams of this process; returns its exit code.
pub fn main(words: Vec<OsString>) -> i32 {
    let call = match parse(words) {
        Ok(call) => call,
        Err(error) => return fail(&error),
    };
    match run(&call) {
        Ok(code) => code,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => FAILED,
        Err(error) => fail(&format!("{}: {error}", call.host)),
    }
}

fn fail(text: &str) -> i32 {
    eprintln!("plainsh: {text}");
    FAILED
}

fn parse(words: Vec<OsString>) -> Result<Call, String> {
    let mut words = words.into_iter();
    let mut no_input = false;
    let host = loop {
        let word = words.next().ok_or("usage: plainsh [-n] [USER@]HOST COMMAND...")?;
        let word = word.into_string().map_err(|word| format!("{}: not a host name", word.to_string_lossy()))?;
        match word.strip_prefix('-').and_then(|rest| rest.chars().next().map(|flag| (flag, rest.len()))) {
            None => break word,
            Some(('n', 1)) => no_input = true,
            Some((flag, 1)) if IGNORED.contains(flag) => {}
            Some((flag, 1)) if IGNORED_WITH_VALUE.contains(flag) => drop(words.next()),
            Some((flag, _)) if IGNORED_WITH_VALUE.contains(flag) => {}
            Some(_) => return Err(format!("{word}: no such option")),
        }
    };
    let command = words.map(OsStringExt::into_vec).collect::<Vec<_>>().join(&b' ');
    match command.len() {
        0 => Err(format!("{host}: which command? There is no interactive shell")),
        1..=COMMAND_MAX => Ok(Call { host: host.rsplit('@').next().unwrap_or(&host).to_owned(), command, no_input }),
        _ => Err(format!("{host}: the command is longer than {COMMAND_MAX} bytes")),
    }
}

fn run(call: &Call) -> io::Result<i32> {
    let mut socket = TcpStream::connect((&*call.host, PORT))?;
    socket.set_nodelay(true)?;
    let no_input = call.no_input || input_is_null();
    let mut hello = Vec::new();
    put_frame(&mut hello, Kind::Command, &call.command);
    if no_input {
        put_frame(&mut hello, Kind::Input, &[]);
    }
    socket.write_all(&hello)?;
    let window = Arc::new(Window { free: Mutex::new(WINDOW), more: Condvar::new() });
    if !no_input {
        let (input, socket, window) = (unbuffered(io::stdin())?, socket.try_clone()?, Arc::clone(&window));
        // The thread ends with the process; if it fails, the connection ends, which the main thread notices.
        std::thread::spawn(move || send_input(input, socket, &window));
    }
    receive(&mut socket, &window)
}

fn input_is_null() -> bool {
    let null = rustix::fs::stat("/dev/null").map(|stat| stat.st_rdev);
    rustix::fs::fstat(io::stdin().as_fd()).is_ok_and(|stat| stat.st_rdev != 0 && Ok(stat.st_rdev) == null)
}

struct Window {
    free: Mutex<usize>,
    more: Condvar,
}

impl Window {
    /// Waits until input may be sent; returns how much.
    fn wait(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *self.more.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = change(*free);
        self.more.notify_one();
    }
}

fn send_input(mut input: File, mut socket: TcpStream, window: &Window) {
    let mut chunk = vec![0; PAYLOAD_MAX];
    let mut frame = Vec::with_capacity(PAYLOAD_MAX + 5);
    loop {
        let limit = window.wait().min(PAYLOAD_MAX);
        // A read error counts as the end of input.
        let length = input.read(&mut chunk[..limit]).unwrap_or(0);
        frame.clear();
        put_frame(&mut frame, Kind::Input, &chunk[..length]);
        window.change(|free| free - length);
        if socket.write_all(&frame).is_err() || length == 0 {
            return;
        }
    }
}

/// A standard stream without the standard library's buffer.
fn unbuffered(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

fn receive(socket: &mut TcpStream, window: &Window) -> io::Result<i32> {
    let (mut output, mut errors) = (unbuffered(io::stdout())?, unbuffered(io::stderr())?);
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 2 * PAYLOAD_MAX];
    loop {
        let length = match socket.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        bytes.extend_from_slice(&chunk[..length]);
        let mut used = 0;
        while let Some((kind, payload, size)) =
            first_frame(&bytes[used..]).map_err(|_| io::Error::other("no plainsh"))?
        {
            match kind {
                Kind::Output => output.write_all(payload)?,
                Kind::Errors => errors.write_all(payload)?,
                Kind::Taken => window.change(|free| free + number(payload) as usize),
                Kind::Exit => return Ok(number(payload) as i32),
                Kind::Failure => return Err(io::Error::other(String::from_utf8_lossy(payload).into_owned())),
                Kind::Command | Kind::Input => return Err(io::Error::other("no plainsh")),
            }
            used += size;
        }
        bytes.drain(..used);
    }
}
