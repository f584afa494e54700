//! The kvs in shared memory: what fences have published, looked up without a message.
//!
//! A fence's answer says how often the kvs has grown. The first get after it has grown asks for the segments that are
//! missing (one round trip); the server may have merged some into a larger one. A later segment's pairs win.

use crate::memory::Memory;
use crate::number;
use alloc::vec::Vec;
use wireup_wire::pmi::ReplyFields;
use wireup_wire::shared::segment::Segment;

pub struct Segments<M: Memory> {
    /// The mapped segments, oldest first, each with the version at which it ends.
    all: Vec<(u32, M::SharedBytes)>,
    /// The version of the kvs up to which segments are mapped.
    mapped: u32,
    /// The latest version that a fence has reported.
    latest: u32,
}

/// The answer to a question for segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Number of the oldest segments that the client keeps.
    keep: usize,
    /// The version at which each new segment ends.
    ends: Vec<u32>,
}

/// Why a lookup failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentError {
    /// The bytes are no segment.
    Malformed,
    /// A segment could not be mapped. The next lookup asks for it again.
    NotMapped,
}

impl<M: Memory> Default for Segments<M> {
    fn default() -> Self {
        Segments { all: Vec::new(), mapped: 0, latest: 0 }
    }
}

impl Update {
    /// Reads the server's answer; `None`: it is malformed.
    pub fn read(fields: &ReplyFields<'_>) -> Option<Update> {
        let ends = match fields.get("ends") {
            None | Some(b"") => Vec::new(),
            Some(text) => number::list(text)?,
        };
        Some(Update { keep: fields.get("keep").and_then(number::parse)?, ends })
    }
}

impl<M: Memory> Segments<M> {
    pub fn on_version(&mut self, version: u32) {
        self.latest = self.latest.max(version);
    }

    /// The latest version of the kvs that a fence has reported.
    pub fn latest(&self) -> u32 {
        self.latest
    }

    /// Whether a fence has published pairs that are not mapped.
    pub fn is_behind(&self) -> bool {
        self.mapped < self.latest
    }

    /// The versions at which the mapped segments end, as the text of a request to the server.
    pub fn have(&self) -> Vec<u8> {
        let mut have = Vec::new();
        self.all.iter().for_each(|(end, _)| number::push_item(*end as usize, &mut have));
        have
    }

    /// Takes the server's answer, with the memory that came with it.
    pub fn update(&mut self, update: Update, memory: Vec<Option<M>>) -> Result<(), SegmentError> {
        self.all.truncate(update.keep);
        for (end, memory) in update.ends.into_iter().zip(memory) {
            let part = memory.and_then(|memory| memory.whole()).ok_or(SegmentError::NotMapped)?;
            self.all.push((end, part));
        }
        self.mapped = self.latest.max(self.all.last().map_or(0, |(end, _)| *end));
        Ok(())
    }

    /// The value of a key; both are in the encoding of the wire.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, SegmentError> {
        for (_, part) in self.all.iter().rev() {
            let segment = Segment::read(part).map_err(|_| SegmentError::Malformed)?;
            if let Some(value) = segment.get(key) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}
