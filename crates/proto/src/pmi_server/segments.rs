//! Requests of our own clients for segments, so that they read the kvs themselves.
//!
//! A client sends one when a fence's version is newer than its mapped segments; its look-ups are then plain memory accesses.

use super::kvs::KvsError;
use super::turn::{Effect, Turn};
use wireup_wire::pmi::{Envelope, Reply};

impl Turn<'_, '_> {
    /// `have`: the versions where the client's segments end, oldest first, separated by commas.
    pub(super) fn on_kvs_map(&mut self, envelope: &Envelope<'_>, have: &[u8]) {
        let Some(have) = numbers(have) else {
            return self.refuse(envelope, "have_is_not_a_list_of_numbers");
        };
        match self.tables.kvs.map(&have, self.tables.shares) {
            Ok(mapping) => {
                let ends: Vec<String> = mapping.fresh.iter().map(|(end, _)| end.to_string()).collect();
                self.answer(envelope, &Reply::KvsMap { keep: mapping.keep, ends: ends.join(",").as_bytes() });
                self.tables.handed.extend(mapping.fresh.into_iter().map(|(_, share)| share));
            }
            Err(error) => {
                self.effects.push(Effect::unreadable(error));
                self.refuse(envelope, UNREADABLE);
            }
        }
    }
}

/// The answer to the requesting rank while its job fails.
pub(super) const UNREADABLE: &str = "the_pairs_of_the_fences_cannot_be_read";

impl Effect {
    pub(super) fn unreadable(error: KvsError) -> Effect {
        Effect::Unreadable { problem: error.to_string() }
    }
}

fn numbers(text: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
}
