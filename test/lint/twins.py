#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Finds code that stands in two LNDs.

What two LNDs both do belongs into lib/lnd. This check fails when a run of six lines of code stands in the
folders of two LNDs, whatever the names, numbers and strings in it are.

Lines that count are lines with a statement. Comments, blank lines, includes, lone braces, labels, lines of a
declaration without a call, members of a struct or an initialiser, and continuation lines that only list
arguments do not count: they neither make a run nor break one. A run must have calls or conditions in it.

Usage: twins.py [--lines N] [TOP]
Prints each pair of places and exits with 1 when there is one.
"""

import argparse
import collections
import pathlib
import re
import sys

# The LNDs: name, folders and files below the top of the project. Provider code has no counterpart.
LNDS = {
    'socklnd': ['lib/lnd_eth/socklnd', 'lib/lnd_eth/stream_kernel.c'],
    'o2iblnd': ['lib/lnd_verbs'],
    'kfilnd': ['lib/lnd_cxi'],
}

KEYWORDS = set('''if else for while do switch case default return goto break continue sizeof struct enum union
static const inline extern void int unsigned bool char long short uint8_t uint16_t uint32_t uint64_t size_t
true false NULL'''.split())
TOKEN = re.compile(r'''"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|\d\w*|->|\+\+|--|<<|>>|&&|\|\||[<>=!+\-*/&|^%]=|\S''')
DECLARATION = re.compile(r'(static |const |extern |inline )*(struct |enum |union )?\w+( \**|\*+ ?)\**\w+(\[[^]]*\])?'
                         r'( = [^(]*)?(, \**\w+( = [^(]*)?)*;$')


def without_comments(text):
    """Blanks comments and keeps the line numbers."""
    def blank(m):
        return m.group(0) if m.group(0)[0] in '"\'' else re.sub(r'[^\n]', ' ', m.group(0))
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', blank, text, flags=re.S)


def shape(line):
    """The line with one letter for each name, number and string."""
    out = []
    for token in TOKEN.findall(line):
        if token[0] in '"\'':
            out.append('S')
        elif token[0].isdigit():
            out.append('N')
        elif (token[0].isalpha() or token[0] == '_') and token not in KEYWORDS:
            out.append('I')
        else:
            out.append(token)
    return ' '.join(out)


def counts(line):
    """Whether a line is one that makes a run."""
    if not re.search(r'\w', line) or line.startswith('#') or line.startswith('.'):
        return False
    if line in ('else', '} else {', 'break;', 'default:') or DECLARATION.match(line):
        return False
    return line[-1] in ';{:' or '(' in line


def code_lines(path):
    """[(number, shape)] of the lines that count."""
    rows = []
    for number, line in enumerate(without_comments(path.read_text()).split('\n'), 1):
        line = line.strip()
        if line and counts(line):
            rows.append((number, shape(line)))
    return rows


def files_of(top, places):
    for place in places:
        path = top / place
        if path.is_file():
            yield path
        elif path.is_dir():
            yield from sorted(p for p in path.rglob('*.[ch]') if 'provider' not in p.relative_to(path).parts)


def substantial(run):
    """A run of plain assignments or returns alone says nothing."""
    return len(set(run)) >= len(run) - 1 and sum('(' in row for row in run) >= len(run) // 2


def twins(a, b, length):
    """Runs of lines of a that stand in b: [(first of a, last of a, first of b, last of b)]."""
    where = collections.defaultdict(list)
    for i in range(len(b) - length + 1):
        where[tuple(row[1] for row in b[i:i + length])].append(i)
    found = []
    seen = set()
    for i in range(len(a) - length + 1):
        key = tuple(row[1] for row in a[i:i + length])
        for k in where.get(key, []):
            if (i, k) in seen or not substantial(key):
                continue
            n = length
            while i + n < len(a) and k + n < len(b) and a[i + n][1] == b[k + n][1]:
                n += 1
            seen.update((i + d, k + d) for d in range(n))
            found.append((a[i][0], a[i + n - 1][0], b[k][0], b[k + n - 1][0]))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--lines', type=int, default=6)
    parser.add_argument('top', nargs='?', default=pathlib.Path(__file__).resolve().parents[2], type=pathlib.Path)
    args = parser.parse_args()
    code = {lnd: [(p, code_lines(p)) for p in files_of(args.top, places)] for lnd, places in LNDS.items()}
    names = list(code)
    bad = 0
    for n, first in enumerate(names):
        for second in names[n + 1:]:
            for path_a, a in code[first]:
                for path_b, b in code[second]:
                    for a0, a1, b0, b1 in twins(a, b, args.lines):
                        print(f'{path_a.relative_to(args.top)}:{a0}-{a1} ~ {path_b.relative_to(args.top)}:{b0}-{b1}')
                        bad += 1
    print(f'{bad} runs of {args.lines} or more lines stand in two LNDs'
          f' ({", ".join(f"{len(files)} files of {lnd}" for lnd, files in code.items() if files)})')
    if bad:
        print('Move them to lib/lnd.')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
