//! The protocol of PyTorch's `TCPStore`, between a client in a rank and the rank's agent, which is the server.
//!
//! ```text
//!   request: opcode u8, then what the opcode needs, little-endian       key, value: length u64, bytes
//!            several keys: count u64, keys                              number: i64
//! ```
//!
//! Three generations of clients differ in their opcodes and in what precedes them. The first bytes tell which it is:
//!
//! | first bytes      | generation                             | opcodes                              |
//! | ---------------- | -------------------------------------- | ------------------------------------ |
//! | `00 ce f7 85 3c` | PyTorch 2.1 and newer: the magic once  | SET 1 … GETNUMKEYS 7, DELETE_KEY 8 … |
//! | `ce f7 85 3c`    | some months of 2023: before each request | SET 0 … GETNUMKEYS 6, DELETE_KEY 7 … |
//! | others           | PyTorch 1.x and 2.0: no magic          | SET 0 … GETNUMKEYS 6, DELETE_KEY 8 … |
//!
//! The oldest clients also know WATCH_KEY (7), which no other generation has. It is refused as any unknown opcode is.
//! The protocol has no message for errors: the server closes the connection, and the client reports that.
//!
//! Source: `torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStoreBackend.hpp`, `TCPStoreLibUvBackend.cpp`.

use crate::limits::{STORE_KEY_LEN_MAX, STORE_KEYS_MAX, STORE_REQUEST_BYTES_MAX, STORE_VALUE_LEN_MAX};
use alloc::vec::Vec;
use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

const MAGIC: [u8; 4] = 0x3C85_F7CE_u32.to_le_bytes();

/// The answer to `Wait` and `Barrier`.
pub const STOP_WAITING: u8 = 0;
/// The answer to `CancelWait`.
pub const WAIT_CANCELLED: u8 = 1;
/// The answers to `Check`.
pub const READY: u8 = 0;
pub const NOT_READY: u8 = 1;

/// One request; its name is that of PyTorch's opcode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Set { key: Bytes, value: Bytes },
    CompareSet { key: Bytes, expected: Bytes, desired: Bytes },
    Get { key: Bytes },
    Add { key: Bytes, amount: i64 },
    Check { keys: Vec<Bytes> },
    Wait { keys: Vec<Bytes> },
    GetNumKeys,
    DeleteKey { key: Bytes },
    Append { key: Bytes, value: Bytes },
    MultiGet { keys: Vec<Bytes> },
    MultiSet { pairs: Vec<(Bytes, Bytes)> },
    CancelWait,
    Ping { nonce: u32 },
    QueuePush { key: Bytes, value: Bytes },
    QueuePop { key: Bytes },
    QueueLen { key: Bytes },
    ListKeys,
    Barrier { key: Bytes, world_size: i64 },
}

/// The answer to a request, if the request has an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Value(Bytes),
    /// Values without a count, because the client knows how many it has requested.
    Values(Vec<Bytes>),
    Number(i64),
    Byte(u8),
    Nonce(u32),
    /// The length of the queue before the request, and its first value unless it was empty.
    Popped {
        length: i64,
        value: Option<Bytes>,
    },
    Keys(Vec<Bytes>),
}

/// A client has sent bytes that are no request; the connection cannot recover.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TorchStoreError {
    #[error("request of unknown kind {0}")]
    UnknownOpcode(u8),
    #[error("a request, or a key, value or list in it, has the length {length}; the limit is {limit}")]
    TooLong { length: u64, limit: usize },
    #[error("a request that does not begin with PyTorch's magic number")]
    NoMagic,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Generation {
    /// Clients that send no magic, and that have WATCH_KEY among their opcodes.
    Old,
    MagicBeforeEach,
    /// Clients that send the magic once, before their first request.
    MagicOnce,
}

/// Splits and decodes the requests of one client.
#[derive(Debug, Default)]
pub struct RequestReader {
    buffer: BytesMut,
    generation: Option<Generation>,
}

