//! What the launcher has told this rank by its environment.

use std::fmt;

/// How the rank reaches its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offers {
    /// A connected socket: its number.
    pub fd: Option<i32>,
    /// An address to connect to.
    pub port: bool,
    pub pmix: bool,
}

impl fmt::Display for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(self.fd.is_some(), "PMI_FD"), (self.port, "PMI_PORT"), (self.pmix, "PMIx")];
        let names: Vec<&str> = names.into_iter().filter(|(offered, _)| *offered).map(|(_, name)| name).collect();
        f.write_str(&names.join(" and "))
    }
}

/// The rank's place in its job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub offers: Offers,
    pub rank: u32,
    /// `None`: the launcher does not say.
    pub size: Option<u32>,
    /// A name that all ranks of the job know from the start, and no other job has.
    pub job: Option<String>,
    /// The same of a step of Slurm. In an allocation other launchers' ranks have it, too.
    pub step: Option<String>,
    /// The launcher's name, as far as a variable tells.
    pub launcher: &'static str,
}

impl Place {
    /// Reads the environment through `lookup`. `None`: there is no server.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Option<Place> {
        let number = |name: &str| lookup(name).and_then(|value| value.trim().parse::<u32>().ok());
        let text = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let namespace = text("PMIX_NAMESPACE");
        let offers = Offers {
            fd: number("PMI_FD").and_then(|fd| i32::try_from(fd).ok()),
            port: text("PMI_PORT").is_some() && number("PMI_ID").is_some(),
            pmix: namespace.is_some() && number("PMIX_RANK").is_some(),
        };
        let of_pmi = || number("PMI_RANK").or_else(|| number("PMI_ID"));
        let rank = match offers {
            Offers { pmix: true, .. } => number("PMIX_RANK"),
            Offers { fd: None, port: false, .. } => None,
            _ => of_pmi(),
        }?;
        let size = match offers {
            Offers { fd: None, port: false, .. } => {
                let names = ["OMPI_COMM_WORLD_SIZE", "WIREUP_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
                names.into_iter().find_map(number)
            }
            _ => number("PMI_SIZE"),
        };
        let step = text("SLURM_JOB_ID").zip(text("SLURM_STEP_ID")).map(|(job, step)| format!("slurm-{job}.{step}"));
        let names = [("WIREUP_RANK", "wireup"), ("PRTE_LAUNCHED", "Open MPI 5"), ("OMPI_COMM_WORLD_RANK", "Open MPI")];
        let launcher = names.into_iter().find(|(name, _)| text(name).is_some()).map_or("", |(_, launcher)| launcher);
        Some(Place {
            launcher,
            offers,
            rank,
            size: size.filter(|&size| rank < size),
            job: namespace.filter(|_| offers.pmix),
            step,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Option<Place> {
        Place::read(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn each_kind_of_launcher_is_understood() {
        let hydra = read(&[("PMI_FD", "7"), ("PMI_RANK", "3"), ("PMI_SIZE", "4")]).unwrap();
        assert_eq!((hydra.offers.fd, hydra.rank, hydra.size, hydra.job), (Some(7), 3, Some(4), None));
        let port = read(&[("PMI_PORT", "n0:9"), ("PMI_ID", "2")]).unwrap();
        assert_eq!((port.offers.port, port.rank, port.size), (true, 2, None));
        let slurm = [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "1"), ("SLURM_STEP_NUM_TASKS", "8")];
        let pmix = [&slurm[..], &[("PMIX_NAMESPACE", "slurm.pmix.9.1"), ("PMIX_RANK", "5")]].concat();
        let pmix = read(&pmix).unwrap();
        assert_eq!((pmix.rank, pmix.size, pmix.job.as_deref()), (5, Some(8), Some("slurm.pmix.9.1")));
        let pmi2 = read(&[&slurm[..], &[("PMI_FD", "9"), ("PMI_RANK", "1"), ("PMI_SIZE", "8")]].concat()).unwrap();
        assert_eq!(pmi2.step.as_deref(), Some("slurm-9.1"));
    }

    #[test]
    fn without_a_server_there_is_no_place() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("PMI_FD", "x"), ("PMI_RANK", "0")]), None);
        assert_eq!(read(&[("PMIX_RANK", "0"), ("SLURM_NTASKS", "2")]), None);
        assert_eq!(read(&[("PMI_FD", "7"), ("PMI_RANK", "4"), ("PMI_SIZE", "4")]).unwrap().size, None);
    }
}
