//! All-to-all personalised exchange in a hypercube of processes: log2 N rounds, half of what a process holds in each.
//!
//! In round d a process holds N values: for those who agree with it in the bits below d, from those who agree with it
//! in the bits from d on. It sends its neighbour across bit d the half that is for the other side of that bit. After
//! the last round it holds what is meant for it. Both sides know which values a message has, so it carries values only.
use std::collections::BTreeMap;

use super::values::{VALUE_LEN, picked};

type Value = [u8; VALUE_LEN];

pub struct Cube {
    rank: u16,
    size: u16,
    /// By receiver and sender.
    held: BTreeMap<(u16, u16), Value>,
}

impl Cube {
    /// `row` has this process's values for all others. `size` is a power of two.
    pub fn new(rank: u16, size: u16, row: &[u8]) -> Cube {
        let value = |peer: u16| match peer == rank {
            // So that every message has the same length.
            true => [0; VALUE_LEN],
            false => picked(row, rank, peer).try_into().unwrap_or_default(),
        };
        Cube { rank, size, held: (0..size).map(|peer| ((peer, rank), value(peer))).collect() }
    }

    pub fn message_len(size: u16) -> usize {
        usize::from(size / 2) * VALUE_LEN
    }

    /// Which values a process sends across this bit, in the order of the message.
    fn leaving(&self, rank: u16, bit: u16) -> Vec<(u16, u16)> {
        let below = (1 << bit) - 1;
        let receivers = (0..self.size).filter(|other| (other ^ rank) & (below | 1 << bit) == 1 << bit);
        let senders = move |receiver| (0..=below).map(move |low| (receiver, rank & !below | low));
        receivers.flat_map(senders).collect()
    }

    pub fn send(&mut self, bit: u16) -> Vec<u8> {
        let keys = self.leaving(self.rank, bit);
        keys.iter().filter_map(|key| self.held.remove(key)).flatten().collect()
    }

    /// The message of the neighbour across this bit, of [`Cube::message_len`].
    pub fn receive(&mut self, bit: u16, message: &[u8]) {
        let keys = self.leaving(self.rank ^ 1 << bit, bit);
        let (values, _) = message.as_chunks::<VALUE_LEN>();
        self.held.extend(keys.into_iter().zip(values.iter().copied()));
    }

    /// After the last round: what others have for this process, by owner.
    pub fn finish(self) -> Vec<u8> {
        let rank = self.rank;
        self.held.into_iter().filter(|((_, owner), _)| *owner != rank).flat_map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s4::values::{encode, reassembled};
    use std::net::{Ipv4Addr, SocketAddrV4};

    #[test]
    fn every_process_gets_what_reassembly_gives_it() {
        for size in [2, 4, 8, 32] {
            let row = |owner: u16| {
                let others = (0..size).filter(move |peer| *peer != owner);
                encode(others.map(|peer| SocketAddrV4::new(Ipv4Addr::from(u32::from(owner)), peer)))
            };
            let rows: Vec<Vec<u8>> = (0..size).map(row).collect();
            let mut all: Vec<Cube> = (0..size).map(|rank| Cube::new(rank, size, &rows[usize::from(rank)])).collect();
            for bit in 0..size.ilog2() as u16 {
                let messages: Vec<Vec<u8>> = all.iter_mut().map(|one| one.send(bit)).collect();
                for (rank, one) in all.iter_mut().enumerate() {
                    let message = &messages[rank ^ 1 << bit];
                    assert_eq!(message.len(), Cube::message_len(size));
                    one.receive(bit, message);
                }
            }
            for (rank, one) in all.into_iter().enumerate() {
                assert_eq!(one.finish(), reassembled(&rows, rank as u16), "{rank} of {size}");
            }
        }
    }
}
