"""The kinds of faults, each a coroutine: makes it, lets it last, heals it. Kinds of one target do not overlap, others do."""
import asyncio
import signal


class Nemesis:
    """Chooses from a shuffled deck, so that every kind comes before one comes again."""

    def __init__(self, world, rng):
        self.world, self.rng = world, rng
        self.locks = {}
        self.deck, self.injected, self.running = [], {}, set()
        self.kinds = {name[6:]: getattr(self, name) for name in dir(self) if name.startswith("fault_")}

    def lock(self, target):
        return self.locks.setdefault(target, asyncio.Lock())

    TARGETS = {
        "pg_restart": "pg", "pg_kill": "pg", "pg_pause": "pg", "pg_backends": "pg", "pg_locks": "pg locks",
        "pg_cut": "pg front", "pg_blackhole": "pg front", "pg_slow": "pg front",
        "kafka_restart": "kafka", "kafka_kill": "kafka", "kafka_pause": "kafka",
        "kafka_cut": "kafka front", "kafka_blackhole": "kafka front",
        "redis_down": "redis", "redis_pause": "redis", "redis_oom": "redis", "redis_flush": "redis", "redis_lie": "redis",
        "remote_slow": "remote", "remote_error_after_effect": "remote", "remote_reset_after_effect": "remote",
        "remote_away": "remote", "rebalance_storm": "storm"}

    def target(self, kind):
        if kind.startswith("pod_"):
            free = [pod for pod in self.world.pods if not self.lock(pod.name).locked()]
            return self.rng.choice(free).name if free else None
        return self.TARGETS[kind]

    def draw(self):
        """The next kind whose target is free, and the target."""
        if not self.deck:
            self.deck = sorted(self.kinds)
            self.rng.shuffle(self.deck)
        for kind in list(self.deck):
            target = self.target(kind)
            if target and not self.lock(target).locked():
                self.deck.remove(kind)
                return kind, target
        return None, None

    async def inject(self, kind, target, seconds):
        async with self.lock(target):
            self.world.say(f"{kind} {target} {seconds:.1f} s")
            self.injected[kind] = self.injected.get(kind, 0) + 1
            pods = [pod for pod in self.world.pods if pod.name == target]
            await self.kinds[kind](*pods, seconds)

    def start(self, kind, target, seconds):
        task = asyncio.ensure_future(self.inject(kind, target, seconds))
        self.running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task):
        self.running.discard(task)
        if not task.cancelled() and task.exception():
            self.world.trouble.append(f"a fault could not be made: {task.exception()!r}")

    async def heal(self):
        if self.running:
            await asyncio.wait(set(self.running), timeout=120)

    # ---- pods ----

    async def fault_pod_kill(self, pod, seconds):
        await pod.kill()
        await asyncio.sleep(seconds)
        await pod.start()

    async def fault_pod_stop(self, pod, seconds):
        """Longer than any lease."""
        pod.signal(signal.SIGSTOP)
        await asyncio.sleep(self.world.ttl + 0.5 + seconds)
        pod.signal(signal.SIGCONT)

    async def fault_pod_blink(self, pod, seconds):
        """Stopped for about as long as a lease: it may or may not have run out."""
        pod.signal(signal.SIGSTOP)
        await asyncio.sleep(self.world.ttl * self.rng.uniform(0.6, 1.1))
        pod.signal(signal.SIGCONT)

    async def fault_pod_term(self, pod, seconds):
        await pod.term()
        await pod.start()

    async def fault_pod_clock(self, pod, seconds):
        """Started again with a clock that is wrong by a day; after a while with the right one."""
        await pod.term()
        await pod.start(clock=self.rng.choice((-86400, 86400)))
        await asyncio.sleep(3 + seconds)
        await pod.kill()
        await pod.start()

    async def fault_rebalance_storm(self, seconds):
        """Pods that come and go."""
        extra = []
        for _ in range(4):
            pod = self.world.extra_pod()
            extra.append(pod)
            await pod.start()
            await asyncio.sleep(self.rng.uniform(0.2, 1.0))
        for pod in extra:
            await (pod.kill() if self.rng.random() < 0.3 else pod.term())
            await asyncio.sleep(self.rng.uniform(0.1, 0.5))

    # ---- PostgreSQL ----

    async def server(self, name, act, *arguments):
        await self.world.in_thread(getattr(getattr(self.world.stack, name), act), *arguments)

    async def fault_pg_restart(self, seconds):
        await self.server("pg", "restart")

    async def fault_pg_kill(self, seconds):
        await self.server("pg", "kill")
        await asyncio.sleep(min(seconds, 2))
        await self.server("pg", "start")

    async def fault_pg_pause(self, seconds):
        await self.server("pg", "pause")
        await asyncio.sleep(seconds)
        await self.server("pg", "resume")

    async def fault_pg_backends(self, seconds):
        await self.world.sql("select pg_terminate_backend(pid) from pg_stat_activity"
                             " where usename = 'chaos_pod' and random() < 0.5")

    async def fault_pg_locks(self, seconds):
        """Somebody holds the rows of leases, runs or operations, and stands still."""
        table = self.rng.choice(("worker_leases", "agent_runs", "tool_operations", "agent_tasks"))
        order = {"worker_leases": "updated_at", "agent_tasks": "updated_at"}.get(table, "updated_at")
        async with await self.world.connect() as db:
            await db.set_autocommit(False)
            await db.execute(f"select from holdfast.{table} where ctid in (select ctid from holdfast.{table}"
                             f" order by {order} desc limit 30) for update")
            await asyncio.sleep(seconds)
            await db.rollback()

    async def front(self, name, mode, seconds, delay=0.0):
        self.world.fronts[name].set_mode(mode, delay)
        await asyncio.sleep(seconds)
        self.world.fronts[name].set_mode("pass")

    async def fault_pg_cut(self, seconds):
        self.world.fronts["pg"].cut_all()

    async def fault_pg_blackhole(self, seconds):
        await self.front("pg", "blackhole", seconds)

    async def fault_pg_slow(self, seconds):
        await self.front("pg", "slow", seconds, self.rng.uniform(0.01, 0.15))

    # ---- Kafka ----

    async def fault_kafka_restart(self, seconds):
        await self.server("kafka", "restart")

    async def fault_kafka_kill(self, seconds):
        await self.server("kafka", "restart", True)

    async def fault_kafka_pause(self, seconds):
        await self.server("kafka", "pause")
        await asyncio.sleep(seconds)
        await self.server("kafka", "resume")

    async def fault_kafka_cut(self, seconds):
        self.world.fronts["kafka"].cut_all()

    async def fault_kafka_blackhole(self, seconds):
        await self.front("kafka", "blackhole", seconds)

    # ---- Redis ----

    async def redis(self, *command):
        return await self.world.in_thread(self.world.redis_command, *command)

    async def fault_redis_down(self, seconds):
        await self.server("redis", "kill")
        await asyncio.sleep(seconds)
        await self.server("redis", "start")

    async def fault_redis_pause(self, seconds):
        await self.server("redis", "pause")
        await asyncio.sleep(seconds)
        await self.server("redis", "resume")

    async def fault_redis_oom(self, seconds):
        await self.redis("CONFIG", "SET", "maxmemory", "1")
        await asyncio.sleep(seconds)
        await self.redis("CONFIG", "SET", "maxmemory", "0")

    async def fault_redis_flush(self, seconds):
        await self.redis("FLUSHALL")

    async def fault_redis_lie(self, seconds):
        """Every key says somebody else, of every type; then things that nobody set."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            for key in await self.redis("KEYS", "holdfast:*") or []:
                if self.rng.random() < 0.5:
                    await self.redis("SET", key, "somebody-else", "PX", "3000")
                else:
                    await self.redis("DEL", key)
                    await self.redis("LPUSH", key, "not", "a", "string")
            await asyncio.sleep(0.1)
        for key in await self.redis("KEYS", "holdfast:*") or []:
            await self.redis("DEL", key)

    # ---- the remote ----

    async def remote(self, seconds, **plan):
        self.world.remote.weather = plan
        await asyncio.sleep(seconds)
        self.world.remote.weather = {}

    async def fault_remote_slow(self, seconds):
        await self.remote(seconds, delay_ms=self.rng.randint(200, 2500))

    async def fault_remote_error_after_effect(self, seconds):
        await self.remote(seconds, status=500)

    async def fault_remote_reset_after_effect(self, seconds):
        await self.remote(seconds, fault="reset_after")

    async def fault_remote_away(self, seconds):
        self.world.fronts["http"].set_mode("refuse")
        self.world.fronts["http"].cut_all()
        await asyncio.sleep(seconds)
        self.world.fronts["http"].set_mode("pass")
