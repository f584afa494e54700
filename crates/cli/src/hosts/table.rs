//! The names of machines in `/etc/hosts`, so that hosts are recognised by any of them without asking a name server.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;

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
