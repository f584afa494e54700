//! Which file system a path lies on, so that files on the node's own disk can be told from files that many nodes read
//! from one server.

use std::path::Path;

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
}
