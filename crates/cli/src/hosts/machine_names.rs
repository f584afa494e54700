//! Finds the hosts that are the launcher's own machine, and the other names of a host, without asking a name server.
//!
//! Taking this machine for another one costs a login to itself; taking another one for this machine would start its
//! ranks in the wrong place. So a full name counts as this machine's short name only if it is the only such name in the
//! list.

use super::file::Entry;
use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wireup_os::interfaces;

/// The names and addresses of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names {
    own: String,
    addresses: Vec<IpAddr>,
    /// Whether full names in the list that begin with this machine's short name count as this machine.
    full_names: bool,
}

impl Names {
    /// `own` is this machine's name; `entries` are all hosts.
    pub fn new(own: &str, addresses: Vec<IpAddr>, entries: &[Entry]) -> Names {
        let mut candidates = entries.iter().map(|entry| entry.name.as_str()).filter(|name| extends(name, own));
        let first = candidates.next();
        let full_names = candidates.all(|name| Some(name) == first);
        Names { own: own.to_owned(), addresses, full_names }
    }

    /// All names and addresses of this machine.
    pub fn all(&self) -> impl Iterator<Item = String> {
        let short = self.own.split('.').next().unwrap_or_default();
        let names = ["localhost", "127.0.0.1", "::1", &self.own, short].map(str::to_owned);
        names.into_iter().chain(self.addresses.iter().map(IpAddr::to_string))
    }

    /// Whether a name, as the user wrote it, is this machine's. A name with `user@` is not: it means another login.
    pub fn is_local(&self, name: &str) -> bool {
        if let Ok(address) = name.parse::<IpAddr>() {
            let loopback = address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST;
            return loopback || self.addresses.contains(&address);
        }
        name == "localhost"
            || (!name.is_empty() && name == self.own)
            || extends(&self.own, name)
            || (self.full_names && extends(name, &self.own))
    }
}

/// Whether `full` is `short` followed by a domain.
fn extends(full: &str, short: &str) -> bool {
    !short.is_empty() && full.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'))
}

/// The addresses of this machine's interfaces; empty if they cannot be read.
pub fn addresses() -> Vec<IpAddr> {
    interfaces::addresses().unwrap_or_default().into_iter().map(|own| own.ip).collect()
}

/// The lines of a hosts file, each with all names and addresses of one machine.
#[derive(Default)]
pub struct HostTable {
    lines: Vec<Vec<String>>,
    /// For each name or address, the indices of the lines that contain it.
    places: HashMap<String, Vec<usize>>,
}

impl HostTable {
    /// The table in `/etc/hosts` of this machine; empty if it cannot be read.
    pub fn of_system() -> HostTable {
        HostTable::read(&fs::read_to_string("/etc/hosts").unwrap_or_default())
    }

    fn read(text: &str) -> HostTable {
        let mut table = HostTable::default();
        for line in text.lines() {
            let words = line.split('#').next().unwrap_or_default().split_whitespace();
            let names: Vec<String> = words.map(str::to_owned).collect();
            // A loopback address belongs to every machine, so it identifies none.
            let address = names.first().and_then(|word| word.parse::<IpAddr>().ok());
            if address.is_none_or(|address| address.is_loopback()) {
                continue;
            }
            for name in &names {
                table.places.entry(name.clone()).or_default().push(table.lines.len());
            }
            table.lines.push(names);
        }
        table
    }

    /// All names and addresses of the machine with this name, which may have a user in front.
    pub fn names(&self, name: &str) -> impl Iterator<Item = String> {
        let name = name.rsplit_once('@').map_or(name, |(_, host)| host);
        let lines = self.places.get(name).into_iter().flatten();
        lines.flat_map(|&line| self.lines[line].iter().cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::list;

    fn is_local(own: &str, hosts: &str) -> Vec<String> {
        let entries = list(hosts).expect(hosts);
        let names = Names::new(own, vec!["10.0.0.7".parse().expect("an address")], &entries);
        entries.into_iter().map(|entry| entry.name).filter(|name| names.is_local(name)).collect()
    }

    #[test]
    fn this_machine_is_known_by_short_and_full_names_and_addresses() {
        assert_eq!(is_local("cn17.site.org", "cn1,cn17,cn17.site.org,cn17.other"), ["cn17", "cn17.site.org"]);
        assert_eq!(is_local("cn17", "cn1,cn17.site.org,cn170"), ["cn17.site.org"]);
        assert_eq!(
            is_local("cn17", "localhost,127.0.0.1,[::1],10.0.0.7,10.0.0.8,127.0.0.2"),
            ["localhost", "127.0.0.1", "::1", "10.0.0.7"]
        );
        assert_eq!(is_local("cn17", "root@cn17"), [""; 0]);
    }

    #[test]
    fn names_with_the_same_short_form_are_not_taken_as_local() {
        assert_eq!(is_local("worker", "worker.1.org,worker.2.org"), [""; 0]);
        assert_eq!(is_local("worker", "worker.1.org,worker.1.org"), ["worker.1.org", "worker.1.org"]);
    }

    #[test]
    fn own_addresses_include_the_loopback_address() {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(addresses().contains(&loopback), "{:?}", addresses());
    }

    #[test]
    fn a_machine_is_known_by_all_names_in_its_lines() {
        let table =
            HostTable::read("127.0.0.1 localhost n1\n10.0.0.1 n1 n1.x # one\n10.1.0.1\tn1-ib n1\nno-address n2\n");
        let names = |name: &str| table.names(name).collect::<Vec<_>>().join(" ");
        assert_eq!(names("me@n1"), "10.0.0.1 n1 n1.x 10.1.0.1 n1-ib n1");
        assert_eq!(names("10.1.0.1"), "10.1.0.1 n1-ib n1");
        assert_eq!((names("localhost"), names("n2")), (String::new(), String::new()));
    }
}
