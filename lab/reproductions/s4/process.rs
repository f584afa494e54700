//! A process of a job: gets the values that other processes have for it, and connects to all of them.
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::scheme::{CHANNEL, Exchange, LOCAL, SLOT_LEN, STAR, Scheme, Starter, Traffic, encode_pair};
use super::sockets::{self, VALUE_LEN, place, reassembled};
use super::wire::{Channel, Kind, Secret, call, sum, wrong};

/// The first argument of a process of a job.
pub const WORD: &str = "s4-process";
/// Maximum length of the JSON of a report (bytes).
pub const JSON_LEN_MAX: usize = 4096;

/// The settings of a process: its argument if an agent starts it, otherwise the first line of its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    pub scheme: String,
    pub rank: u16,
    pub size: u16,
    /// The address of the process's host.
    pub own: Ipv4Addr,
    /// Address and secret by which the process connects to the launcher; `None`: its standard input is a socket to its
    /// agent.
    pub launcher: Option<(SocketAddrV4, Secret)>,
}

/// Longest times of the processes (ns): until a process had the values, and then until it was connected; and the
/// traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub exchange_ns: u64,
    pub connecting_ns: u64,
    pub traffic: Traffic,
}

impl Report {
    pub fn receive(channel: &mut Channel) -> io::Result<Report> {
        Ok(serde_json::from_slice(&channel.receive_any(&[Kind::Report], JSON_LEN_MAX)?.body)?)
    }

    pub fn send(&self, channel: &mut Channel) -> io::Result<()> {
        channel.send(Kind::Report, 0, &serde_json::to_vec(self)?)
    }

    pub fn add(&mut self, other: &Report) {
        self.exchange_ns = self.exchange_ns.max(other.exchange_ns);
        self.connecting_ns = self.connecting_ns.max(other.connecting_ns);
        self.traffic = std::array::from_fn(|part| sum([self.traffic[part], other.traffic[part]]));
    }
}

struct Process {
    scheme: Scheme,
    rank: u16,
    size: u16,
    own: Ipv4Addr,
    /// The connection to the launcher or to the agent.
    up: Channel,
    /// Connections to the neighbours, by slot.
    channels: Vec<Channel>,
}

/// Runs a process; `args`: the arguments after `WORD`.
pub fn run(args: &[OsString]) -> io::Result<()> {
    let (begin, mut line) = (Instant::now(), String::new());
    let place: Place = match args.first().and_then(|place| place.to_str()) {
        Some(place) => serde_json::from_str(place)?,
        None => io::stdin().read_line(&mut line).map(|_| serde_json::from_str(&line))??,
    };
    let Place { rank, size, own, .. } = place;
    let scheme = Scheme::named(&place.scheme)?;
    let up = match place.launcher {
        Some((address, secret)) => call(address, &secret, rank)?,
        None => Channel::new(io::stdin().as_fd().try_clone_to_owned()?),
    };
    let mut process = Process { scheme, rank, size, own, up, channels: Vec::new() };

    let others = (0..size).filter(|peer| *peer != rank);
    let (halves, values) = sockets::make_all(own, others.map(|peer| rank < peer))?;
    let peers = sockets::decode(&process.exchange(&sockets::encode(values))?);
    let peers = peers.filter(|peers| peers.len() == halves.len());
    let peers = peers.ok_or_else(|| wrong("not the values of all others"))?;
    let known = Instant::now();
    let connected = sockets::connect_all(halves, &peers, &process.up)?;

    let mut traffic = Traffic::default();
    traffic[if scheme.starter == Starter::Star { STAR } else { LOCAL }] = process.up.sent;
    traffic[CHANNEL] = sum(process.channels.iter().map(|one| one.sent));
    let [exchange_ns, connecting_ns] = [known - begin, known.elapsed()].map(|time| time.as_nanos() as u64);
    Report { exchange_ns, connecting_ns, traffic }.send(&mut process.up)?;
    process.up.await_end();
    sockets::close_all(connected);
    Ok(())
}

impl Process {
    /// Gives this process's row to the others; returns the values that they have for this process.
    fn exchange(&mut self, row: &[u8]) -> io::Result<Vec<u8>> {
        match self.scheme.exchange {
            Exchange::Whole => {
                let all = self.through_launcher(row, usize::from(self.size) * row.len())?;
                let rows: Vec<Vec<u8>> = all.chunks(row.len()).map(<[u8]>::to_vec).collect();
                Ok(reassembled(&rows, self.rank))
            }
            Exchange::Reassembled => self.through_launcher(row, row.len()),
            Exchange::Database => {
                let rank = self.rank;
                let others: Vec<(u16, u16)> = (0..self.size).filter(|owner| *owner != rank).map(|it| (it, 0)).collect();
                let rows = self.through_agents(row, &others)?;
                Ok(others.iter().zip(rows).flat_map(|((owner, _), row)| row[place(*owner, rank)].to_vec()).collect())
            }
            Exchange::Ring => {
                self.make_channels()?;
                self.around(row)
            }
            Exchange::Cube => {
                self.make_channels()?;
                self.across(row)
            }
        }
    }

    fn through_launcher(&mut self, mine: &[u8], yours_len: usize) -> io::Result<Vec<u8>> {
        self.up.send(Kind::Values, self.rank, mine)?;
        Ok(self.up.receive(Kind::Values, yours_len)?.body)
    }

