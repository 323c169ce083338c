# SPDX-License-Identifier: BSD-3-Clause
"""LNet over TCP as a kernel node speaks it, written from docs/protocol/ for the tests.

Nothing here is shared with lib/: the codec, the personas and the judge are the second opinion.
"""
