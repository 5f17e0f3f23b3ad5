// The private PostgreSQL and Redis of `holdfast up`.
#include "cli/stack.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/command.h"

enum { START_US = 60 * 1000 * 1000, STOP_US = 15 * 1000 * 1000, LOOK_US = 50 * 1000 };

void stack_path(const struct stack *stack, const char *name, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s/%s", stack->dir, name);
    CHECK(n > 0 && (size_t)n < size);
}

void stack_dsn(const struct stack *stack, const char *user, char *buf, size_t size)
{
    snprintf(buf, size, "postgresql://%s@127.0.0.1:%u/holdfast", user, stack->postgres_port);
}

static bool make_dir(struct stack *stack, const char *dir)
{
    if (dir == NULL) {
        snprintf(stack->dir, sizeof stack->dir, "/tmp/holdfast-up-XXXXXX");
        stack->temporary = mkdtemp(stack->dir) != NULL;
    } else {
        char full[PATH_MAX];
        if (mkdir(dir, 0755) != 0 && errno != EEXIST) {
            say_error("choose a folder that can be made: --dir DIR", "%s: %s", dir,
                      strerror(errno));
            return false;
        }
        if (realpath(dir, full) == NULL || strlen(full) >= sizeof stack->dir) {
            say_error("choose another --dir", "%s: %s", dir, strerror(errno));
            return false;
        }
        memcpy(stack->dir, full, strlen(full) + 1);
    }
    if (chmod(stack->dir, 0755) != 0) { // PostgreSQL runs as another user when we are root
        say_error("choose another --dir", "%s: %s", stack->dir, strerror(errno));
        return false;
    }
    return true;
}

static bool find_postgres(struct stack *stack, const char *given)
{
    static const char *const patterns[] = {"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
                                           "/usr/local/pgsql/bin"};
    glob_t found = {0};
    if (given != NULL)
        snprintf(stack->postgres_bin, sizeof stack->postgres_bin, "%s", given);
    for (size_t i = 0; given == NULL && i < COUNT_OF(patterns); i++)
        (void)glob(patterns[i], i == 0 ? 0 : GLOB_APPEND, NULL, &found);
    // The last one is the newest of Debian's.
    for (size_t i = found.gl_pathc; i-- > 0 && stack->postgres_bin[0] == '\0';) {
        char initdb[PATH_MAX];
        snprintf(initdb, sizeof initdb, "%s/initdb", found.gl_pathv[i]);
        if (access(initdb, X_OK) == 0)
            snprintf(stack->postgres_bin, sizeof stack->postgres_bin, "%s", found.gl_pathv[i]);
    }
    globfree(&found);
    if (stack->postgres_bin[0] == '\0')
        say_error("apt-get install postgresql, or name its folder with --postgres-bin",
                  "PostgreSQL's server programs were not found");
    return stack->postgres_bin[0] != '\0';
}

static void tool(const struct stack *stack, const char *name, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s/%s", stack->postgres_bin, name);
    CHECK(n > 0 && (size_t)n < size);
}

// initdb and the server refuse root: as root they run as `postgres`, who must own the data.
static bool make_cluster(struct stack *stack, const char *data, const char *log)
{
    struct stat there;
    char version[PATH_MAX + 16];
    snprintf(version, sizeof version, "%s/PG_VERSION", data);
    if (stat(version, &there) == 0)
        return true;
    if (mkdir(data, 0700) != 0 && errno != EEXIST) {
        say_error("choose another --dir", "%s: %s", data, strerror(errno));
        return false;
    }
    const struct passwd *user =
        stack->postgres_user != NULL ? getpwnam(stack->postgres_user) : NULL;
    if (user != NULL && chown(data, user->pw_uid, user->pw_gid) != 0) {
        say_error("choose another --dir", "%s: %s", data, strerror(errno));
        return false;
    }
    char initdb[PATH_MAX];
    tool(stack, "initdb", initdb, sizeof initdb);
    const char *const argv[] = {initdb,      "-D",    data, "-U",   "postgres",
                                "-A",        "trust", "-E", "UTF8", "--locale=C.UTF-8",
                                "--no-sync", NULL};
    if (process_run(argv, stack->postgres_user, log))
        return true;
    say_error("read the log; as root, --dir must be a folder that the user postgres can enter",
              "initdb failed: %s", log);
    return false;
}

static bool wait_for(struct process *p, const char *log, bool (*up)(const struct stack *),
                     const struct stack *stack)
{
    int64_t deadline = clock_deadline_us(START_US);
    while (!up(stack)) {
        if (process_ended(p) || clock_mono_us() > deadline) {
            say_error("read its log", "%s did not come up: %s", p->name, log);
            return false;
        }
        usleep(LOOK_US);
    }
    return true;
}

