//! The contents of `slurm.conf`.
//!
//! All lines but the last ones can be replaced or extended by the specification's options.
use crate::slurm::daemons::{CTLD_PORT, SLURMD_PORT, SOCKET};
use crate::spec::{Spec, name};

/// Settings that require nothing special of this machine (no cgroups, no accounting, no mail) and delay nothing: a node
/// that returns is used again, and processes that ignore a signal are killed 2 s later.
const SETTINGS: [(&str, &str); 26] = [
    ("ClusterName", "testbed"),
    ("SlurmctldHost", "n0"),
    ("SlurmUser", "root"),
    ("AuthType", "auth/munge"),
    ("ProctrackType", "proctrack/linuxproc"),
    ("TaskPlugin", "task/none"),
    ("SwitchType", "switch/none"),
    ("JobAcctGatherType", "jobacct_gather/none"),
    ("AccountingStorageType", "accounting_storage/none"),
    ("JobCompType", "jobcomp/none"),
    ("MailProg", "/bin/true"),
    ("MpiDefault", "none"),
    ("SelectType", "select/cons_tres"),
    ("SelectTypeParameters", "CR_CPU"),
    ("SchedulerType", "sched/builtin"),
    ("SchedulerParameters", "batch_sched_delay=0"),
    ("SlurmdParameters", "config_overrides"),
    ("ReturnToService", "2"),
    ("KillWait", "2"),
    ("MaxTasksPerNode", "4096"),
    ("StateSaveLocation", "/run/slurmctld"),
    ("SlurmdSpoolDir", "/run/slurmd"),
    ("SlurmctldPidFile", "/run/slurmctld.pid"),
    ("SlurmdPidFile", "/run/slurmd.pid"),
    ("SlurmctldLogFile", super::daemons::CTLD_LOG),
    ("SlurmdLogFile", super::daemons::SLURMD_LOG),
];

pub fn text(spec: &Spec) -> String {
    let ports = [("SlurmctldPort", CTLD_PORT), ("SlurmdPort", SLURMD_PORT)];
    let ports = ports.into_iter().map(|(name, port)| (name, port.to_string()));
    let socket = [("AuthInfo", format!("socket={SOCKET}"))];
    let own = SETTINGS.into_iter().map(|(name, value)| (name, value.to_owned())).chain(ports).chain(socket);
    let options: Vec<(&str, &str)> = spec.slurm_options.iter().filter_map(|option| option.split_once('=')).collect();
    let replaced = |name: &str| options.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let mut text: String =
        own.filter(|(name, _)| !replaced(name)).map(|(name, value)| format!("{name}={value}\n")).collect();
    text.extend(options.iter().map(|(name, value)| format!("{name}={value}\n")));
    let nodes = if spec.nodes == 1 { name(0) } else { format!("n[0-{}]", spec.nodes - 1) };
    text += &format!("NodeName={nodes} CPUs={} State=UNKNOWN\n", spec.slurm_cpus);
    text + "PartitionName=all Nodes=ALL Default=YES OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_options_replace_defaults_or_are_added() {
        let mut spec = Spec::new("x", 3);
        spec.slurm_cpus = 5;
        spec.slurm_options = vec!["killwait=9".into(), "TreeWidth=2".into()];
        let text = text(&spec);
        let of = |name: &str| -> Vec<&str> {
            let lines = text.lines().filter_map(|line| line.split_once('='));
            lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
        };
        assert_eq!((of("KillWait"), of("TreeWidth"), of("SlurmUser")), (vec!["9"], vec!["2"], vec!["root"]));
        assert_eq!(of("NodeName"), ["n[0-2] CPUs=5 State=UNKNOWN"]);
    }
}
