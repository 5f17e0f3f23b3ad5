/* Named places where a test can stop or kill this very process; nothing at all in a release build.
 *
 *   STOP_POINT("commit.after_validate");
 *
 * Builds with HOLDFAST_STOP_POINTS look into the folder of the environment variable
 * HOLDFAST_STOP_DIR:
 *   <name>.hold   writes <name>.<pid>.reached and waits until .hold is gone
 *   <name>.stop   writes .reached, then SIGSTOP to itself (once: the file is removed first)
 *   <name>.die    writes .reached, then SIGKILL to itself (once: the file is removed first)
 * The once-files are taken by rename, so of several processes exactly one obeys. A file called
 * <name>@<pod>.hold (and so on) speaks only to the pod of that name (stop_point_pod). Without the
 * variable the cost is one getenv. */
#ifndef HOLDFAST_BASE_STOP_POINT_H
#define HOLDFAST_BASE_STOP_POINT_H

#ifdef HOLDFAST_STOP_POINTS
#define STOP_POINT(name) stop_point_reached(name)
void stop_point_reached(const char *name); /* Thread: any */
#else
#define STOP_POINT(name) ((void)0)
#endif

void stop_point_pod(const char *name); /* before threads start; in release builds it does nothing */

#endif
