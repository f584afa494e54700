//! The account under which everything runs on the nodes: root, as defined on this machine.
use std::fs;
use std::path::PathBuf;

pub struct Account {
    pub name: String,
    pub home: PathBuf,
    pub shell: String,
}

/// The PATH of commands on the hub and the nodes, after the testbed's own folder.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Account {
    pub fn root() -> Account {
        Self::parse(&fs::read_to_string("/etc/passwd").unwrap_or_default()).unwrap_or_else(|| Account {
            name: "root".into(),
            home: "/root".into(),
            shell: "/bin/sh".into(),
        })
    }

    fn parse(passwd: &str) -> Option<Account> {
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, "0", _, _, home, shell] = fields[..] else { return None };
            Some(Account { name: name.into(), home: home.into(), shell: shell.into() })
        })
    }

    /// The complete environment of a remote command.
    pub fn variables(&self) -> Vec<(String, String)> {
        let pairs = [
            ("HOME", self.home.to_string_lossy().into_owned()),
            ("USER", self.name.clone()),
            ("LOGNAME", self.name.clone()),
            ("SHELL", self.shell.clone()),
            ("PATH", format!("{}:{SYSTEM_PATH}", crate::mounts::PROGRAMS)),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_the_first_account_with_number_0() {
        let account = Account::parse("a:x:1:0::/a:/bin/a\nr:x:0:0:root:/r:/bin/r\ns:x:0:0::/s:/bin/s\n").expect("root");
        assert_eq!((&*account.name, &*account.shell), ("r", "/bin/r"));
        assert!(Account::parse("").is_none());
    }
}
