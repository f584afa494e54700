//! What ranks are doing: their call stacks, each only once.

use crate::ids::Rank;
use crate::limits::STACK_BYTES_MAX;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Ranks with the same call stack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stack {
    /// The ranks, in ascending order.
    pub ranks: Vec<Rank>,
    pub calls: Calls,
}

/// The functions of a call stack, the innermost first; or why the stack is not known, and what to do.
pub type Calls = Result<Vec<String>, String>;

/// Puts ranks with the same call stack together; the stack of the lowest rank comes first. At most [`STACK_BYTES_MAX`]
/// bytes of text are kept: of further stacks only the ranks.
pub fn folded(stacks: impl IntoIterator<Item = Stack>) -> Vec<Stack> {
    let mut bytes = 0;
    let short = merged(stacks).into_iter().map(|stack| {
        bytes += stack.calls.as_ref().map_or_else(String::len, |calls| calls.iter().map(String::len).sum());
        match bytes {
            0..=STACK_BYTES_MAX => stack,
            _ => Stack { calls: Err("there are too many different stacks to show".to_owned()), ..stack },
        }
    });
    merged(short.collect::<Vec<_>>())
}

fn merged(stacks: impl IntoIterator<Item = Stack>) -> Vec<Stack> {
    let mut ranks_of: BTreeMap<Calls, Vec<Rank>> = BTreeMap::new();
    for stack in stacks {
        ranks_of.entry(stack.calls).or_default().extend(stack.ranks);
    }
    let sorted = |(calls, mut ranks): (Calls, Vec<Rank>)| {
        ranks.sort_unstable();
        Stack { ranks, calls }
    };
    let mut merged: Vec<Stack> = ranks_of.into_iter().map(sorted).collect();
    merged.sort_by(|one, other| one.ranks.cmp(&other.ranks));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn stack(ranks: &[u32], call: &str) -> Stack {
        Stack { ranks: ranks.iter().copied().map(Rank).collect(), calls: Ok(vec![call.to_owned(), "main".to_owned()]) }
    }

    #[test]
    fn equal_stacks_are_put_together() {
        let failed = Stack { ranks: vec![Rank(9)], calls: Err("no tool".into()) };
        let all = [stack(&[4], "barrier"), failed.clone(), stack(&[0], "sleep"), stack(&[1, 7], "barrier")];
        assert_eq!(folded(all), [stack(&[0], "sleep"), stack(&[1, 4, 7], "barrier"), failed]);
    }

    #[test]
    fn the_text_of_all_stacks_is_bounded() {
        let long = |rank: u32| stack(&[rank], &(alloc::format!("{rank}") + &"x".repeat(STACK_BYTES_MAX / 4)));
        let folded = folded((0..10).map(long));
        assert_eq!(folded.len(), 4);
        assert_eq!((folded[3].ranks.len(), folded[3].calls.is_err()), (7, true));
    }
}
