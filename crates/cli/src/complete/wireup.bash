# Completion of wireup for bash: the program itself says what may follow.
_wireup() {
    local words said cur IFS=$' \t\n'
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:COMP_POINT-1:1} == [[:space:]] ]] && words+=('')
    cur=${words[-1]}
    said=$("${words[0]/#\~/$HOME}" complete "${words[@]:1}" 2>/dev/null)
    IFS=$'\n'
    case $said in
        :program) [[ $cur == */* ]] || COMPREPLY=($(compgen -c -- "$cur")) ;;
        :files) ;;
        :folders) COMPREPLY=($(compgen -d -- "$cur")) && compopt -o filenames ;;
        :nothing) compopt +o default ;;
        *) COMPREPLY=($(compgen -W "$(cut -f1 <<<"$said")" -- "$cur")) ;;
    esac
}
complete -o default -F _wireup wireup
