/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports phases and events to the listeners of a controller. */
#include "control/controller_internal.h"

void controller_listen(struct controller *c, struct control_listener *listener)
{
    listener->next = c->listeners;
    c->listeners = listener;
}

void control_enter(struct controller *c, enum control_phase phase)
{
    for (const struct control_listener *l = c->listeners; l; l = l->next)
        if (l->phase)
            l->phase(l->arg, phase);
}

void control_happened(struct controller *c, const struct control_event *event)
{
    for (const struct control_listener *l = c->listeners; l; l = l->next)
        if (l->event)
            l->event(l->arg, event);
}

void control_port_happened(struct controller *c, const struct inet_event *event)
{
    for (const struct control_listener *l = c->listeners; l; l = l->next)
        if (l->port)
            l->port(l->arg, event);
}
