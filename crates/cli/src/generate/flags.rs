//! The command line of `wireup generate`.

use wireup_flags::{Command, Words};

pub const COMMAND: Command = Command {
    name: "generate",
    purpose: "print completions for a shell, or write the manual pages",
    intro: "
  wireup generate complete-bash >~/.local/share/bash-completion/completions/wireup
  wireup generate complete-zsh >~/.zfunc/_wireup           a folder of fpath
  wireup generate complete-fish >~/.config/fish/completions/wireup.fish
  wireup generate man ~/.local/share/man/man1              wireup.1, wireup-run.1 and so on

wireup install puts all of them in place, and so do packages.
",
    words: Words::Named(&["WHAT", "[DIR]"]),
    sections: &[],
    end: "",
};
