//! The machine on which something was measured.
use std::fs;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub host: String,
    pub cpus: usize,
    pub kernel: String,
    pub cpu: String,
    pub memory_bytes: u64,
}

impl Machine {
    pub fn look() -> Machine {
        let uname = rustix::system::uname();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            host: uname.nodename().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
            kernel: uname.release().to_string_lossy().into_owned(),
            cpu: field(&info, "model name").unwrap_or_else(|| "unknown".into()),
            memory_bytes: memory("MemTotal").unwrap_or(0),
        }
    }

    /// A description, with a warning if other processes compete for the cpus.
    pub fn describe(&self) -> String {
        // Processes ready to run, averaged over the last minute.
        let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load: f64 = text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        let busy = "\n  ! the machine is busy: expect wide spreads, trust ratios more than seconds";
        let busy = if load > 0.25 * self.cpus as f64 { busy } else { "" };
        let Machine { cpus, cpu, memory_bytes, kernel, .. } = self;
        format!("machine: {cpus} cpus of {cpu}, {} GiB, Linux {kernel}, load {load:.2}{busy}", memory_bytes >> 30)
    }
}

/// A line of `/proc/meminfo`, such as `MemAvailable` (bytes).
pub fn memory(name: &str) -> Option<u64> {
    kib(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

/// The first value of a name in a file of `name : value` lines.
pub fn field(text: &str, name: &str) -> Option<String> {
    let value = |line: &str| {
        line.split_once(':').filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    text.lines().find_map(value)
}

/// A value in kibibytes, in such a file (bytes).
pub fn kib(text: &str, name: &str) -> Option<u64> {
    Some(field(text, name)?.strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}
