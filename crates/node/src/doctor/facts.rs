//! Reads the facts about this machine that matter to a job.

use crate::agent::remote;
use crate::transport::addresses::{self, Filter, SshConnection};
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::process::Resource;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use wireup_os::interfaces::{self, InterfaceAddress};

/// Facts about one machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Facts {
    pub version: String,
    /// The build id, by which builds of the same version can be told apart.
    pub build: String,
    pub arch: String,
    /// Name and release of the kernel.
    pub kernel: String,
    pub host: String,
    pub user: u32,
    /// Number of CPUs that this process may use.
    pub cpus: u32,
    pub limits: Limits,
    /// Size of `/dev/shm`; `None`: there is no `/dev/shm`.
    pub shm: Option<Space>,
    pub memory_free: Option<u64>,
    /// This machine's addresses that its child agents would be offered, best first; or why none is offered.
    pub offered: Result<Vec<Address>, String>,
    /// This machine's addresses that its child agents would not be offered, each with the reason.
    pub left_out: Vec<(Address, String)>,
    pub cache: Cache,
    /// The wall clock, ns since 1970.
    pub clock_ns: u64,
    /// Why ranks could not use their working directory; `None`: they can.
    pub cwd_problem: Option<String>,
}

/// Resource limits. A limit of `None` means unlimited.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    pub open_files: LimitsOf,
    pub processes: LimitsOf,
    pub locked_memory: LimitsOf,
    pub core: LimitsOf,
    pub stack: LimitsOf,
    /// Most processes and threads in the control group; `None`: unlimited.
    pub pids_max: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LimitsOf {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// Sizes of a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Space {
    pub total: u64,
    pub free: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    pub interface: String,
    pub ip: IpAddr,
}

/// The directory in which the program would be stored if it had to be sent to this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cache {
    pub path: String,
    pub free: Option<u64>,
    /// Why nothing could be stored in the directory; `None`: files can be stored there.
    pub problem: Option<String>,
}

/// Facts about this machine for a job whose ranks work in `cwd`. `interface` is `--interface` as the user wrote it;
/// `ssh` tells how this machine was reached, `variable` has the environment of the user's login.
pub fn read(
    interface: Option<&str>,
    ssh: Option<SshConnection>,
    cwd: &Path,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Facts {
    let own = interfaces::addresses().unwrap_or_default();
    let filter = interface.and_then(|text| Filter::parse(text).ok());
    let offered = addresses::offered(&own, filter.as_ref(), ssh.map(|ssh| ssh.server), false);
    let left_out = own.iter().filter(|own| !offered.as_ref().is_ok_and(|offered| offered.contains(&own.ip)));
    let left_out = left_out.map(|own| (address_of(own), why_left_out(own, filter.as_ref()).into())).collect();
    let offered = offered.map(|offered| offered.iter().map(|ip| address(*ip, &own)).collect());
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    Facts {
        version: env!("CARGO_PKG_VERSION").into(),
        build: wireup_os::build_id::build_id().unwrap_or_default(),
        arch: std::env::consts::ARCH.into(),
        kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
        host: text(uname.nodename()),
        user: rustix::process::geteuid().as_raw(),
        cpus: wireup_os::bind::allowed().map_or(0, |allowed| allowed.len() as u32),
        limits: limits(),
        shm: space(Path::new("/dev/shm")),
        memory_free: fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(memory_available),
        offered: offered.map_err(|problem| problem.to_string()),
        left_out,
        cache: cache(variable),
        clock_ns: wall_clock_ns(),
        cwd_problem: directory_problem(cwd),
    }
}

/// Nanoseconds since 1970.
pub fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn address_of(own: &InterfaceAddress) -> Address {
    Address { interface: own.interface.clone(), ip: own.ip }
}

fn address(ip: IpAddr, own: &[InterfaceAddress]) -> Address {
    Address { interface: addresses::interface_of(ip, own).unwrap_or_default().to_owned(), ip }
}

fn why_left_out(own: &InterfaceAddress, filter: Option<&Filter>) -> &'static str {
    match () {
        () if !own.up => "it is down",
        () if !addresses::leads_out(own.ip) => "its address is valid on one link only",
        () if filter.is_some_and(|filter| !filter.takes(own)) => "--interface chooses other interfaces",
        () if own.loopback => "it is a loopback address",
        () if addresses::is_accidental(own) => "a bridge, a tunnel, or a network that exists only on this machine",
        () => "other addresses are preferred",
    }
}

fn limits() -> Limits {
    let of = |resource| {
        let limit = wireup_os::process::limit(resource).ok();
        LimitsOf { soft: limit.and_then(|limit| limit.current), hard: limit.and_then(|limit| limit.maximum) }
    };
    Limits {
        open_files: of(Resource::Nofile),
        processes: of(Resource::Nproc),
        locked_memory: of(Resource::Memlock),
        core: of(Resource::Core),
        stack: of(Resource::Stack),
        pids_max: pids_max(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default(), Path::new("/sys/fs/cgroup")),
    }
}

