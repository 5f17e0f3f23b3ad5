"""A process of tests/integration/broker_probe.c, driven verb by verb."""
import json
import os
import select
import signal
import subprocess
import time


class Probe:
    def __init__(self, build, bootstrap, *properties):
        self.process = subprocess.Popen(
            [os.path.join(build, "tests", "broker_probe"), bootstrap, *properties], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, bufsize=0)
        self.buffer = b""
        self.killed = False

    def say(self, *words):
        self.process.stdin.write((" ".join(str(word) for word in words) + "\n").encode())

    def hear(self, timeout=60):
        end = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            assert ready, f"no answer of the probe within {timeout} s"
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            assert chunk, f"the probe ended with {self.process.wait(10)}"
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def ask(self, *words, timeout=60):
        self.say(*words)
        return self.hear(timeout)

    def ok(self, *words, timeout=60):
        answer = self.ask(*words, timeout=timeout)
        assert answer.get("result", "ok") == "ok", (words, answer)
        return answer

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait(10)

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        if self.process.poll() is None:
            self.go_on()
            self.process.stdin.close()
            try:
                code = self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
            assert code == 0, f"the probe ended with {code} (a sanitizer's report is on standard error)"
        self.process.stdout.close()
