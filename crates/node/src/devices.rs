//! Gives GPUs to ranks: finds a node's devices, and gives each rank a share through the variables that the GPU
//! libraries read.
//!
//! A batch system's settings for the node take precedence; if there are none, the kernel's devices are used. A share is
//! the rank's part of the list, in order, as with CPUs. Devices are not opened: a library that finds fewer reports that
//! itself.

use crate::keeper::Batch;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use wireup_wire::peer::{SpawnError, SpawnStep};

/// Variables that say which devices of a node a process may use. The values are valid on that node only.
pub const NAMES: [&str; 5] =
    ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"];
/// The variable and the PCI vendor number for each vendor's devices; NVIDIA's are found by their device files instead.
const AMD: (&str, &str) = ("ROCR_VISIBLE_DEVICES", "0x1002");
const INTEL: (&str, &str) = ("ZE_AFFINITY_MASK", "0x8086");
const NVIDIA: &str = "CUDA_VISIBLE_DEVICES";

/// The devices in the value of one environment variable.
#[derive(Clone, PartialEq, Eq, Debug)]
struct List {
    name: &'static str,
    devices: Vec<Vec<u8>>,
}

/// Adds variables for GPUs to the environment of a node's ranks. `per_rank`: number of devices for each rank; 0: the
/// variables are left as they are. `own`: whether such variables of this process apply to the ranks too, as far as the
/// environment from the launcher does not set them.
///
/// # Errors
/// The node does not offer enough devices.
pub fn give(batch: &mut Batch, per_rank: u32, own: bool) -> Result<(), SpawnError> {
    if own {
        let mine: Vec<_> = NAMES.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect();
        add_missing(batch, mine);
    }
    if per_rank > 0 { divide(batch, per_rank as usize, Path::new("/")) } else { Ok(()) }
}

fn add_missing(batch: &mut Batch, mine: Vec<(&'static str, OsString)>) {
    for program in &mut batch.programs {
        for (name, value) in &mine {
            if value_of(&program.env, name).is_none() {
                let mut variable = format!("{name}=").into_bytes();
                variable.extend(value.clone().into_vec());
                program.env.push(variable);
            }
        }
    }
}

/// Gives each rank its devices. `root`: the root of the machine's file system.
fn divide(batch: &mut Batch, per_rank: usize, root: &Path) -> Result<(), SpawnError> {
    let needed = batch.processes.len() * per_rank;
    let seen = seen(root);
    for (index, process) in batch.processes.iter_mut().enumerate() {
        let env = &batch.programs[usize::from(process.program)].env;
        let offered = offered(env, &seen);
        let enough: Vec<&List> = offered.iter().filter(|list| list.devices.len() >= needed).collect();
        if enough.is_empty() {
            return Err(too_few(per_rank, needed, &offered));
        }
        for list in enough {
            let share = list.devices[index * per_rank..][..per_rank].join(&b',');
            process.env.push([list.name.as_bytes(), b"=", &share].concat());
        }
    }
    Ok(())
}

/// The lists of devices that environment variables set; if none is set, the devices that the kernel reports.
fn offered(env: &[Vec<u8>], seen: &[List]) -> Vec<List> {
    let set = |name: &'static str| Some(List { name, devices: devices(value_of(env, name)?) });
    let lists: Vec<List> = NAMES.into_iter().filter_map(set).collect();
    if lists.is_empty() { seen.to_vec() } else { lists }
}

fn value_of<'e>(env: &'e [Vec<u8>], name: &str) -> Option<&'e [u8]> {
    env.iter().rev().find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The devices in a variable's value. `-1` or a value that is no device ends the list, as in CUDA.
fn devices(value: &[u8]) -> Vec<Vec<u8>> {
    let words = value.split(|byte| *byte == b',').map(|word| word.trim_ascii());
    words.take_while(|word| !matches!(*word, b"" | b"-1" | b"NoDevFiles")).map(<[u8]>::to_vec).collect()
}

fn seen(root: &Path) -> Vec<List> {
    let names = |folder: &str| -> Vec<OsString> {
        fs::read_dir(root.join(folder)).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
    };
    let numbered = |name: &OsString, prefix: &str| {
        let rest = name.as_bytes().strip_prefix(prefix.as_bytes());
        rest.is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
    };
    let nvidia = names("dev").iter().filter(|name| numbered(name, "nvidia")).count();
    let nodes: Vec<OsString> = names("dev/dri").into_iter().filter(|name| numbered(name, "renderD")).collect();
    let of_vendor = |vendor: &str| {
        let is = |node: &&OsString| {
            let path = root.join("sys/class/drm").join(node).join("device/vendor");
            fs::read_to_string(path).is_ok_and(|text| text.trim() == vendor)
        };
        nodes.iter().filter(is).count()
    };
    let counts = [(NVIDIA, nvidia), (AMD.0, of_vendor(AMD.1)), (INTEL.0, of_vendor(INTEL.1))];
    let list = |(name, count): (&'static str, usize)| List {
        name,
        devices: (0..count).map(|device| device.to_string().into_bytes()).collect(),
    };
    counts.into_iter().filter(|(_, count)| *count > 0).map(list).collect()
}

