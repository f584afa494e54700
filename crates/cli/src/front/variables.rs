//! Variables that other launchers read: each does what the corresponding flag does, unless that flag is given, or a
//! note says that it has no effect.

use super::hydra::VARIABLES;
use super::made_values::made;
use super::parameters;
use super::row::{Effect, Typed};
use super::translation::Translation;
use super::vendor::Vendor;
use crate::environment;
use crate::flags::table as flag;
use std::ffi::{OsStr, OsString};
use wireup_flags::Flag;

/// Prefixes of variables that belong to a launcher even if no table names them.
const OF_LAUNCHERS: &[&str] = &["HYDRA_", "I_MPI_HYDRA_"];
const PARAMETERS: &[&str] = &[parameters::PREFIX, "PRTE_MCA_"];
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

/// Applies the variables of the environment.
///
/// # Errors
/// The value of a variable is not valid for its flag.
pub fn apply(translation: &mut Translation, variables: &[(OsString, OsString)]) -> Result<(), String> {
    let mut given_before: Vec<Flag> = flag::RUN.flags().filter(|flag| translation.has(flag)).copied().collect();
    if [flag::HOSTS, flag::HOST_FILE, flag::RANKFILE, flag::VIRTUAL_NODES].iter().any(|flag| translation.has(flag)) {
        given_before.extend(HOSTS);
    }
    // The value of a variable that a flag overrides is not checked.
    let is_overridden =
        |translation: &Translation, flag: &Flag| given_before.contains(flag) || translation.gives_job(flag);
    let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let by_slurm = |name: &str, value: &OsStr| {
        OF_SLURM.iter().any(|(known, set)| name == *known && (set.is_empty() || value == *set))
    };
    for row in VARIABLES {
        for name in row.names {
            let Some(value) = value(name).filter(|value| !by_slurm(name, value)) else { continue };
            match row.effect {
                Effect::Gives(flag, _) if is_overridden(translation, flag) => {}
                Effect::Gives(flag, make) => {
                    if let Some(word) = made(make, Vendor::Hydra, &Typed::new(name, [value]))? {
                        translation.give_job(flag, name, word);
                    }
                }
                Effect::Nothing(why) if !is_of_outer_job(name) => translation.note(&unread(name), why),
                Effect::Nothing(_) | Effect::Always(_) | Effect::Does(_) | Effect::Refused(_) => {}
            }
        }
    }
    // Inside a job of Open MPI, its launcher has set such variables: they are not the user's and are ignored.
    let is_within = variables.iter().any(|(name, _)| name == "OMPI_COMM_WORLD_RANK");
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| !by_slurm(name, value)) else { continue };
        let parameter = PARAMETERS.iter().find_map(|prefix| name.strip_prefix(prefix));
        match parameter.filter(|parameter| parameters::is_of_launcher(parameter)) {
            Some(_) if is_within || environment::is_of_outer_job(name.as_bytes()) => {}
            Some(parameter) => match parameters::gives(parameter) {
                Some((flag, _)) if is_overridden(translation, flag) => {}
                Some((flag, make)) => {
                    if let Some(word) = made(make, translation.vendor, &Typed::new(name, [value]))? {
                        translation.give_job(flag, name, word);
                    }
                }
                None => translation.note(&unread(name), parameters::UNREAD),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn applied(line: &str, variables: &[(&str, &str)]) -> Translation {
        let mut translation = Translation::new(Vendor::Hydra);
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
    fn a_variable_is_judged_only_if_no_flag_overrides_it() {
        let not_utf_8 = OsString::from_vec(vec![0xff]);
        let bad = [
            ("HYDRA_BINDING", not_utf_8, "-bind-to none ./a"),
            ("OMPI_MCA_rmaps_base_cpus_per_proc", "few".into(), "-map-by node ./a"),
        ];
        for (name, value, line) in bad {
            let variables = [(name.into(), value)];
            let read = |line: &str| {
                let mut translation = Translation::new(Vendor::OpenMpi);
                translation.read(line.split(' ').map(OsString::from).collect()).expect(line);
                apply(&mut translation, &variables)
            };
            assert_eq!(read(line), Ok(()), "{name}");
            assert!(read("./a").is_err(), "{name}");
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
