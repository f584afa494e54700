//! The kvs in memory: what fences have published, mapped from our own server, looked up without a message.
//!
//! A fence's answer says how often the kvs has grown. The first get after it has grown asks for the segments that are
//! missing (one round trip); the server may have merged some into a larger one. A later segment's pairs win.

use alloc::vec::Vec;
use wireup_capi::codes::{Code, Result};
use wireup_capi::mapping::Mapping;
use wireup_capi::{Failure, Server, ints};
use wireup_wire::pmi::Request;
use wireup_wire::shared::segment::Segment;

#[derive(Default)]
pub struct Segments {
    /// Oldest first, each with the version at which it ends.
    all: Vec<(u32, Mapping)>,
    /// The version that is mapped.
    mapped: u32,
    /// The latest version that a fence has told of.
    latest: u32,
}

impl Segments {
    pub fn on_version(&mut self, version: u32) {
        self.latest = self.latest.max(version);
    }

    /// The value of a key, both as they are on the wire.
    pub fn get(&mut self, server: &mut Server, key: &[u8]) -> Result<Option<&[u8]>> {
        if self.mapped < self.latest {
            self.refresh(server)?;
        }
        for (_, mapping) in self.all.iter().rev() {
            let segment = Segment::read(mapping).map_err(|_| Code::FAIL)?;
            if let Some(value) = segment.get(key) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn refresh(&mut self, server: &mut Server) -> Result {
        let mut have = Vec::new();
        for (end, _) in &self.all {
            ints::push_item(*end as usize, &mut have);
        }
        let (mut keep, mut ends) = (None, None);
        server.call(&Request::KvsMap { have: &have }, &mut |fields| {
            keep = fields.get("keep").and_then(ints::parse::<usize>);
            ends = list(fields.get("ends").unwrap_or_default());
        })?;
        let mappings = server.take_mappings();
        let (Some(keep), Some(ends)) = (keep, ends) else {
            return Err(Failure::Broken.into());
        };
        self.all.truncate(keep);
        for (end, mapping) in ends.into_iter().zip(mappings) {
            // What is missing is asked for again.
            self.all.push((end, mapping.ok_or(Code::NOMEM)?));
        }
        self.mapped = self.latest.max(self.all.last().map_or(0, |(end, _)| *end));
        Ok(())
    }
}

fn list(text: &[u8]) -> Option<Vec<u32>> {
    if text.is_empty() { Some(Vec::new()) } else { text.split(|byte| *byte == b',').map(ints::parse).collect() }
}
