/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Poisoning under AddressSanitizer. A pool poisons an object that it takes back and unpoisons the
 * object that it hands out, so that each use of a free object is reported. Without the sanitizer
 * both do nothing. */
#ifndef MILLRACE_ASAN_H
#define MILLRACE_ASAN_H

#if defined(__SANITIZE_ADDRESS__)
#define BASE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BASE_ASAN 1
#endif
#endif

#ifdef BASE_ASAN
#include <sanitizer/asan_interface.h>
#define asan_poison(addr, size)   ASAN_POISON_MEMORY_REGION(addr, size)
#define asan_unpoison(addr, size) ASAN_UNPOISON_MEMORY_REGION(addr, size)
#else
#define asan_poison(addr, size)   ((void)(addr), (void)(size))
#define asan_unpoison(addr, size) ((void)(addr), (void)(size))
#endif

#endif