static bool psql(const struct stack *stack, const char *database, const char *sql)
{
    char program[PATH_MAX], log[PATH_MAX], dsn[128];
    tool(stack, "psql", program, sizeof program);
    stack_path(stack, "psql.log", log, sizeof log);
    snprintf(dsn, sizeof dsn, "postgresql://postgres@127.0.0.1:%u/%s", stack->postgres_port,
             database);
    const char *const argv[] = {program, "-X", "-q", "-v", "ON_ERROR_STOP=1",
                                "-d",    dsn,  "-c", sql,  NULL};
    return process_run(argv, NULL, log);
}

static bool postgres_up(const struct stack *stack)
{
    return process_port_answers(stack->postgres_port, "", "") &&
           psql(stack, "postgres", "select 1");
}

static bool redis_up(const struct stack *stack)
{
    return process_port_answers(stack->redis_port, "PING\r\n", "+PONG");
}

static bool start_postgres(struct stack *stack)
{
    char data[PATH_MAX], log[PATH_MAX], program[PATH_MAX], port[8];
    stack_path(stack, "postgres.log", log, sizeof log);
    stack_path(stack, "pgdata", data, sizeof data);
    tool(stack, "postgres", program, sizeof program);
    stack->postgres_user = geteuid() == 0 ? "postgres" : NULL;
    if (!make_cluster(stack, data, log))
        return false;
    stack->postgres_port = process_free_port();
    snprintf(port, sizeof port, "%u", stack->postgres_port);
    const char *const argv[] = {program,
                                "-D",
                                data,
                                "-p",
                                port,
                                "-c",
                                "listen_addresses=127.0.0.1",
                                "-c",
                                "unix_socket_directories=",
                                "-c",
                                "max_connections=300",
                                "-c",
                                "client_connection_check_interval=2s",
                                "-c",
                                "log_lock_waits=on",
                                NULL};
    stack->postgres.name = "PostgreSQL";
    if (!process_start(&stack->postgres, argv, stack->postgres_user, log)) {
        say_error("check --postgres-bin", "%s: %s", program, strerror(errno));
        return false;
    }
    if (!wait_for(&stack->postgres, log, postgres_up, stack))
        return false;
    // A kept folder has the database already; a real failure shows at the migration.
    (void)psql(stack, "postgres", "create database holdfast");
    return true;
}

static bool start_redis(struct stack *stack)
{
    char log[PATH_MAX], port[8];
    stack_path(stack, "redis.log", log, sizeof log);
    stack->redis_port = process_free_port();
    snprintf(port, sizeof port, "%u", stack->redis_port);
    const char *const argv[] = {"redis-server", "--port", port,       "--bind",
                                "127.0.0.1",    "--save", "",         "--appendonly",
                                "no",           "--dir",  stack->dir, NULL};
    stack->redis.name = "Redis";
    if (!process_start(&stack->redis, argv, NULL, log)) {
        say_error("apt-get install redis-server", "redis-server: %s", strerror(errno));
        return false;
    }
    return wait_for(&stack->redis, log, redis_up, stack);
}

bool stack_start(struct stack *stack, const char *dir, const char *postgres_bin)
{
    return make_dir(stack, dir) && find_postgres(stack, postgres_bin) && start_postgres(stack) &&
           start_redis(stack);
}

bool stack_make_logins(struct stack *stack, const char *role_prefix)
{
    char sql[2048];
    snprintf(sql, sizeof sql,
             "do $do$ begin"
             " if not exists (select from pg_roles where rolname = 'holdfast_pod') then"
             "  create role holdfast_pod login in role %sworker connection limit 250; end if;"
             " if not exists (select from pg_roles where rolname = 'holdfast_person') then"
             "  create role holdfast_person login in role %sworker, %soperator, %sviewer; end if; "
             "end $do$;"
             "alter role holdfast_pod set lock_timeout = '2s'; alter role holdfast_pod set "
             "statement_timeout = '15s';"
             "alter role holdfast_pod set idle_in_transaction_session_timeout = '5s';"
             "alter role holdfast_pod set client_connection_check_interval = '2s'",
             role_prefix, role_prefix, role_prefix, role_prefix);
    char log[PATH_MAX];
    stack_path(stack, "psql.log", log, sizeof log);
    if (psql(stack, "holdfast", sql))
        return true;
    say_error("read the log", "the login roles could not be made: %s", log);
    return false;
}

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *where)
{
    (void)what;
    (void)kind;
    (void)where;
    return remove(path);
}

void stack_stop(struct stack *stack)
{
    process_stop(&stack->redis, SIGTERM, STOP_US);
    process_stop(&stack->postgres, SIGINT, STOP_US); // fast shutdown
    if (stack->temporary)
        nftw(stack->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
