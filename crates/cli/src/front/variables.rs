//! Variables that other launchers read: each does what the corresponding flag does, unless that flag is given, or a
//! note says that it has no effect.

use super::error::FrontError;
use super::family::Family;
use super::row::Typed;
use super::rules::{mca, placement};
use super::translation::Translation;
use crate::flags::table as flag;
use std::ffi::{OsStr, OsString};
use wireup_flags::Flag;

#[derive(Clone, Copy)]
pub enum Does {
    /// As a flag with this value.
    Value(&'static Flag),
    /// As a flag without a value, unless it is 0.
    If(&'static Flag),
    /// As a flag, with what this makes of the value; `None`: nothing.
    Made(&'static Flag, fn(&str) -> Option<String>),
    /// What it asks for is always so, or concerns the ranks only.
    Always(&'static str),
    NoEffect(&'static str),
}

pub struct Variable {
    pub names: &'static [&'static str],
    pub does: Does,
}

const fn row(names: &'static [&'static str], does: Does) -> Variable {
    Variable { names, does }
}

const WRAPPED: &str = "start the tool as the program: mpiexec -n 4 valgrind ./app";

/// Of Hydra and Intel MPI. Those of Open MPI and PRRTE are in `rules/mca`.
pub const VARIABLES: &[Variable] = &[
    row(&["HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"], Does::Value(&flag::HOST_FILE)),
    row(&["I_MPI_HYDRA_HOSTS_GROUP"], Does::Value(&flag::HOSTS)),
    row(&["I_MPI_PERHOST"], Does::Made(&flag::PPN, per_host)),
    row(
        &["HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC"],
        Does::Value(&flag::REMOTE_SHELL),
    ),
    row(&["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP"], Does::Made(&flag::REMOTE_SHELL, shell)),
    row(&["HYDRA_IFACE", "I_MPI_HYDRA_IFACE"], Does::Value(&flag::INTERFACE)),
    row(&["I_MPI_HYDRA_BRANCH_COUNT"], Does::Made(&flag::FANOUT, positive)),
    row(&["HYDRA_BINDING"], Does::Made(&flag::BIND_TO, placement::binding)),
    row(&["HYDRA_MAPPING"], Does::Made(&flag::MAP_BY, |text| placement::mapping(Family::Hydra, text))),
    row(&["HYDRA_ENV"], Does::Made(&flag::GENV_LIST, environment)),
    row(&["HYDRA_DEBUG", "I_MPI_HYDRA_DEBUG"], Does::If(&flag::VERBOSE)),
    row(&["MPIEXEC_TIMEOUT", "I_MPI_JOB_TIMEOUT", "I_MPI_MPIEXEC_TIMEOUT"], Does::Made(&flag::TIMEOUT, positive)),
    row(&["MPIEXEC_PREFIX_DEFAULT"], Does::If(&flag::LABEL)),
    row(&["I_MPI_JOB_STARTUP_TIMEOUT"], Does::Made(&flag::START_TIMEOUT, positive)),
    row(&["I_MPI_PIN"], Does::Made(&flag::BIND_TO, pin)),
    row(&["HYDRA_RMK", "I_MPI_HYDRA_RMK"], Does::Always("batch systems are recognised by their variables")),
    row(&["HYDRA_TOPOLIB", "I_MPI_HYDRA_TOPOLIB"], Does::Always("processors are read from /sys")),
    row(
        &["HYDRA_LAUNCHER_AUTOFORK", "I_MPI_HYDRA_BOOTSTRAP_AUTOFORK"],
        Does::Always("no remote shell is used on this machine"),
    ),
    row(&["HYDRA_HOSTNAME_PROPAGATION"], Does::Always("ranks learn the name of their host")),
    row(
        &["MPIEXEC_PORTRANGE", "MPIEXEC_PORT_RANGE", "HYDRA_PORT_RANGE", "I_MPI_PORT_RANGE"],
        Does::NoEffect("ports of agents are chosen by the kernel; --interface limits where they listen"),
    ),
    row(&["HYDRA_MEMBIND"], Does::NoEffect("numactl as the program sets a policy for memory")),
    row(&["HYDRA_CONFIG_FILE"], Does::NoEffect("give the file to -configfile")),
    row(
        &["HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"],
        Does::NoEffect("give the words to -bootstrap-exec-args"),
    ),
    row(
        &[
            "HYDRA_PROXY_RETRY_COUNT",
            "HYDRA_LAUNCHER_SSH_LIMIT",
            "HYDRA_LAUNCHER_SSH_LIMIT_TIME",
            "HYDRA_LAUNCHER_SSH_ENABLE_WARNINGS",
        ],
        Does::NoEffect("remote shells are retried as wireup decides"),
    ),
    row(&["HYDRA_USE_VALGRIND", "HYDRA_USE_STRACE", "HYDRA_USE_DDD"], Does::NoEffect(WRAPPED)),
    row(
        &["HYDRA_USE_LOCALHOST", "HYDRA_TOPO_DEBUG", "HYDRA_DEMUX", "HYDRA_LAUNCH_END"],
        Does::NoEffect("there is nothing to choose"),
    ),
    row(&["I_MPI_HYDRA_NAMESERVER"], Does::NoEffect("the jobs of a session (wireup up) share what they publish")),
    row(
        &["I_MPI_HYDRA_TREE_LEVEL", "I_MPI_HYDRA_LAUNCH_TYPE", "I_MPI_HYDRA_PROXY_WAIT", "I_MPI_HYDRA_UNIQUE_PROXIES"],
        Does::NoEffect("it concerns Intel MPI's own launcher"),
    ),
    row(&["I_MPI_GTOOL", "I_MPI_HYDRA_GDB_REMOTE_SHELL"], Does::NoEffect(WRAPPED)),
    row(&["I_MPI_FAULT_CONTINUE", "I_MPI_FAULT_NODE_CONTINUE"], Does::NoEffect("a rank that fails ends the job")),
    row(
        &["I_MPI_JOB_ABORT_SIGNAL", "I_MPI_JOB_TIMEOUT_SIGNAL"],
        Does::NoEffect("ranks are ended by SIGTERM, after --kill-grace by SIGKILL"),
    ),
    row(
        &[
            "I_MPI_PIN_DOMAIN",
            "I_MPI_PIN_PROCESSOR_LIST",
            "I_MPI_PIN_ORDER",
            "I_MPI_PIN_CELL",
            "I_MPI_PIN_PROCESSOR_EXCLUDE_LIST",
        ],
        Does::NoEffect("use --bind-to, --map-by and --cpu-set"),
    ),
];

/// Variables of these beginnings that no table names concern a launcher too.
const OF_LAUNCHERS: &[&str] = &["HYDRA_", "I_MPI_HYDRA_"];
const PARAMETERS: &[&str] = &["OMPI_MCA_", "PRTE_MCA_"];
/// What launchers set for their own processes, of an outer job.
const OF_OUTER_JOB: &[&str] = &["HYDRA_BSTRAP_", "HYDRA_LAUNCH_TYPE", "HYDRA_IP_VERSION", "I_MPI_HYDRA_UUID"];

/// A variable does not name hosts if an option does.
const HOSTS: &[Flag] = &[flag::HOSTS, flag::HOST_FILE];
/// Slurm sets these for the launchers that it starts.
const OF_SLURM: &[(&str, &str)] = &[
    ("OMPI_MCA_plm_slurm_args", ""),
    ("PRTE_MCA_plm_slurm_args", ""),
    ("HYDRA_LAUNCHER_EXTRA_ARGS", "--external-launcher"),
    ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "--external-launcher"),
];

/// Applies the variables of the environment.
pub fn apply(translation: &mut Translation, variables: &[(OsString, OsString)]) -> Result<(), FrontError> {
    let mut given_before: Vec<Flag> = flag::RUN.flags().filter(|flag| translation.has(flag)).copied().collect();
    if [flag::HOSTS, flag::HOST_FILE, flag::RANKFILE, flag::VIRTUAL_NODES].iter().any(|flag| translation.has(flag)) {
        given_before.extend(HOSTS);
    }
    let add = |translation: &mut Translation, flag: &'static Flag, name: &str, word: OsString| {
        if !given_before.contains(flag) && !translation.gives_job(flag) {
            translation.give_job(flag, name, word);
        }
    };
    let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let by_slurm = |name: &str, value: &OsStr| {
        OF_SLURM.iter().any(|(known, set)| name == *known && (set.is_empty() || value == *set))
    };
    for variable in VARIABLES {
        for name in variable.names {
            let Some(value) = value(name).filter(|value| !by_slurm(name, value)) else { continue };
            match variable.does {
                Does::Value(flag) => add(translation, flag, name, value.clone()),
                Does::If(flag) if is_true(value) => add(translation, flag, name, OsString::new()),
                Does::If(_) | Does::Always(_) => {}
                Does::Made(flag, make) => {
                    if let Some(word) = make(&value.to_string_lossy()) {
                        add(translation, flag, name, word.into());
                    }
                }
                Does::NoEffect(_) if OF_OUTER_JOB.iter().any(|outer| name.starts_with(outer)) => {}
                Does::NoEffect(why) => translation.note(&typed(name), why),
            }
        }
    }
    // Within a job of Open MPI its launcher has set parameters of its own.
    let is_within = variables.iter().any(|(name, _)| name == "OMPI_COMM_WORLD_RANK");
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| !by_slurm(name, value)) else { continue };
        let parameter = PARAMETERS.iter().find_map(|prefix| name.strip_prefix(prefix));
        match parameter.filter(|parameter| mca::is_of_launcher(parameter)) {
            Some(parameter) if !is_within && !crate::environment::is_of_outer_job(name.as_bytes()) => {
                match mca::given(parameter, value) {
                    Some(Some((flag, word))) => add(translation, flag, name, word),
                    Some(None) => {}
                    None => translation.note(&typed(name), mca::UNREAD),
                }
            }
            Some(_) => {}
            None if is_unknown(name) => translation.note(&typed(name), "no such setting is known"),
            None => {}
        }
    }
    Ok(())
}

