//! A process of a job: gets the values that others have for it, and connects to all of them.
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::Instant;

use super::agent::encode_slot;
use super::cube::Cube;
use super::message::{Channel, Kind, Message, SLOT_LEN, wrong};
use super::scheme::{Exchange, Scheme, Starter};
use super::secret::Secret;
use super::sockets;
use super::traffic::Traffic;
use super::values::{VALUE_LEN, decode, encode, place, reassembled};

/// The first argument of such a process.
pub const WORD: &str = "s4-process";

/// The longest first line of its input.
const LINE_MAX: usize = 256;

/// What a process is told on its standard input, on the first line.
pub struct Place {
    pub scheme: Scheme,
    pub rank: u16,
    pub size: u16,
    pub from: From,
}

pub enum From {
    /// The launcher is called at this address.
    Launcher(SocketAddrV4, Secret),
    /// The agent has the other end of the standard input; this is the host's address.
    Agent(Ipv4Addr),
}

impl Place {
    pub fn line(&self) -> String {
        let Place { scheme, rank, size, from } = self;
        let from = match from {
            From::Launcher(address, secret) => format!("{address} {}", secret.text()),
            From::Agent(own) => own.to_string(),
        };
        format!("{} {rank} {size} {from}\n", scheme.name())
    }

    fn read(line: &str) -> Option<Place> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [scheme, rank, size, from @ ..] = &words[..] else { return None };
        let from = match from {
            [address, secret] => From::Launcher(address.parse().ok()?, Secret::read(secret)?),
            [own] => From::Agent(own.parse().ok()?),
            _ => return None,
        };
        let place = Place { scheme: Scheme::of(scheme)?, rank: rank.parse().ok()?, size: size.parse().ok()?, from };
        (place.rank < place.size && place.size > 1).then_some(place)
    }
}

/// Runs a process and returns its exit code.
pub fn main() -> u8 {
    match run() {
        Ok(()) => 0,
        Err(problem) => {
            eprintln!("wireup-reproduce s4: {problem}");
            1
        }
    }
}

/// One byte at a time: what follows is not for this reader.
fn first_line(mut input: impl Read) -> io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < LINE_MAX {
        input.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return String::from_utf8(line).map_err(|error| wrong(error.to_string()));
        }
        line.push(byte[0]);
    }
    Err(wrong("the first line is too long".into()))
}

fn run() -> io::Result<()> {
    let begin = Instant::now();
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut input = std::fs::File::from(input);
    let line = first_line(&mut input)?;
    let place = Place::read(&line).ok_or_else(|| wrong("wireup-reproduce s4 starts these processes itself".into()))?;
    let (up, own) = match &place.from {
        From::Agent(own) => (Channel::new(input.into())?, *own),
        From::Launcher(address, secret) => {
            let up = secret.call(*address, 0, place.rank)?;
            let own = SocketAddrV4::try_from(rustix::net::getsockname(up.as_fd())?)?;
            (up, *own.ip())
        }
    };
    Process { place, up, own, channel: Vec::new() }.work(begin)
}

struct Process {
    place: Place,
    /// To the launcher or the agent.
    up: Channel,
    own: Ipv4Addr,
    /// To the neighbours, by slot.
    channel: Vec<Channel>,
}

impl Process {
    fn work(mut self, begin: Instant) -> io::Result<()> {
        let Place { rank, size, .. } = self.place;
        let others = (0..size).filter(|peer| *peer != rank);
        let (halves, values) = sockets::make_all(self.own, others.map(|peer| rank < peer))?;
        let peers = self.exchange(&encode(values))?;
        let peers = decode(&peers).filter(|peers| peers.len() == halves.len());
        let peers = peers.ok_or_else(|| wrong("not the values of all others".into()))?;
        let known = Instant::now();
        let connected = sockets::connect_all(halves, &peers, &self.up)?;
        self.report(known - begin, known.elapsed())?;
        self.up.await_end();
        connected.into_iter().for_each(sockets::close);
        Ok(())
    }

    fn report(&mut self, exchange: std::time::Duration, connecting: std::time::Duration) -> io::Result<()> {
        let mut traffic = Traffic::default();
        match self.place.scheme.starter() {
            Starter::Star => traffic.star = self.up.sent,
            _ => traffic.local = self.up.sent,
        }
        self.channel.iter().for_each(|one| traffic.channel += one.sent);
        let mut body: Vec<u8> =
            [exchange, connecting].iter().flat_map(|time| (time.as_nanos() as u64).to_le_bytes()).collect();
        body.extend(traffic.encoded());
        self.up.send(&Message::new(Kind::Report, self.place.rank, body))
    }

    /// Gives the own values to others; returns what they have for this process.
    fn exchange(&mut self, row: &[u8]) -> io::Result<Vec<u8>> {
        let Place { scheme, rank, size, .. } = self.place;
        match scheme.exchange() {
            Exchange::Whole => {
                let all = self.through_launcher(row, usize::from(size) * row.len())?;
                let rows: Vec<Vec<u8>> = all.chunks(row.len()).map(<[u8]>::to_vec).collect();
                Ok(reassembled(&rows, rank))
            }
            Exchange::Reassembled => self.through_launcher(row, row.len()),
            Exchange::Ring => {
                self.make_channel()?;
                self.around(row)
            }
            Exchange::Cube => {
                self.make_channel()?;
                self.across(row)
            }
        }
    }