impl RequestReader {
    /// Adds bytes from the client, split anywhere.
    ///
    /// # Errors
    /// The bytes of an incomplete request are more than any request can have.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TorchStoreError> {
        limited((self.buffer.len() + bytes.len()) as u64, STORE_REQUEST_BYTES_MAX + bytes.len())?;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole request; `None`: more bytes are needed.
    ///
    /// # Errors
    /// The bytes are no request.
    #[allow(clippy::should_implement_trait)] // An iterator's item cannot say that more bytes are needed.
    pub fn next(&mut self) -> Result<Option<Request>, TorchStoreError> {
        let Some(generation) = self.find_generation()? else { return Ok(None) };
        // A request that arrives in pieces is not copied before it is complete.
        let mut trial = Fields { rest: &self.buffer, whole: None };
        match trial.request(generation) {
            Ok(_) => {}
            Err(Stop::Incomplete) => return Ok(None),
            Err(Stop::Invalid(error)) => return Err(error),
        }
        let whole = self.buffer.split_to(self.buffer.len() - trial.rest.len()).freeze();
        if self.buffer.is_empty() {
            // An idle connection keeps no buffer.
            self.buffer = BytesMut::new();
        }
        match (Fields { rest: &whole, whole: Some(&whole) }).request(generation) {
            Err(Stop::Invalid(error)) => Err(error),
            request => Ok(request.ok()),
        }
    }

    /// The number of bytes that were not returned yet.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Determines the client's generation, and skips a magic that is sent once.
    fn find_generation(&mut self) -> Result<Option<Generation>, TorchStoreError> {
        if self.generation.is_none() {
            self.generation = match &self.buffer[..] {
                [] => None,
                [0xce, ..] => Some(Generation::MagicBeforeEach),
                [0, rest @ ..] if rest.len() < MAGIC.len() => None,
                [0, rest @ ..] if rest.starts_with(&MAGIC) => {
                    self.buffer.advance(1 + MAGIC.len());
                    Some(Generation::MagicOnce)
                }
                _ => Some(Generation::Old),
            };
        }
        Ok(self.generation)
    }
}

/// Why a request cannot be decoded.
enum Stop {
    Incomplete,
    Invalid(TorchStoreError),
}

impl From<TorchStoreError> for Stop {
    fn from(error: TorchStoreError) -> Stop {
        Stop::Invalid(error)
    }
}

fn limited(length: u64, limit: usize) -> Result<usize, TorchStoreError> {
    match usize::try_from(length) {
        Ok(length) if length <= limit => Ok(length),
        _ => Err(TorchStoreError::TooLong { length, limit }),
    }
}

/// The bytes that were not decoded yet.
struct Fields<'a> {
    rest: &'a [u8],
    /// The whole request; `None`: it may be incomplete, and keys and values are left empty.
    whole: Option<&'a Bytes>,
}

impl<'a> Fields<'a> {
    fn request(&mut self, generation: Generation) -> Result<Request, Stop> {
        if generation == Generation::MagicBeforeEach && self.array()? != MAGIC {
            return Err(TorchStoreError::NoMagic.into());
        }
        let [opcode] = self.array()?;
        let newest = match (generation, opcode) {
            (Generation::MagicOnce, opcode @ 1..) => opcode,
            (Generation::MagicBeforeEach, opcode @ 0..=11) => opcode + 1,
            (Generation::Old, opcode @ 0..=6) => opcode + 1,
            (Generation::Old, opcode @ 8..=12) => opcode,
            _ => return Err(TorchStoreError::UnknownOpcode(opcode).into()),
        };
        Ok(match newest {
            1 => Request::Set { key: self.key()?, value: self.value()? },
            2 => Request::CompareSet { key: self.key()?, expected: self.value()?, desired: self.value()? },
            3 => Request::Get { key: self.key()? },
            4 => Request::Add { key: self.key()?, amount: self.number()? },
            5 => Request::Check { keys: self.list(Fields::shared_key)? },
            6 => Request::Wait { keys: self.list(Fields::shared_key)? },
            7 => Request::GetNumKeys,
            8 => Request::DeleteKey { key: self.key()? },
            9 => Request::Append { key: self.key()?, value: self.value()? },
            10 => Request::MultiGet { keys: self.list(Fields::shared_key)? },
            11 => Request::MultiSet { pairs: self.list(|fields| Ok((fields.key()?, fields.value()?)))? },
            12 => Request::CancelWait,
            13 => Request::Ping { nonce: u32::from_le_bytes(self.array()?) },
            14 => Request::QueuePush { key: self.key()?, value: self.value()? },
            15 => Request::QueuePop { key: self.key()? },
            16 => Request::QueueLen { key: self.key()? },
            17 => Request::ListKeys,
            18 => Request::Barrier { key: self.key()?, world_size: self.number()? },
            _ => return Err(TorchStoreError::UnknownOpcode(opcode).into()),
        })
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Stop> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Stop::Incomplete)?;
        self.rest = rest;
        Ok(*array)
    }

    fn number(&mut self) -> Result<i64, Stop> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn length(&mut self, limit: usize) -> Result<usize, Stop> {
        Ok(limited(u64::from_le_bytes(self.array()?), limit)?)
    }

    fn key(&mut self) -> Result<Bytes, Stop> {
        self.bytes(STORE_KEY_LEN_MAX)
    }

    fn value(&mut self) -> Result<Bytes, Stop> {
        self.bytes(STORE_VALUE_LEN_MAX)
    }

    /// Reads a byte string as a copy: a slice of the buffer would keep all of the buffer's memory.
    fn bytes(&mut self, limit: usize) -> Result<Bytes, Stop> {
        let bytes = self.slice(limit)?;
        Ok(self.whole.map_or(Bytes::new(), |_| Bytes::copy_from_slice(bytes)))
    }

    /// Reads a key as a slice of the request: a list of a thousand keys needs one piece of memory. A caller that keeps
    /// a key longer than the request must copy it.
    fn shared_key(&mut self) -> Result<Bytes, Stop> {
        let bytes = self.slice(STORE_KEY_LEN_MAX)?;
        Ok(self.whole.map_or(Bytes::new(), |whole| whole.slice_ref(bytes)))
    }

    fn slice(&mut self, limit: usize) -> Result<&'a [u8], Stop> {
        let length = self.length(limit)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Stop::Incomplete)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a list, which grows as its entries are decoded, so that a large count alone allocates nothing.
    fn list<T>(&mut self, entry: impl Fn(&mut Self) -> Result<T, Stop>) -> Result<Vec<T>, Stop> {
        let count = self.length(STORE_KEYS_MAX)?;
        (0..count).map(|_| entry(self)).collect()
    }
}

