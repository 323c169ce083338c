# SPDX-License-Identifier: BSD-3-Clause
"""A scripted kernel node with o2iblnd, from docs/protocol/o2iblnd.md alone; shares no code with lib/."""