    fn through_launcher(&mut self, mine: &[u8], yours_len: usize) -> io::Result<Vec<u8>> {
        self.up.send(&Message::new(Kind::Mine, self.place.rank, mine.to_vec()))?;
        Ok(self.up.receive(Kind::Yours, yours_len)?.body)
    }

    /// Connects to the neighbours.
    fn make_channel(&mut self) -> io::Result<()> {
        let Place { scheme, rank, size, .. } = self.place;
        let neighbours = scheme.neighbours(rank, size);
        let calls = (0..neighbours.len()).map(|slot| scheme.calls(rank, slot as u16));
        let (halves, values) = sockets::make_all(self.own, calls)?;
        let mine = encode(values);
        let theirs = match scheme.starter() {
            Starter::Star => self.through_launcher(&mine, mine.len())?,
            _ => self.through_agents(mine, &neighbours)?,
        };
        let theirs = decode(&theirs).ok_or_else(|| wrong("not the values of neighbours".into()))?;
        let sockets = sockets::connect_all(halves, &theirs, &self.up)?;
        self.channel = sockets.into_iter().map(Channel::new).collect::<io::Result<_>>()?;
        Ok(())
    }

    /// Put, fence, and a get for each neighbour.
    fn through_agents(&mut self, mine: Vec<u8>, neighbours: &[u16]) -> io::Result<Vec<u8>> {
        let Place { scheme, rank, .. } = self.place;
        self.up.send(&Message::new(Kind::Put, rank, mine))?;
        self.up.send(&Message::new(Kind::Fence, rank, Vec::new()))?;
        self.up.receive(Kind::Released, 0)?;
        let mut theirs = Vec::new();
        for (slot, neighbour) in neighbours.iter().enumerate() {
            let key = encode_slot(*neighbour, scheme.far_slot(slot as u16));
            self.up.send(&Message::new(Kind::Get, rank, key))?;
            theirs.extend(&self.up.receive(Kind::Value, SLOT_LEN + VALUE_LEN)?.body[SLOT_LEN..]);
        }
        Ok(theirs)
    }

    /// The ring: each row is sent on as soon as it has come. Every row fits the buffers of a socket, so sending never
    /// waits for long.
    fn around(&mut self, row: &[u8]) -> io::Result<Vec<u8>> {
        let Place { rank, size, .. } = self.place;
        let [left, right] = &mut self.channel[..] else { return Err(wrong("a ring has two neighbours".into())) };
        let mut values = vec![0; row.len()];
        right.send(&Message::new(Kind::Row, rank, row.to_vec()))?;
        for step in 1..size {
            let message = left.receive(Kind::Row, row.len())?;
            let owner = message.who;
            if owner != (rank + size - step) % size {
                return Err(wrong(format!("a row of {owner} in step {step}")));
            }
            let at = place(rank, owner) * VALUE_LEN;
            values[at..at + VALUE_LEN].copy_from_slice(super::values::picked(&message.body, owner, rank));
            // The right neighbour has its own row.
            if step + 1 < size {
                right.send(&message)?;
            }
        }
        Ok(values)
    }

    fn across(&mut self, row: &[u8]) -> io::Result<Vec<u8>> {
        let Place { rank, size, .. } = self.place;
        let mut cube = Cube::new(rank, size, row);
        for (bit, neighbour) in (0..).zip(&mut self.channel) {
            neighbour.send(&Message::new(Kind::Row, bit, cube.send(bit)))?;
            let message = neighbour.receive(Kind::Row, Cube::message_len(size))?;
            cube.receive(bit, &message.body);
        }
        Ok(cube.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_as_a_line() {
        let secret = Secret::new().unwrap();
        let address = "10.77.0.254:4000".parse().unwrap();
        let place = Place { scheme: Scheme::SshBc, rank: 3, size: 16, from: From::Launcher(address, secret) };
        let back = Place::read(&place.line()).unwrap();
        assert_eq!(back.line(), place.line());
        let own = Place { scheme: Scheme::MpdBc, from: From::Agent(Ipv4Addr::LOCALHOST), ..place };
        assert_eq!(Place::read(&own.line()).unwrap().line(), "mpd-bc 3 16 127.0.0.1\n");
        for wrong in ["", "mpd-bc 16 16 127.0.0.1", "mpd 1 16 127.0.0.1", "mpd-bc 0 1 127.0.0.1", "mpd-bc 0 4 a b c"] {
            assert!(Place::read(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_line_is_read_and_no_byte_after_it() {
        let mut input = &b"one\ntwo"[..];
        assert_eq!(first_line(&mut input).unwrap(), "one");
        assert_eq!(input, b"two");
        assert!(first_line(&[b'a'; 300][..]).is_err());
    }
}
