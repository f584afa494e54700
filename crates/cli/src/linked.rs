//! Notices an MPI program that ran as so many singletons.
//!
//! A program whose library does not understand the PMI it is offered starts all the same: every process believes to be
//! rank 0 of 1, and the results look right until somebody counts them. After a job in which no rank ever spoke to a server, the
//! program's list of shared libraries tells whether that was a mistake. Plain programs and scripts name none and pass
//! without remark. Read only after the end, so it costs a run nothing.

use crate::program;
use crate::program::elf::Content;
use crate::program::families::{Family, family};
use wireup_wire::job::{JobSpec, PmiFlavour};
use wireup_wire::peer::Done;

/// A hint, if the ranks of a finished job should have spoken PMI and did not.
pub fn hint(job: &JobSpec, done: &Done) -> Option<String> {
    let offered = job.options.pmi;
    if offered == PmiFlavour::None || done.pmi_clients > 0 || done.ranks < 2 {
        return None;
    }
    let app = job.apps.first()?;
    let path = program::path(app, &job.env)?;
    let Content::Dynamic(found) = Content::of(&path) else { return None };
    let (library, family) = found.needed.iter().find_map(|library| Some((library, family(library)?)))?;
    let program = String::from_utf8_lossy(&app.argv[0]);
    let (name, advice) = (name(offered), advice(family, offered));
    Some(format!(
        "{program} is linked to {library}, but no rank used the {name} that it was offered: it ran as {} separate jobs of 1 \
         rank; {advice}",
        done.ranks
    ))
}

fn name(offered: PmiFlavour) -> &'static str {
    match offered {
        PmiFlavour::Pmix => "PMIx",
        PmiFlavour::Both => "PMI and PMIx",
        PmiFlavour::Simple | PmiFlavour::None => "PMI",
    }
}

fn advice(family: Family, offered: PmiFlavour) -> &'static str {
    match family {
        Family::Pmix if !offered.has_pmix() => "it needs PMIx: use --pmi auto or --pmi pmix",
        Family::Pmix => {
            "did it get as far as MPI_Init? Then it was built for another launcher (Open MPI 1 or 2, its own PMI)"
        }
        Family::Mpich if !offered.has_simple() => "it needs PMI-1: use --pmi auto or --pmi simple",
        Family::Mpich => {
            "did it get as far as MPI_Init? Then it was built for another launcher; use one built for PMI-1 or PMI-2"
        }
        Family::Pmi => {
            "did it get as far as PMI_Init? Then this library belongs to another launcher (Slurm, Flux, Cray)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_what_was_offered() {
        assert!(advice(Family::Pmix, PmiFlavour::Simple).contains("--pmi pmix"));
        assert!(advice(Family::Pmix, PmiFlavour::Both).contains("MPI_Init"));
        assert!(advice(Family::Mpich, PmiFlavour::Pmix).contains("--pmi simple"));
        assert!(advice(Family::Pmi, PmiFlavour::Simple).contains("PMI_Init"));
    }
}
