/* SPDX-License-Identifier: BSD-3-Clause
 *
 * min and max of two values. Each argument is evaluated once. The compiler warns when one argument
 * is signed and the other is not. */
#ifndef MILLRACE_MINMAX_H
#define MILLRACE_MINMAX_H

#define min(a, b) BASE_SELECT(<, a, b, __COUNTER__)
#define max(a, b) BASE_SELECT(>, a, b, __COUNTER__)

/* The number n makes the names of nested uses differ. */
#define BASE_SELECT(op, a, b, n) BASE_SELECT_(op, a, b, n)
#define BASE_SELECT_(op, a, b, n)                                                                  \
    __extension__({                                                                                \
        __typeof__(a) a_##n = (a);                                                                 \
        __typeof__(b) b_##n = (b);                                                                 \
        a_##n op b_##n ? a_##n : b_##n;                                                            \
    })

#endif
