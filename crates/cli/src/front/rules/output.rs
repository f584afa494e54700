//! Options for standard input and output, and for what is shown.

use crate::flags::table as flag;
use crate::front::error::FrontError;
use crate::front::row::{Rule, Typed};
use crate::front::translation::Translation;

pub static STDIN: Rule = Rule {
    says: "as `--stdin`: a rank, `all` or `none`",
    example: ("mpiexec.hydra -s all ./a", "--stdin all ./a"),
    act: |translation, typed| {
        let text = typed.value().text()?;
        if text.contains([',', '-']) {
            return Err(typed.value().refused("one rank, all ranks or none can read standard input").into());
        }
        translation.give(&flag::STDIN, typed, text.into())
    },
};

pub static LABEL_PATTERN: Rule = Rule {
    says: "begins each line with PATTERN: `%r` rank, `%h` host, `%p` number of the node, `%g` 0",
    example: ("mpiexec.hydra -prepend-pattern \"%h:%g:%r \" ./a", "--label-pattern \"%h:0:%r \" ./a"),
    act: |translation, typed| translation.give(&flag::LABEL_PATTERN, typed, pattern(&typed.value().text()?).into()),
};

pub static OUT_FILES: Rule = Rule {
    says: "as `--output-files PATTERN`: `%r` rank, `%h` host, `%p` number of the node, `%g` 0",
    example: ("mpiexec.hydra -outfile-pattern out.%r.%p ./a", "--output-files out.%r.%n ./a"),
    act: |translation, typed| translation.give(&flag::OUTPUT_FILES, typed, pattern(&typed.value().text()?).into()),
};

pub static ERR_FILES: Rule = Rule {
    says: "as `--error-files PATTERN`, with the same pattern",
    example: ("mpiexec.hydra -errfile-pattern err.%r ./a", "--error-files err.%r ./a"),
    act: |translation, typed| translation.give(&flag::ERROR_FILES, typed, pattern(&typed.value().text()?).into()),
};

pub static OUTPUT_FOLDER: Rule = Rule {
    says: "writes `DIR/1/rank.N/stdout` and `stderr`, and shows the output too; `DIR:nocopy` does not show it",
    example: (
        "mpirun --output-filename out:nocopy ./a",
        "--output-files out/1/rank.%0r/stdout --error-files out/1/rank.%0r/stderr ./a",
    ),
    act: |translation, typed| {
        let text = typed.value().text()?;
        let mut words = text.split(':');
        let folder = words.next().unwrap_or_default();
        let mut copies = true;
        for word in words {
            match word.to_ascii_lowercase().as_str() {
                "nocopy" => copies = false,
                "copy" => copies = true,
                _ => return Err(typed.value().part(word).refused("write copy or nocopy behind the colon").into()),
            }
        }
        files_in(translation, typed, folder, copies)
    },
};

pub static OUTPUT: Rule = Rule {
    says: "`tag`, `rank`, `timestamp`, `merge`, `dir=DIR`, `file=FILE` (`FILE.N.out`, `FILE.N.err`), with `:nocopy`",
    example: (
        "mpirun --output tag,timestamp,merge,file=f:nocopy ./a",
        "--label --timestamp --merge-output --output-files f.%r.out --error-files f.%r.err ./a",
    ),
    act: |translation, typed| {
        let text = typed.value().text()?;
        let copies = !text.split([':', ',']).any(|word| word.eq_ignore_ascii_case("nocopy"));
        for part in text.split([',', ':']).filter(|part| !part.is_empty()) {
            let (word, value) = part.split_once('=').unwrap_or((part, ""));
            match word.to_ascii_lowercase().as_str() {
                "tag" | "tag-detailed" | "tag-fullname" | "rank" => translation.give(&flag::LABEL, typed, "".into())?,
                "timestamp" => translation.give(&flag::TIMESTAMP, typed, "".into())?,
                "merge" | "merge-stderr-to-stdout" => translation.give(&flag::MERGE_OUTPUT, typed, "".into())?,
                "dir" | "directory" => files_in(translation, typed, value, copies)?,
                "file" | "filename" => {
                    translation.give(&flag::OUTPUT_FILES, typed, format!("{}.%r.out", escaped(value)).into())?;
                    translation.give(&flag::ERROR_FILES, typed, format!("{}.%r.err", escaped(value)).into())?;
                    tee(translation, typed, copies)?;
                }
                "copy" | "nocopy" | "raw" | "pattern" => {}
                _ => return Err(typed.value().part(part).refused(OUTPUT_WORDS).into()),
            }
        }
        Ok(())
    },
};

const OUTPUT_WORDS: &str = "choose tag, rank, timestamp, merge, dir=DIR or file=FILE";

pub static DISPLAY: Rule = Rule {
    says: "`map`, `map-devel`, `allocation`: `--display-map`; `bind`, `topo`, `cpus`: `--report-bindings`",
    example: ("mpirun --display map,bind ./a", "--display-map --report-bindings ./a"),
    act: |translation, typed| {
        for word in typed.value().text()?.split([',', ':']).filter(|word| !word.is_empty()) {
            match word.to_ascii_lowercase().split('=').next().unwrap_or_default() {
                "map" | "map-devel" | "allocation" | "alloc" => {
                    translation.give(&flag::DISPLAY_MAP, typed, "".into())?
                }
                "bind" | "bindings" | "topo" | "cpus" => translation.give(&flag::REPORT_BINDINGS, typed, "".into())?,
                "displaycomm" | "parseable" | "parsable" => translation.note(typed, "there is no such display"),
                _ => return Err(typed.value().part(word).refused("choose map, bind, allocation or topo").into()),
            }
        }
        Ok(())
    },
};

fn files_in(translation: &mut Translation, typed: &Typed, folder: &str, copies: bool) -> Result<(), FrontError> {
    let folder = escaped(folder);
    translation.give(&flag::OUTPUT_FILES, typed, format!("{folder}/1/rank.%0r/stdout").into())?;
    translation.give(&flag::ERROR_FILES, typed, format!("{folder}/1/rank.%0r/stderr").into())?;
    tee(translation, typed, copies)
}

fn tee(translation: &mut Translation, typed: &Typed, copies: bool) -> Result<(), FrontError> {
    match copies {
        true => translation.give(&flag::TEE, typed, "".into()),
        false => Ok(()),
    }
}

/// Hydra's pattern in the letters of `wireup run`: a proxy is a node, and there is one group of processes.
fn pattern(text: &str) -> String {
    text.replace("%p", "%n").replace("%g", "0").replace("%a", "0")
}

/// A path without patterns.
fn escaped(path: &str) -> String {
    path.replace('%', "%%")
}
