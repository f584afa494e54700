//! The state of the machine, without which a figure means little.
use std::fs;

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub memory_bytes: u64,
    pub kernel: String,
    /// Processes ready to run, averaged over the last minute, before the first command.
    pub load_1min: f64,
}

impl Machine {
    pub fn look() -> Machine {
        let uname = rustix::system::uname();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory_kib: u64 =
            field(&read("/proc/meminfo"), "MemTotal").and_then(|v| v.split(' ').next()?.parse().ok()).unwrap_or(0);
        Machine {
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            memory_bytes: memory_kib * 1024,
            kernel: uname.release().to_string_lossy().into_owned(),
            load_1min: load(),
        }
    }

    /// A description, with a warning if other processes compete for the cores.
    pub fn describe(&self) -> String {
        let busy = "\n  ! the machine is busy: expect wide spreads, trust ratios more than seconds";
        format!(
            "machine: {} cores of {}, {} GiB, Linux {}, load {:.2}{}",
            self.cores,
            self.cpu,
            self.memory_bytes >> 30,
            self.kernel,
            self.load_1min,
            if self.is_busy() { busy } else { "" }
        )
    }

    /// Whether other processes compete for the cores.
    pub fn is_busy(&self) -> bool {
        self.load_1min > 0.25 * self.cores as f64
    }
}

/// Memory that processes can still get, if the kernel says it.
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(field(&text, "MemAvailable")?.strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The one-minute load average.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|v| v.parse().ok()).unwrap_or(0.0)
}

/// The first value of a name in a file of `name : value` lines.
pub fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotalX: 1 kB\nMemTotal:       25128416 kB\nMemFree: 2 kB\n";
        assert_eq!(field(text, "MemTotal").as_deref(), Some("25128416 kB"));
        assert_eq!(field(text, "Mem"), None);
    }
}
