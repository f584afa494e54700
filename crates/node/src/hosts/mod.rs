//! Reads host lists in the syntax of users and batch systems: `n[2-5,7],gpu[01-04]-ib`.

mod collapse;
mod pattern;
mod problem;

pub use collapse::{collapse, collapse_short};
pub use pattern::Pattern;
pub use problem::{HOSTS_MAX, HostProblem};

/// The words between commas outside of brackets.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i64;
    text.split(move |letter| {
        depth += i64::from(letter == '[') - i64::from(letter == ']');
        letter == ',' && depth <= 0
    })
}

/// All names of a list.
///
/// # Errors
/// A word does not name a host, or there are too many hosts.
pub fn expand(text: &str) -> Result<Vec<String>, HostProblem> {
    let mut names = Vec::new();
    for word in words(text) {
        let pattern = Pattern::parse(word)?;
        if (names.len() as u64).saturating_add(pattern.count()) > HOSTS_MAX {
            return Err(HostProblem::TooMany);
        }
        names.extend(pattern.names());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_host_lists_are_refused_before_expansion() {
        assert_eq!(
            expand("n[1-3,07-09],gpu5"),
            Ok(["n1", "n2", "n3", "n07", "n08", "n09", "gpu5"].map(Into::into).to_vec())
        );
        assert_eq!(expand("n[1-999999],m[1-2]"), Err(HostProblem::TooMany));
        assert_eq!(expand("n[1-99999999][1-99999999]"), Err(HostProblem::TooMany));
    }
}
