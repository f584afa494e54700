//! A remote shell whose agents have slow links: every byte between such an agent and its parent arrives later by a
//! given delay.
//!
//! wireup runs this program as `wireup-reproduce slow-shell DELAY_NS HOST COMMAND..` and writes the agent's bootstrap
//! message to its standard input. It runs the command on this machine, and replaces the parent's addresses in the
//! message by that of a relay of its own, which forwards bytes after the delay. The agents themselves are unmodified.
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use wireup_wire::peer::{BOOTSTRAP_HEADER_LEN, Bootstrap};

/// The first argument of the remote shell.
pub const WORD: &str = "slow-shell";
/// Maximum number of bytes read at once (chosen).
const CHUNK: usize = 64 << 10;
/// The exit code if the command was killed by a signal.
const EXIT_FAILED: i32 = 125;

/// Runs the remote shell; `args`: the arguments after `WORD`. Exits with the exit code of the command.
pub fn run(args: &[OsString]) -> Result<(), Box<dyn std::error::Error>> {
    let [delay_ns, _host, command @ ..] = args else { return Err("it is called with DELAY_NS HOST COMMAND..".into()) };
    let delay_ns: u64 = delay_ns.to_str().unwrap_or_default().parse()?;
    let mut input = io::stdin().lock();
    let mut header = [0; BOOTSTRAP_HEADER_LEN];
    input.read_exact(&mut header)?;
    let mut body = vec![0; Bootstrap::decode_header(&header)?.body];
    input.read_exact(&mut body)?;
    let mut bootstrap = Bootstrap::decode_body(&body)?;
    bootstrap.parent = vec![relay(bootstrap.parent, Duration::from_nanos(delay_ns))?];

    let line = command.join(OsStr::from_bytes(b" "));
    let mut child = Command::new("/bin/sh").arg("-c").arg(line).stdin(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&bootstrap.encode())?;
    }
    std::process::exit(child.wait()?.code().unwrap_or(EXIT_FAILED))
}

/// Starts a relay, which connects to the first of these addresses that accepts connections; returns the relay's own
/// address.
fn relay(to: Vec<String>, delay: Duration) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for from in listener.incoming().flatten() {
            // If no address accepts, the agent gets no answer, tries again, and finally reports that.
            if let Some(to) = to.iter().find_map(|address| TcpStream::connect(address).ok()) {
                let _ = both_ways(from, to, delay);
            }
        }
    });
    Ok(address)
}

fn both_ways(one: TcpStream, other: TcpStream, delay: Duration) -> io::Result<()> {
    for socket in [&one, &other] {
        socket.set_nodelay(true)?;
    }
    pass_on(one.try_clone()?, other.try_clone()?, delay);
    pass_on(other, one, delay);
    Ok(())
}

/// Forwards the bytes that arrive, each piece after the delay, in two threads, so that waiting pieces do not stop the
/// reading.
fn pass_on(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver): (Sender<(Instant, Vec<u8>)>, Receiver<_>) = channel();
    thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