    /// Connects to the neighbours.
    fn make_channels(&mut self) -> io::Result<()> {
        let neighbours = self.scheme.neighbours(self.rank, self.size);
        let calls = (0..neighbours.len()).map(|slot| self.scheme.calls(self.rank, slot as u16));
        let (halves, values) = sockets::make_all(self.own, calls)?;
        let mine = sockets::encode(values);
        let theirs = match self.scheme.starter {
            Starter::Star => self.through_launcher(&mine, mine.len())?,
            _ => {
                let far = (0..).zip(neighbours).map(|(slot, neighbour)| (neighbour, self.scheme.far_slot(slot)));
                let far: Vec<(u16, u16)> = far.collect();
                self.through_agents(&mine, &far)?.concat()
            }
        };
        let theirs = sockets::decode(&theirs).ok_or_else(|| wrong("not the values of neighbours"))?;
        let connected: Vec<OwnedFd> = sockets::connect_all(halves, &theirs, &self.up)?;
        self.channels = connected.into_iter().map(Channel::new).collect();
        Ok(())
    }

    /// Exchanges through agents: put, fence, and a get for each of `wanted` (owner and slot), one after the other.
    fn through_agents(&mut self, mine: &[u8], wanted: &[(u16, u16)]) -> io::Result<Vec<Vec<u8>>> {
        self.up.send(Kind::Values, self.rank, mine)?;
        self.up.send(Kind::Fence, self.rank, &[])?;
        self.up.receive(Kind::Released, 0)?;
        let answer_len = SLOT_LEN + self.scheme.got_len(self.size);
        let get = |&(owner, slot): &(u16, u16)| -> io::Result<Vec<u8>> {
            self.up.send(Kind::Get, self.rank, &encode_pair(owner, slot))?;
            Ok(self.up.receive(Kind::Value, answer_len)?.body[SLOT_LEN..].to_vec())
        };
        wanted.iter().map(get).collect()
    }

    /// Exchanges around the ring: each row is forwarded as soon as it has arrived. Every row fits into the buffers of a
    /// socket, so sending never waits for long.
    fn around(&mut self, row: &[u8]) -> io::Result<Vec<u8>> {
        let (rank, size) = (self.rank, self.size);
        let [left, right] = &mut self.channels[..] else { return Err(wrong("a ring has two neighbours")) };
        let mut values = vec![0; row.len()];
        right.send(Kind::Values, rank, row)?;
        for step in 1..size {
            let message = left.receive(Kind::Values, row.len())?;
            let owner = message.who;
            if owner != (rank + size - step) % size {
                return Err(wrong(format!("a row of {owner} in step {step}")));
            }
            values[place(rank, owner)].copy_from_slice(&message.body[place(owner, rank)]);
            // The right neighbour is the owner of the last row.
            if step + 1 < size {
                right.send(Kind::Values, owner, &message.body)?;
            }
        }
        Ok(values)
    }

    /// Exchanges in the hypercube: every message fits into the buffers of a socket, so both sides may send first.
    fn across(&mut self, row: &[u8]) -> io::Result<Vec<u8>> {
        let mut cube = Cube::new(self.rank, self.size, row);
        for (bit, neighbour) in (0..).zip(&mut self.channels) {
            neighbour.send(Kind::Values, bit, &cube.crossing(bit))?;
            cube.cross(bit, &neighbour.receive(Kind::Values, usize::from(self.size / 2) * VALUE_LEN)?.body);
        }
        Ok(cube.finish())
    }
}

/// All-to-all personalised exchange in a hypercube of processes: log2 N rounds, half of what a process holds in each.
///
/// A value is held at the place whose number is its way, the receiver's rank xor the sender's. In round d the values
/// with bit d in their way cross that bit, and keep their places. After the last round a process holds what is meant
/// for it: at each place the value of the process that is this way apart.
struct Cube {
    rank: u16,
    held: Vec<[u8; VALUE_LEN]>,
}

impl Cube {
    fn new(rank: u16, size: u16, row: &[u8]) -> Cube {
        let value = |way: u16| match way {
            // A process has no value for itself; an empty one makes all messages equally long.
            0 => [0; VALUE_LEN],
            _ => row[place(rank, rank ^ way)].try_into().unwrap_or_default(),
        };
        Cube { rank, held: (0..size).map(value).collect() }
    }

    fn places(&mut self, bit: u16) -> impl Iterator<Item = &mut [u8; VALUE_LEN]> {
        self.held.iter_mut().enumerate().filter(move |(way, _)| way & 1 << bit != 0).map(|(_, value)| value)
    }

    fn crossing(&mut self, bit: u16) -> Vec<u8> {
        self.places(bit).flat_map(|value| *value).collect()
    }

    fn cross(&mut self, bit: u16, message: &[u8]) {
        self.places(bit).zip(message.as_chunks().0).for_each(|(place, value)| *place = *value);
    }

    /// The values that the other processes have for this process, by owner; called after the last round.
    fn finish(self) -> Vec<u8> {
        let owners = (0..self.held.len()).filter(|owner| *owner != usize::from(self.rank));
        owners.flat_map(|owner| self.held[owner ^ usize::from(self.rank)]).collect()
    }
}
