#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Copies a file of the core with seams for the property test's model.

Usage: property_seam.py SOURCE OUTPUT FUNCTION...

Each FUNCTION, static in SOURCE, is renamed to __real_FUNCTION and made global where it is defined;
calls then reach the __wrap_FUNCTION of the test, as the linker's --wrap does between files.
"""
import re
import sys

source, output, functions = sys.argv[1], sys.argv[2], sys.argv[3:]
text = open(source).read()
head = ''
for name in functions:
    definition = re.compile(r'^static (void) %s\(([^;{]*)\)\n\{' % name, re.M)
    if len(definition.findall(text)) != 1:
        sys.exit(f'{source}: no definition of {name}')
    arguments = definition.search(text).group(2)
    text = re.sub(r'^static void %s\([^;{]*\);\n' % name, '', text, flags=re.M)
    text = definition.sub(f'void __real_{name}({arguments})\n{{', text)
    text = re.sub(r'(?<!\w)%s\(' % name, f'__wrap_{name}(', text)
    head += f'void __real_{name}({arguments});\nvoid __wrap_{name}({arguments});\n'
last = list(re.finditer(r'^#include .*\n', text, re.M))[-1].end()
open(output, 'w').write(text[:last] + '\n' + head + text[last:])
