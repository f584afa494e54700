//! The first rank of a job that begins with a process which was started without a launcher (a singleton).
//!
//! MPICH's library starts `mpiexec -pmi_args PORT INTERFACE KEY PID` when such a process needs a server, for
//! `MPI_Comm_spawn` for example, and waits at `PORT` of this machine. This program runs as rank 0: it introduces the
//! process, then passes the lines of both on.

use super::session::Session;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use wireup_client::env::Contact;
use wireup_wire::pmi::Dialect;

/// Time limit for the singleton to accept the connection and to answer; it waits for nothing else meanwhile.
const WAIT: Duration = Duration::from_secs(30);
/// Longest line that is passed on in one piece. The server has a limit of its own.
const LINE_MAX: usize = 1 << 20;

fn broken(error: io::Error) -> String {
    format!("the link of the process that was started without mpiexec: {error}")
}

/// `words`: the words after `singleton`. Returns the exit code.
pub fn main(mut words: impl Iterator<Item = OsString>) -> u8 {
    let port = words.next().and_then(|word| word.to_str()?.parse().ok());
    let port =
        port.ok_or_else(|| "give the port of a process that waits for mpiexec: wireup singleton PORT".to_owned());
    match port.and_then(serve) {
        Ok(()) => 0,
        Err(problem) => {
            crate::out::tell(&problem);
            1
        }
    }
}

fn serve(port: u16) -> Result<(), String> {
    let Ok(Contact::Fd { fd, env }) = Contact::read(|name| std::env::var(name).ok()) else {
        return Err("PMI_FD is not set; MPI_Comm_spawn starts this through mpiexec -pmi_args".to_owned());
    };
    let mut session = Session::open(fd, Dialect::Pmi1, env)?;
    session.start()?;
    let (kvsname, server) = session.into_parts();
    let singleton = connect(port)?;
    introduce(&singleton, &kvsname)?;
    relay(&singleton, &server)
}

fn connect(port: u16) -> Result<TcpStream, String> {
    let unreachable = |error| {
        format!(
            "no process waits at port {port} of this machine ({error}); the first host of the job must be that of the \
             process which was started without mpiexec"
        )
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let link = TcpStream::connect_timeout(&address, WAIT).map_err(unreachable)?;
    let own = link.local_addr().map_err(unreachable)?;
    let table = std::fs::read_to_string("/proc/net/tcp").map_err(unreachable)?;
    // Whoever listens at the port may start processes as this user.
    if owner(&table, port, own.port()) != Some(rustix::process::geteuid().as_raw()) {
        return Err(format!("the process at port {port} of this machine belongs to another user; it is not served"));
    }
    link.set_nodelay(true).map_err(unreachable)?;
    Ok(link)
}

/// The user of the socket at `port` of 127.0.0.1 that is connected to port `to` there, from `/proc/net/tcp`.
fn owner(table: &str, port: u16, to: u16) -> Option<u32> {
    let ends = [port, to].map(|port| format!("{:08X}:{port:04X}", u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets())));
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        (fields.next()? == ends[0] && fields.next()? == ends[1]).then(|| fields.nth(4)?.parse().ok())?
    })
}

/// The handshake after which the process is rank 0 of 1 with this kvs.
fn introduce(singleton: &TcpStream, kvsname: &[u8]) -> Result<(), String> {
    singleton.set_read_timeout(Some(WAIT)).map_err(broken)?;
    let mut writer = singleton;
    writer.write_all(b"cmd=singinit authtype=none\n").map_err(broken)?;
    // Read byte by byte, because what follows the line must be left for `relay`.
    let (mut reader, mut line, mut byte) = (singleton, Vec::new(), [0]);
    while line.len() < LINE_MAX && reader.read(&mut byte).map_err(broken)? > 0 && byte != *b"\n" {
        line.push(byte[0]);
    }
    if !line.starts_with(b"cmd=singinit ") {
        let line = String::from_utf8_lossy(&line);
        return Err(format!("a process that waits for mpiexec would not say \"{line}\""));
    }
    let answer = [b"cmd=singinit_info rc=0 versionok=yes stdio=no kvsname=".as_slice(), kvsname, b"\n"].concat();
    writer.write_all(&answer).map_err(broken)?;
    singleton.set_read_timeout(None).map_err(broken)
}

/// Copies bytes between the singleton and the server until the singleton closes its connection.
fn relay(singleton: &TcpStream, server: &UnixStream) -> Result<(), String> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // If the server closes the connection, the job is being ended.
            let _ = io::copy(&mut { server }, &mut { singleton });
            let _ = singleton.shutdown(Shutdown::Both);
        });
        let result = pass_requests(singleton, server);
        let _ = server.shutdown(Shutdown::Both);
        result
    })
}

fn pass_requests(singleton: &TcpStream, server: &UnixStream) -> Result<(), String> {
    let (mut reader, mut writer) = (BufReader::new(singleton), server);
    let (mut line, mut is_final) = (Vec::new(), false);
    loop {
        line.clear();
        let length = (&mut reader).take(LINE_MAX as u64).read_until(b'\n', &mut line).map_err(broken)?;
        if length == 0 {
            let ended = "the process that was started without mpiexec has ended without MPI_Finalize";
            return if is_final { Ok(()) } else { Err(ended.to_owned()) };
        }
        is_final |= line.starts_with(b"cmd=finalize");
        writer.write_all(&line).map_err(broken)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_owner_of_the_other_end_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let link = connect(port).expect("it is ours");
        let own = link.local_addr().expect("an address").port();
        let line = |ends: &str, user| {
            format!("   0: {ends} 01 00000000:00000000 00:00000000 00000000  {user}        0 1 1 0\n")
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let table =
            format!("{head}{}{}", line("0100007F:0016 0100007F:0017", 7), line("0100007F:0017 0100007F:0016", 8));
        assert_eq!([owner(&table, 22, 23), owner(&table, 23, 22), owner(&table, 22, 24)], [Some(7), Some(8), None]);
        let now = std::fs::read_to_string("/proc/net/tcp").expect("readable");
        assert_eq!(owner(&now, port, own), Some(rustix::process::geteuid().as_raw()));
    }

    #[test]
    fn a_process_that_is_no_singleton_is_named_by_what_it_says() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let link = connect(listener.local_addr().expect("an address").port()).expect("it is ours");
        let (mut other, _) = listener.accept().expect("a link");
        other.write_all(b"SSH-2.0\n").expect("written");
        let error = introduce(&link, b"kvs").expect_err("no singleton");
        assert!(error.contains("\"SSH-2.0\""), "{error}");
    }
}
