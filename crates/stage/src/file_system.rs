//! Which file system a path lies on, so that files on the node's own disk can be told from files that many nodes read
//! from one server; and which server that is, from the kernel's list of mounts: reading the list sends no request to a
//! file server.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Network and cluster file systems by their number (`statfs(2)`, and the sources of those outside the kernel).
const NETWORK: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "SMB"),
    (0xFE53_4D42, "SMB"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x2003_0528, "PVFS2"),
    (0xAAD7_AAEA, "PanFS"),
];
/// File systems of a single machine, by their number (`statfs(2)`).
const LOCAL: &[(u32, &str)] = &[
    (0xEF53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683E, "Btrfs"),
    (0x2FC1_2FC1, "ZFS"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x794C_7630, "overlayfs"),
    (0x7371_7368, "SquashFS"),
];

/// The file system of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// The name for messages: `NFS`, or `type 0x1234` if the number is unknown.
    pub name: String,
    /// Many nodes may read this file system at once. True for FUSE, since its server may read from the network.
    pub is_network: bool,
    /// Adding or removing a name changes the times of its folder, so the names of an unchanged folder need not be read.
    pub folders_have_times: bool,
}

/// Network file systems that change a folder's times when a name in it is added or removed. Others may be gateways to
/// stores without folders, such as object stores.
const WITH_TIMES: [&str; 4] = ["NFS", "Lustre", "GPFS", "Ceph"];

impl FileSystem {
    /// The file system of a path, with symbolic links followed; `None`: the path cannot be reached.
    pub fn of(path: &Path) -> Option<FileSystem> {
        // The width of the field differs between platforms, the number has 32 bits.
        Some(FileSystem::of_number(rustix::fs::statfs(path).ok()?.f_type as u32))
    }

    fn of_number(number: u32) -> FileSystem {
        let name =
            |list: &[(u32, &str)]| list.iter().find(|(own, _)| *own == number).map(|(_, name)| (*name).to_owned());
        match name(NETWORK) {
            Some(name) => {
                let folders_have_times = WITH_TIMES.contains(&name.as_str());
                FileSystem { name, is_network: true, folders_have_times }
            }
            None => {
                let known = name(LOCAL);
                // A folder of an overlay of several layers has only the times of the uppermost one.
                let folders_have_times = known.as_deref().is_some_and(|name| name != "overlayfs");
                let name = known.unwrap_or_else(|| format!("type {number:#x}"));
                FileSystem { name, is_network: false, folders_have_times }
            }
        }
    }
}

/// Kinds of mounts whose source is the same text on all nodes for the same server; the last one is the slow file system
/// of the tests.
const KINDS_OF_SERVERS: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "fuse.slowfs"];

/// The mounts of this process.
#[derive(Default, Debug)]
pub(crate) struct Mounts {
    list: Vec<Mount>,
}

#[derive(Debug)]
struct Mount {
    id: u32,
    parent: u32,
    /// The path within its file system of the folder that is mounted.
    root: PathBuf,
    point: PathBuf,
    kind: String,
    source: OsString,
}

impl Mounts {
    /// The mounts of this process; empty if they cannot be read.
    pub fn own() -> Mounts {
        fs::read("/proc/self/mountinfo").map_or_else(|_| Mounts::default(), |text| Mounts::parse(&text))
    }

    pub(crate) fn parse(text: &[u8]) -> Mounts {
        Mounts { list: text.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect() }
    }

    /// The name of a folder by which all nodes mean the same one: kind and source of its file system, and the path
    /// there. `None`: the file system does not say which server it is from. No part of the path may be a symbolic link.
    pub fn name_of(&self, folder: &Path) -> Option<Vec<u8>> {
        let mount = self.of(folder)?;
        let below = folder.strip_prefix(&mount.point).ok()?;
        mount.names_server().then(|| {
            let path = mount.root.join(below);
            [mount.kind.as_bytes(), mount.source.as_bytes(), path.as_os_str().as_bytes()].join(&b'\0')
        })
    }

    /// The mount that a path leads to.
    fn of(&self, path: &Path) -> Option<&Mount> {
        let is_known = |id: u32| self.list.iter().any(|mount| mount.id == id);
        let mut at = self.list.iter().find(|mount| mount.point == Path::new("/") && !is_known(mount.parent))?;
        let mut ways: Vec<&Path> = path.ancestors().collect();
        ways.reverse();
        for way in ways {
            // Several mounts may be stacked on one path: the last one is visible.
            while let Some(over) = self.list.iter().find(|over| over.parent == at.id && over.point == way) {
                at = over;
            }
        }
        Some(at)
    }
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Mount> {
        let mut words = line.split(|byte| *byte == b' ');
        let mut word = || words.next();
        let number = |word: Option<&[u8]>| std::str::from_utf8(word?).ok()?.parse().ok();
        let (id, parent) = (number(word())?, number(word())?);
        let (_, root, point) = (word()?, unescaped(word()?), unescaped(word()?));
        let mut rest = words.skip_while(|word| *word != b"-").skip(1);
        let kind = String::from_utf8_lossy(rest.next()?).into_owned();
        let source = OsString::from_vec(unescaped(rest.next()?));
        Some(Mount {
            id,
            parent,
            root: OsString::from_vec(root).into(),
            point: OsString::from_vec(point).into(),
            kind,
            source,
        })
    }

