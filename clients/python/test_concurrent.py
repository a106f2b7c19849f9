"""Tests the client in threads, event loops and greenlets, against the server at TWOTIER. The class
Greenlets needs gevent, whose patches it applies to a process of its own."""

import asyncio
import concurrent.futures
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from twotier import Twotier

ADDRESS = os.environ["TWOTIER"]


class Slow(http.server.BaseHTTPRequestHandler):
    """Answers with the keys of a request: about "slow" after its header, once go is set."""
    protocol_version = "HTTP/1.1"
    go, seen = threading.Event(), []

    def do_POST(self):
        ops = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["ops"]
        keys = [op["key"] for op in ops]
        text = json.dumps({"results": [{"key": k} for k in keys]}).encode()
        self.seen.append(keys)
        self.send_response(200)
        self.send_header("Twotier-Process", "p")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text[:9])
        self.wfile.flush()
        if keys == ["slow"]:
            self.go.wait(60)
        self.wfile.write(text[9:])

    def log_message(self, *_):
        pass


class Server(unittest.TestCase):
    def serve(self):
        """Starts a slow server, and returns a client of it."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
        server.daemon_threads = True
        Slow.go.clear()
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(Slow.go.set)
        tt = Twotier("127.0.0.1:%d" % server.server_port, timeout=60)
        self.addCleanup(tt.close)
        return tt

    def client(self):
        tt = Twotier(ADDRESS, timeout=20)
        self.addCleanup(tt.close)
        return tt


class Concurrent(Server):
    def test_threads(self):
        tt, ready = self.client(), threading.Barrier(20)

        def work(i):
            ready.wait(60)
            tt.add("py concurrent threads")
            return i, tt.acquire("py thread %d" % i, limits={"1h": i}), tt.acquire(
                "py threads once", limits={"1h": 7})["allowed"]
        with concurrent.futures.ThreadPoolExecutor(20) as threads:
            answers = list(threads.map(work, range(1, 21)))
        for i, own, _ in answers:  # each thread gets its answer, and not another one's
            self.assertEqual(own["limits"][0]["max"], i)
        self.assertEqual([once for _, _, once in answers].count(True), 7)
        self.assertEqual(tt.count("py concurrent threads", 3600)["counts"][0]["max"], 20)

    def test_event_loop(self):
        tt = self.client()

        async def work(i):
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(
                None, lambda: tt.acquire("py loop own %d" % i, limits={"1h": i}))
            self.assertEqual(answer["limits"][0]["max"], i)
            once = lambda: tt.acquire("py loop once", limits={"1h": 5})["allowed"]
            return await loop.run_in_executor(None, once)

        async def all_of_them():
            return await asyncio.gather(*map(work, range(1, 31)))
        self.assertEqual(asyncio.run(all_of_them()).count(True), 5)

    def test_event_loop_goes_on(self):
        tt = self.serve()

        async def work():
            loop = asyncio.get_running_loop()
            slow = loop.run_in_executor(None, tt.add, "slow")
            while ["slow"] not in Slow.seen:
                await asyncio.sleep(0.001)  # the loop runs while the call waits
            self.assertFalse(slow.done())
            Slow.go.set()
            return await slow
        self.assertEqual(asyncio.run(asyncio.wait_for(work(), 60)), {"key": "slow"})

    def test_interrupted_call(self):
        """A signal's handler interrupts a call with an exception, as time limits of workers do."""
        class Limit(BaseException):
            pass

        def interrupt(*_):
            raise Limit()
        tt, before = self.serve(), signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        tt.add("first")
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with self.assertRaises(Limit):
            tt.add("slow")
        for key in "second", "third":  # they don't get the answer about the slow one
            self.assertEqual(tt.add(key), {"key": key})


class Greenlets(unittest.TestCase):
    def test_patched(self):
        """Runs InGevent in a process with gevent's patches."""
        code = "from gevent import monkey; monkey.patch_all(); import unittest; " \
               "unittest.main('test_concurrent', argv=['gevent', 'InGevent'])"
        done = subprocess.run([sys.executable, "-c", code], timeout=120, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        self.assertIn(b"Ran 3 tests", done.stdout)


class InGevent(Server):
    @classmethod
    def setUpClass(cls):
        if "gevent.monkey" not in sys.modules:
            raise unittest.SkipTest("Greenlets runs it")

    def test_together(self):
        import gevent
        tt = self.client()

        def work(i):
            own = tt.acquire("py greenlet %d" % i, limits={"1h": i})
            return i, own["limits"][0]["max"], tt.acquire("py greenlets", limits={"1h": 7})["allowed"]
        jobs = [gevent.spawn(work, i) for i in range(1, 31)]
        gevent.joinall(jobs, timeout=60, raise_error=True)
        answers = [job.value for job in jobs]
        for i, most, _ in answers:
            self.assertEqual(most, i)
        self.assertEqual([once for _, _, once in answers].count(True), 7)

    def test_others_go_on(self):
        import gevent
        tt = self.serve()
        slow, began = gevent.spawn(tt.add, "slow"), time.monotonic()
        while ["slow"] not in Slow.seen:
            gevent.sleep(0.001)
            self.assertLess(time.monotonic() - began, 60)
        Slow.go.set()
        self.assertEqual(slow.get(timeout=60), {"key": "slow"})

    def test_killed(self):
        import gevent
        tt = self.serve()
        tt.add("first")
        Slow.seen.clear()
        slow = gevent.spawn(tt.add, "slow")
        while ["slow"] not in Slow.seen:
            gevent.sleep(0.001)
        gevent.sleep(0.1)  # it waits for the rest of the answer
        waiting = gevent.spawn(tt.add, "waiting")
        slow.kill()
        self.assertEqual(waiting.get(timeout=60), {"key": "waiting"})
        self.assertEqual(tt.add("last"), {"key": "last"})


if __name__ == "__main__":
    unittest.main()
