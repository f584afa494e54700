//! Variables that other launchers read, and parameters of Open MPI, PRRTE and OpenPMIx, which may be variables too.
//!
//! A setting of a launcher (`tables::VARIABLES`, `tables::PARAMETERS`) does what the corresponding flag does, or a note
//! says that it has no effect; a variable, only if that flag is not given. Parameters of libraries become variables of
//! the ranks.

use super::files;
use super::made_values::{behind, made};
use super::row::{Effect, Make, Typed};
use super::tables::{PARAMETERS, VARIABLES};
use super::translation::Translation;
use super::vendor::Vendor;
use crate::environment;
use crate::flags::table as flag;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use wireup_flags::Flag;

const PARAMETER_PREFIX: &str = "OMPI_MCA_";

/// The parts of Open MPI and PRRTE that start processes: no library in a rank reads their other parameters.
const FRAMEWORKS: &str = " orte prte plm pls ras rds rmaps odls oob rml routed grpcomm iof errmgr filem state schizo \
                          regx rtc snapc sstore dfs propagate notifier ess ";

/// Why a parameter of the launcher without a corresponding flag has no effect.
const UNREAD: &str = "it concerns Open MPI's own launcher";

/// Prefixes of variables that belong to a launcher even if no table names them.
const OF_LAUNCHERS: &[&str] = &["HYDRA_", "I_MPI_HYDRA_"];
const PARAMETER_PREFIXES: &[&str] = &[PARAMETER_PREFIX, "PRTE_MCA_"];
/// Prefixes of variables that launchers set for their own processes: here they come from an outer job.
const OF_OUTER_JOB: &[&str] = &["HYDRA_BSTRAP_", "HYDRA_LAUNCH_TYPE", "HYDRA_IP_VERSION", "I_MPI_HYDRA_UUID"];

/// Flags that name hosts: variables that name hosts have no effect if an option names hosts.
const HOSTS: &[Flag] = &[flag::HOSTS, flag::HOST_FILE];
/// Variables that Slurm sets for the launchers that it starts, with its value (empty: any); they are ignored.
const OF_SLURM: &[(&str, &str)] = &[
    ("OMPI_MCA_plm_slurm_args", ""),
    ("PRTE_MCA_plm_slurm_args", ""),
    ("HYDRA_LAUNCHER_EXTRA_ARGS", "--external-launcher"),
    ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "--external-launcher"),
];

pub fn apply(translation: &mut Translation, variables: &[(OsString, OsString)]) -> Result<(), String> {
    let mut given_before: Vec<Flag> = flag::RUN.flags().filter(|flag| translation.has(flag)).copied().collect();
    if [flag::HOSTS, flag::HOST_FILE, flag::RANKFILE, flag::VIRTUAL_NODES].iter().any(|flag| translation.has(flag)) {
        given_before.extend(HOSTS);
    }
    let give = |translation: &mut Translation, flag: &'static Flag, make, vendor, name: &str, value: &OsString| {
        // The value of a variable that a flag overrides is not checked.
        if given_before.contains(flag) || translation.gives_job(flag) {
            return Ok(());
        }
        let word = made(make, vendor, &Typed::new(name, [value]))?;
        word.into_iter().for_each(|word| translation.give_job(flag, name, word));
        Ok::<_, String>(())
    };
    let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let by_slurm = |name: &str, value: &OsStr| {
        OF_SLURM.iter().any(|(known, set)| name == *known && (set.is_empty() || value == *set))
    };
    for row in VARIABLES {
        for name in row.names {
            let Some(value) = value(name).filter(|value| !by_slurm(name, value)) else { continue };
            match row.effect {
                Effect::Gives(flag, make) => give(translation, flag, make, Vendor::Hydra, name, value)?,
                Effect::Nothing(why) if !is_of_outer_job(name) => translation.note(&unread(name), why),
                _ => {}
            }
        }
    }
    // Inside a job of Open MPI, its launcher has set such variables: they are not the user's and are ignored.
    let is_within = variables.iter().any(|(name, _)| name == "OMPI_COMM_WORLD_RANK");
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| !by_slurm(name, value)) else { continue };
        let parameter = PARAMETER_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        match parameter.filter(|parameter| is_of_launcher(parameter)) {
            Some(_) if is_within || environment::is_of_outer_job(name.as_bytes()) => {}
            Some(parameter) => match parameter_gives(parameter) {
                Some((flag, make)) => give(translation, flag, make, translation.vendor, name, value)?,
                None => translation.note(&unread(name), UNREAD),
            },
            None if is_unknown(name) => translation.note(&unread(name), "no such setting is known"),
            None => {}
        }
    }
    Ok(())
}

/// Whether a variable is a setting of a launcher that no table names.
fn is_unknown(name: &str) -> bool {
    OF_LAUNCHERS.iter().any(|prefix| name.starts_with(prefix))
        && !is_of_outer_job(name)
        && !VARIABLES.iter().any(|row| row.names.contains(&name))
}

