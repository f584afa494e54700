//! `wireup generate`: manual pages and completions for shells, from the tables of flags.

pub mod flags;

use crate::front;
use crate::{complete, help, out};
use std::fs;
use std::path::Path;
use wireup_flags::{Line, ManPage};

const VERSION: &str = concat!("wireup ", env!("CARGO_PKG_VERSION"));

pub fn run(line: &Line) -> Result<u8, String> {
    let what = line.words[0].to_string_lossy();
    let script = match (&*what, line.words.get(1)) {
        ("man", Some(folder)) => return write_pages(Path::new(folder)).map(|()| 0),
        ("man", None) => return Err("generate man: the folder is missing: wireup generate man DIR".to_owned()),
        ("complete-bash", None) => complete::BASH,
        ("complete-zsh", None) => complete::ZSH,
        ("complete-fish", None) => complete::FISH,
        (other, _) => {
            return Err(format!("generate {other}: give complete-bash, complete-zsh, complete-fish or man DIR"));
        }
    };
    out::print(script);
    Ok(0)
}

fn write_pages(folder: &Path) -> Result<(), String> {
    let failed = |error| format!("generate man: write to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    man_pages().into_iter().try_for_each(|(name, text)| fs::write(folder.join(name), text)).map_err(failed)
}

/// All manual pages of section 1: the name of each file and its text.
pub fn man_pages() -> Vec<(String, String)> {
    let of_commands = help::COMMANDS.map(|command| (format!("wireup-{}", command.name), command.man(VERSION)));
    let own = [("wireup".to_owned(), overview()), ("wireup-mpiexec".to_owned(), front::man_page(VERSION))];
    let pages = own.into_iter().chain(of_commands);
    pages.map(|(name, page)| (format!("{name}.1"), see_also(page, &name).render())).collect()
}

fn overview() -> ManPage {
    let page = ManPage::new("wireup", VERSION, "start parallel jobs")
        .section("Synopsis")
        .prose("wireup COMMAND [FLAGS] [ARGUMENTS]")
        .section("Description")
        .prose(help::OVERVIEW)
        .section("Commands");
    help::all().fold(page, |page, (name, purpose)| page.entry(name, purpose))
}

fn see_also(page: ManPage, name: &str) -> ManPage {
    let names = help::COMMANDS.map(|command| format!("wireup-{}", command.name)).into_iter();
    let others = ["wireup", "wireup-mpiexec", "wireup-bench", "wireup-simulate"].map(str::to_owned);
    let names = names.chain(others).filter(|other| other != name);
    page.section("See also").prose(&names.map(|name| format!("{name}(1)")).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_with_its_flags() {
        let pages = man_pages();
        assert_eq!(pages.len(), help::COMMANDS.len() + 2);
        let page = |wanted: &str| pages.iter().find(|(name, _)| name == wanted).map(|(_, text)| text).expect(wanted);
        assert!(page("wireup-run.1").contains("\\-\\-hosts LIST"));
        assert!(page("wireup-mpiexec.1").contains("\\-hostfile"));
        for other in ["doctor", "bench", "simulate"] {
            assert!(page("wireup.1").contains(&format!("wireup\\-{other}(1)")), "{other}");
        }
    }
}
