//! Sorted numbers in short form: `0-3,8,10-11`.

/// Most runs that are shown; the rest is only counted.
const RUNS_SHOWN: usize = 8;

/// Ascending numbers as runs; a long list ends in `… (N in all)`.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    let mut total = 0u64;
    for number in numbers {
        total += 1;
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let mut parts: Vec<String> = runs.iter().take(RUNS_SHOWN).map(|&run| shown(run)).collect();
    if let Some(&last) = runs.get(RUNS_SHOWN..).and_then(<[_]>::last) {
        if runs.len() > RUNS_SHOWN + 1 {
            parts.push("...".to_owned());
        }
        parts.push(shown(last));
        return format!("{} ({total} in all)", parts.join(","));
    }
    parts.join(",")
}

fn shown((first, last): (u32, u32)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_are_joined_and_long_lists_cut() {
        assert_eq!(ranges([]), "");
        assert_eq!(ranges([3]), "3");
        assert_eq!(ranges([0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges((0..64).step_by(4)), "0,4,8,12,16,20,24,28,...,60 (16 in all)");
        assert_eq!(ranges((0..18).step_by(2)), "0,2,4,6,8,10,12,14,16 (9 in all)");
        assert_eq!(ranges([u32::MAX]), "4294967295");
    }
}