/// The lowest `pids.max` of the control group and its ancestors; `None`: there is no such limit.
fn pids_max(groups: &str, mount: &Path) -> Option<u64> {
    let group = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = Path::new(path.trim_start_matches('/'));
        match controllers {
            "" => Some((mount.to_owned(), path)),
            _ if controllers.split(',').any(|name| name == "pids") => Some((mount.join("pids"), path)),
            _ => None,
        }
    });
    let (mount, path) = group?;
    let bound = |part: &Path| fs::read_to_string(mount.join(part).join("pids.max")).ok()?.trim().parse().ok();
    path.ancestors().filter_map(bound).min()
}

fn memory_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

fn space(path: &Path) -> Option<Space> {
    let found = statvfs(path).ok()?;
    Some(Space { total: found.f_blocks * found.f_frsize, free: found.f_bavail * found.f_frsize })
}

/// The first cache in which `remote` could store programs; the first of all if there is none.
fn cache(variable: &dyn Fn(&str) -> Option<OsString>) -> Cache {
    let caches: Vec<Cache> = remote::caches(variable).iter().map(|place| cache_at(place)).collect();
    let usable = caches.iter().find(|cache| cache.problem.is_none()).or(caches.first()).cloned();
    usable.unwrap_or_else(|| Cache { path: String::new(), free: None, problem: Some("HOME is not set".into()) })
}

fn cache_at(place: &Path) -> Cache {
    let there = place.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let user = rustix::process::geteuid().as_raw();
    let folders = [place.to_owned(), place.join(remote::own_build())];
    let mut made = folders.iter().filter(|folder| folder.symlink_metadata().is_ok());
    let unsafe_place = made.find_map(|folder| remote::check_folder(folder, user).err());
    let closed = access(there, Access::WRITE_OK | Access::EXEC_OK).err().map(|error| error.to_string());
    let is_noexec = statvfs(there).is_ok_and(|facts| facts.f_flag.contains(StatVfsMountFlags::NOEXEC));
    let closed = closed.or_else(|| is_noexec.then(|| "it is mounted with noexec".to_owned()));
    let problem = unsafe_place.or_else(|| closed.map(|problem| format!("{}: {problem}", there.display())));
    Cache { path: place.display().to_string(), free: space(there).map(|space| space.free), problem }
}

fn directory_problem(cwd: &Path) -> Option<String> {
    let problem = match fs::metadata(cwd) {
        Ok(meta) if meta.is_dir() => access(cwd, Access::EXEC_OK).err()?.to_string(),
        Ok(_) => "is not a directory".into(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist".into(),
        Err(error) => error.to_string(),
    };
    Some(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_and_directory_problems_of_this_machine_are_read() {
        let facts = read(None, None, Path::new("/nowhere at all"), &|name| std::env::var_os(name));
        assert!(facts.cpus > 0 && facts.kernel.starts_with("Linux ") && facts.clock_ns > 0, "{facts:?}");
        assert_eq!(facts.cwd_problem.as_deref(), Some("does not exist"));
        assert_eq!(directory_problem(Path::new("/")), None);
        assert!(directory_problem(Path::new("/proc/self/stat")).is_some());
        let nothing = read(Some("no-such-if"), None, Path::new("/"), &|_| None);
        assert!(nothing.offered.is_err(), "{nothing:?}");
        assert!(nothing.cache.path.contains("/wireup-programs-"), "{nothing:?}");
    }

    #[test]
    fn every_left_out_address_has_a_reason() {
        let own = |interface: &str, ip: &str, up, loopback| InterfaceAddress {
            interface: interface.into(),
            ip: ip.parse().unwrap(),
            prefix_len: 16,
            up,
            loopback,
        };
        let why = |own: &InterfaceAddress| why_left_out(own, None);
        assert!(why(&own("eth0", "10.0.0.1", false, false)).contains("down"));
        assert!(why(&own("eth0", "fe80::1", true, false)).contains("one link"));
        assert!(why(&own("docker0", "172.17.0.1", true, false)).contains("bridge"));
        assert!(why(&own("lo", "127.0.0.1", true, true)).contains("loopback"));
        let filter = Filter::parse("ib0").unwrap();
        assert!(why_left_out(&own("eth0", "10.0.0.1", true, false), Some(&filter)).contains("--interface"));
    }

    #[test]
    fn the_lowest_pids_max_of_all_control_groups_counts() {
        let mount = std::env::temp_dir().join(format!("wireup-doctor-groups-{}", std::process::id()));
        let deep = mount.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(mount.join("a/pids.max"), "100\n").unwrap();
        fs::write(deep.join("pids.max"), "max\n").unwrap();
        assert_eq!(pids_max("0::/a/b\n", &mount), Some(100));
        fs::write(deep.join("pids.max"), "7\n").unwrap();
        assert_eq!(pids_max("0::/a/b\n", &mount), Some(7));
        assert_eq!(pids_max("3:cpu,pids:/x\n0::/\n", &mount), None);
        assert_eq!(pids_max("", &mount), None);
        fs::remove_dir_all(&mount).unwrap();
    }

    #[test]
    fn free_memory_is_read_in_bytes() {
        assert_eq!(memory_available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(memory_available("MemTotal: 9 kB\n"), None);
    }
}