    /// Whether two nodes with mounts of this kind and source see the same files: the source is `server:/export` (NFS),
    /// `//server/share` (SMB), or a device of GPFS, whose name is the same in the whole cluster. Two nodes may see
    /// different files in the root of an NFS server (`server:/`), which shows each client the exports that this client
    /// may use, and behind a server that runs on the node itself (`localhost`), such as the end of a tunnel.
    fn names_server(&self) -> bool {
        let source = self.source.as_bytes();
        let is_here = [&b"localhost"[..], b"127.", b"[::1]", b"::1"].iter().any(|here| source.starts_with(here));
        KINDS_OF_SERVERS.contains(&self.kind.as_str()) && !is_here && !source.ends_with(b":/")
    }
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .first_chunk::<3>()
            .filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) => {
                out.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        let of = |number| {
            let found = FileSystem::of_number(number);
            (found.name, found.is_network, found.folders_have_times)
        };
        assert_eq!(of(0x6969), ("NFS".to_owned(), true, true));
        assert_eq!(of(0xFF53_4D42), ("SMB".to_owned(), true, false));
        assert_eq!(of(0x6573_5546), ("FUSE".to_owned(), true, false));
        assert_eq!(of(0xEF53), ("ext4".to_owned(), false, true));
        assert_eq!(of(0x794C_7630), ("overlayfs".to_owned(), false, false));
        assert_eq!(of(0x1234), ("type 0x1234".to_owned(), false, false));
    }

    #[test]
    fn the_file_system_of_a_path_is_found() {
        let proc = FileSystem::of(Path::new("/proc/self")).expect("it is mounted");
        assert_eq!((proc.name.as_str(), proc.is_network), ("type 0x9fa0", false));
        assert_eq!(FileSystem::of(Path::new("/no/such")), None);
    }

    const LIST: &str = "\
21 1 254:0 / / rw - ext4 /dev/vda rw
30 21 0:40 /apps /nfs rw,relatime shared:5 - nfs4 server:/export rw,vers=4.2
31 30 0:41 / /nfs/scratch rw - lustre 10.0.0.1@tcp:/scratch rw
32 21 0:42 / /home\\040of\\134all rw - cifs //server/share rw
33 21 0:43 / /fuse rw - fuse.other other rw
34 30 0:44 / /nfs/local rw - tmpfs tmpfs rw
35 34 0:45 / /nfs/local rw - nfs4 other:/over rw
36 21 0:46 / /gpfs rw - gpfs project rw
37 21 0:47 / /root-of-server rw - nfs4 server:/ rw
38 21 0:48 / /tunnel rw - nfs4 127.0.0.1:/export rw
39 21 0:49 / /pool rw - fuse.mergerfs disk1:disk2 rw
";

    #[test]
    fn folders_of_servers_have_names() {
        let mounts = Mounts::parse(LIST.as_bytes());
        let name = |path: &str| {
            mounts.name_of(Path::new(path)).map(|name| String::from_utf8(name).unwrap().replace('\0', " "))
        };
        let known = |text: &str| Some(text.to_owned());
        assert_eq!(name("/nfs/env/lib"), known("nfs4 server:/export /apps/env/lib"));
        assert_eq!(name("/nfs"), known("nfs4 server:/export /apps/"));
        assert_eq!(name("/nfs/scratch/a"), known("lustre 10.0.0.1@tcp:/scratch /a"));
        assert_eq!(name("/home of\\all/a"), known("cifs //server/share /a"));
        assert_eq!(name("/gpfs/a"), known("gpfs project /a"));
        assert_eq!(name("/nfs/local/a"), known("nfs4 other:/over /a"), "the upper one of two");
        for path in ["/fuse/a", "/usr/lib", "/", "/root-of-server/a", "/tunnel/a", "/pool/a"] {
            assert_eq!(name(path), None, "{path}");
        }
        assert_eq!(Mounts::parse(b"21 x").name_of(Path::new("/")), None);
    }

    #[test]
    fn the_own_mounts_are_known() {
        let mounts = Mounts::own();
        assert_eq!(mounts.of(Path::new("/proc/self")).map(|mount| mount.kind.as_str()), Some("proc"));
    }
}
