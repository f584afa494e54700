//! The page of memory that a rank's preloaded library and the tap share. This file is compiled into both.

#![allow(dead_code, reason = "each of the two uses a part")]

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Variable in the rank's environment with the path at which the preloaded library opens the page.
pub const VARIABLE: &str = "WIREUP_TAP_PAGE";
pub const MAGIC: u64 = u64::from_le_bytes(*b"wuptap01");

/// Number of fences whose time stamps are kept; for later fences only sums are kept.
pub const FENCES_KEPT: usize = 8;

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Family {
    Init,
    /// Information about the server and the job.
    Info,
    Put,
    Commit,
    Fence,
    Get,
    /// Publishing names, spawning processes, groups.
    Other,
    Finalize,
}

pub const FAMILIES: usize = 8;

/// Sums over all requests of one kind.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Sums {
    pub calls: AtomicU64,
    /// Bytes from the rank to the server.
    pub sent: AtomicU64,
    pub received: AtomicU64,
    /// Total time between requests and their answers.
    pub wait_ns: AtomicU64,
    pub longest_ns: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C)]
pub struct Page {
    pub magic: AtomicU64,
    /// Pid of the process whose calls are counted: the first that called `PMIx_Init`.
    pub pid: AtomicU64,
    /// Time at which the loader had loaded that process's initial libraries (ns).
    pub loaded_ns: AtomicU64,
    pub first_ns: AtomicU64,
    pub finalize_ns: AtomicU64,
    pub last_ns: AtomicU64,
    /// Number of fences of all ranks that have begun.
    pub fences: AtomicU64,
    pub fence_in_ns: [AtomicU64; FENCES_KEPT],
    pub fence_out_ns: [AtomicU64; FENCES_KEPT],
    pub families: [Sums; FAMILIES],
}

pub const PAGE_BYTES: usize = 4096;
const _: () = assert!(size_of::<Page>() <= PAGE_BYTES);

impl Page {
    /// Notes the time of the rank's first request.
    pub fn first(&self, now_ns: u64) {
        let _ = self.first_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
    }

    /// Counts a request that has completed.
    pub fn add(&self, family: Family, sent: u64, received: u64, from_ns: u64, to_ns: u64) {
        let sums = &self.families[family as usize];
        let took_ns = to_ns.saturating_sub(from_ns);
        sums.calls.fetch_add(1, Relaxed);
        sums.sent.fetch_add(sent, Relaxed);
        sums.received.fetch_add(received, Relaxed);
        sums.wait_ns.fetch_add(took_ns, Relaxed);
        sums.longest_ns.fetch_max(took_ns, Relaxed);
        self.last_ns.fetch_max(to_ns, Relaxed);
    }

    /// Notes that the rank enters a fence of all ranks; returns the fence's number.
    pub fn fence_begins(&self, now_ns: u64) -> usize {
        let number = self.fences.fetch_add(1, Relaxed) as usize;
        if let Some(at) = self.fence_in_ns.get(number) {
            at.store(now_ns, Relaxed);
        }
        number
    }

    pub fn fence_out(&self, number: usize, now_ns: u64) {
        if let Some(at) = self.fence_out_ns.get(number) {
            at.store(now_ns, Relaxed);
        }
    }

    pub fn fence_ends(&self, number: usize, from_ns: u64, now_ns: u64) {
        self.fence_out(number, now_ns);
        self.add(Family::Fence, 0, 0, from_ns, now_ns);
    }
}
