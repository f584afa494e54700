//! Manual pages and completions that `wireup generate` makes, tested with real shells and tools.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use wireup_e2e::folders::Folder;
use wireup_e2e::peers::tool;
use wireup_e2e::{Run, wireup};

/// Lines that are typed into a shell, and what the tab key makes of each line.
const COMPLETED: [(&str, &str); 4] = [
    ("wireup stat", "wireup status"),
    ("wireup run -n 4 --timeo", "wireup run -n 4 --timeout"),
    ("wireup run --hostfile only_this_f", "wireup run --hostfile only_this_file"),
    ("wireup run --output-dir only_this_d", "wireup run --output-dir only_this_dir/"),
];

const BASH: &str = r#"
for line; do
    COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    compopt() { case $2 in filenames) COMPREPLY=("${COMPREPLY[@]/%//}") ;; esac; }
    _wireup
    [ ${#COMPREPLY[@]} != 0 ] || COMPREPLY=($(compgen -f -- "${line##* }"))
    echo "${line% *} ${COMPREPLY[*]}"
done"#;

/// A second zsh at a pseudo-terminal, where one key completes and another key shows the line.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty inner env TERM=dumb zsh -f -i
zpty -w inner 'fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D'
zpty -w inner 'show() { print -r -- "[$BUFFER]END" }; zle -N show; bindkey "^X" show; print re""ady'
zpty -r -m inner said '*ready*'
for line; do
    zpty -w -n inner $line$'\t\x18'
    zpty -r -m inner said '*\[*\]END*'
    print -r -- ${${${said##*\[}%%\]END*}% }
    zpty -w -n inner $'\x15'
done
zpty -d inner"#;

const FISH: &str = "for line in $argv; echo (string replace --regex ' [^ ]*$' ' ' $line)(complete -C $line | cut -f1)
end";

/// Types lines into a shell, in a folder with two entries, after the shell has read wireup's completions.
fn completed(shell: &str, words: &[&str], name: &str) {
    let Some(program) = tool(&format!("/usr/bin/{shell}")) else { return };
    let place = Folder::new(&format!("complete-{shell}"));
    place.write("only_this_file", "");
    place.folder("only_this_dir");
    place.write(name, Run::wireup(["generate", &format!("complete-{shell}")]).succeed().out());
    let path = format!("{}:/usr/bin:/bin", wireup().parent().expect("a folder").display());
    let lines = COMPLETED.map(|(typed, _)| typed);
    let mut command = Command::new(program);
    command.args(words).args(lines).current_dir(&place.0).env("PATH", path).env("HOME", &place.0);
    let output = command.output().expect("start the shell");
    let expected = COMPLETED.map(|(_, whole)| format!("{whole}\n")).concat();
    assert_eq!(String::from_utf8_lossy(&output.stdout).replace('\r', ""), expected, "{shell}: {output:?}");
}

#[test]
fn bash_completes_commands_flags_and_files() {
    completed("bash", &["--norc", "-c", &format!("source ./wireup.bash{BASH}"), "bash"], "wireup.bash");
}

#[test]
fn zsh_completes_commands_flags_and_files() {
    completed("zsh", &["-f", "-c", ZSH, "zsh"], "_wireup");
}

#[test]
fn fish_completes_commands_flags_and_files() {
    completed("fish", &["--no-config", "-c", &format!("source wireup.fish; {FISH}")], "wireup.fish");
}

#[test]
fn manual_pages_are_valid() {
    let place = Folder::new("man-pages");
    Run::wireup(["generate", "man"]).arg(&place.0).succeed();
    let check = |program: &str, words: &[&str], page: &Path| {
        let Some(program) = tool(program) else { return };
        let Output { status, stdout, stderr } = Command::new(program).args(words).arg(page).output().expect("start it");
        let said = [stderr, if words.contains(&"lint") { stdout } else { Vec::new() }].concat();
        assert!(status.success() && said.is_empty(), "{}: {}", page.display(), String::from_utf8_lossy(&said));
    };
    let pages: Vec<_> =
        fs::read_dir(&place.0).expect("the folder").map(|entry| entry.expect("a page").path()).collect();
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        check("/usr/bin/groff", &["-ww", "-man", "-Tutf8"], &page);
        check("/usr/bin/mandoc", &["-T", "lint", "-W", "error"], &page);
    }
}