/// A setting of a launcher that no table names.
fn is_unknown(name: &str) -> bool {
    OF_LAUNCHERS.iter().any(|prefix| name.starts_with(prefix))
        && !OF_OUTER_JOB.iter().any(|outer| name.starts_with(outer))
        && !VARIABLES.iter().any(|variable| variable.names.contains(&name))
}

fn typed(name: &str) -> Typed {
    Typed { option: name.to_owned(), words: Vec::new() }
}

fn is_true(value: &OsStr) -> bool {
    !matches!(value.to_string_lossy().to_ascii_lowercase().as_str(), "" | "0" | "off" | "no" | "false" | "disable")
}

/// A number other than -1, with which Intel MPI says "no limit".
fn positive(value: &str) -> Option<String> {
    (!matches!(value, "0" | "-1" | "")).then(|| value.to_owned())
}

/// `all`, `allcores`: as many as there are.
fn per_host(value: &str) -> Option<String> {
    (!value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())).then(|| value.to_owned())
}

fn shell(value: &str) -> Option<String> {
    // In an allocation of Slurm, which sets this variable, `srun` is the default.
    super::rules::shell::command(value).filter(|command| *command != "srun").map(str::to_owned)
}

/// Ranks are not bound if pinning is off.
fn pin(value: &str) -> Option<String> {
    (!is_true(OsStr::new(value))).then(|| "none".to_owned())
}

