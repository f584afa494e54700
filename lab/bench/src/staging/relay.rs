//! One stream for many hosts in its simplest form: blocking sockets, one buffer, nothing checked but the bytes' number.
//!
//! ```text
//!   stage-relay FILE [ADDRESS:PORT]..          prints its port; writes what one caller sends to FILE and these relays
//!   stage-relay --source FILE ADDRESS:PORT..   sends FILE to these; prints "relayed NODES BYTES NANOSECONDS", from the
//!                                              first byte until all relays have answered that they have everything
//! ```
//!
//! Each connection begins with the secret in the environment; another caller is refused. A relay answers its caller
//! when the relays below have answered, and ends with the process that has started it.
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

/// The first argument of such a process.
pub const WORD: &str = "stage-relay";
/// The variable with the secret.
pub const SECRET: &str = "RELAY_SECRET";
const BUFFER_LEN: usize = 1 << 18;
/// How long a caller may take to show the secret (chosen).
const HELLO_MAX: Duration = Duration::from_secs(2);

/// `args` are those after the word.
///
/// # Errors
/// A connection or the file fails, or a relay below has not everything.
pub fn run(args: &[OsString]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let secret = std::env::var(SECRET).map_err(io::Error::other)?;
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let (is_source, file, below) = match &words[..] {
        ["--source", file, below @ ..] => (true, file, below),
        [file, below @ ..] => (false, file, below),
        [] => return Err(io::Error::other("[--source] FILE [ADDRESS:PORT]..")),
    };
    let call = |address: &&str| {
        let mut socket = TcpStream::connect(address)?;
        socket.write_all(secret.as_bytes())?;
        Ok(socket)
    };
    let mut below: Vec<TcpStream> = below.iter().map(call).collect::<io::Result<_>>()?;
    if is_source {
        let (mut input, begin) = (File::open(file)?, Instant::now());
        let [nodes, bytes] = pass_on(&mut input, &mut below, None)?;
        println!("relayed {nodes} {bytes} {}", begin.elapsed().as_nanos());
        return Ok(());
    }
    let mut caller = await_caller(secret.as_bytes())?;
    let mut out = OpenOptions::new().create_new(true).write(true).mode(0o600).open(file)?;
    let [nodes, bytes] = pass_on(&mut caller, &mut below, Some(&mut out))?;
    caller.write_all([nodes + 1, bytes].map(u64::to_le_bytes).as_flattened())
}

fn await_caller(secret: &[u8]) -> io::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (mut socket, mut hello) = (listener.accept()?.0, vec![0; secret.len()]);
        socket.set_read_timeout(Some(HELLO_MAX))?;
        if socket.read_exact(&mut hello).is_ok() && hello == secret {
            socket.set_read_timeout(None)?;
            return Ok(socket);
        }
    }
}

/// Passes the stream on. Returns when all relays below have answered that they have it: how many they are, and bytes.
fn pass_on(input: &mut impl Read, below: &mut [TcpStream], mut out: Option<&mut File>) -> io::Result<[u64; 2]> {
    let (mut buffer, mut bytes, mut nodes) = (vec![0; BUFFER_LEN], 0, 0);
    loop {
        let length = input.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        below.iter_mut().try_for_each(|socket| socket.write_all(&buffer[..length]))?;
        out.as_mut().map_or(Ok(()), |out| out.write_all(&buffer[..length]))?;
        bytes += length as u64;
    }
    below.iter().try_for_each(|socket| socket.shutdown(Shutdown::Write))?;
    for socket in below {
        let mut answer = [0; 16];
        socket.read_exact(&mut answer)?;
        let (numbers, _) = answer.as_chunks::<8>();
        if u64::from_le_bytes(numbers[1]) != bytes {
            return Err(io::Error::other("a relay below has not everything"));
        }
        nodes += u64::from_le_bytes(numbers[0]);
    }
    Ok([nodes, bytes])
}
