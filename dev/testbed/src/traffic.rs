//! Bytes sent over the testbed's network, as counted by the hub's ends of the nodes' cables.
use std::fs;
use std::io;
use std::ops::Sub;

/// Bytes of whole Ethernet frames since the start of the testbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that nodes have sent, to nodes and to the hub.
    pub from_nodes: u64,
    /// Bytes that were sent to nodes, by other nodes and by the hub.
    pub to_nodes: u64,
    /// Bytes that the hub has sent to nodes.
    pub from_hub: u64,
}

impl Traffic {
    /// Bytes of all frames; each frame is counted once, at its sender.
    pub fn sent(self) -> u64 {
        self.from_nodes + self.from_hub
    }

    /// Bytes in both directions on all cables: traffic between two nodes counts twice.
    pub fn on_cables(self) -> u64 {
        self.from_nodes + self.to_nodes
    }

    /// Reads the counters of the network name space of process `pid`.
    pub fn read(pid: u32) -> io::Result<Traffic> {
        Ok(Self::parse(&fs::read_to_string(format!("/proc/{pid}/net/dev"))?))
    }

    fn parse(table: &str) -> Traffic {
        let mut traffic = Traffic::default();
        for (name, counters) in table.lines().filter_map(|line| line.split_once(':')) {
            let counters: Vec<u64> = counters.split_whitespace().map_while(|word| word.parse().ok()).collect();
            let [received, sent] = [0, 8].map(|at| counters.get(at).copied().unwrap_or(0));
            match name.trim() {
                "br0" => traffic.from_hub += sent,
                port if port.starts_with('v') => {
                    traffic.from_nodes += received;
                    traffic.to_nodes += sent;
                }
                _ => {}
            }
        }
        traffic
    }
}

impl Sub for Traffic {
    type Output = Traffic;

    fn sub(self, before: Traffic) -> Traffic {
        Traffic {
            from_nodes: self.from_nodes.saturating_sub(before.from_nodes),
            to_nodes: self.to_nodes.saturating_sub(before.to_nodes),
            from_hub: self.from_hub.saturating_sub(before.from_hub),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_nodes_and_hub_are_distinguished() {
        let table = "Inter-|   Receive\n face |bytes\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n   \
                     br0: 1 0 0 0 0 0 0 0 20 0\n    v0: 300 0 0 0 0 0 0 0 4000 0\n    \
                     v1: 1 0 0 0 0 0 0 0 2 0\ndocker0: 7 0 0 0 0 0 0 0 7 0\n";
        let traffic = Traffic::parse(table);
        assert_eq!(traffic, Traffic { from_nodes: 301, to_nodes: 4002, from_hub: 20 });
        assert_eq!((traffic.sent(), traffic.on_cables()), (321, 4303));
    }
}
