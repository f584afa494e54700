//! Options about the command itself and its programs.

use crate::front::error::FrontError;
use crate::front::row::Rule;
use crate::front::translation::{Shows, Translation};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wireup_os::output_file::{self, Existing};

pub static FILE: Rule = Rule {
    says: "reads programs with their options from FILE, one on each line; `#` begins a comment",
    example: ("mpiexec -l -configfile CONFIG", "-n 1 --label ./a : -n 2 ./b x"),
    act: |translation, typed| translation.read_file(typed),
};

pub static PATH: Rule = Rule {
    says: "looks the program up in these folders first",
    example: ("mpiexec -path /no/such ./a", "./a"),
    act: |translation, typed| {
        translation.path = Some(typed.pair());
        Ok(())
    },
};

pub static VERSION: Rule = Rule {
    says: "shows the version",
    example: ("mpiexec --version", "VERSION"),
    act: |translation, _| {
        translation.shows = Some(Shows::Version);
        Ok(())
    },
};

pub static QUIET: Rule = Rule {
    says: "no notes about options without effect",
    example: ("mpiexec -quiet ./a", "./a"),
    act: |translation, _| {
        translation.quiet = true;
        Ok(())
    },
};

/// Puts the paths of programs in place that are found in the folders of `-path`.
pub fn finish(translation: &mut Translation) {
    let Some(path) = translation.path.take() else { return };
    for line in &mut translation.programs {
        let Some(program) = line.words.first_mut().filter(|word| !word.as_bytes().contains(&b'/')) else { continue };
        let found = std::env::split_paths(&path).map(|folder| folder.join(&*program)).find(|path| path.is_file());
        if let Some(found) = found {
            *program = std::path::absolute(&found).unwrap_or(found).into_os_string();
        }
    }
}

pub static REPORT_PID: Rule = Rule {
    says: "writes the process number of the launcher to FILE; `-`: standard output, `+`: standard error",
    example: ("mpirun --report-pid /dev/null ./a", "./a"),
    act: |_, typed| {
        let pid = format!("{}\n", std::process::id());
        match typed.value().text()?.as_str() {
            "-" => crate::out::print(&pid),
            "+" => crate::out::print_err(&pid),
            path => {
                let file = output_file::open(Path::new(path), Existing::Empty, 0o666);
                let written = file.and_then(|mut file| file.write_all(pid.as_bytes()));
                written.map_err(|error| FrontError::Unreadable {
                    file: path.to_owned(),
                    problem: format!("cannot be written: {error}"),
                })?;
            }
        }
        Ok(())
    },
};
