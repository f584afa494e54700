//! The text of the progress line about nodes that are starting.

pub use wireup_node::progress::Progress;
use wireup_wire::session::{NodeState, Presence};

/// Most nodes that the line names; further ones are only counted.
const NAMED: usize = 3;

/// Shows which of these nodes are still starting. `all`: the number of these and of those that are not observed.
pub fn show_starting(progress: &mut Progress, nodes: &[&NodeState], all: usize) {
    let seconds = progress.seconds();
    progress.show(|| starting(nodes, all, seconds));
}

/// The text of the line, such as `starting nodes: 61 of 64 are up; waiting for n3, n7 and 1 more (12 s)`.
fn starting(nodes: &[&NodeState], all: usize, seconds: u64) -> String {
    let is_starting = |node: &&&NodeState| node.presence == Presence::Starting;
    let up = nodes.iter().filter(|node| node.presence == Presence::Up).count();
    let waiting = waiting_for(nodes.iter().filter(is_starting).map(|node| node.host.as_str()));
    let first = if nodes.len() < all { "the first " } else { "" };
    format!("starting nodes: {up} of {first}{} are up{waiting} ({seconds} s)", nodes.len())
}

/// The end of a line, such as `; waiting for n3, n7 and 2 more`; empty without names.
pub fn waiting_for<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len() {
        0 => String::new(),
        len @ ..=NAMED => format!("; waiting for {}", names[..len].join(", ")),
        len => format!("; waiting for {} and {} more", names[..NAMED].join(", "), len - NAMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_nodes_are_named() {
        let waiting = |names: &[&'static str]| waiting_for(names.iter().copied());
        assert_eq!(waiting(&[]), "");
        assert_eq!(waiting(&["n1", "n2"]), "; waiting for n1, n2");
        assert_eq!(waiting(&["a", "b", "c", "d", "e"]), "; waiting for a, b, c and 2 more");
    }

    #[test]
    fn starting_nodes_are_counted_on_one_line() {
        let node = |host: &str, presence| NodeState { host: host.into(), slots: 1, presence };
        let lost = Presence::Lost { problem: "gone".into() };
        let nodes = [node("n0", Presence::Up), node("n1", Presence::Starting), node("n2", lost)];
        let nodes: Vec<&NodeState> = nodes.iter().collect();
        assert_eq!(starting(&nodes, 3, 12), "starting nodes: 1 of 3 are up; waiting for n1 (12 s)");
        assert_eq!(starting(&nodes, 64, 12), "starting nodes: 1 of the first 3 are up; waiting for n1 (12 s)");
    }
}
