//! Libraries by which a program shows which start-up interface it uses.

/// The group of libraries, which determines the start-up interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LibraryFamily {
    /// Open MPI, its OpenSHMEM, or libpmix itself.
    Pmix,
    /// MPICH and the libraries that share its binary interface.
    Mpich,
    /// A client library of PMI-1 or PMI-2.
    Pmi,
}

/// The family of a library, by the beginning of its name; the first match counts.
const LIBRARIES: &[(&str, LibraryFamily)] = &[
    // Open MPI 2 to 5; MPICH, MVAPICH and Intel MPI are `libmpi.so.12`.
    ("libmpi.so.20", LibraryFamily::Pmix),
    ("libmpi.so.40", LibraryFamily::Pmix),
    ("libmpi.so.80", LibraryFamily::Pmix),
    ("libmpi_cxx.so", LibraryFamily::Pmix),
    ("libmpi_mpifh.so", LibraryFamily::Pmix),
    ("libmpi_usempi", LibraryFamily::Pmix),
    ("liboshmem.so", LibraryFamily::Pmix),
    ("libopen-rte.so", LibraryFamily::Pmix),
    ("libopen-pal.so", LibraryFamily::Pmix),
    ("libpmix.so", LibraryFamily::Pmix),
    ("libmpich", LibraryFamily::Mpich),
    ("libmpi", LibraryFamily::Mpich),
    ("libpmi", LibraryFamily::Pmi),
    ("libwireup.so", LibraryFamily::Pmi),
];

pub fn library_family(library: &str) -> Option<LibraryFamily> {
    LIBRARIES.iter().find(|(prefix, _)| library.starts_with(prefix)).map(|&(_, family)| family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_names_identify_mpi_families() {
        assert_eq!(library_family("libmpi.so.40"), Some(LibraryFamily::Pmix));
        assert_eq!(library_family("libmpi.so.12"), Some(LibraryFamily::Mpich));
        assert_eq!(library_family("libmpich.so.12"), Some(LibraryFamily::Mpich));
        assert_eq!(library_family("libpmix.so.2"), Some(LibraryFamily::Pmix));
        assert_eq!(library_family("libpmi2.so.0"), Some(LibraryFamily::Pmi));
        assert_eq!(library_family("libwireup.so.0"), Some(LibraryFamily::Pmi));
        assert_eq!(library_family("libm.so.6"), None);
        assert_eq!(library_family("libc.so.6"), None);
    }
}
