# Completion of wireup for fish: the program itself says what may follow.
function __wireup_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l unfinished (commandline --current-token --cut-at-cursor)
    set -l said ($words[1] complete $words[2..] "$unfinished" 2>/dev/null)
    switch "$said[1]"
        case :program
            __fish_complete_command
        case :files
            __fish_complete_path "$unfinished"
        case :folders
            __fish_complete_directories "$unfinished"
        case :nothing
        case '*'
            string join \n -- $said
    end
end
complete --command wireup --no-files --arguments '(__wireup_complete)'
