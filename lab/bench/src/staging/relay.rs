//! One stream of bytes to many hosts in its simplest form: blocking sockets, one buffer, no checks but the number of
//! bytes.
//!
//! Each connection begins with a secret; a caller with another secret is refused. A relay writes the bytes of its
//! caller into a file and to the relays below, and, when the relays below have answered, answers its caller with the
//! number of relays that have the stream, and the length of the stream.
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const BUFFER_LEN: usize = 1 << 18;
/// Time within which a process that connects must send the secret (chosen).
const HELLO_MAX: Duration = Duration::from_secs(2);

/// Starts a relay in a thread, which writes the stream into `out` and ends with it; returns its port. The relays below
/// must have been started before.
pub fn start(secret: &str, mut out: File, below: &[&str]) -> io::Result<u16> {
    let (mut below, secret) = (call(secret, below)?, secret.to_owned());
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = listener.local_addr()?.port();
    let mut relay = move || {
        let mut caller = await_caller(&listener, secret.as_bytes())?;
        let [nodes, bytes] = pass_on(&mut caller, &mut below, Some(&mut out))?;
        caller.write_all([nodes + 1, bytes].map(u64::to_le_bytes).as_flattened())
    };
    thread::spawn(move || relay().unwrap_or_else(|error: io::Error| eprintln!("relay: {error}")));
    Ok(port)
}

/// Sends a file to a relay. Returns the number of relays that have the file, the number of bytes, and the time (s) from
/// the first byte until all have answered.
pub fn send(file: &Path, secret: &str, to: &str) -> io::Result<([u64; 2], f64)> {
    let (mut below, mut input, begin) = (call(secret, &[to])?, File::open(file)?, Instant::now());
    Ok((pass_on(&mut input, &mut below, None)?, begin.elapsed().as_secs_f64()))
}

fn call(secret: &str, addresses: &[&str]) -> io::Result<Vec<TcpStream>> {
    let call = |address: &&str| {
        let mut socket = TcpStream::connect(address)?;
        socket.write_all(secret.as_bytes())?;
        Ok(socket)
    };
    addresses.iter().map(call).collect()
}

fn await_caller(listener: &TcpListener, secret: &[u8]) -> io::Result<TcpStream> {
    loop {
        let (mut socket, mut hello) = (listener.accept()?.0, vec![0; secret.len()]);
        socket.set_read_timeout(Some(HELLO_MAX))?;
        if socket.read_exact(&mut hello).is_ok() && hello == secret {
            socket.set_read_timeout(None)?;
            return Ok(socket);
        }
    }
}

/// Forwards the stream. Returns when all relays below have answered that they have the stream: the number of these
/// relays, and the number of bytes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Scratch;

    #[test]
    fn a_stream_reaches_all_relays_of_those_who_know_the_secret() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let (stream, content) = (scratch.file("stream"), vec![7; BUFFER_LEN + 9]);
        std::fs::write(&stream, &content).unwrap();
        let relay = |name: &str, below: &[&str]| {
            let out = File::create_new(scratch.file(name)).unwrap();
            format!("127.0.0.1:{}", start("secret", out, below).unwrap())
        };
        let last = relay("last", &[]);
        let first = relay("first", &[&last]);
        assert!(send(&stream, "wrong!", &first).is_err());
        assert_eq!(send(&stream, "secret", &first).unwrap().0, [2, content.len() as u64]);
        for name in ["first", "last"] {
            assert_eq!(std::fs::read(scratch.file(name)).unwrap(), content);
        }
    }
}