fn too_few(per_rank: usize, needed: usize, offered: &[List]) -> SpawnError {
    let told = |list: &List| {
        format!("{} ({}={})", list.devices.len(), list.name, String::from_utf8_lossy(&list.devices.join(&b',')))
    };
    let offers = match offered {
        [] => "the node has none".to_owned(),
        lists => format!("the node has {}", lists.iter().map(told).collect::<Vec<_>>().join(", ")),
    };
    let what = format!("{} ranks with {per_rank} GPUs each need {needed} GPUs, but {offers}", needed / per_rank);
    SpawnError { step: SpawnStep::Devices, what, errno: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::{Process, Program};

    fn batch(ranks: u32, env: &[&str]) -> Batch {
        Batch {
            programs: vec![Program {
                env: env.iter().map(|text| text.as_bytes().to_vec()).collect(),
                ..Program::default()
            }],
            processes: (0..ranks).map(Process::new).collect(),
            umask: 0,
            limits: Vec::new(),
            staged: None,
            prefetch: Vec::new(),
            preload: None,
        }
    }

    fn shares(batch: &Batch) -> Vec<String> {
        batch.processes.iter().map(|process| String::from_utf8_lossy(&process.env.join(&b' ')).into_owned()).collect()
    }

    /// The root of a machine's file system that has these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn visible_device_lists_are_divided_among_ranks_in_order() {
        let nowhere = Path::new("/no/such/machine");
        let mut two = batch(2, &["CUDA_VISIBLE_DEVICES=3,1, GPU-7,0", "A=1"]);
        divide(&mut two, 2, nowhere).unwrap();
        assert_eq!(shares(&two), ["CUDA_VISIBLE_DEVICES=3,1", "CUDA_VISIBLE_DEVICES=GPU-7,0"]);
        let mut both = batch(2, &["ROCR_VISIBLE_DEVICES=0,1", "ZE_AFFINITY_MASK=0.0,0.1", "CUDA_VISIBLE_DEVICES=9"]);
        divide(&mut both, 1, nowhere).unwrap();
        assert_eq!(shares(&both)[1], "ROCR_VISIBLE_DEVICES=1 ZE_AFFINITY_MASK=0.1");
    }

    #[test]
    fn too_few_gpus_are_reported_with_the_variable_that_lists_them() {
        let refused = |ranks, env: &[&str]| {
            divide(&mut batch(ranks, env), 2, Path::new("/no/such/machine")).expect_err("too few").what
        };
        assert_eq!(
            refused(2, &["CUDA_VISIBLE_DEVICES=0,1,2"]),
            "2 ranks with 2 GPUs each need 4 GPUs, but the node has 3 (CUDA_VISIBLE_DEVICES=0,1,2)"
        );
        assert_eq!(refused(1, &[]), "1 ranks with 2 GPUs each need 2 GPUs, but the node has none");
        assert!(refused(1, &["CUDA_VISIBLE_DEVICES=0,-1,1"]).ends_with("the node has 1 (CUDA_VISIBLE_DEVICES=0)"));
        assert!(refused(1, &["CUDA_VISIBLE_DEVICES="]).ends_with("the node has 0 (CUDA_VISIBLE_DEVICES=)"));
    }

    #[test]
    fn devices_are_detected_if_no_variable_is_set() {
        let files = [
            ("dev/nvidia0", ""),
            ("dev/nvidia3", ""),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-caps/x", ""),
            ("dev/dri/renderD128", ""),
            ("dev/dri/card0", ""),
            ("sys/class/drm/renderD128/device/vendor", "0x1002\n"),
        ];
        let machine = machine(&files);
        let mut two = batch(2, &[]);
        divide(&mut two, 1, machine.path()).unwrap();
        assert_eq!(shares(&two), ["CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"]);
        let mut one = batch(1, &[]);
        divide(&mut one, 1, machine.path()).unwrap();
        assert_eq!(shares(&one), ["CUDA_VISIBLE_DEVICES=0 ROCR_VISIBLE_DEVICES=0"]);
    }

    #[test]
    fn own_device_variables_are_added_unless_the_user_set_them() {
        let mut set = batch(1, &["CUDA_VISIBLE_DEVICES=5"]);
        let mine = || vec![("CUDA_VISIBLE_DEVICES", "0,1".into()), ("ZE_AFFINITY_MASK", "2".into())];
        add_missing(&mut set, mine());
        assert_eq!(set.programs[0].env, [b"CUDA_VISIBLE_DEVICES=5".to_vec(), b"ZE_AFFINITY_MASK=2".to_vec()]);
    }
}
