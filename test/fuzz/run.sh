#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Usage: test/fuzz/run.sh BUILDDIR SECONDS [TARGET...]
#
# Runs each fuzz target of a build made with clang and -Dfuzz=true for SECONDS (0: the kept corpus
# only), beginning with the kept corpus test/fuzz/corpus/TARGET; words of its format come from test/fuzz/dict/TARGET. What is newly found goes to a
# directory of its own in BUILDDIR, with crashing inputs. Then measures how many lines of the
# target's parser the kept corpus runs. One line PASS or FAIL per target,
# and behind FAIL, indented, what the target said.
#
# A target fails as well when it tries fewer inputs in a second of CPU time than a third of its row's rate.
#
# With `nightly` in place of BUILDDIR SECONDS one says `run.sh nightly BUILDDIR SECONDS [TARGET...]`. Targets take turns, and after
# its time each target's kept corpus is made anew: the fewest inputs that reach every edge of the old corpus and of the finds.
# A round that was interrupted goes on with the target at which it stopped.
set -u

MIN_COVERAGE=90
nightly=0
if [ "${1:-}" = nightly ]; then
    nightly=1
    shift
fi

if [ $# -lt 2 ]; then
    echo "usage: $0 BUILDDIR SECONDS [TARGET...]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) || exit 2
seconds=$2
shift 2

list=$build/test/fuzz/targets
if [ ! -f "$list" ]; then
    echo "FAIL fuzz: $build was not set up with -Dfuzz=true" >&2
    exit 2
fi
root=$(head -n 1 "$list")
work=$build/fuzz
failed=0
# Two frames of each allocation's stack: a whole stack costs up to half of the time, and with fewer than two LeakSanitizer takes
# each block for one in use. To see the stacks, run the target by hand on the input that fails. 4 MiB of freed memory, more than one
# input's, are held back from use. New memory is not filled with a pattern.
own="malloc_context_size=2:quarantine_size_mb=4:thread_local_quarantine_size_kb=256:max_malloc_fill_size=0"
export ASAN_OPTIONS="$own${ASAN_OPTIONS:+:$ASAN_OPTIONS}"

rows_of() { # files that a target's row names, FILE or FILE:PERCENT
    sed -n "2,\$s/^$1 [0-9]* [0-9]* //p" "$list"
}

max_len_of() {
    sed -n "2,\$s/^$1 \([0-9]*\) .*/\1/p" "$list"
}

rate_of() { # inputs in a second
    sed -n "2,\$s/^$1 [0-9]* \([0-9]*\) .*/\1/p" "$list"
}

covers_of() { # the same without the percents
    rows_of "$1" | sed 's/:[0-9]*//g'
}

names() {
    sed -n '2,$s/ .*//p' "$list"
}

profile() { # run the kept corpus of target $1 once, for coverage
    mkdir -p "$work/$1"
    [ -f "$work/$1/kept.profraw" ] && return 0
    LLVM_PROFILE_FILE=$work/$1/kept.profraw "$build/test/fuzz/fuzz_$1" -runs=0 \
        "$here/corpus/$1" >"$work/$1/kept.log" 2>&1
}

# Prints "PERCENT NAME TARGETS" of file $1, measured over all targets that name it.
coverage() {
    objects= profiles= targets=
    for t in $(names); do
        case " $(covers_of "$t") " in *" $1 "*) ;; *) continue ;; esac
        profile "$t" || return 1
        objects="$objects -object $build/test/fuzz/fuzz_$t"
        profiles="$profiles $work/$t/kept.profraw"
        targets="$targets${targets:+ }$t"
    done
    llvm-profdata-14 merge -sparse -o "$work/merged.profdata" $profiles || return 1
    llvm-cov-14 export -summary-only -instr-profile "$work/merged.profdata" ${objects# -object } \
        >"$work/coverage.json" || return 1
    /usr/bin/python3 - "$work/coverage.json" "$root/$1" <<'PYTHON' || return 1
import json, os, sys
want = os.path.realpath(sys.argv[2])
for f in json.load(open(sys.argv[1]))["data"][0]["files"]:
    if os.path.realpath(f["filename"]) == want:
        print("%.1f" % f["summary"]["lines"]["percent"])
        sys.exit(0)
sys.exit("no coverage of " + want)
PYTHON
}

