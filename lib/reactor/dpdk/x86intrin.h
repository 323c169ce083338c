/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands before the compiler's header of this name, which holds the intrinsics of all x86 CPUs. gcc
 * takes longer for these two megabytes than for the rest of a file. DPDK's headers need vectors of
 * 16 bytes, and wider ones only where the target has them. */
#ifdef __AVX__
#include_next <x86intrin.h>
#else
#include <nmmintrin.h>
#endif
