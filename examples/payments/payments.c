// A payment-like HTTP service for the demo and for trying things out: it executes, it is slow to
// answer, and it keeps a ledger of its own that says how often it executed what.
//
//   payments [--port N] [--delay-ms N]    prints {"port": N} when it listens; ends when its
//   standard input does
//
//   POST /payments    a JSON body, header Idempotency-Key: executed once a key; the same key again
//   is answered from
//                     the ledger, with another body it is 422
//   POST /charges     the same by a service that does not know the key: executed on every request
//   GET  /ledger      {"requests": n, "executions": n, "requests_by_key": {…}, "executions_by_key":
//   {…}}
//
//   ?delay_ms=1500    executes at once, answers later
//   ?decline=1        402, and nothing is executed
//
// One thread a connection, one lock over the ledger: simple, because it is an example.
#include <microhttpd.h>

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEY_MAX = 200, BODY_MAX = 1 << 20, NO_KEY = 4 };

// ---- the ledger: an open-addressed table of keys ----

struct entry {
    char *key;
    uint64_t body; // digest of the first request's body
    unsigned requests, executions;
    unsigned payment; // number of the first execution, which is the payment's identity
};

static struct ledger {
    pthread_mutex_t lock;
    struct entry *entries;
    size_t capacity, used;
    unsigned requests, executions;
} ledger = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t hash(const char *p, size_t n) // FNV-1a
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)p[i]) * UINT64_C(1099511628211);
    }
    return h;
}

static struct entry *slot(struct entry *entries, size_t capacity, const char *key)
{
    size_t at = (size_t)hash(key, strlen(key)) & (capacity - 1);
    while (entries[at].key != NULL && strcmp(entries[at].key, key) != 0) {
        at = (at + 1) & (capacity - 1);
    }
    return &entries[at];
}

static void grow(void)
{
    size_t capacity = ledger.capacity == 0 ? 1024 : ledger.capacity * 2;
    struct entry *entries = calloc(capacity, sizeof *entries);
    if (entries == NULL) {
        abort();
    }
    for (size_t i = 0; i < ledger.capacity; i++) {
        if (ledger.entries[i].key != NULL) {
            *slot(entries, capacity, ledger.entries[i].key) = ledger.entries[i];
        }
    }
    free(ledger.entries);
    ledger.entries = entries;
    ledger.capacity = capacity;
}

static struct entry *entry_of(const char *key)
{
    if (ledger.used * 2 >= ledger.capacity) {
        grow();
    }
    struct entry *e = slot(ledger.entries, ledger.capacity, key);
    if (e->key == NULL) {
        e->key = strdup(key);
        ledger.used++;
    }
    return e;
}

// ---- a request ----

struct request {
    char *body;
    size_t body_n;
    bool too_large;
};

struct answer {
    unsigned status;
    bool replayed;
    char text[256 + KEY_MAX];
};

static void say(struct answer *a, unsigned status, const char *sentence)
{
    a->status = status;
    snprintf(a->text, sizeof a->text, "{\"error\":\"%s\"}\n", sentence);
}

static bool usable_key(const char *key)
{
    return strlen(key) <= KEY_MAX && strpbrk(key, "\"\\") == NULL;
}

static void pay(const struct request *r, const char *key, bool once, struct answer *a)
{
    uint64_t body = hash(r->body == NULL ? "" : r->body, r->body_n);
    pthread_mutex_lock(&ledger.lock);
    struct entry *e = entry_of(key);
    e->requests++;
    ledger.requests++;
    bool known = e->executions > 0;
    if (once && known && e->body != body) {
        say(a, 422, "this key was used with another request");
    } else {
        a->status = 201;
        a->replayed = once && known;
        if (!a->replayed) {
            e->executions++;
            ledger.executions++;
            e->payment = known ? e->payment : ledger.executions;
            e->body = body;
        }
        snprintf(a->text, sizeof a->text,
                 "{\"id\":\"payment-%u\",\"status\":\"paid\",\"key\":\"%s\"}\n",
                 once ? e->payment : ledger.executions, key);
    }
    pthread_mutex_unlock(&ledger.lock);
}

// The key as text between quotes or without (the IETF draft has it quoted).
static const char *key_of(struct MHD_Connection *connection, char copy[KEY_MAX + NO_KEY])
{
    const char *key = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Idempotency-Key");
    if (key == NULL || strlen(key) > KEY_MAX + 2) {
        return NULL;
    }
    size_t n = strlen(key);
    bool quoted = n >= 2 && key[0] == '"' && key[n - 1] == '"';
    snprintf(copy, KEY_MAX + NO_KEY, "%.*s", (int)(quoted ? n - 2 : n), quoted ? key + 1 : key);
    return usable_key(copy) ? copy : NULL;
}

