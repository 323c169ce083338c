#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`millrace convert` of files as sites have them (data/convert) and of recorded exports of kernel nodes.

Each folder has the files of a site, the document that is to come of them (without the comments at its head), and lines of the
report: FILE:LINE OUTCOME KEY, or OUTCOME COUNT. millraced accepts each document.
"""
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile

MILLRACED, MILLRACE, OUTPUTS = sys.argv[1:4]
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "convert")


def convert(*args, status=0, text=""):
    p = subprocess.run([MILLRACE, "convert", *args], input=text, capture_output=True, text=True, check=False)
    assert p.returncode == status, (args, p)
    return p.stdout, p.stderr


def check(text, name):
    """The document is one that millraced takes."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        p = subprocess.run([MILLRACED, "--check", "-c", f.name], capture_output=True, text=True, check=False)
        assert p.returncode == 0, (name, p.stdout, p.stderr)


def without_head(text):
    return re.sub(r"^(#.*\n)+", "", text)


def test_sites():
    for site in sorted(os.listdir(DATA)):
        folder = os.path.join(DATA, site)
        files = [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".conf")]
        result = json.loads(convert("--json", *files)[0])
        with open(os.path.join(folder, "document.yaml"), encoding="utf-8") as f:
            want = f.read()
        document = without_head(result["document"])
        assert document == want, f"{site}:\n{document}"
        rows = {(f"{os.path.basename(r['file'])}:{r['line']}", r["outcome"], r["key"]) for r in result["report"]}
        with open(os.path.join(folder, "report"), encoding="utf-8") as f:
            for line in f.read().splitlines():
                first, outcome, *key = line.split(" ", 2)
                if ":" in first:
                    assert (first, outcome, "".join(key)) in rows, (site, line, sorted(rows))
                else:
                    assert result[first] == int(outcome), (site, line, result)
        assert all(r["reason"] for r in result["report"]), site
        check(result["document"], site)


def test_exports():
    """Nets, routes and routing of a recorded export come out of it, and of the converted document again."""
    count = 0
    for name in sorted(os.listdir(OUTPUTS)):
        with lzma.open(os.path.join(OUTPUTS, name), "rt", encoding="utf-8", errors="replace") as f:
            text = f.read()
        for match in re.finditer(r"^\$ lnetctl export[^\n]*\n(.*?)^\[rc=0\]$", text, re.M | re.S):
            source, out = match.group(1), convert("-", text=match.group(1))[0]
            check(out, name)
            for key in ("net type", "gateway", "peer_credits", "hop"):
                def values(text):
                    return [v for v in re.findall(rf"^[ -]*{key}: (\S+)$", text, re.M) if v not in ("lo", "0")]
                assert values(out) == values(source), (name, key, values(out), values(source))
            assert ("enable: 1" in out) == ("enable: 1" in source), name
            again = convert("-", text=out)[0]
            assert without_head(again) == re.sub("  # is not given.*", "", without_head(out)), (name, out, again)
            count += 1
    assert count >= 14, count


def test_streams():
    """The report goes to standard error, what is taken with -v only; --strict prints no document where something is lost."""
    text = 'options lnet networks="tcp(eth0)" forwarding=enabled keepalive=60\n'
    out, err = convert("-", text=text)
    assert "net type: tcp\n" in out and "# /dev/stdin:1: ignored: lnet.keepalive: " in out, out
    assert err == ("/dev/stdin:1: ignored: lnet.keepalive: is not an option of this module\n"
                   "millrace: 2 taken, 0 changed, 1 ignored\n"), err
    assert "/dev/stdin:1: taken: lnet.forwarding: enabled\n" in convert("-v", "-", text=text)[1]
    out, err = convert("--strict", "-", text=text, status=1)
    assert not out and "refused" in err, (out, err)
    assert convert("--strict", "-", text=text.replace(" keepalive=60", ""))[0]


def test_refused():
    """Without a net, or of a file that cannot be understood, there is no document."""
    for text, want in (("route: [{net: tcp1, gateway: 1.2.3.4@tcp}]\n", "net: gives this machine no net"),
                       ("net:\n  - [\n", "/dev/stdin:"), ("\n# nothing\n", "no options of lnet"),
                       ("net: [{net type: gip, local NI(s): [{interfaces: {0: gni0}}]}]\n", "gives this machine no net"),
                       ("options lnet networks=tcp(eth0\n", "/dev/stdin:1: lnet.networks: ")):
        out, err = convert("-", text=text, status=1)
        assert not out and want in err, (text, err)
        assert json.loads(convert("--json", "-", text=text, status=1)[0])["document"] is None
    assert "cannot be read: No such file" in convert("/nonexistent", status=2)[1]


def main():
    failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print(f"PASS {name}")
        except AssertionError as e:
            failed = 1
            print(f"FAIL {name}: {e}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
