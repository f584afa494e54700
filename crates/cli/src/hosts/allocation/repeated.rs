//! Slurm's short form of a list of numbers: `4(x2),2` is 4, 4, 2.

/// Reads a list in this form that must have `places` numbers; checks the total before it expands the list.
pub fn read(text: &str, places: usize) -> Result<Vec<u32>, String> {
    let runs: Vec<(u32, usize)> = text.split(',').map(run).collect::<Result<_, _>>()?;
    let count = runs.iter().fold(0usize, |sum, (_, times)| sum.saturating_add(*times));
    if count != places {
        return Err(format!("it has entries for {count} nodes, but the job has {places} nodes"));
    }
    Ok(runs.into_iter().flat_map(|(number, times)| std::iter::repeat_n(number, times)).collect())
}

fn run(word: &str) -> Result<(u32, usize), String> {
    let wrong = || format!("{word} is not a number such as 4 or 4(x2)");
    let (number, times) = match word.split_once("(x") {
        None => (word, "1"),
        Some((number, rest)) => (number, rest.strip_suffix(')').ok_or_else(wrong)?),
    };
    // Slurm writes no sign; `parse` would accept a "+".
    if word.contains('+') {
        return Err(wrong());
    }
    match (number.parse(), times.parse()) {
        (Ok(number), Ok(times @ 1..)) => Ok((number, times)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The list as Slurm writes it.
    fn written(numbers: &[u32]) -> String {
        let runs = numbers.chunk_by(|left, right| left == right);
        let run = |run: &[u32]| if run.len() == 1 { run[0].to_string() } else { format!("{}(x{})", run[0], run.len()) };
        runs.map(run).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn repeated_counts_are_expanded() {
        assert_eq!(read("4(x2),2", 3), Ok(vec![4, 4, 2]));
        assert_eq!(read("16", 1), Ok(vec![16]));
        assert_eq!(written(&[4, 4, 2]), "4(x2),2");
    }

    #[test]
    fn malformed_and_huge_repetitions_are_refused() {
        for text in [
            "", "4,", "4(x0)", "4(x)", "4(2)", "4(x2", "x", "-1", "+4", "4(x+2)", "4294967296",
            "4(x99999999999999999999)",
        ] {
            assert!(read(text, 1).is_err(), "{text}");
        }
        assert_eq!(
            read("4(x4000000000),1", 2),
            Err("it has entries for 4000000001 nodes, but the job has 2 nodes".into())
        );
        assert_eq!(read("4(x2)", 3), Err("it has entries for 2 nodes, but the job has 3 nodes".into()));
    }

    proptest! {
        #[test]
        fn counts_in_slurms_notation_round_trip(numbers in proptest::collection::vec(0u32..4, 1..40)) {
            prop_assert_eq!(read(&written(&numbers), numbers.len()), Ok(numbers));
        }

        #[test]
        fn arbitrary_text_does_not_panic_the_reader(text in "[0-9(x),]{0,24}", places in 0usize..8) {
            if let Ok(numbers) = read(&text, places) {
                prop_assert_eq!(numbers.len(), places);
            }
        }
    }
}
