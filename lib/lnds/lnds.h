/* SPDX-License-Identifier: BSD-3-Clause */
/* The LNDs that the programs of this project have. */
#ifndef MILLRACE_LNDS_H
#define MILLRACE_LNDS_H

/* Registers the types of all LNDs. First of all in a program that reads a configuration or shows
 * drop reasons. */
void lnds_register(void);

#endif
