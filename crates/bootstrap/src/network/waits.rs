//! How a rank waits for events: it sleeps, but polls for a short time first if its last waits were short.
//!
//! Waking a process takes the kernel several times as long as carrying a message between two hosts. But a rank that
//! polls takes processor time from other ranks on its core. So ranks poll only while messages come quickly, and yield
//! the core after each poll.

use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::net::{self, Epoll, Event};

/// How long a rank polls before it sleeps (ns). Chosen: the time of a message between hosts and its answer.
const POLL_NS: u64 = 30_000;
/// A wait that takes less than this is short (ns). Chosen: [`POLL_NS`] and the time to wake a sleeping process.
const SHORT_NS: u64 = 60_000;
/// A rank polls after this many short waits in a row. Chosen: more than occur while a job starts up.
const SHORT_MIN: u32 = 4;

#[derive(Default)]
pub struct Waits {
    /// Number of latest waits that were short, in a row.
    short: u32,
}

impl Waits {
    /// Waits for events for at most `ms` milliseconds (negative: without limit).
    pub fn wait(&mut self, epoll: &Epoll, ms: c_int, events: &mut Vec<Event>) {
        if ms == 0 {
            return epoll.wait(0, events);
        }
        let begun = net::now_ns();
        let is_polling = self.short >= SHORT_MIN;
        epoll.wait(if is_polling { 0 } else { ms }, events);
        if is_polling {
            while events.is_empty() && net::now_ns() - begun < POLL_NS {
                net::yield_core();
                epoll.wait(0, events);
            }
            if events.is_empty() {
                epoll.wait(ms, events);
            }
        }
        let is_short = net::now_ns() - begun < SHORT_NS;
        self.short = if is_short { self.short.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polling() -> Waits {
        Waits { short: SHORT_MIN }
    }

    #[test]
    fn after_a_long_wait_a_rank_sleeps() {
        let (epoll, mut events) = (Epoll::new().unwrap(), Vec::new());
        let mut waits = polling();
        waits.wait(&epoll, 1, &mut events);
        assert!(events.is_empty());
        assert_eq!(waits.short, 0);
    }

    #[test]
    fn what_is_ready_is_found_by_polling_and_asleep() {
        let (listening, port) = net::listen().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.watch(listening.fd(), 7, false, true).unwrap();
        let address = core::net::SocketAddr::new(core::net::Ipv4Addr::LOCALHOST.into(), port);
        let _dialled = net::connect(&address, None).unwrap();
        for mut waits in [Waits::default(), polling()] {
            let mut events = Vec::new();
            waits.wait(&epoll, -1, &mut events);
            assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
        }
    }
}
