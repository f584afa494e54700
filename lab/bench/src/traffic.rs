//! Bytes sent over the network of a testbed, where the benchmark's own name space holds one end of every cable.
//!
//! Each frame counts once, where it was sent: by a node (received by a port of the hub) or by the hub (sent by its
//! bridge). On other networks the counters of one host do not cover the rest, so there is no figure.
use std::fs;

/// Set by `wireup-testbed run` on its hub.
const MARK: &str = "WIREUP_TESTBED_HOSTS";
const BRIDGE: &str = "br0";
const PORT_PREFIX: char = 'v';

/// Bytes of whole frames since the network was created.
pub fn sent() -> Option<u64> {
    std::env::var_os(MARK)?;
    parse(&fs::read_to_string("/proc/self/net/dev").ok()?)
}

/// `None` if there is no hub's bridge.
fn parse(table: &str) -> Option<u64> {
    let (mut total, mut is_hub) = (0, false);
    for (name, counters) in table.lines().filter_map(|line| line.split_once(':')) {
        let mut counters = counters.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        match name.trim() {
            BRIDGE => {
                total += counters.nth(8)?;
                is_hub = true;
            }
            port if port.starts_with(PORT_PREFIX) => total += counters.next()?,
            _ => {}
        }
    }
    is_hub.then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_of_nodes_and_hub_is_summed() {
        let ports = "    v0: 300 0 0 0 0 0 0 0 4000 0\n    v1: 1 0 0 0 0 0 0 0 2 0\ndocker0: 7 0 0 0 0 0 0 0 7 0\n";
        let table = format!("Inter-|   Receive\n    lo: 9 9 0 0 0 0 0 0 9 9\n   br0: 1 0 0 0 0 0 0 0 20 0\n{ports}");
        assert_eq!(parse(&table), Some(321));
        assert_eq!(parse(ports), None);
    }
}
