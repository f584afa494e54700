//! Detects an MPI program whose ranks all ran as singletons.
//!
//! A program whose library does not understand the offered PMI starts nevertheless: every process believes that it is
//! rank 0 of 1, and the results look right until somebody counts them. If a job did not fail and no rank spoke to a
//! server, the program's list of shared libraries shows whether that was a mistake. A failed job has already reported
//! its reason. Plain programs and scripts name no such library and get no hint. The file is read only after the end, so
//! it costs a run nothing.

use crate::program;
use crate::program::elf::Content;
use crate::program::library_family::{LibraryFamily, library_family};
use wireup_wire::job::{JobSpec, PmiFlavour};
use wireup_wire::peer::{Done, Ended};

/// A hint, if the ranks of a finished job should have used PMI and did not.
pub fn hint(job: &JobSpec, ended: &Ended) -> Option<String> {
    let (offered, done) = (job.options.pmi.flavour, &ended.done);
    if !may_have_run_alone(offered, ended) {
        return None;
    }
    let app = job.apps.first()?;
    let path = program::path(app, &job.env)?;
    let Content::Dynamic(found) = Content::read(&path) else { return None };
    let (library, family) = found.needed.iter().find_map(|library| Some((library, library_family(library)?)))?;
    let program = String::from_utf8_lossy(&app.argv[0]);
    if library.starts_with("libpmix.so") && offered.has_pmix() {
        return Some(format!("{program} is linked to {library}, but no rank called PMIx_Init"));
    }
    let (name, advice) = (name(offered), advice(family, offered));
    Some(format!(
        "{program} is linked to {library}, but no rank used the {name} that it was offered: it ran as {} separate jobs \
         of 1 rank; {advice}",
        done.ranks
    ))
}

fn may_have_run_alone(offered: PmiFlavour, ended: &Ended) -> bool {
    let Ended { failure, done: Done { ranks, pmi_clients, .. } } = ended;
    failure.is_none() && offered != PmiFlavour::None && *pmi_clients == 0 && *ranks > 1
}

fn name(offered: PmiFlavour) -> &'static str {
    match offered {
        PmiFlavour::Pmix => "PMIx",
        PmiFlavour::Both => "PMI and PMIx",
        PmiFlavour::Simple | PmiFlavour::None => "PMI",
    }
}

fn advice(family: LibraryFamily, offered: PmiFlavour) -> &'static str {
    match family {
        LibraryFamily::Pmix if !offered.has_pmix() => "it needs PMIx: use --pmi auto or --pmi pmix",
        LibraryFamily::Pmix => {
            "if it reached MPI_Init, its Open MPI did not look for PMIx: is it configured to use something else?"
        }
        LibraryFamily::Mpich if !offered.has_simple() => "it needs PMI-1: use --pmi auto or --pmi simple",
        LibraryFamily::Mpich => {
            "if it reached MPI_Init, it was built for another launcher; use one built for PMI-1 or PMI-2"
        }
        LibraryFamily::Pmi => "if it reached PMI_Init, this library belongs to another launcher (Slurm, Flux, Cray)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::peer::{Cause, Failure};

    #[test]
    fn a_job_that_failed_or_used_pmi_did_not_run_as_singletons() {
        let done = Done { ranks: 2, ..Done::default() };
        let ended = |failure, done| Ended { failure, done };
        assert!(may_have_run_alone(PmiFlavour::Pmix, &ended(None, done)));
        assert!(!may_have_run_alone(PmiFlavour::None, &ended(None, done)));
        assert!(!may_have_run_alone(PmiFlavour::Pmix, &ended(None, Done { pmi_clients: 1, ..done })));
        assert!(!may_have_run_alone(PmiFlavour::Pmix, &ended(None, Done { ranks: 1, ..done })));
        let cause = Cause::PmixServer { problem: "no libpmix".into() };
        let failure = Failure { node: Default::default(), host: "n0".into(), rank: None, pid: None, cause };
        assert!(!may_have_run_alone(PmiFlavour::Pmix, &ended(Some(failure), done)));
    }

    #[test]
    fn advice_matches_the_offered_pmi() {
        assert!(advice(LibraryFamily::Pmix, PmiFlavour::Simple).contains("--pmi pmix"));
        assert!(advice(LibraryFamily::Pmix, PmiFlavour::Both).contains("MPI_Init"));
        assert!(advice(LibraryFamily::Mpich, PmiFlavour::Pmix).contains("--pmi simple"));
        assert!(advice(LibraryFamily::Pmi, PmiFlavour::Simple).contains("PMI_Init"));
    }
}
