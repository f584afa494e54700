//! Checks that the PMIx libraries that the nodes of a job have opened are compatible.

use crate::job::facts::Facts;
use wireup_wire::job::PmiFlavour;
use wireup_wire::peer::Opened;

/// The first library that was reported as opened by this node or a node below it.
#[derive(Default)]
pub struct Libraries(pub Option<Opened>);

impl Libraries {
    /// This node or a subtree has opened a library.
    ///
    /// # Errors
    /// Why it is incompatible with the known one.
    pub fn on_opened(&mut self, facts: &Facts, other: Opened) -> Result<(), String> {
        let Some(known) = &self.0 else {
            self.0 = Some(other);
            return Ok(());
        };
        if series(&known.version) == series(&other.version) {
            return Ok(());
        }
        if facts.spec.options.pmi.flavour == PmiFlavour::Both && (known.version.is_empty() || other.version.is_empty())
        {
            // A rank that needs PMIx on a node without it will report an error; all other ranks run without PMIx.
            if known.version.is_empty() {
                self.0 = Some(other);
            }
            return Ok(());
        }
        Err(format!(
            "the nodes have different PMIx libraries, which are incompatible: {} and {}; choose one with \
             --pmix-library",
            words(facts, known),
            words(facts, &other)
        ))
    }
}

fn words(facts: &Facts, opened: &Opened) -> String {
    let name = facts.name_of(opened.node);
    match opened.version.as_str() {
        "" => format!("none on node {name}"),
        version => format!("{version} on node {name}"),
    }
}

/// The parts of a version that must be equal: `4.2` of `4.2.9`.
fn series(version: &str) -> Vec<&str> {
    version.split('.').take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::NodeId;

    fn opened(facts: &Facts, versions: [&str; 2]) -> (Result<(), String>, String) {
        let mut libraries = Libraries::default();
        let mut last = Ok(());
        for (node, version) in versions.into_iter().enumerate() {
            last = libraries.on_opened(facts, Opened { node: NodeId(node as u32), version: version.into() });
        }
        (last, libraries.0.expect("two were reported").version.clone())
    }

    #[test]
    fn libraries_of_one_series_are_compatible() {
        let facts = Facts::for_test_of(2, 2, 0, PmiFlavour::Pmix);
        assert_eq!(opened(&facts, ["4.2.2", "4.2.9"]), (Ok(()), "4.2.2".into()));
        let (result, _) = opened(&facts, ["4.2.2", "5.0.1"]);
        let problem = result.expect_err("two series");
        assert!(problem.contains("4.2.2 on node n0 and 5.0.1 on node n1"), "{problem}");
        assert!(opened(&facts, ["4.2.2", ""]).0.is_err(), "the job requires PMIx");
    }

    #[test]
    fn a_node_may_lack_pmix_if_ranks_do_not_need_it() {
        let facts = Facts::for_test_of(2, 2, 0, PmiFlavour::Both);
        assert_eq!(opened(&facts, ["4.2.2", ""]), (Ok(()), "4.2.2".into()));
        assert_eq!(opened(&facts, ["", "4.2.2"]), (Ok(()), "4.2.2".into()));
        assert!(opened(&facts, ["4.2.2", "5.0.1"]).0.is_err());
    }
}
