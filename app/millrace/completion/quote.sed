# SPDX-License-Identifier: BSD-3-Clause
# Makes each line a string of C.
s/["\\]/\\&/g
s/^/"/
s/$/\\n"/
