//! One file server for all nodes: it serves one reader after the other.

use crate::cx::Cx;
use wireup_proto::Instant;

#[derive(Default)]
pub struct FileServer {
    /// Time at which the server has served all requests so far.
    free_at: Instant,
}

impl FileServer {
    /// Time (ns) until the server has sent the program to one more reader.
    pub fn load(&mut self, cx: &Cx) -> u64 {
        self.ask(cx.clock.now(), cx.spec.timing.costs.map_or(0, |costs| costs.load_ns))
    }

    /// Time (ns) until a request of `work_ns` has been served, after all requests before it.
    pub fn ask(&mut self, now: Instant, work_ns: u64) -> u64 {
        self.free_at = self.free_at.max(now) + work_ns;
        self.free_at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_wait_for_each_other() {
        let mut server = FileServer::default();
        assert_eq!(server.ask(Instant(100), 10), 10);
        assert_eq!(server.ask(Instant(103), 10), 17);
        assert_eq!(server.ask(Instant(200), 10), 10);
    }
}
