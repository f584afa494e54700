//! The call stacks of a job's ranks, equal ones together.

use super::{count, one_line, ranges};
use wireup_wire::peer::Stack;

/// Most call stacks that are shown; the rest is only counted.
const STACKS_SHOWN: usize = 16;

pub fn lines(stacks: &[Stack]) -> Vec<String> {
    let (shown, rest) = stacks.split_at(stacks.len().min(STACKS_SHOWN));
    let mut lines: Vec<String> = shown.iter().flat_map(of_stack).collect();
    if !rest.is_empty() {
        let ranks: usize = rest.iter().map(|stack| stack.ranks.len()).sum();
        let others = count(rest.len() as u32, "other stack");
        lines.push(format!("{others} of {} not shown", count(ranks as u32, "rank")));
    }
    lines
}

fn of_stack(Stack { ranks, calls }: &Stack) -> Vec<String> {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let ranks = format!("{noun} {}", ranges(ranks.iter().map(|rank| rank.0)));
    match calls {
        Err(why) => vec![format!("no call stack of {ranks}: {}", one_line(why))],
        Ok(calls) => {
            let head = format!("call stack of {ranks}, innermost first:");
            [head].into_iter().chain(calls.iter().map(|call| format!("    {}", one_line(call)))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::Rank;

    fn stack(ranks: std::ops::Range<u32>, calls: &[&str]) -> Stack {
        Stack { ranks: ranks.map(Rank).collect(), calls: Ok(calls.iter().map(|&call| call.into()).collect()) }
    }

    #[test]
    fn each_stack_names_its_ranks() {
        let failed = Stack { ranks: vec![Rank(4)], calls: Err("not\u{1b}permitted".into()) };
        assert_eq!(
            lines(&[stack(0..3, &["read", "main"]), stack(3..4, &["sleep\n"]), failed]),
            [
                "call stack of ranks 0-2, innermost first:", "    read", "    main",
                "call stack of rank 3, innermost first:", "    sleep ", "no call stack of rank 4: not permitted",
            ]
        );
    }

    #[test]
    fn only_some_stacks_are_shown() {
        let many: Vec<Stack> = (0..18).map(|rank| stack(rank..rank + 1, &["f"])).collect();
        let lines = lines(&many);
        assert_eq!((lines.len(), &*lines[32]), (33, "2 other stacks of 2 ranks not shown"));
    }
}