# libFuzzer looks for each edge that an input reaches in the list of rare ones. With its own threshold, 255 inputs, the list is
# long in the first minutes, and the search takes up to half of the time.
try() { # target $1 for its time; leaves how that ended, and its CPU time
    mkdir -p "$work/$1/new"
    dict=
    [ ! -f "$here/dict/$1" ] || dict=-dict=$here/dict/$1
    # shellcheck disable=SC2016
    LLVM_PROFILE_FILE=/dev/null bash -c 'log=$1; shift; TIMEFORMAT="%U %S"; time "$@" >"$log" 2>&1' _ "$work/$1/log" \
        "$build/test/fuzz/fuzz_$1" -max_total_time="$seconds" -max_len="$(max_len_of "$1")" -timeout=60 ${dict:+"$dict"} \
        -print_final_stats=1 -entropic_feature_frequency_threshold=8 -artifact_prefix="$work/$1/" "$work/$1/new" "$here/corpus/$1" 2>"$work/$1/cpu"
    echo $? >"$work/$1/status"
}

per_second() { # prints how many inputs target $1 tried in a second of CPU time
    awk -v runs="$2" '{ printf "%d", runs / ($1 + $2 + 0.001) }' "$work/$1/cpu"
}

shrink() { # makes the kept corpus of target $1 anew, of itself and of the finds
    rm -rf "$work/$1/merged"
    mkdir -p "$work/$1/merged"
    LLVM_PROFILE_FILE=/dev/null "$build/test/fuzz/fuzz_$1" -merge=1 -use_counters=0 -max_len="$(max_len_of "$1")" \
        "$work/$1/merged" "$here/corpus/$1" "$work/$1/new" >"$work/$1/merge.log" 2>&1 || return 1
    [ -n "$(ls "$work/$1/merged")" ] || return 1
    # The new ones first: an interruption loses none.
    cp "$work/$1/merged"/* "$here/corpus/$1/" || return 1
    for kept in "$here/corpus/$1"/*; do
        [ -e "$work/$1/merged/$(basename "$kept")" ] || rm -f "$kept"
    done
    rm -rf "$work/$1/new"
}

run_target() { # prints the verdict
    t=$1
    dir=$work/$t
    if [ ! -x "$build/test/fuzz/fuzz_$t" ] || [ -z "$(covers_of "$t")" ]; then
        echo "FAIL fuzz-$t: there is no such target in $build"
        return 1
    fi
    if [ -z "$(ls "$here/corpus/$t" 2>/dev/null)" ]; then
        echo "FAIL fuzz-$t: no corpus in $here/corpus/$t"
        return 1
    fi
    if ! profile "$t"; then
        echo "FAIL fuzz-$t: an input of the kept corpus fails ($dir/kept.log)"
        tail -n 40 "$dir/kept.log" | sed 's/^/    /'
        return 1
    fi
    if [ "$seconds" -gt 0 ] && [ "$(cat "$dir/status")" != 0 ]; then
        echo "FAIL fuzz-$t: the input that fails is in $dir"
        tail -n 40 "$dir/log" | sed 's/^/    /'
        return 1
    fi
    runs=0
    [ "$seconds" -eq 0 ] || runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/log")
    verdict=PASS
    text=
    for row in $(rows_of "$t"); do
        file=${row%:*}
        bar=$MIN_COVERAGE
        [ "$file" = "$row" ] || bar=${row##*:}
        percent=$(coverage "$file") || percent=0
        text="$text${text:+, }$percent% lines of $(basename "$file")"
        [ "${percent%.*}" -ge "$bar" ] || verdict=FAIL
    done
    if [ "$seconds" -gt 0 ]; then
        rate=$(per_second "$t" "$runs")
        text="$text, $runs inputs tried, $rate in a second of CPU time"
        if [ "$rate" -lt $(($(rate_of "$t") / 3)) ]; then
            verdict=FAIL
            text="$text: less than a third of $(rate_of "$t")"
        fi
    fi
    echo "$verdict fuzz-$t: $text"
    [ $verdict = PASS ]
}

[ $# -gt 0 ] || set -- $(names)
if [ $nightly -eq 1 ]; then
    mkdir -p "$work"
    touch "$work/nightly"
    for t in "$@"; do
        grep -qx "$t" "$work/nightly" && continue
        rm -f "$work"/*/kept.profraw
        try "$t"
        [ "$(cat "$work/$t/status")" != 0 ] || shrink "$t" || echo "fuzz-$t: merge failed ($work/$t/merge.log)" >&2
        run_target "$t" || failed=1
        echo "$t" >>"$work/nightly"
    done
    rm -f "$work/nightly"
    exit $failed
fi
rm -f "$work"/*/kept.profraw "$work"/*/status
if [ "$seconds" -gt 0 ]; then
    # As many at a time as there are cores; all take the same time.
    n=0
    for t in "$@"; do
        try "$t" &
        n=$((n + 1))
        [ $((n % $(nproc))) -ne 0 ] || wait
    done
    wait
fi
for t in "$@"; do
    run_target "$t" || failed=1
done
exit $failed
