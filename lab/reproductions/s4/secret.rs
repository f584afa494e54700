//! The secret of a launcher or of standing agents, with which each connection to them begins.
use std::io;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use wireup_bench::net::await_any;

use super::message::{Channel, Kind, Message, SECRET_LEN, WAIT_MAX, wrong};

/// How long somebody who has connected may take to show the secret (chosen).
const HELLO_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; SECRET_LEN]);

impl Secret {
    pub fn new() -> io::Result<Secret> {
        let mut bytes = [0; SECRET_LEN];
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
        Ok(Secret(bytes))
    }

    pub fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn read(text: &str) -> Option<Secret> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
        bytes.try_into().ok().map(Secret)
    }

    /// Connects; `who` and `job` say what for.
    pub fn call(&self, address: SocketAddrV4, job: u8, who: u16) -> io::Result<Channel> {
        let stream = TcpStream::connect_timeout(&address.into(), WAIT_MAX)?;
        let mut channel = Channel::new(stream.into())?;
        channel.send(&Message { job, ..Message::new(Kind::Hello, who, self.0.to_vec()) })?;
        Ok(channel)
    }

    /// The caller, if it knows the secret: its channel, and what it has said.
    pub fn answer(&self, listener: &TcpListener) -> io::Result<Option<(Channel, Message)>> {
        let (stream, _) = listener.accept()?;
        let mut channel = Channel::new(stream.into())?;
        channel.wait_at_most(HELLO_MAX)?;
        let Ok(hello) = channel.receive(Kind::Hello, SECRET_LEN) else { return Ok(None) };
        // Without a shortcut that shows how much of it is right.
        let differ = hello.body.iter().zip(self.0).fold(0, |differ, (theirs, own)| differ | (theirs ^ own));
        channel.wait_at_most(WAIT_MAX)?;
        Ok((differ == 0).then_some((channel, hello)))
    }

    /// The next caller that knows the secret.
    pub fn await_caller(&self, listener: &TcpListener, until: Instant) -> io::Result<(Channel, Message)> {
        while await_any(&mut [PollFd::new(listener, PollFlags::IN)], until)? {
            if let Some(caller) = self.answer(listener)? {
                return Ok(caller);
            }
        }
        Err(wrong("nobody has called in time".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn only_who_knows_the_secret_gets_in() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        let secret = Secret::new().unwrap();
        let _stranger = Secret([7; SECRET_LEN]).call(address, 1, 1).unwrap();
        let _known = Secret::read(&secret.text()).unwrap().call(address, 2, 300).unwrap();
        let until = Instant::now() + WAIT_MAX;
        let (_, hello) = secret.await_caller(&listener, until).unwrap();
        assert_eq!((hello.job, hello.who), (2, 300));
        assert!(Secret::read("00").is_none() && Secret::read("zz").is_none());
    }
}