fn environment(value: &str) -> Option<String> {
    match value {
        "none" => Some("none".to_owned()),
        "all" => None,
        list => Some(list.trim_start_matches("list:").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(line: &str, variables: &[(&str, &str)]) -> Translation {
        let mut translation = Translation::new(Family::Hydra);
        translation.read(line.split(' ').map(OsString::from).collect()).expect(line);
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        apply(&mut translation, &variables).expect(line);
        translation
    }

    #[test]
    fn variables_are_applied_unless_the_flag_is_given() {
        let variables = [("HYDRA_HOST_FILE", "h"), ("I_MPI_PERHOST", "4"), ("OMPI_MCA_plm_rsh_agent", "rsh : ssh")];
        let given = |line: &str| -> Vec<String> {
            let translation = applied(line, &variables);
            let shown = |given: &wireup_flags::Given| format!("{} {}", given.flag.name(), given.value.shown());
            translation.programs[0].given.iter().map(shown).collect()
        };
        assert_eq!(given("./a"), ["--hostfile h", "--ppn 4", "--remote-shell rsh"]);
        assert_eq!(given("-f g ./a"), ["--hostfile g", "--ppn 4", "--remote-shell rsh"]);
    }

    #[test]
    fn values_are_read_as_those_of_the_options() {
        let variables = [("HYDRA_BINDING", "rr"), ("HYDRA_MAPPING", "core:2")];
        let translation = applied("./a", &variables);
        let given: Vec<_> = translation.programs[0].given.iter().map(|given| given.value.shown()).collect();
        assert_eq!(given, ["thread", "core:step=2"]);
        assert!(applied("./a", &[("HYDRA_MAPPING", "rr")]).programs[0].given.is_empty());
    }

    #[test]
    fn settings_without_effect_are_named_and_those_of_libraries_are_not() {
        let variables = [
            ("HYDRA_TOPO_DEBUG", "1"),
            ("HYDRA_NO_SUCH", "1"),
            ("OMPI_MCA_orte_base_help_aggregate", "0"),
            ("OMPI_MCA_btl", "tcp,self"),
            ("I_MPI_FABRICS", "shm"),
            ("HYDRA_BSTRAP_DEBUG", "0"),
        ];
        let notes = applied("./a", &variables).notes;
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].starts_with("HYDRA_TOPO_DEBUG has no effect here"), "{notes:?}");
        assert!(notes[1].starts_with("HYDRA_NO_SUCH has no effect here"), "{notes:?}");
    }
}
