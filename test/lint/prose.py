#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lists comments and prose that the language rules of CONTRIBUTING.md would rewrite.

usage: prose.py [--count] [--limit N] [PATH...]

Heuristics only: a hit is a place to look at, and a clean file can still be hard to read. Reads C comments of *.c, *.h and *.def;
paragraphs of *.md and *.scd outside code blocks and tables; docstrings and comments of *.py. Without a PATH it reads the product
with a limit of 60 hits, as `./dev lint` does. Exit status 1 if there are more hits than the limit (0).
"""
import os
import re
import sys

PRODUCT = ["lib", "app", "config", "control", "rpc"]
PRODUCT_LIMIT = 60

STARTS = re.compile(r'^(What|Whoever|Whatever|Whose|Nobody|Those (that|who|which)|One (that|which|who)|Of (a|an|the|it|its|them|those|what|others)|Others|Not for|It no longer|All (it|of it) has|Gives back all)\b')
INSIDE = re.compile(r'\b(whoever|whatever|nobody|as long as nobody|of whomever|comes? to rest|have their turn|had its turn|is told of|are told of|was told|hears? of|of whom|thereof|besides\b(?! from)|in vain|at its like|takes? it for|is over\b)', re.I)
LONG = 32  # words in a sentence
QUESTION = re.compile(r'\?\s*$')


def c_comments(text):
    for m in re.finditer(r'/\*(.*?)\*/|//([^\n]*)', text, re.S):
        body = m.group(1) if m.group(1) is not None else m.group(2)
        body = re.sub(r'\n\s*\*', '\n', body)
        yield text.count('\n', 0, m.start()) + 1, body


def py_comments(text):
    for m in re.finditer(r'"""(.*?)"""|#(?!!)([^\n]*)', text, re.S):
        yield text.count('\n', 0, m.start()) + 1, m.group(1) or m.group(2) or ''


def md_paragraphs(text):
    line, code, para, start = 0, False, [], 1
    for raw in text.split('\n') + ['']:
        line += 1
        if raw.startswith('```'):
            code = not code
        if code or not raw.strip() or raw.lstrip().startswith(('|', '    ')):
            if para:
                yield start, '\n'.join(para)
            para = []
            continue
        if not para:
            start = line
        para.append(raw)


def sentences(body):
    flat = ' '.join(body.replace('SPDX-License-Identifier: BSD-3-Clause', '').split())
    flat = re.sub(r'^[-=#* ]+|[-=* ]+$', '', flat)
    return [s.strip() for s in re.split(r'(?<=[.;:!?])\s+(?=[A-Z`"(])', flat) if s.strip()]


def hits(path):
    text = open(path, encoding='utf-8', errors='replace').read()
    kind = c_comments if path.endswith(('.c', '.h', '.def')) else py_comments if path.endswith('.py') else md_paragraphs
    for line, body in kind(text):
        for s in sentences(body):
            if QUESTION.search(s):
                continue
            why = 'begins with a riddle' if STARTS.match(s) else 'private wording' if INSIDE.search(s) else None
            if not why and len(s.split()) > LONG and not path.endswith('.md'):
                why = 'long'
            if why:
                yield line, why, s


def main(args):
    count_only = '--count' in args
    limit = 0
    if '--limit' in args:
        at = args.index('--limit')
        limit = int(args[at + 1])
        args = args[:at] + args[at + 2:]
    paths = [a for a in args if a != '--count']
    if not paths:
        paths, limit = PRODUCT, PRODUCT_LIMIT
    files = []
    for p in paths:
        if os.path.isfile(p):
            files.append(p)
        for d, ds, fs in os.walk(p):
            ds[:] = sorted(x for x in ds if x not in ('build', '.git', 'corpus', 'protocol'))
            files += [os.path.join(d, f) for f in sorted(fs) if f.endswith(('.c', '.h', '.def', '.md', '.scd', '.py'))]
    total = 0
    for f in files:
        for line, why, s in hits(f):
            total += 1
            if not count_only:
                print('%s:%d: %s: %s' % (os.path.relpath(f), line, why, s[:140]))
    print('%d places in %d files, at most %d' % (total, len(files), limit))
    return 1 if total > limit else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
