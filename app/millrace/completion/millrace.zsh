#compdef millrace
# Completion of millrace for zsh; `millrace completion zsh` prints it.
_millrace()
{
    local line value
    local -a found
    for line in "${(@f)$("${words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        value=${line%%$'\t'*}
        if [[ $value == :file ]]; then
            _files
        elif [[ -n $value ]]; then
            found+=("${value//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( $#found )) && _describe -V millrace found
}
if [[ $funcstack[1] == _millrace ]]; then
    _millrace "$@"
else
    compdef _millrace millrace
fi
