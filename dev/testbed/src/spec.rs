//! The specification of a testbed, and the names and addresses that follow from it.
//!
//! The specification is also passed, as arguments, to the process that builds the testbed.
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of nodes of a testbed. Larger testbeds were not measured; the addresses would suffice for 253.
pub const NODES_MAX: u16 = 128;
pub const HUB: &str = "hub";
pub const IPV4_PREFIX: u8 = 16;
pub const IPV6_PREFIX: u8 = 64;
/// The difference between the monotonic clocks of consecutive nodes if `clock_offsets` is set.
const CLOCK_STEP: Duration = Duration::from_secs(100);
/// Default number of processors that Slurm assumes on a node. Chosen: enough for most tests.
const SLURM_CPUS: u16 = 16;

#[derive(Clone, Debug)]
pub struct Spec {
    /// Path of the `wireup-testbed` program.
    pub program: PathBuf,
    pub nodes: u16,
    /// Options for sshd, `NAME=VALUE`, each for one node or, if `None`, for all nodes.
    pub sshd_options: Vec<(Option<u16>, String)>,
    /// Whether a real Slurm runs on all nodes.
    pub slurm: bool,
    /// Number of processors that Slurm assumes on every node.
    pub slurm_cpus: u16,
    /// Additional lines of `slurm.conf`, `NAME=VALUE`.
    pub slurm_options: Vec<String>,
    /// Whether the monotonic clock of node `i` is 100 s * (`i` + 1) ahead of the hub's.
    pub clock_offsets: bool,
    /// Whether the hub and every node have an interface `docker0` with the same address.
    pub trap_interfaces: bool,
    /// Directories that nodes share with this machine although they are inside `/tmp`, `/run`, `/dev/shm` or the home
    /// directory.
    pub shares: Vec<PathBuf>,
}

impl Spec {
    pub fn new(program: impl Into<PathBuf>, nodes: u16) -> Spec {
        Spec {
            program: program.into(),
            nodes,
            sshd_options: Vec::new(),
            slurm: false,
            slurm_cpus: SLURM_CPUS,
            slurm_options: Vec::new(),
            clock_offsets: false,
            trap_interfaces: true,
            shares: Vec::new(),
        }
    }

    /// Time by which node `i`'s monotonic clock is ahead of the hub's.
    pub fn clock_offset(&self, i: u16) -> Duration {
        if self.clock_offsets { CLOCK_STEP * (u32::from(i) + 1) } else { Duration::ZERO }
    }

    pub fn arguments(&self) -> Vec<OsString> {
        let mut list: Vec<OsString> = vec!["--nodes".into(), self.nodes.to_string().into()];
        let switches =
            [(self.slurm, "--slurm"), (self.clock_offsets, "--clock-offsets"), (!self.trap_interfaces, "--no-trap")];
        list.extend(switches.iter().filter(|(on, _)| *on).map(|(_, flag)| OsString::from(flag)));
        for (node, option) in &self.sshd_options {
            let prefix = node.map(|i| format!("{}:", name(i))).unwrap_or_default();
            list.extend(["--sshd-option".into(), OsString::from(format!("{prefix}{option}"))]);
        }
        if self.slurm_cpus != SLURM_CPUS {
            list.extend(["--slurm-cpus".into(), OsString::from(self.slurm_cpus.to_string())]);
        }
        list.extend(self.slurm_options.iter().flat_map(|option| [OsString::from("--slurm-option"), option.into()]));
        list.extend(self.shares.iter().flat_map(|path| [OsString::from("--share"), path.into()]));
        list
    }

    /// Parses flags up to `--` or the first word that is not a flag; the words after that remain in `words`.
    pub fn parse(program: PathBuf, words: &mut Vec<OsString>) -> Result<Spec, String> {
        let mut spec = Spec::new(program, 0);
        take_flags(words, |flag, words| spec.take_flag(flag, words))?;
        match spec.nodes {
            0 => Err(format!("-n N is missing: the number of nodes, 1 to {NODES_MAX}")),
            1..=NODES_MAX => Ok(spec),
            more => Err(format!("-n {more}: a testbed has at most {NODES_MAX} nodes")),
        }
    }

