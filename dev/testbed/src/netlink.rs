//! Network interfaces by rtnetlink: bridges, pairs of virtual cables (veth), addresses, neighbours.
//!
//! Every function sends one request, or a batch of them, and reads the kernel's acknowledgements. The caller chooses
//! interface indexes, so nothing is looked up. Layouts: `linux/rtnetlink.h`, `linux/if_link.h`.
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const VETH_PEER: u16 = 1;
const BRIDGE_MCAST_SNOOPING: u16 = 23;
const PORT_STATE: u16 = 1;
const PORT_DISABLED: u8 = 0;
const PORT_FORWARDING: u8 = 3;
const NEIGHBOUR_PERMANENT: u16 = 0x80;
/// Requests sent before acknowledgements are read: their answers stay far below the default receive buffer (chosen).
const BATCH: usize = 64;

/// Index of the loopback interface in every name space.
pub const LOOPBACK: u32 = 1;

/// A netlink socket of the network name space in which it was opened.
pub struct Netlink {
    socket: OwnedFd,
}

/// One end of a pair of virtual cables.
pub struct End<'a> {
    pub index: u32,
    pub name: &'a str,
    pub mac: [u8; 6],
}

impl Netlink {
    pub fn open() -> io::Result<Netlink> {
        // The default protocol of the family is the routing one.
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Netlink { socket })
    }

    /// Brings an interface up.
    pub fn up(&self, index: u32) -> io::Result<()> {
        self.ask(vec![Message::link(libc::RTM_NEWLINK, 0, libc::AF_UNSPEC as u8, index, true)])
    }

    /// Creates a bridge that forwards at once and floods frames for unknown addresses.
    pub fn add_bridge(&self, index: u32, name: &str, mac: [u8; 6]) -> io::Result<()> {
        let mut message = Message::link(libc::RTM_NEWLINK, CREATE, libc::AF_UNSPEC as u8, index, true);
        message.text(libc::IFLA_IFNAME, name);
        message.bytes(libc::IFLA_ADDRESS, &mac);
        message.nest(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "bridge");
            info.nest(libc::IFLA_INFO_DATA, |data| data.bytes(BRIDGE_MCAST_SNOOPING, &[0]));
        });
        self.ask(vec![message])
    }

    /// Creates a pair of virtual cable ends: `here` is up, and a port of `bridge` if one is given; `there` is in the
    /// network of process `pid` (0: in this one) and still down.
    pub fn add_cable(&self, here: &End<'_>, bridge: Option<u32>, there: &End<'_>, pid: u32) -> io::Result<()> {
        let mut message = Message::link(libc::RTM_NEWLINK, CREATE, libc::AF_UNSPEC as u8, here.index, true);
        message.text(libc::IFLA_IFNAME, here.name);
        message.bytes(libc::IFLA_ADDRESS, &here.mac);
        if let Some(bridge) = bridge {
            message.bytes(libc::IFLA_MASTER, &bridge.to_ne_bytes());
        }
        message.nest(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "veth");
            info.nest(libc::IFLA_INFO_DATA, |data| {
                data.nest(VETH_PEER, |peer| {
                    // The kernel refuses to bring this end up while the pair is incomplete.
                    peer.link_header(libc::AF_UNSPEC as u8, there.index, false);
                    peer.text(libc::IFLA_IFNAME, there.name);
                    peer.bytes(libc::IFLA_ADDRESS, &there.mac);
                    if pid != 0 {
                        peer.bytes(libc::IFLA_NET_NS_PID, &pid.to_ne_bytes());
                    }
                });
            });
        });
        self.ask(vec![message])
    }

    /// Lets a port of the bridge forward frames, or drop all of them without a change of carrier, so that nobody
    /// notices.
    pub fn set_forwarding(&self, port: u32, forwarding: bool) -> io::Result<()> {
        let mut message = Message::link(libc::RTM_SETLINK, 0, libc::AF_BRIDGE as u8, port, false);
        let state = if forwarding { PORT_FORWARDING } else { PORT_DISABLED };
        message.nest(libc::IFLA_PROTINFO | NESTED, |info| info.bytes(PORT_STATE, &[state]));
        self.ask(vec![message])
    }

    /// Adds addresses to an interface that can be used at once (IPv6 without duplicate address detection).
    pub fn add_addresses(&self, index: u32, addresses: &[(IpAddr, u8)]) -> io::Result<()> {
        let message = |&(address, prefix): &(IpAddr, u8)| {
            let mut message = Message::new(libc::RTM_NEWADDR, CREATE);
            message.raw(&[family(address), prefix, libc::IFA_F_NODAD as u8, 0]);
            message.raw(&index.to_ne_bytes());
            message.address(libc::IFA_LOCAL, address);
            message.address(libc::IFA_ADDRESS, address);
            message
        };
        self.ask(addresses.iter().map(message).collect())
    }

    /// Adds permanent neighbour entries (hardware addresses) to an interface.
    pub fn add_neighbours(&self, index: u32, neighbours: impl Iterator<Item = (IpAddr, [u8; 6])>) -> io::Result<()> {
        let message = |(address, mac): (IpAddr, [u8; 6])| {
            let mut message = Message::new(libc::RTM_NEWNEIGH, CREATE);
            message.raw(&[family(address), 0, 0, 0]);
            message.raw(&index.to_ne_bytes());
            message.raw(&NEIGHBOUR_PERMANENT.to_ne_bytes());
            message.raw(&[0, 0]);
            message.address(libc::NDA_DST, address);
            message.bytes(libc::NDA_LLADDR, &mac);
            message
        };
        self.ask(neighbours.map(message).collect())
    }

    fn ask(&self, messages: Vec<Message>) -> io::Result<()> {
        for batch in messages.chunks(BATCH) {
            let mut bytes = Vec::new();
            batch.iter().for_each(|message| bytes.extend_from_slice(&message.finished()));
            rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
            let mut answers = 0;
            while answers < batch.len() {
                answers += self.read_acknowledgements()?;
            }
        }
        Ok(())
    }

    /// The number of requests that the next datagram acknowledges.
    fn read_acknowledgements(&self) -> io::Result<usize> {
        let mut buffer = [0_u8; 16384];
        let (length, _) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        let (mut rest, mut count) = (&buffer[..length], 0);
        while rest.len() >= 20 {
            let word = |at: usize| u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
            let (size, code) = (word(0) as usize, word(16) as i32);
            if u16::from_ne_bytes([rest[4], rest[5]]) == libc::NLMSG_ERROR as u16 {
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(-code));
                }
                count += 1;
            }
            rest = &rest[size.next_multiple_of(4).clamp(16, rest.len())..];
        }
        Ok(count)
    }
}

