//! Parameters of Open MPI, PRRTE and OpenPMIx: those of the libraries become variables of the ranks, those of the
//! launcher do what the corresponding flag does.

use crate::flags::table as flag;
use crate::front::error::FrontError;
use crate::front::files;
use crate::front::row::{Rule, Typed};
use crate::front::translation::Translation;
use std::ffi::OsString;
use std::path::Path;
use wireup_flags::Flag;

pub static PROGRAM: Rule = Rule {
    says: "sets `OMPI_MCA_NAME` for the ranks; parameters of the launcher (below) do what they say",
    example: (
        "mpirun --mca btl tcp,self --mca rmaps_base_oversubscribe 1 ./a",
        "--env OMPI_MCA_btl=tcp,self --env OMPI_MCA_rmaps_base_oversubscribe=1 --oversubscribe ./a",
    ),
    act: |translation, typed| parameter(translation, typed, &flag::ENV, "OMPI_MCA_"),
};

pub static JOB: Rule = Rule {
    says: "the same for all programs",
    example: ("mpirun --gmca btl self ./a", "--genv OMPI_MCA_btl=self ./a"),
    act: |translation, typed| parameter(translation, typed, &flag::GENV, "OMPI_MCA_"),
};

pub static LAUNCHER: Rule = Rule {
    says: "a parameter of the launcher (below)",
    example: ("prterun --prtemca plm_ssh_agent rsh ./a", "--remote-shell rsh ./a"),
    act: |translation, typed| {
        let (name, value) = pair(typed)?;
        launcher(translation, typed, &name, value)
    },
};

pub static PMIX: Rule = Rule {
    says: "sets `PMIX_MCA_NAME` for the ranks",
    example: ("mpirun --pmixmca gds hash ./a", "--env PMIX_MCA_gds=hash ./a"),
    act: |translation, typed| {
        let (name, value) = pair(typed)?;
        translation.give(&flag::ENV, typed, assigned(&format!("PMIX_MCA_{name}"), &value))
    },
};

pub static FILES: Rule = Rule {
    says: "reads parameters from files: `NAME = VALUE`, `-mca NAME VALUE` or `-x NAME=VALUE` on each line",
    example: ("orterun --tune PARAMETERS ./a", "--env OMPI_MCA_btl=self --env A=1 ./a"),
    act: |translation, typed| typed.value().text()?.split(',').try_for_each(|file| read_file(translation, file)),
};

