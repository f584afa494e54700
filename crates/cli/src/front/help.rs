//! What a front prints about itself.

use super::row::{Effect, Make, Row, Takes};
use super::tables::{PARAMETERS, TABLES, VARIABLES};
use super::vendor::Vendor;
use wireup_flags::ManPage;

const MARGIN: usize = 118;

/// Configure scripts read the first line of this text. The second line names the launchers whose options are accepted,
/// because other scripts search for these names.
pub fn version(name: &str) -> String {
    format!(
        "{name} (wireup) {}\nTakes the options of MPI-4.1, MPICH's HYDRA, Intel(R) MPI, Open MPI (OpenRTE, PRRTE) and \
         srun.\n",
        env!("CARGO_PKG_VERSION")
    )
}

pub const PURPOSE: &str = "start a job, with the options of other launchers";

/// The options and operands that follow the launcher's name on a command line.
const OPERANDS: &str = "[OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM [ARGUMENTS]]...";

fn intro(name: &str) -> String {
    format!(
        "
  {name} -n 4 ./app                                     4 ranks on this machine
  {name} -n 1 ./app : -n 3 ./other                      two programs in one job
  {name} -hosts n0,n1 -ppn 16 ./app                     as with MPICH or Intel MPI
  {name} -np 32 --host n0:16,n1:16 -x OMP_NUM_THREADS ./app   as with Open MPI
  {name} -configfile FILE                               a program with its options on each line

usage: {name} {OPERANDS}
One dash is as good as two. All flags of \"wireup run\" may be used too: wireup help run.
"
    )
}

/// The manual page, with every option of the tables.
pub fn man_page(version: &str) -> ManPage {
    let synopsis = ["wireup mpiexec", "mpiexec"].map(|name| format!("  {name} {OPERANDS}")).join("\n");
    let page = ManPage::new("wireup-mpiexec", version, PURPOSE).section("Synopsis").prose(&synopsis);
    let intro = intro("mpiexec");
    let description: Vec<&str> = intro.lines().filter(|line| !line.starts_with("usage: ")).collect();
    let page = page.section("Description").prose(&description.join("\n"));
    let entry = |page: ManPage, row: &Row| page.entry(&usage(row), &plain(row));
    TABLES.into_iter().fold(page, |page, (title, rows)| rows.iter().fold(page.section(title), entry))
}

pub fn text(name: &str) -> String {
    let mut text = format!("{name} (wireup {}): {PURPOSE}.\n{}", env!("CARGO_PKG_VERSION"), intro(name));
    for (title, rows) in TABLES {
        text += &format!("\n{title}:\n");
        let without_effect = |effect: &Effect| matches!(effect, Effect::Always(_) | Effect::Nothing(_));
        let is_refused = |effect: &Effect| matches!(effect, Effect::Refused(_));
        text += &list(rows, |effect| !without_effect(effect) && !is_refused(effect));
        text += &format!("  accepted, without effect here:\n{}", list(rows, without_effect));
        text += &format!("  not offered:\n{}", list(rows, is_refused));
    }
    text + "\n--help OPTION explains one of them, man wireup-mpiexec all. -quiet hides notes about options without \
            effect.\n"
}

/// The names of the options whose effect `kind` accepts, wrapped into lines.
fn list(rows: &[Row], kind: impl Fn(&Effect) -> bool) -> String {
    let (mut text, mut line) = (String::new(), String::from("   "));
    for name in rows.iter().filter(|row| kind(&row.effect)).flat_map(heading) {
        if line.len() + 1 + name.len() > MARGIN {
            text += &(std::mem::replace(&mut line, String::from("   ")) + "\n");
        }
        line += &format!(" {name}");
    }
    if line.trim().is_empty() {
        return "    none\n".to_owned();
    }
    text + &line + "\n"
}

fn heading(row: &Row) -> impl Iterator<Item = String> {
    row.names.iter().map(|name| format!("-{name}"))
}

/// An option with what it takes, for the documentation.
pub fn usage(row: &Row) -> String {
    let names: Vec<String> = heading(row).collect();
    let takes = match row.takes {
        Takes::Nothing => String::new(),
        Takes::One(word) => format!(" {word}"),
        Takes::Two(name, value) => format!(" {name} {value}"),
        Takes::Attached(word) => format!("[={word}]"),
    };
    names.join(", ") + &takes
}

/// What an option, a parameter of Open MPI or a variable does; `None` if there is none of this name.
pub fn on(topic: &str, vendor: Vendor) -> Option<String> {
    if let Some(row) = vendor.find(topic) {
        let example = row.rule.map(|rule| format!("  example: {}\n", rule.example.0)).unwrap_or_default();
        return Some(format!("{}\n  {}\n{example}", usage(row), plain(row)));
    }
    let row = VARIABLES.iter().chain(PARAMETERS).find(|row| row.names.contains(&topic))?;
    Some(format!("{}\n  {}\n", row.names.join(", "), plain(row)))
}

/// What [`effect`] says, without the marks of Markdown.
fn plain(row: &Row) -> String {
    effect(row).replace(['`', '*'], "")
}

/// What an option, a parameter or a variable does, in Markdown.
pub fn effect(row: &Row) -> String {
    match row.effect {
        Effect::Gives(flag, make) if row.rule.is_none() => given(flag.name(), make, row.takes),
        Effect::Always(why) => format!("*always so*: {why}"),
        Effect::Nothing(why) => format!("*no effect*: {why}"),
        Effect::Refused(instead) => format!("*refused*: {instead}"),
        _ => row.rule.map_or_else(String::new, |rule| rule.says.to_owned()),
    }
}

fn given(flag: &str, make: Make, takes: Takes) -> String {
    let value = match takes {
        Takes::Nothing => String::new(),
        Takes::One(word) | Takes::Attached(word) => word.to_owned(),
        Takes::Two(name, value) => format!("{name}={value}"),
    };
    let (words, when) = match make {
        Make::Word(word) => (word.to_owned(), ""),
        Make::IfTrue(word) => (word.to_owned(), " if it is true"),
        Make::IfFalse(word) => (word.to_owned(), " if it is false"),
        Make::Number(before, after) => (format!("{before}{value}{after}"), ""),
        Make::Behind(before) => (format!("{before}{value}"), ""),
        _ => (String::new(), ""),
    };
    format!("as `{}`{when}", format!("{flag} {words}").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_shows_both_names_and_the_usage_once() {
        let page = man_page("wireup 1").render();
        let synopsis = page.split_once(".SH SYNOPSIS\n").expect("a synopsis").1.split(".SH").next().unwrap_or_default();
        for name in ["wireup mpiexec", "mpiexec"] {
            assert!(synopsis.contains(&format!("\n{name} [OPTIONS] PROGRAM [ARGUMENTS] [: ")), "{synopsis}");
        }
        assert!(!page.contains("usage:"), "{page}");
    }
}
