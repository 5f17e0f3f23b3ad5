"""A standby of a test's PostgreSQL, and the wire between them: what an acknowledged commit of an asynchronous primary is
worth is decided by what has passed that wire when the primary vanishes.

    with Postgres() as primary, Link(primary.port) as link, Standby(primary, link.port) as standby:
        link.cut()          # from here on nothing passes, and nobody is told
        primary.kill()
        standby.promote()
"""
import os
import pwd
import select
import socket
import subprocess
import tempfile
import threading
import time

from tests.lib.stack import HOST, Postgres, StackError, wait_until


class Link:
    """A TCP proxy in front of a server that can be cut like a wire: what was on its way is swallowed, and neither side
    hears of it. (Stopping the receiver loses nothing: the sender's kernel holds it, and a promotion reads it first.)"""

    def __init__(self, port):
        self.behind = port
        self.whole = threading.Event()
        self.whole.set()
        self.ended = threading.Event()
        self.server = socket.create_server((HOST, 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.ended.is_set():
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(near,), daemon=True).start()

    def carry(self, near):
        try:
            far = socket.create_connection((HOST, self.behind), 10)
        except OSError:
            near.close()
            return
        with near, far:
            other = {near: far, far: near}
            while not self.ended.is_set():
                ready, _, _ = select.select(list(other), [], [], 0.2)
                for one in ready:
                    try:
                        data = one.recv(1 << 16)
                        if data and self.whole.is_set():
                            other[one].sendall(data)
                    except OSError:
                        return
                    if not data:
                        return

    def cut(self):
        self.whole.clear()

    def mend(self):
        self.whole.set()

    def close(self):
        self.ended.set()
        self.server.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Copy(Postgres):
    """A base backup of another server, taken when it is prepared; started it is that server, set back."""

    def __init__(self, primary, port=None, standby=False, settings=None):
        super().__init__(settings=settings)
        self.primary, self.standby = primary, standby
        self.source = port or primary.port

    def prepare(self):
        self.data = tempfile.mkdtemp(prefix="holdfast-pgdata-", dir="/tmp")
        if self.user:
            entry = pwd.getpwnam(self.user)
            os.chown(self.data, entry.pw_uid, entry.pw_gid)
        made = subprocess.run(
            [os.path.join(self.bindir(), "pg_basebackup"), "-h", HOST, "-p", str(self.source), "-U", "postgres", "-D", self.data,
             *(["-R"] if self.standby else []), "-X", "stream", "-c", "fast", "--no-sync"], capture_output=True, text=True,
            cwd="/", timeout=120, preexec_fn=self._before_exec, check=False)
        if made.returncode:
            raise StackError(f"pg_basebackup failed: {made.stderr}")
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a", encoding="utf-8") as conf:
            for key, value in self.settings.items():
                conf.write(f"{key} = '{value}'\n")
        self.prepared = True


class Standby(Copy):
    """It streams from its primary, through `port` where a wire is between them."""

    def __init__(self, primary, port=None, settings=None):
        super().__init__(primary, port, True, settings)

    def caught_up(self, timeout=30):
        """It has replayed all that its primary has written up to now."""
        place = self.primary.psql("SELECT pg_current_wal_lsn()")
        wait_until(lambda: self.psql(f"SELECT pg_last_wal_replay_lsn() >= '{place}'") == "t", timeout,
                   f"the standby has replayed {place}")

    def promote(self):
        """Returns how long it took, in seconds."""
        began = time.monotonic()
        if self.psql("SELECT pg_promote(true, 60)") != "t":
            raise StackError(f"the standby was not promoted\n{self.log_tail()}")
        return time.monotonic() - began