/// What a parameter of the launcher does.
#[derive(Clone, Copy)]
pub enum Does {
    /// As a flag with this value.
    Value(&'static Flag),
    /// As a flag, if it is true.
    If(&'static Flag),
    /// As a flag with that value, if it is true.
    Preset(&'static Flag, &'static str),
}

/// Without `OMPI_MCA_` or `PRTE_MCA_`.
pub const PARAMETERS: &[(&[&str], Does)] = &[
    (&["plm_rsh_agent", "plm_ssh_agent", "pls_rsh_agent", "orte_rsh_agent"], Does::Value(&flag::REMOTE_SHELL)),
    (&["orte_default_hostfile", "prte_default_hostfile"], Does::Value(&flag::HOST_FILE)),
    (&["rmaps_base_mapping_policy", "rmaps_default_mapping_policy"], Does::Value(&flag::MAP_BY)),
    (&["rmaps_base_ranking_policy", "rmaps_default_ranking_policy"], Does::Value(&flag::RANK_BY)),
    (&["hwloc_base_binding_policy", "hwloc_default_binding_policy"], Does::Value(&flag::BIND_TO)),
    (&["rmaps_base_oversubscribe"], Does::If(&flag::OVERSUBSCRIBE)),
    (&["rmaps_base_no_oversubscribe"], Does::If(&flag::NO_OVERSUBSCRIBE)),
    (&["rmaps_base_no_schedule_local"], Does::If(&flag::NO_LOCAL)),
    (&["rmaps_base_cpus_per_proc"], Does::Preset(&flag::MAP_BY, ":pe=")),
    (&["rmaps_rank_file_path", "orte_rankfile"], Does::Value(&flag::RANKFILE)),
    (&["rmaps_ppr_n_pernode", "rmaps_base_n_pernode"], Does::Value(&flag::PPN)),
    (&["hwloc_base_cpu_set", "hwloc_base_cpu_list", "hwloc_default_cpu_list"], Does::Value(&flag::CPU_SET)),
    (&["hwloc_base_use_hwthreads_as_cpus", "hwloc_use_hwthreads_as_cpus"], Does::Preset(&flag::MAP_BY, ":hwtcpus")),
    (&["hwloc_base_report_bindings", "orte_report_bindings", "prte_report_bindings"], Does::If(&flag::REPORT_BINDINGS)),
    (&["rmaps_base_display_map", "orte_display_map"], Does::If(&flag::DISPLAY_MAP)),
    (&["orte_tag_output", "prte_tag_output"], Does::If(&flag::LABEL)),
    (&["orte_timestamp_output", "prte_timestamp_output"], Does::If(&flag::TIMESTAMP)),
    (&["oob_tcp_if_include", "prte_if_include"], Does::Value(&flag::INTERFACE)),
    (&["orte_timeout", "prte_timeout"], Does::Value(&flag::TIMEOUT)),
    (&["orte_startup_timeout", "prte_startup_timeout"], Does::Value(&flag::START_TIMEOUT)),
];

/// The parts of Open MPI and PRRTE that start processes: no library in a rank reads their other parameters.
const FRAMEWORKS: &[&str] = &[
    "orte",
    "prte",
    "plm",
    "pls",
    "ras",
    "rds",
    "rmaps",
    "odls",
    "oob",
    "rml",
    "routed",
    "grpcomm",
    "iof",
    "errmgr",
    "filem",
    "state",
    "schizo",
    "regx",
    "rtc",
    "snapc",
    "sstore",
    "dfs",
    "propagate",
    "notifier",
    "ess",
];

/// Why such a parameter does nothing.
pub const UNREAD: &str = "it concerns Open MPI's own launcher";

fn parameter(translation: &mut Translation, typed: &Typed, set: &'static Flag, prefix: &str) -> Result<(), FrontError> {
    let (name, value) = pair(typed)?;
    translation.give(set, typed, assigned(&format!("{prefix}{name}"), &value))?;
    match is_of_launcher(&name) {
        true => launcher(translation, typed, &name, value),
        false => Ok(()),
    }
}

/// Carries out a parameter of the launcher, or says that it has no effect.
fn launcher(translation: &mut Translation, typed: &Typed, name: &str, value: OsString) -> Result<(), FrontError> {
    match given(name, &value) {
        Some(Some((flag, word))) => translation.give(flag, typed, word),
        Some(None) => Ok(()),
        None => {
            translation.note(typed, UNREAD);
            Ok(())
        }
    }
}

/// The flag that a parameter amounts to, with its value; `None` inside: it asks for nothing. `None` if there is none.
pub fn given(name: &str, value: &OsString) -> Option<Option<(&'static Flag, OsString)>> {
    let (_, does) = PARAMETERS.iter().find(|(names, _)| names.contains(&name))?;
    let is_true =
        !matches!(value.to_string_lossy().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "f" | "n");
    Some(match does {
        // Alternatives are separated by colons; the first is taken.
        Does::Value(shell) if **shell == flag::REMOTE_SHELL => {
            let text = value.to_string_lossy();
            let first = text.split(':').next().unwrap_or_default().trim().to_owned();
            Some((*shell, first.into()))
        }
        Does::Value(policy) if [flag::MAP_BY, flag::BIND_TO, flag::RANK_BY].contains(*policy) => {
            Some((*policy, value.to_string_lossy().to_ascii_lowercase().into()))
        }
        Does::Value(flag) => Some((*flag, value.clone())),
        Does::If(flag) => is_true.then(|| (*flag, OsString::new())),
        Does::Preset(flag, word) if word.ends_with('=') => {
            let mut word = OsString::from(word);
            word.push(value);
            Some((*flag, word))
        }
        Does::Preset(flag, word) => is_true.then(|| (*flag, OsString::from(word))),
    })
}

/// Whether only a launcher reads a parameter.
pub fn is_of_launcher(name: &str) -> bool {
    let framework = name.split('_').next().unwrap_or_default();
    FRAMEWORKS.contains(&framework) || PARAMETERS.iter().any(|(names, _)| names.contains(&name))
}

fn pair(typed: &Typed) -> Result<(String, OsString), FrontError> {
    let joined = typed.pair();
    let text = joined.to_string_lossy();
    let (name, value) = text.split_once('=').unwrap_or((&text, ""));
    match name.trim().is_empty() {
        true => Err(typed.value().refused("the name of the parameter is empty").into()),
        false => Ok((name.trim().to_owned(), value.trim().into())),
    }
}

fn assigned(name: &str, value: &OsString) -> OsString {
    let mut word = OsString::from(format!("{name}="));
    word.push(value);
    word
}

/// A file of parameters, as `--tune` and `-am` take it.
fn read_file(translation: &mut Translation, file: &str) -> Result<(), FrontError> {
    for (line, words) in files::lines(Path::new(file))? {
        let at = |problem: FrontError| FrontError::Line { file: file.to_owned(), line, problem: Box::new(problem) };
        let words: Vec<String> =
            words.map_err(at)?.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        read_line(translation, &words).map_err(at)?;
    }
    Ok(())
}

fn read_line(translation: &mut Translation, words: &[String]) -> Result<(), FrontError> {
    let of = |option: &str, words: &[String]| Typed {
        option: option.to_owned(),
        words: words.iter().map(OsString::from).collect(),
    };
    let mut rest = words;
    while let [first, others @ ..] = rest {
        rest = match (first.trim_start_matches('-'), others) {
            _ if !first.starts_with('-') => {
                let (name, value) = words.join(" ").split_once('=').map_or_else(
                    || {
                        Err(FrontError::Words(format!(
                            "write NAME = VALUE, -mca NAME VALUE or -x NAME=VALUE, not {first}"
                        )))
                    },
                    |(name, value)| Ok((name.trim().to_owned(), value.trim().to_owned())),
                )?;
                parameter(translation, &of("-mca", &[name, value]), &flag::ENV, "OMPI_MCA_")?;
                &[]
            }
            ("mca" | "gmca", [name, value, rest @ ..]) => {
                parameter(translation, &of("-mca", &[name.clone(), value.clone()]), &flag::ENV, "OMPI_MCA_")?;
                rest
            }
            ("x", [word, rest @ ..]) => {
                translation.give(&flag::EXPORT, &of("-x", std::slice::from_ref(word)), word.into())?;
                rest
            }
            _ => return Err(FrontError::Words(format!("{first}: write -mca NAME VALUE or -x NAME=VALUE"))),
        };
    }
    Ok(())
}
