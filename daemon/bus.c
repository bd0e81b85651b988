/* bus: a singly linked list of listeners. `cursor` is the next listener of the publish under way;
 * unlisten moves it on when it removes that one. A publish within a publish would need a second
 * cursor: streams only mark themselves dirty, so that is forbidden. */
#include "daemon/bus.h"

#include "common/must.h"

#include <stddef.h>

void bus_listen(struct bus *bus, struct bus_listener *listener)
{
    must(listener->called != NULL);
    listener->next = bus->first;
    bus->first = listener;
}

void bus_unlisten(struct bus *bus, struct bus_listener *listener)
{
    for (struct bus_listener **link = &bus->first; *link != NULL; link = &(*link)->next) {
        if (*link != listener)
            continue;
        if (bus->cursor == listener)
            bus->cursor = listener->next;
        *link = listener->next;
        listener->next = NULL;
        return;
    }
}

void bus_publish(struct bus *bus, const struct bus_note *note)
{
    must(bus->cursor == NULL);
    struct bus_listener *listener = bus->first;
    while (listener != NULL) {
        bus->cursor = listener->next;
        listener->called(listener->context, note);
        listener = bus->cursor;
    }
}
