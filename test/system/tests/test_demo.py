# SPDX-License-Identifier: BSD-3-Clause
"""`./dev demo`: that it runs, and that the picture in README.md is what it prints."""

import asyncio
import os
import re
import shutil
import sys
import tempfile

from lnetpy.monitor import TOP
from lnetpy.scene import only

FIGURES = r"\d[\w.~]*"      # versions, counts and shares, which are of the run


def picture(page):
    with open(page, encoding="utf-8") as f:
        text = re.search(r"```text\n(.*?)```", f.read(), re.S).group(1)
    return re.sub(FIGURES, "N", text.replace("degraded:", "fine:")).splitlines()


@only("kernel")
async def test_picture(env):
    """A short demo, which puts its picture in a copy of README.md: the same but for its figures, and what a busy machine adds."""
    build = os.path.normpath(env.build)
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(os.path.join(TOP, "README.md"), folder)
        p = await asyncio.create_subprocess_exec(
            sys.executable, os.path.join(TOP, "test/demo/demo.py"), "--build", build, "--seconds", "3", "--picture", copy,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        said = (await p.communicate())[0].decode()
        assert p.returncode == 0, said
        want, shown = picture(os.path.join(TOP, "README.md")), picture(copy)
    lines = iter(shown)
    missing = [line for line in want if line not in lines]
    assert not missing, f"README.md's picture is another ({missing}); ./dev demo --picture README.md makes it anew: {shown}"
    env.result(f"{len(said.splitlines())} lines")