fn is_of_outer_job(name: &str) -> bool {
    OF_OUTER_JOB.iter().any(|outer| name.starts_with(outer))
}

/// The variable in a note, without its value.
fn unread(name: &str) -> Typed {
    Typed { option: name.to_owned(), words: Vec::new() }
}

/// Sets a parameter of Open MPI for the ranks by this flag; a parameter of the launcher also does what its row says.
pub fn set_parameter(translation: &mut Translation, flag: &'static Flag, typed: &Typed) -> Result<(), String> {
    let (name, value) = pair(typed)?;
    translation.give(flag, typed, behind(&format!("{PARAMETER_PREFIX}{name}="), value.as_ref()))?;
    match is_of_launcher(&name) {
        true => set_launcher_parameter(translation, typed),
        false => Ok(()),
    }
}

/// Carries out a parameter of the launcher, or says that it has no effect.
pub fn set_launcher_parameter(translation: &mut Translation, typed: &Typed) -> Result<(), String> {
    let (name, value) = pair(typed)?;
    let Some((flag, make)) = parameter_gives(&name) else {
        translation.note(typed, UNREAD);
        return Ok(());
    };
    let made = made(make, translation.vendor, &Typed::new(&typed.option, [value]))?;
    made.map_or(Ok(()), |word| translation.give(flag, typed, word))
}

/// The flag that a parameter amounts to.
fn parameter_gives(name: &str) -> Option<(&'static Flag, Make)> {
    match PARAMETERS.iter().find(|row| row.names.contains(&name))?.effect {
        Effect::Gives(flag, make) => Some((flag, make)),
        _ => None,
    }
}

/// Whether only a launcher reads a parameter.
pub fn is_of_launcher(name: &str) -> bool {
    let framework = name.split('_').next().unwrap_or_default();
    FRAMEWORKS.contains(&format!(" {framework} ")) || PARAMETERS.iter().any(|row| row.names.contains(&name))
}

fn pair(typed: &Typed) -> Result<(String, String), String> {
    let joined = typed.pair();
    let text = joined.to_string_lossy();
    let (name, value) = text.split_once('=').unwrap_or((&text, ""));
    match name.trim().is_empty() {
        true => Err(typed.value().refused("the name of the parameter is empty").into()),
        false => Ok((name.trim().to_owned(), value.trim().to_owned())),
    }
}

/// Reads a file of parameters, as `--tune` and `-am` take it.
pub fn read_parameters(translation: &mut Translation, file: &str) -> Result<(), String> {
    for (line, words) in files::lines(Path::new(file))? {
        let at = |problem: String| format!("{file}, line {line}: {problem}");
        let words: Vec<String> =
            words.map_err(at)?.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        read_line(translation, &words).map_err(at)?;
    }
    Ok(())
}

fn read_line(translation: &mut Translation, words: &[String]) -> Result<(), String> {
    let mut rest = words;
    while let [first, others @ ..] = rest {
        rest = match (first.trim_start_matches('-'), others) {
            _ if !first.starts_with('-') => {
                let line = words.join(" ");
                if !line.contains('=') {
                    let expected = "write NAME = VALUE, -mca NAME VALUE or -x NAME=VALUE";
                    return Err(format!("{expected}, not {first}"));
                }
                set_parameter(translation, &flag::ENV, &Typed::new("-mca", [line]))?;
                &[]
            }
            ("mca" | "gmca", [name, value, rest @ ..]) => {
                set_parameter(translation, &flag::ENV, &Typed::new("-mca", [name, value]))?;
                rest
            }
            ("x", [word, rest @ ..]) => {
                translation.give(&flag::ENV, &Typed::new("-x", [word]), word.into())?;
                rest
            }
            _ => return Err(format!("{first}: write -mca NAME VALUE or -x NAME=VALUE")),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn read(line: &str, vendor: Vendor) -> Translation {
        let mut translation = Translation::new(vendor);
        translation.read(line.split(' ').map(OsString::from).collect()).expect(line);
        translation
    }

    fn applied(line: &str, variables: &[(&str, &str)]) -> Translation {
        let mut translation = read(line, Vendor::Hydra);
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
    fn a_variable_is_judged_only_if_no_flag_overrides_it() {
        let not_utf_8 = OsString::from_vec(vec![0xff]);
        let bad = [
            ("HYDRA_BINDING", not_utf_8, "-bind-to none ./a"),
            ("OMPI_MCA_rmaps_base_cpus_per_proc", "few".into(), "-map-by node ./a"),
        ];
        for (name, value, line) in bad {
            let variables = [(name.into(), value)];
            let applied = |line: &str| apply(&mut read(line, Vendor::OpenMpi), &variables);
            assert_eq!(applied(line), Ok(()), "{name}");
            assert!(applied("./a").is_err(), "{name}");
        }
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
