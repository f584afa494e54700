//! The counts on a page, as plain numbers.

use crate::page::{FAMILIES, FENCES_KEPT, Family, PAGE_BYTES, Page};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Sums over all requests of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Requests {
    pub calls: u64,
    pub sent: u64,
    pub received: u64,
    pub wait_ns: u64,
    pub longest_ns: u64,
}

/// The counts of one rank's PMI requests. A time of 0: the event did not happen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub pid: u64,
    pub loaded_ns: u64,
    pub first_ns: u64,
    pub finalize_ns: u64,
    /// Time of the last answer.
    pub last_ns: u64,
    pub fences: u64,
    /// Times at which the rank entered and left each fence, in the order of the entries.
    pub fence_times: [(u64, u64); FENCES_KEPT],
    pub families: [Requests; FAMILIES],
}

impl Tally {
    pub fn of(page: &Page) -> Tally {
        let of = |number: &AtomicU64| number.load(Relaxed);
        let mut tally = Tally {
            pid: of(&page.pid),
            loaded_ns: of(&page.loaded_ns),
            first_ns: of(&page.first_ns),
            finalize_ns: of(&page.finalize_ns),
            last_ns: of(&page.last_ns),
            fences: of(&page.fences),
            ..Tally::default()
        };
        for (number, times) in tally.fence_times.iter_mut().enumerate() {
            *times = (of(&page.fence_in_ns[number]), of(&page.fence_out_ns[number]));
        }
        for (requests, sums) in tally.families.iter_mut().zip(&page.families) {
            *requests = Requests {
                calls: of(&sums.calls),
                sent: of(&sums.sent),
                received: of(&sums.received),
                wait_ns: of(&sums.wait_ns),
                longest_ns: of(&sums.longest_ns),
            };
        }
        tally
    }

    /// The counts on the page with these bytes, which may have any values, since the rank can write to the page.
    pub fn of_bytes(bytes: &[u8; PAGE_BYTES]) -> Tally {
        let page = Page::default();
        let before = [&page.magic, &page.pid, &page.loaded_ns, &page.first_ns, &page.finalize_ns, &page.last_ns];
        let fences = std::iter::once(&page.fences).chain(&page.fence_in_ns).chain(&page.fence_out_ns);
        let families =
            page.families.iter().flat_map(|of| [&of.calls, &of.sent, &of.received, &of.wait_ns, &of.longest_ns]);
        let all = before.into_iter().chain(fences).chain(families);
        let (words, _) = bytes.as_chunks();
        all.zip(words).for_each(|(slot, word)| slot.store(u64::from_ne_bytes(*word), Relaxed));
        Tally::of(&page)
    }

    pub fn family(&self, family: Family) -> &Requests {
        &self.families[family as usize]
    }

    pub fn calls(&self) -> u64 {
        // The sum may not overflow: the rank can write anything to the page.
        self.families.iter().fold(0, |sum, family| sum.saturating_add(family.calls))
    }
}