impl Reply {
    pub fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        match self {
            Reply::Value(value) => push(&mut bytes, value),
            Reply::Values(values) => values.iter().for_each(|value| push(&mut bytes, value)),
            Reply::Number(number) => bytes.extend(number.to_le_bytes()),
            Reply::Byte(byte) => bytes.push(*byte),
            Reply::Nonce(nonce) => bytes.extend(nonce.to_le_bytes()),
            Reply::Popped { length, value } => {
                bytes.extend(length.to_le_bytes());
                value.iter().for_each(|value| push(&mut bytes, value));
            }
            Reply::Keys(keys) => {
                bytes.extend((keys.len() as u64).to_le_bytes());
                keys.iter().for_each(|key| push(&mut bytes, key));
            }
        }
        bytes.into()
    }
}

fn push(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.extend((value.len() as u64).to_le_bytes());
    bytes.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::STORE_READ_AHEAD_BYTES;
    use std::vec;

    const KEY: Bytes = Bytes::from_static(b"/k");
    const VALUE: Bytes = Bytes::from_static(b"abc");
    /// A key and a value as clients send them.
    const K: &[u8] = b"\x02\0\0\0\0\0\0\0/k";
    const V: &[u8] = b"\x03\0\0\0\0\0\0\0abc";
    const TWO: &[u8] = b"\x02\0\0\0\0\0\0\0";
    const MINUS_TWO: &[u8] = b"\xfe\xff\xff\xff\xff\xff\xff\xff";

    /// The requests in bytes that arrive one at a time, and the error that ends them.
    fn read(bytes: &[u8]) -> (Vec<Request>, Option<TorchStoreError>) {
        let (mut reader, mut requests) = (RequestReader::default(), Vec::new());
        for byte in bytes {
            reader.push(&[*byte]).unwrap();
            match reader.next() {
                Ok(request) => requests.extend(request),
                Err(error) => return (requests, Some(error)),
            }
        }
        assert_eq!(reader.held_bytes(), 0);
        (requests, None)
    }

    /// Each request, after its opcode in the newest generation and the bytes that follow the opcode.
    fn all() -> Vec<(u8, Vec<u8>, Request)> {
        let keys = || vec![KEY, KEY];
        vec![
            (1, [K, V].concat(), Request::Set { key: KEY, value: VALUE }),
            (2, [K, V, V].concat(), Request::CompareSet { key: KEY, expected: VALUE, desired: VALUE }),
            (3, K.to_vec(), Request::Get { key: KEY }),
            (4, [K, MINUS_TWO].concat(), Request::Add { key: KEY, amount: -2 }),
            (5, [TWO, K, K].concat(), Request::Check { keys: keys() }),
            (6, [TWO, K, K].concat(), Request::Wait { keys: keys() }),
            (7, vec![], Request::GetNumKeys),
            (8, K.to_vec(), Request::DeleteKey { key: KEY }),
            (9, [K, V].concat(), Request::Append { key: KEY, value: VALUE }),
            (10, [TWO, K, K].concat(), Request::MultiGet { keys: keys() }),
            (11, [TWO, K, V, K, V].concat(), Request::MultiSet { pairs: vec![(KEY, VALUE), (KEY, VALUE)] }),
            (12, vec![], Request::CancelWait),
            (13, vec![1, 2, 0, 0], Request::Ping { nonce: 513 }),
            (14, [K, V].concat(), Request::QueuePush { key: KEY, value: VALUE }),
            (15, K.to_vec(), Request::QueuePop { key: KEY }),
            (16, K.to_vec(), Request::QueueLen { key: KEY }),
            (17, vec![], Request::ListKeys),
            (18, [K, TWO].concat(), Request::Barrier { key: KEY, world_size: 2 }),
        ]
    }

    #[test]
    fn each_generation_is_told_by_its_first_bytes() {
        let magic = &MAGIC[..];
        let (mut once, mut each, mut old) = ([&[0], magic].concat(), Vec::new(), Vec::new());
        let (mut of_each, mut of_old) = (Vec::new(), Vec::new());
        for (opcode, rest, request) in all() {
            once.extend([&[opcode], &rest[..]].concat());
            if opcode <= 12 {
                each.extend([magic, &[opcode - 1], &rest[..]].concat());
                old.extend([&[if opcode < 8 { opcode - 1 } else { opcode }], &rest[..]].concat());
                of_each.push(request.clone());
                of_old.push(request);
            }
        }
        let newest = all().into_iter().map(|(_, _, request)| request).collect();
        assert_eq!(read(&once), (newest, None));
        assert_eq!(read(&each), (of_each, None));
        assert_eq!(read(&old), (of_old, None));
    }

    #[test]
    fn lies_are_refused_before_they_cost_memory() {
        let long = |limit: usize| (limit as u64 + 1).to_le_bytes();
        let too_long = |limit: usize| TorchStoreError::TooLong { length: limit as u64 + 1, limit };
        let magic = [&[0], &MAGIC[..]].concat();
        for (bytes, error) in [
            ([&[2][..], &long(STORE_KEY_LEN_MAX)].concat(), too_long(STORE_KEY_LEN_MAX)),
            ([&[0][..], K, &long(STORE_VALUE_LEN_MAX)].concat(), too_long(STORE_VALUE_LEN_MAX)),
            ([&[5][..], &long(STORE_KEYS_MAX)].concat(), too_long(STORE_KEYS_MAX)),
            (vec![7], TorchStoreError::UnknownOpcode(7)),
            (vec![13], TorchStoreError::UnknownOpcode(13)),
            ([&magic[..], &[19]].concat(), TorchStoreError::UnknownOpcode(19)),
            ([&magic[..], &[0]].concat(), TorchStoreError::UnknownOpcode(0)),
            (vec![0xce, 1, 2, 3], TorchStoreError::NoMagic),
        ] {
            assert_eq!(read(&bytes), (vec![], Some(error)));
        }
        let mut reader = RequestReader::default();
        reader.push(&[&[5], &(STORE_KEYS_MAX as u64).to_le_bytes()[..]].concat()).unwrap();
        assert_eq!(reader.next(), Ok(None));
        reader.push(&vec![0; STORE_REQUEST_BYTES_MAX]).unwrap();
        assert!(reader.push(&[0]).is_err());
    }

    #[test]
    fn a_long_request_arrives_in_pieces() {
        let value = vec![7; 3 * STORE_READ_AHEAD_BYTES];
        let length = (value.len() as u64).to_le_bytes();
        let bytes = [&[11][..], TWO, K, &length, &value, K, &length, &value].concat();
        let mut reader = RequestReader::default();
        let mut requests = Vec::new();
        for piece in bytes.chunks(50_000) {
            reader.push(piece).unwrap();
            requests.extend(reader.next().unwrap());
        }
        let pair = (KEY, Bytes::from(value));
        assert_eq!(requests, [Request::MultiSet { pairs: vec![pair.clone(), pair] }]);
    }

    #[test]
    fn replies_have_these_bytes() {
        for (reply, bytes) in [
            (Reply::Value(VALUE), V.to_vec()),
            (Reply::Values(vec![VALUE, KEY]), [V, K].concat()),
            (Reply::Number(-2), MINUS_TWO.to_vec()),
            (Reply::Byte(WAIT_CANCELLED), vec![1]),
            (Reply::Nonce(513), vec![1, 2, 0, 0]),
            (Reply::Popped { length: 2, value: Some(VALUE) }, [TWO, V].concat()),
            (Reply::Popped { length: 0, value: None }, vec![0; 8]),
            (Reply::Keys(vec![KEY, KEY]), [TWO, K, K].concat()),
        ] {
            assert_eq!(reply.encode(), bytes);
        }
    }
}
