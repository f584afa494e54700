//! Reads from the launcher's environment variables the rank's place in its job, and how it reaches its PMI server.

/// Limit on ranks, to recognize invalid numbers: more ranks than any job has.
pub const RANKS_MAX: u32 = 1 << 20;

/// The kind of the descriptor in `PMI_FD`. It may be closed, if the variable was inherited from an outer job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Socket {
    /// The descriptor is closed, or cannot be relayed.
    None,
    /// A socket whose other end is wireup's own PMI server.
    Ours,
    Other,
}

/// The ways to its server that the launcher offers the rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offers {
    /// The number of a connected socket (`PMI_FD`).
    pub fd: Option<i32>,
    /// Whether there is an address to connect to (`PMI_PORT`).
    pub port: bool,
    pub pmix: bool,
}

/// The rank's place in its job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub offers: Offers,
    pub rank: u32,
    /// Number of ranks; `None`: the launcher does not tell it.
    pub size: Option<u32>,
    /// A name that all ranks of the job know from the start, and that no other job has.
    pub job: Option<String>,
    /// The name of the Slurm job step (`slurm-JOB.STEP`), which all ranks of the step know. Ranks of another launcher
    /// in a Slurm allocation have such a name in their environment, too.
    pub step: Option<String>,
    /// The launcher's name, as far as the environment tells.
    pub launcher: &'static str,
}

impl Place {
    /// Reads the rank's place from the variables that `lookup` returns. `socket` says what the descriptor in `PMI_FD`
    /// is. `launcher` returns the name of the visible launcher process, or an empty text; it is called only if PMIx is
    /// the rank's only way to its server. Returns `None` if the variables describe no server, or no valid rank.
    ///
    /// The socket in `PMI_FD`, if it is open, has precedence over PMIx, and PMIx over `PMI_PORT`: variables with lower
    /// precedence may have been inherited from an outer job.
    pub fn read(
        lookup: impl Fn(&str) -> Option<String>,
        socket: impl Fn(i32) -> Socket,
        launcher: impl FnOnce() -> String,
    ) -> Option<Place> {
        let number = |name: &str| lookup(name).and_then(|value| value.trim().parse::<u32>().ok());
        let text = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let found = number("PMI_FD").and_then(|fd| i32::try_from(fd).ok()).map(|fd| (fd, socket(fd)));
        let found = found.filter(|&(_, socket)| socket != Socket::None);
        let namespace = text("PMIX_NAMESPACE");
        let pmix = namespace.is_some() && number("PMIX_RANK").is_some();
        let offers = Offers {
            fd: found.map(|(fd, _)| fd),
            port: found.is_none() && !pmix && text("PMI_PORT").is_some() && number("PMI_ID").is_some(),
            pmix,
        };
        let names = [("WIREUP_RANK", "wireup"), ("PRTE_LAUNCHED", "Open MPI 5"), ("OMPI_COMM_WORLD_RANK", "Open MPI")];
        let named = names.into_iter().find(|(name, _)| text(name).is_some()).map_or("", |(_, launcher)| launcher);
        let (rank, size) = match offers {
            Offers { fd: None, port: false, pmix: false } => return None,
            Offers { fd: None, port: false, .. } => {
                let visible = launcher();
                let names = sizes(if visible.is_empty() { named } else { &visible });
                (number("PMIX_RANK"), names.iter().find_map(|name| number(name)))
            }
            _ => (number("PMI_RANK").or_else(|| number("PMI_ID")), number("PMI_SIZE")),
        };
        let rank = rank.filter(|&rank| rank < RANKS_MAX)?;
        let step = text("SLURM_JOB_ID").zip(text("SLURM_STEP_ID")).map(|(job, step)| format!("slurm-{job}.{step}"));
        let is_its_job = pmix && found.is_none_or(|(_, socket)| socket == Socket::Ours);
        Some(Place {
            launcher: named,
            offers,
            rank,
            size: size.filter(|&size| rank < size && size <= RANKS_MAX),
            job: namespace.filter(|_| is_its_job),
            step,
        })
    }
}

/// The variables in which a launcher that offers only PMIx passes the number of ranks.
fn sizes(launcher: &str) -> &'static [&'static str] {
    match launcher {
        "srun" => &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        "wireup" => &["WIREUP_SIZE"],
        _ => &["OMPI_COMM_WORLD_SIZE"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Option<Place> {
        read_under("", Socket::Other, vars)
    }

    fn read_under(launcher: &str, socket: Socket, vars: &[(&str, &str)]) -> Option<Place> {
        let lookup = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Place::read(lookup, |_| socket, || launcher.to_owned())
    }

    #[test]
    fn each_kind_of_launcher_is_understood() {
        let hydra = read(&[("PMI_FD", "7"), ("PMI_RANK", "3"), ("PMI_SIZE", "4")]).unwrap();
        assert_eq!((hydra.offers.fd, hydra.rank, hydra.size, hydra.job), (Some(7), 3, Some(4), None));
        let port = read(&[("PMI_PORT", "n0:9"), ("PMI_ID", "2")]).unwrap();
        assert_eq!((port.offers.port, port.rank, port.size), (true, 2, None));
        let slurm = [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "1"), ("SLURM_STEP_NUM_TASKS", "8")];
        let pmix = [&slurm[..], &[("PMIX_NAMESPACE", "slurm.pmix.9.1"), ("PMIX_RANK", "5")]].concat();
        let pmix = read_under("srun", Socket::None, &pmix).unwrap();
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

    #[test]
    fn variables_of_an_outer_job_are_not_taken_for_this_one() {
        let outer = [("PMI_FD", "7"), ("PMI_RANK", "3"), ("PMI_SIZE", "4")];
        assert_eq!(read_under("", Socket::None, &outer), None);
        let pmix = [("PMIX_NAMESPACE", "j"), ("PMIX_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("SLURM_NTASKS", "9")];
        let inner = [&outer[..], &pmix].concat();
        let place = read_under("Open MPI", Socket::None, &inner).unwrap();
        assert_eq!((place.offers.fd, place.rank, place.size, place.job.as_deref()), (None, 1, Some(2), Some("j")));
        // The open socket belongs to the inner job; the PMIx variables may be those of the outer job.
        let place = read_under("Hydra", Socket::Other, &inner).unwrap();
        assert_eq!((place.offers.fd, place.rank, place.size, place.job), (Some(7), 3, Some(4), None));
        assert_eq!(read_under("wireup", Socket::Ours, &inner).unwrap().job.as_deref(), Some("j"));
        let port = [("PMI_PORT", "n0:9"), ("PMI_ID", "2"), ("PMIX_NAMESPACE", "j"), ("PMIX_RANK", "1")];
        let place = read(&port).unwrap();
        assert_eq!((place.offers.port, place.rank), (false, 1));
        let allocation = [("PMIX_NAMESPACE", "j"), ("PMIX_RANK", "1"), ("SLURM_NTASKS", "9")];
        assert_eq!(read_under("Open MPI", Socket::None, &allocation).unwrap().size, None);
    }

    #[test]
    fn numbers_that_no_job_has_are_not_taken() {
        let of = |rank: &str, size: &str| read(&[("PMI_FD", "7"), ("PMI_RANK", rank), ("PMI_SIZE", size)]);
        assert_eq!(of("0", "4294967295").unwrap().size, None);
        assert_eq!(of("4294967294", "4294967295"), None);
    }
}
