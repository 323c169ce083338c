# Completion of millrace for bash; `millrace completion bash` prints it.
_millrace()
{
    local line=${COMP_LINE:0:COMP_POINT} cur typed value rest
    local -a words
    read -ra words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=("")
    cur=${words[${#words[@]} - 1]}
    # readline replaces what is behind the last of these only: '@' and ':' are in NIDs
    typed=${cur%"${cur##*["$COMP_WORDBREAKS"]}"}
    COMPREPLY=()
    while IFS=$'\t' read -r value rest; do
        if [[ $value == :file ]]; then
            compopt -o filenames
            while read -r value; do
                COMPREPLY+=("$value")
            done < <(compgen -f -- "${cur##*=}")
        else
            [[ $value != *= ]] || compopt -o nospace
            COMPREPLY+=("${value#"$typed"}")
        fi
    done < <("$1" __complete "${words[@]:1}" 2>/dev/null)
}
complete -o nosort -F _millrace millrace