    fn take_flag(&mut self, flag: &OsStr, words: &mut Vec<OsString>) -> Result<(), String> {
        match flag.to_str().unwrap_or_default() {
            "-n" | "--nodes" => {
                let text = value(flag, words)?;
                self.nodes = text.parse().map_err(|_| format!("-n {text}: not a number of nodes"))?;
            }
            "--slurm" => self.slurm = true,
            "--slurm-cpus" => {
                let text = value(flag, words)?;
                let number = text.parse().ok().filter(|number| *number > 0);
                self.slurm_cpus = number.ok_or_else(|| format!("--slurm-cpus {text}: not a number of processors"))?;
            }
            "--slurm-option" => {
                let text = value(flag, words)?;
                if !text.contains('=') {
                    return Err(format!("--slurm-option {text}: expected NAME=VALUE"));
                }
                self.slurm_options.push(text);
            }
            "--clock-offsets" => self.clock_offsets = true,
            "--no-trap" => self.trap_interfaces = false,
            "--share" => self.shares.push(value(flag, words)?.into()),
            "--sshd-option" => self.sshd_options.push(sshd_option(&value(flag, words)?)?),
            other => return Err(format!("{other}: no such flag; see wireup-testbed --help")),
        }
        Ok(())
    }
}

/// Removes flags up to `--` or the first word that is not a flag, each with its value, from the front of `words`.
pub fn take_flags(
    words: &mut Vec<OsString>,
    mut take: impl FnMut(&OsStr, &mut Vec<OsString>) -> Result<(), String>,
) -> Result<(), String> {
    while words.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-")) {
        let word = words.remove(0);
        if word == "--" {
            break;
        }
        take(&word, words)?;
    }
    Ok(())
}

/// Removes and returns the value that follows a flag.
pub fn os_value(flag: &OsStr, words: &mut Vec<OsString>) -> Result<OsString, String> {
    if words.is_empty() {
        return Err(format!("{}: its value is missing", flag.to_string_lossy()));
    }
    Ok(words.remove(0))
}

fn value(flag: &OsStr, words: &mut Vec<OsString>) -> Result<String, String> {
    os_value(flag, words)?.into_string().map_err(|word| format!("{}: not UTF-8", word.to_string_lossy()))
}

fn sshd_option(text: &str) -> Result<(Option<u16>, String), String> {
    let of_node = text.strip_prefix('n').and_then(|rest| rest.split_once(':'));
    let node = of_node.and_then(|(number, option)| Some((number.parse().ok()?, option)));
    let (node, option) = node.map_or((None, text), |(number, option)| (Some(number), option));
    match option.contains('=') {
        true => Ok((node, option.to_owned())),
        false => Err(format!("--sshd-option {text}: expected [nI:]NAME=VALUE")),
    }
}

pub fn name(i: u16) -> String {
    format!("n{i}")
}

/// IPv4 and IPv6 address of node `i`, or of the hub.
pub fn addresses(i: Option<u16>) -> [(IpAddr, u8); 2] {
    let last = i.map_or(0xfe, |i| i + 1);
    let ipv4 = Ipv4Addr::new(10, 77, 0, last as u8);
    let ipv6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last);
    [(ipv4.into(), IPV4_PREFIX), (ipv6.into(), IPV6_PREFIX)]
}

/// Hardware address of node `i`'s interface, or of the hub's bridge.
pub fn mac(i: Option<u16>) -> [u8; 6] {
    let [high, low] = i.map_or(0xfe, |i| i + 1).to_be_bytes();
    [0x02, 0x77, 0, 0, high, low]
}

/// The contents of `/etc/hosts` on the hub and on every node.
pub fn hosts_file(nodes: u16) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for i in std::iter::once(None).chain((0..nodes).map(Some)) {
        let [(ipv4, _), (ipv6, _)] = addresses(i);
        let name = i.map_or(HUB.to_owned(), name);
        text += &format!("{ipv4} {name}\n{ipv6} {name}-v6\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_round_trips_through_arguments() {
        let mut spec = Spec::new("/bin/x", 3);
        spec.trap_interfaces = false;
        spec.sshd_options = vec![(Some(2), "MaxStartups=1".into()), (None, "LogLevel=ERROR".into())];
        spec.shares = vec!["/tmp/a b".into()];
        spec.slurm = true;
        spec.slurm_cpus = 7;
        spec.slurm_options = vec!["TreeWidth=2".into()];
        let mut words = spec.arguments();
        words.extend(["--".into(), "-x".into()]);
        let back = Spec::parse("/bin/x".into(), &mut words).expect("its own arguments");
        assert_eq!(format!("{back:?}"), format!("{spec:?}"));
        assert_eq!(words, ["-x"]);
    }

    #[test]
    fn wrong_flags_are_named() {
        for (words, part) in [
            (vec!["--no"], "--no:"),
            (vec![], "-n N"),
            (vec!["-n", "129"], "128"),
            (vec!["-n", "x"], "-n x"),
            (vec!["--slurm-cpus", "0"], "--slurm-cpus 0"),
        ] {
            let mut words = words.into_iter().map(OsString::from).collect();
            let error = Spec::parse("x".into(), &mut words).expect_err("wrong flags");
            assert!(error.contains(part), "{error}");
        }
    }
}
