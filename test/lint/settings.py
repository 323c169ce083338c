#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each setting has a row in docs/testing.md "Settings" with a test that is there, or a reason in docs/lnetctl-differences.md.

The settings are the parameters of the methods `*_set` in docs/jsonrpc.md, which is made from the table of methods. A setting with a
reason has no effect, and config/config_keys.c marks its key as kept.
"""
import os
import re
import sys

from rows import ROOT, table

# The command that sets a parameter of a method
WORDS = {"global_set": "set {}", "buffers_set": "set {}_buffers", "routing_set": "set routing", "admission_set": "set {}",
         "net_set": "net set --{}", "peer_set": "peer set --{}"}
OTHERS = {"log_set", "tamper_set", "tunables_set"}  # of the log, of ports, and any setting by its name
OBJECTS = {"nid", "net", "all"}                      # which object is meant
FOLDERS = {".c": "test/unit", ".py": "test/system/tests"}


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def settings():
    """(command, name) of each setting; and methods that no row of WORDS knows."""
    found, unknown = [], []
    for method, part in re.findall(r"^### (\w+_set)\n(.*?)(?=^##)", read("docs/jsonrpc.md"), re.M | re.S):
        if method not in WORDS:
            unknown += [method] if method not in OTHERS else []
            continue
        parameters = part.split("| parameter |")[1].split("\n\n")[0]
        for name in re.findall(r"^\| (\w+) \|", parameters, re.M):
            if name not in OBJECTS:
                word = name.replace("_", "-") if "--" in WORDS[method] else name
                found.append((WORDS[method].format(word), name))
    return found, unknown


def is_there(path, name):
    text = read(os.path.join(FOLDERS[os.path.splitext(path)[1]], path))
    return re.search(rf"TEST\({name}\)|unit_test(?:_setup_teardown)?\({name}\b|def {name}\(", text)


def main():
    found, unknown = settings()
    tested, faults = {}, [f"docs/jsonrpc.md: {method} sets what no row of WORDS in test/lint/settings.py knows" for method in unknown]
    for row in table("docs/testing.md", "Settings"):
        tests, path = 0, ""
        for name in re.findall(r"`([^`]+)`", row[2]):
            if "." in name:
                path = name
            elif is_there(path, name):
                tests += 1
            else:
                faults.append(f"docs/testing.md: {row[0]}: {path} has no test {name}")
        tested.update((command, tests) for command in re.findall(r"`([^`]+)`", row[0]))
    part = read("docs/lnetctl-differences.md").split("have no effect:\n\n")[1].split("\n\n")[0]
    none = set(re.findall(r"^\| `(\w+)` \|", part, re.M))
    keys = re.findall(r'INT\("(\w+)",(.*?)(?=INT\(|CFG_[A-Z]+\()', read("config/config_keys.c"), re.S)
    kept = {name for name, rest in keys if "KEPT" in rest}
    for command, name in found:
        if not tested.get(command) and name not in none:
            faults.append(f"{command}: no row of docs/testing.md names a test that sees what it does")
        if (name in none) != (name in kept) or (name in none and command in tested):
            faults.append(f"{command}: docs/lnetctl-differences.md, docs/testing.md and KEPT of its key disagree whether it has an effect")
    faults += [f"docs/testing.md: there is no setting {command}" for command in sorted(set(tested) - {c for c, _ in found})]
    faults += [f"docs/lnetctl-differences.md: there is no setting {name}" for name in sorted(none - {n for _, n in found})]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults in the tests of settings ({len(found)} settings, {len(none)} without effect)")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
