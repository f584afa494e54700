//! The lists of MPICH's tests: `PROGRAM [RANKS [NAME=VALUE ...]]` a line, or a folder with a list of its own.

use std::path::{Path, PathBuf};

/// Number of ranks of a line that states none.
const RANKS: u32 = 2;
/// Time limit of a line that states none (s): the lists' own default.
const LIMIT_S: u64 = 180;

#[derive(PartialEq, Eq, Debug)]
pub(super) struct Test {
    pub program: String,
    pub ranks: u32,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub limit_s: u64,
    /// How the test is judged, if not by its output.
    pub result: String,
    /// Whether MPICH itself is known to fail the test.
    pub fails: bool,
}

impl Test {
    /// Reads a line of a list; `None`: the line is empty.
    pub(super) fn parse(line: &str) -> Option<Test> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let program = words.next()?.to_owned();
        let ranks = words.next().and_then(|ranks| ranks.parse().ok()).unwrap_or(RANKS);
        let mut test = Test {
            program,
            ranks,
            arguments: Vec::new(),
            environment: Vec::new(),
            limit_s: LIMIT_S,
            result: String::new(),
            fails: false,
        };
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            match name {
                "arg" => test.arguments.push(value.into()),
                "env" => {
                    test.environment.extend(value.split_once('=').map(|(name, value)| (name.into(), value.into())))
                }
                "timeLimit" => test.limit_s = value.parse().unwrap_or(LIMIT_S),
                "resultTest" => test.result = value.into(),
                "xfail" => test.fails = true,
                // Which implementations a test is for, what it shares with others at the same time, options of Hydra.
                _ => {}
            }
        }
        Some(test)
    }

    /// The name that tells this line from the others of its list.
    pub(super) fn name(&self, folder: &str) -> String {
        let environment = self.environment.iter().map(|(name, value)| format!(" {name}={value}"));
        let words = self.arguments.iter().map(|word| format!(" {word}")).chain(environment);
        format!("{folder}/{} {}{}", self.program, self.ranks, words.collect::<String>())
    }
}

/// All tests below `folder`, each with its folder. A list that configure has made replaces the one of the source.
pub(super) fn walk(built: &Path, source: &Path, folder: &str) -> Vec<(String, Test)> {
    let list = |root: &Path| std::fs::read_to_string(root.join(folder).join("testlist"));
    let text = list(built).or_else(|_| list(source)).unwrap_or_default();
    let tests = text.lines().filter_map(Test::parse);
    let each = tests.flat_map(|test| {
        let below: PathBuf = [folder, &test.program].iter().collect();
        match below.to_str() {
            Some(below) if source.join(below).is_dir() => walk(built, source, below),
            _ => vec![(folder.to_owned(), test)],
        }
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_list_are_read() {
        let line = "abort 3 arg=-n arg=a=b env=X=1=2 mpiexecarg=-q resultTest=TestErrFatal timeLimit=10 xfail=t1 # why";
        let test = Test::parse(line).unwrap();
        assert_eq!(test.name("init"), "init/abort 3 -n a=b X=1=2");
        assert_eq!((test.limit_s, test.result.as_str(), test.fails), (10, "TestErrFatal", true));
        let plain = Test::parse("  attrt").unwrap();
        assert_eq!((plain.ranks, plain.limit_s, plain.fails, plain.result.as_str()), (2, 180, false, ""));
        assert!(Test::parse("# perf").is_none() && Test::parse(" ").is_none());
    }
}
