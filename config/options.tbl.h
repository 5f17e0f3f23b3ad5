/* OPTION(section, name, KIND, default, min, max, unit or words, flags, sentence)
 *
 * KIND: TEXT, INT (min to max, unit), BOOL, CHOICE (words a|b|c in the order of the enum).
 * flags: RELOAD (taken over by a running pod), SECRET (masked when printed), REQUIRED (a pod does not start without).
 * Included with OPTION defined. docs/CONFIGURATION.md and config/holdfast.conf are printed from here. */
/* clang-format off */

OPTION(postgres, dsn, TEXT, "", 0, 0, "", SECRET | REQUIRED,
       "Connection string or URI of libpq. With several hosts the writable one is looked for")
OPTION(postgres, schema, TEXT, "holdfast", 0, 0, "", 0,
       "Schema of the tables; those of the functions is the same with _v1. Several installations may share a database")
OPTION(postgres, role_prefix, TEXT, "holdfast_", 0, 0, "", 0,
       "Prefix of the roles owner, worker, operator and viewer that a migration makes")
OPTION(postgres, connect_timeout_ms, INT, "5000", 100, 600000, "ms", 0, "How long one attempt to connect may take")
OPTION(postgres, call_timeout_ms, INT, "10000", 100, 600000, "ms", 0,
       "How long to wait for the answer to a statement; after that its outcome is unknown and is asked again")
OPTION(postgres, pooler, BOOL, "false", 0, 0, "", 0,
       "A transaction pooler stands between: unnamed statements only. Migrations still go direct")

OPTION(redis, url, TEXT, "", 0, 0, "", SECRET,
       "redis://[user:password@]host[:port][/database] or unix:///path. Empty: no pre-filter, PostgreSQL alone decides")
OPTION(redis, on_failure, CHOICE, "bypass", 0, 0, "bypass|hold", 0,
       "When Redis does not answer: bypass asks PostgreSQL directly, hold takes no work by hint (the sweep still moves it)")
OPTION(redis, timeout_ms, INT, "50", 1, 10000, "ms", 0, "How long to wait for Redis before it counts as failed")
OPTION(redis, key_life, CHOICE, "short", 0, 0, "short|lease", 0,
       "How long a key of the pre-filter lives: short is key_ttl_ms; lease is lease.ttl_ms, lengthened after each confirmed renewal")
OPTION(redis, key_ttl_ms, INT, "5000", 100, 600000, "ms", 0, "Life of a key of the pre-filter where key_life is short")
OPTION(redis, prefix, TEXT, "holdfast:", 0, 0, "", 0, "Prefix of all keys")

OPTION(topics, prefix, TEXT, "holdfast.", 0, 0, "", 0,
       "Prefix of the topics tasks, intents, wakeups, results, dead-letters and relay, and of transactional ids")
OPTION(topics, partitions, INT, "8", 1, 10000, "", 0,
       "Partitions of a topic that `topics apply` makes; it never changes those of an existing one. The topic relay has "
       "one per shard")
OPTION(topics, replication_factor, INT, "3", 1, 15, "", 0, "Replicas of a topic that `topics apply` makes; with 3 or more two of them must have a record before it counts")

OPTION(pod, name, TEXT, "", 0, 0, "", 0, "Name of this pod in logs and as owner of leases. Empty: host name and process id")
OPTION(pod, development, BOOL, "false", 0, 0, "", 0,
       "Accept what only a machine for development may have: one Kafka broker, fsync off, the embedded broker")

OPTION(lease, ttl_ms, INT, "30000", 500, 600000, "ms", 0,
       "How long a run stays with a pod that does not renew: the time until a dead worker's run goes on elsewhere")
OPTION(lease, heartbeat_ms, INT, "5000", 50, 300000, "ms", 0, "How often held leases are renewed")
OPTION(lease, heartbeat_timeout_ms, INT, "2000", 50, 300000, "ms", 0,
       "How long a renewal may take before the executions it speaks of are stopped")

OPTION(pool, enabled, BOOL, "true", 0, 0, "", 0, "This pod executes runs")
OPTION(pool, workers, INT, "4", 1, 256, "", 0, "Threads that evaluate plans and decisions. Handlers do not occupy them")
OPTION(pool, queue, INT, "4096", 1, 1000000, "", 0, "Things that may wait between two threads of the pool")
OPTION(pool, max_running, INT, "1000", 1, 100000, "", 0, "Runs that this pod holds at most")
OPTION(pool, grace_ms, INT, "10000", 0, 3600000, "ms", 0,
       "After SIGTERM: how long steps may finish before their runs are handed back")
OPTION(pool, batch, INT, "256", 1, 1000, "", 0, "Items in one statement at most (group commit, acquire, renew)")

