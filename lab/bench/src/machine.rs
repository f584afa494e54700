//! Describes the machine on which something is measured.
use procfs::{CpuInfo, Current, LoadAverage, Meminfo};
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
        let info = CpuInfo::current().ok();
        let cpu = info.as_ref().and_then(|info| info.model_name(0)).unwrap_or("unknown");
        Machine {
            host: uname.nodename().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
            kernel: uname.release().to_string_lossy().into_owned(),
            cpu: cpu.to_owned(),
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
        }
    }

    /// A description of the machine, with a warning if other processes compete for the cpus.
    pub fn describe(&self) -> String {
        // Number of processes that are ready to run, averaged over the last minute.
        let load = LoadAverage::current().map_or(0.0, |load| load.one);
        let busy = "\n  ! the machine is busy: expect wide spreads, trust ratios more than seconds";
        let busy = if load > 0.25 * self.cpus as f32 { busy } else { "" };
        let Machine { cpus, cpu, memory_bytes, kernel, .. } = self;
        format!("machine: {cpus} cpus of {cpu}, {} GiB, Linux {kernel}, load {load:.2}{busy}", memory_bytes >> 30)
    }
}
