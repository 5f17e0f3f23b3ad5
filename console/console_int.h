/* console, inside: the gauges that come from the database. */
#ifndef HOLDFAST_CONSOLE_CONSOLE_INT_H
#define HOLDFAST_CONSOLE_CONSOLE_INT_H

#include "config/config.h"

struct backlog;

struct backlog *backlog_new(const struct config *cfg);
/* Sets the gauges anew if the last time is more than a second ago. A database that does not answer
 * leaves them out (an old number would be a lie). Thread: the console's. */
void backlog_refresh(struct backlog *backlog);
void backlog_free(struct backlog *backlog);

#endif