static void post(struct MHD_Connection *connection, const struct request *r, bool once,
                 struct answer *a)
{
    char copy[KEY_MAX + NO_KEY];
    const char *key = key_of(connection, copy);
    if (r->too_large) {
        say(a, 413, "too large");
    } else if (key == NULL) {
        say(a, 400, "a usable Idempotency-Key is missing");
    } else if (MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "decline") != NULL) {
        say(a, 402, "declined");
    } else {
        pay(r, key, once, a);
    }
}

static void wait_ms(long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static long delay_ms_default;

static long delay_of(struct MHD_Connection *connection)
{
    const char *text = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "delay_ms");
    long ms = text == NULL ? delay_ms_default : strtol(text, NULL, 10);
    return ms < 0 ? 0 : ms > 600000 ? 600000 : ms;
}

// ---- answers ----

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status, bool replayed,
                               char *text, size_t n, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(n, text, mode);
    MHD_add_response_header(response, "Content-Type", "application/json");
    if (replayed) {
        MHD_add_response_header(response, "Idempotent-Replayed", "true");
    }
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static void write_counts(FILE *out, const char *name, bool executions)
{
    const char *comma = "";
    fprintf(out, ",\"%s\":{", name);
    for (size_t i = 0; i < ledger.capacity; i++) {
        const struct entry *e = &ledger.entries[i];
        if (e->key != NULL) {
            fprintf(out, "%s\"%s\":%u", comma, e->key, executions ? e->executions : e->requests);
            comma = ",";
        }
    }
    fputs("}", out);
}

static enum MHD_Result show_ledger(struct MHD_Connection *connection)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL) {
        return MHD_NO;
    }
    pthread_mutex_lock(&ledger.lock);
    fprintf(out, "{\"requests\":%u,\"executions\":%u", ledger.requests, ledger.executions);
    write_counts(out, "requests_by_key", false);
    write_counts(out, "executions_by_key", true);
    fputs("}\n", out);
    pthread_mutex_unlock(&ledger.lock);
    fclose(out);
    return respond(connection, 200, false, text, n, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result answer_to(struct MHD_Connection *connection, const char *method,
                                 const char *path, const struct request *r)
{
    struct answer a = {.status = 404};
    bool payments = strcmp(path, "/payments") == 0;
    if (strcmp(method, "GET") == 0 && strcmp(path, "/ledger") == 0) {
        return show_ledger(connection);
    }
    if (strcmp(method, "POST") == 0 && (payments || strcmp(path, "/charges") == 0)) {
        post(connection, r, payments, &a);
        wait_ms(delay_of(connection)); // it is done by now; the caller does not know yet
    } else {
        say(&a, 404, "POST /payments, POST /charges or GET /ledger");
    }
    return respond(connection, a.status, a.replayed, a.text, strlen(a.text), MHD_RESPMEM_MUST_COPY);
}

// ---- libmicrohttpd: called for the head, for each part of the body, and at its end ----

static void keep_body(struct request *r, const char *p, size_t n)
{
    char *body = r->body_n + n > BODY_MAX ? NULL : realloc(r->body, r->body_n + n);
    if (body == NULL) {
        r->too_large = true;
        return;
    }
    memcpy(body + r->body_n, p, n);
    r->body = body;
    r->body_n += n;
}

static enum MHD_Result on_request(void *opaque, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    (void)opaque, (void)version;
    if (*state == NULL) {
        *state = calloc(1, sizeof(struct request));
        return *state == NULL ? MHD_NO : MHD_YES;
    }
    if (*upload_size > 0) {
        keep_body(*state, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    return answer_to(connection, method, path, *state);
}

static void on_completed(void *opaque, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    (void)opaque, (void)connection, (void)why;
    struct request *r = *state;
    if (r != NULL) {
        free(r->body);
        free(r);
    }
}

static long option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return strtol(argv[i + 1], NULL, 10);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    delay_ms_default = option(argc, argv, "--delay-ms");
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)option(argc, argv, "--port")),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request,
        NULL, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_CONNECTION_LIMIT, 4000U, MHD_OPTION_THREAD_STACK_SIZE, (size_t)128 * 1024,
        MHD_OPTION_END);
    if (daemon == NULL) {
        fprintf(stderr, "payments: cannot listen\n");
        return 1;
    }
    printf("{\"port\": %u}\n", MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    char rest[256];
    while (read(STDIN_FILENO, rest, sizeof rest) > 0) {
    }
    MHD_stop_daemon(daemon);
    return 0;
}
