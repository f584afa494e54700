//! The algorithms over direct links.

use super::refused::Refused;
use super::rounds::Direct;
use super::{bruck, ring};
use wireup_wire::collective::{Algorithm, Collective, ExchangeScheme, RoundTag};

/// The algorithms over direct links. To add one, add a file with a [`Rounds`](super::Rounds) and a line here: its name
/// for `--exchange` and a unique number.
pub const DIRECT: &[Direct] = &[
    // A number of `Algorithm::COUNT_MAX` or more does not compile.
    Direct::of::<ring::Ring>("ring", Algorithm::RING),
    Direct::of::<bruck::Bruck>("log", Algorithm::BRUCK),
];

/// The values of `--exchange`, each with the scheme that it selects.
pub fn schemes() -> impl Iterator<Item = (&'static str, ExchangeScheme)> {
    let direct = DIRECT.iter().map(|direct| (direct.name, ExchangeScheme::Direct(direct.algorithm)));
    [("auto", ExchangeScheme::Auto), ("tree", ExchangeScheme::Tree)].into_iter().chain(direct)
}

/// Finds the entry of an algorithm in the table.
///
/// # Errors
/// [`Refused::NoSuchAlgorithm`]: this version has no such algorithm.
pub fn find(algorithm: Algorithm) -> Result<&'static Direct, Refused> {
    let found = DIRECT.iter().find(|direct| direct.algorithm == algorithm);
    found.ok_or(Refused::NoSuchAlgorithm(algorithm.number()))
}

/// The algorithm that `n` peers use when `wanted` is requested: Bruck's if `wanted` has more rounds than frames can
/// number.
///
/// # Errors
/// [`Refused::NoSuchAlgorithm`], as from [`find`].
pub fn fitting(collective: Collective, wanted: Algorithm, n: u32) -> Result<&'static Direct, Refused> {
    let direct = find(wanted)?;
    if (direct.rounds)(n) < RoundTag::rounds_max(collective, wanted) { Ok(direct) } else { find(Algorithm::BRUCK) }
}