OPTION(ingest, enabled, BOOL, "true", 0, 0, "", 0, "This pod reads the topic of tasks")
OPTION(ingest, max_due, INT, "100000", 1, 1000000000, "", 0,
       "Runs waiting in PostgreSQL beyond which partitions pause, so that the backlog stays in Kafka")
OPTION(ingest, batch, INT, "500", 1, 1000, "", 0, "Records in one submission at most")
OPTION(ingest, control_topic, TEXT, "", 0, 0, "", 0,
       "Full name of a topic for cancel, retry and signal, so that Kafka's ACLs can tell who may. Empty: the topic of tasks")
OPTION(ingest, tenants, TEXT, "", 0, 0, "", 0,
       "Tenants by topic: topic=tenant, topic=tenant. Those topics are read too, and their records belong to that tenant")
OPTION(ingest, group, TEXT, "holdfast-pods", 0, 0, "", 0, "Consumer group of the pods")

OPTION(sweep, enabled, BOOL, "true", 0, 0, "", 0, "This pod may do the sweep; one pod at a time does")
OPTION(sweep, interval_ms, INT, "500", 20, 60000, "ms", 0, "How often expired leases, reached times and the like are looked for")
OPTION(sweep, ttl_ms, INT, "2000", 100, 2000, "ms", 0, "Lease of the pod that sweeps")
OPTION(sweep, batch, INT, "1000", 1, 1000, "", 0, "What each part of a sweep moves at most")

OPTION(dispatch, enabled, BOOL, "true", 0, 0, "", 0, "This pod calls tools")
OPTION(dispatch, max_in_flight, INT, "1000", 1, 100000, "", 0, "Requests to tools in flight at most, all tools together")
OPTION(dispatch, claim_ttl_ms, INT, "30000", 500, 600000, "ms", 0,
       "How long a claimed operation may be sent; longer than any tool's time-out")
OPTION(dispatch, batch, INT, "256", 1, 1000, "", 0, "Operations in one claim or one statement of results at most")
OPTION(dispatch, interval_ms, INT, "500", 20, 60000, "ms", 0, "How often operations that no hint announced are looked for")
OPTION(dispatch, retry_ms, INT, "1000", 10, 3600000, "ms", 0,
       "First back-off before an operation is tried again; doubles with every try")
OPTION(dispatch, retry_max_ms, INT, "60000", 10, 86400000, "ms", 0, "Longest back-off")
OPTION(dispatch, group, TEXT, "holdfast-dispatchers", 0, 0, "", 0, "Consumer group of the dispatchers")
OPTION(dispatch, completions, BOOL, "false", 0, 0, "", 0,
       "Read what remotes say later about operations from the topic <prefix>completions; who may write it is Kafka's ACL")

OPTION(relay, enabled, BOOL, "true", 0, 0, "", 0, "This pod publishes results")
OPTION(relay, mode, CHOICE, "exactly_once", 0, 0, "exactly_once|at_least_once", 0,
       "exactly_once needs Kafka's transactions, and after a start of PostgreSQL claims wait until the relay has compared it with Kafka (holdfast migrate stores that they do, where relay.enabled is true); at_least_once may publish an event again (same event id)")
OPTION(relay, lanes, INT, "2", 1, 64, "", 0, "Threads that publish; each takes shards")
OPTION(relay, batch, INT, "2000", 1, 10000, "", 0, "Events in one Kafka transaction at most")
OPTION(relay, shard_ttl_ms, INT, "2000", 100, 2000, "ms", 0, "Lease of a shard")
OPTION(relay, interval_ms, INT, "20", 1, 60000, "ms", 0, "How often a shard without events is looked at")
OPTION(relay, transaction_timeout_ms, INT, "10000", 1000, 900000, "ms", 0,
       "How long a dead relay's open transaction can hold readers of results back")

OPTION(admin, listen, TEXT, "127.0.0.1:0", 0, 0, "", 0,
       "Address of /metrics, /livez and /readyz, host:port; port 0: any free one. Empty: none")
OPTION(admin, token, TEXT, "", 0, 0, "", SECRET, "Bearer token that /metrics asks for; needed when listening beyond this machine")

OPTION(log, level, CHOICE, "info", 0, 0, "debug|info|warn|error", RELOAD, "Least level that is written")
OPTION(log, file, TEXT, "", 0, 0, "", 0, "File to append to, opened anew on SIGHUP. Empty: standard error")

OPTION(failover, mode, CHOICE, "async", 0, 0, "async|strict", 0,
       "strict: a synchronous standby is required and nothing acknowledged is lost; async: a failover may lose "
       "acknowledged writes. Fixed by the first migration")
OPTION(failover, fencing, TEXT, "", 0, 0, "", 0,
       "How the old primary is kept from writing before another is promoted, in words; `doctor` asks for it")

OPTION(results, encoding, CHOICE, "json", 0, 0, "json|msgpack", 0, "Encoding of result events")