const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
const NESTED: u16 = libc::NLA_F_NESTED as u16;

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

/// A request under construction; its length is filled in at the end.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut message = Message { bytes: vec![0; 4] };
        message.raw(&kind.to_ne_bytes());
        message.raw(&flags.to_ne_bytes());
        message.raw(&[0; 8]);
        message
    }

    fn link(kind: u16, flags: u16, family: u8, index: u32, up: bool) -> Message {
        let mut message = Message::new(kind, flags);
        message.link_header(family, index, up);
        message
    }

    fn link_header(&mut self, family: u8, index: u32, up: bool) {
        let flags = if up { libc::IFF_UP as u32 } else { 0 };
        self.raw(&[family, 0, 0, 0]);
        self.raw(&index.to_ne_bytes());
        self.raw(&flags.to_ne_bytes());
        self.raw(&flags.to_ne_bytes());
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn nest(&mut self, kind: u16, content: impl FnOnce(&mut Message)) {
        let start = self.bytes.len();
        self.raw(&[0, 0]);
        self.raw(&kind.to_ne_bytes());
        content(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.nest(kind, |content| content.raw(value));
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.nest(kind, |content| {
            content.raw(value.as_bytes());
            content.raw(&[0]);
        });
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.bytes(kind, &address.octets()),
            IpAddr::V6(address) => self.bytes(kind, &address.octets()),
        }
    }

    fn finished(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let length = (bytes.len() as u32).to_ne_bytes();
        bytes[..4].copy_from_slice(&length);
        bytes
    }
}
