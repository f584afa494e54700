//! Libraries by which a program shows which start-up interface it uses.

/// The group of libraries, which determines the start-up interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Open MPI, its OpenSHMEM, or libpmix itself.
    Pmix,
    /// MPICH and the libraries that share its binary interface.
    Mpich,
    /// A client library of PMI-1 or PMI-2.
    Pmi,
}

/// By the beginning of the name; the first match counts.
const LIBRARIES: &[(&str, Family)] = &[
    // Open MPI 2 to 5; MPICH, MVAPICH and Intel MPI are `libmpi.so.12`.
    ("libmpi.so.20", Family::Pmix),
    ("libmpi.so.40", Family::Pmix),
    ("libmpi.so.80", Family::Pmix),
    ("libmpi_cxx.so", Family::Pmix),
    ("libmpi_mpifh.so", Family::Pmix),
    ("libmpi_usempi", Family::Pmix),
    ("liboshmem.so", Family::Pmix),
    ("libopen-rte.so", Family::Pmix),
    ("libopen-pal.so", Family::Pmix),
    ("libpmix.so", Family::Pmix),
    ("libmpich", Family::Mpich),
    ("libmpi", Family::Mpich),
    ("libpmi", Family::Pmi),
    ("libwireup.so", Family::Pmi),
];

pub fn family(library: &str) -> Option<Family> {
    LIBRARIES.iter().find(|(prefix, _)| library.starts_with(prefix)).map(|&(_, family)| family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_names_identify_mpi_families() {
        assert_eq!(family("libmpi.so.40"), Some(Family::Pmix));
        assert_eq!(family("libmpi.so.12"), Some(Family::Mpich));
        assert_eq!(family("libmpich.so.12"), Some(Family::Mpich));
        assert_eq!(family("libpmix.so.2"), Some(Family::Pmix));
        assert_eq!(family("libpmi2.so.0"), Some(Family::Pmi));
        assert_eq!(family("libwireup.so.0"), Some(Family::Pmi));
        assert_eq!(family("libm.so.6"), None);
        assert_eq!(family("libc.so.6"), None);
    }
}
