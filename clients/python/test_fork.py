"""Tests the client in processes that fork, against the server at TWOTIER. With gunicorn and gevent
installed, it also tests their workers, which take the application from here."""

import asyncio
import concurrent.futures
import http.server
import importlib.util
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import traceback
import unittest
import urllib.error
import urllib.request
import wsgiref.simple_server

from twotier import Twotier

ADDRESS = os.environ["TWOTIER"]
WORKERS = 4


def application():
    """Returns a WSGI application that lets each path pass once. Its client has a connection before
    the server forks."""
    tt = Twotier(ADDRESS, timeout=20)
    tt.add("py before the fork")

    def answer(environ, start_response):
        allowed = tt.acquire(environ["PATH_INFO"], limits={"1h": 1})["allowed"]
        start_response("200 OK" if allowed else "429 Too Many Requests",
                       [("Content-Length", "0"), ("Pid", str(os.getpid()))])
        return [b""]
    return answer


class Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


def fork(work):
    """Runs work in a child process, whose exit status is 0 if it returns within two minutes."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(120)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def ask(port, path):
    """Returns whether a request may pass, and the process that answered it."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=60) as answer:
            return True, answer.headers["Pid"]
    except urllib.error.HTTPError as refused:
        with refused:
            if refused.code != 429:
                raise
            return False, refused.headers["Pid"]


class PreForkServer(unittest.TestCase):
    """Servers that make the client and fork then, so that all workers inherit its connection."""

    def check(self, port, name):
        """Lets many threads send requests until several workers have answered: each path must pass
        exactly once."""
        pids, rounds, deadline = set(), 0, time.monotonic() + 60
        with concurrent.futures.ThreadPoolExecutor(3 * WORKERS) as threads:
            while rounds < 25 or len(pids) < 2 and time.monotonic() < deadline:
                path = "/%s/%d" % (name, rounds)
                answers = list(threads.map(lambda _: ask(port, path), range(3 * WORKERS)))
                self.assertEqual([passed for passed, _ in answers].count(True), 1, path)
                pids.update(pid for _, pid in answers)
                rounds += 1
        self.assertGreater(len(pids), 1)

    def test_threads(self):
        with Server(("127.0.0.1", 0), Quiet) as server:
            server.set_app(application())
            for _ in range(WORKERS):
                pid = fork(server.serve_forever)
                self.addCleanup(os.waitpid, pid, 0)
                self.addCleanup(os.kill, pid, signal.SIGKILL)
            self.check(server.server_port, "threads")

    @unittest.skipUnless(importlib.util.find_spec("gunicorn"), "there is no gunicorn")
    def test_gunicorn(self):
        for kind in "sync", "gthread", "gevent":
            if kind != "gevent" or importlib.util.find_spec(kind):
                with self.subTest(kind):
                    self.check_gunicorn(kind)

    def check_gunicorn(self, kind):
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            fd = listener.fileno()
            server = subprocess.Popen(
                [sys.executable, "-m", "gunicorn", "--preload", "--worker-class", kind,
                 "--workers", str(WORKERS), "--threads", "4", "--timeout", "120",
                 "--log-level", "warning", "--bind", "fd://%d" % fd, "test_fork:application()"],
                pass_fds=[fd])
            try:
                self.check(listener.getsockname()[1], kind)
            finally:
                server.terminate()
                server.wait(60)


class Stub(http.server.BaseHTTPRequestHandler):
    """Answers with the keys of a request, about "slow" only once go is set."""
    protocol_version = "HTTP/1.1"
    asked, go = threading.Event(), threading.Event()
    seen = []  # a connection, a session and the keys, of each request

    def do_POST(self):
        ops = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["ops"]
        keys = [op["key"] for op in ops]
        self.seen.append((self.client_address, self.headers["Twotier-Session"], keys))
        if keys == ["slow"]:
            self.asked.set()
            self.go.wait(120)
        text = json.dumps({"results": [{"key": k} for k in keys]}).encode()
        self.send_response(200)
        self.send_header("Twotier-Process", "p")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Fork(unittest.TestCase):
    def setUp(self):
        self.tt = Twotier(ADDRESS, timeout=20)
        self.addCleanup(self.tt.close)
        self.tt.add("py parent")

    def pass_once(self, key):
        """Counts under another key that a key has passed, with a client that nobody shares."""
        if self.tt.acquire(key, limits={"1h": 1})["allowed"]:
            with Twotier(ADDRESS, timeout=20) as other:
                other.add(key + " passed")

    def passed(self, key):
        return self.tt.count(key + " passed", 3600)["counts"][0]["max"]

    def check_child(self, work):
        self.assertEqual(os.waitpid(fork(work), 0)[1], 0)

    def test_one_after_the_other(self):
        for _ in range(2):
            self.check_child(lambda: self.pass_once("py in turn"))
        self.pass_once("py in turn")
        self.assertEqual(self.passed("py in turn"), 1)

    def test_distinct_and_holds(self):
        def work():
            self.tt.distinct("py visitors", [str(os.getpid())], limits={"1h": 9})
            hold = self.tt.acquire("py calls", limits={"1h": 90}, hold="1m")["hold"]
            self.tt.settle(hold, 5)
        for pid in [fork(work) for _ in range(WORKERS)]:
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        visitors = self.tt.distinct("py visitors", windows=["1h"])["counts"][0]["count"]
        self.assertEqual(visitors, WORKERS)
        self.assertEqual(self.tt.count("py calls", 3600)["counts"][0]["max"], 5 * WORKERS)

    def test_generations(self):
        def work(generation=0):
            if generation < 2:
                self.tt.add("py generation")
                self.check_child(lambda: work(generation + 1))
                self.check_child(lambda: work(generation + 1))
            self.pass_once("py generations")
        work()
        self.assertEqual(self.passed("py generations"), 1)

    def test_event_loops(self):
        keys = ["py loop %d" % i for i in range(25)]

        async def work():
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(loop.run_in_executor(None, self.pass_once, k) for k in keys))
        pids = [fork(lambda: asyncio.run(work())) for _ in range(WORKERS)]
        asyncio.run(work())  # the parent takes part
        for pid in pids:
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual([self.passed(k) for k in keys], [1] * len(keys))

    def test_fork_during_a_call(self):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            self.addCleanup(server.shutdown)
            self.addCleanup(Stub.go.set)
            with Twotier("127.0.0.1:%d" % server.server_port, timeout=60) as tt:
                with concurrent.futures.ThreadPoolExecutor(1) as other:
                    slow = other.submit(tt.add, "slow")
                    self.assertTrue(Stub.asked.wait(60))
                    # The other thread has the lock and waits for an answer.
                    self.check_child(lambda: self.assertEqual(tt.add("child"), {"key": "child"}))
                    self.check_child(tt.close)
                    Stub.go.set()
                    self.assertEqual(slow.result(60), {"key": "slow"})
                self.assertEqual(tt.add("parent"), {"key": "parent"})
            keys = [keys for _, _, keys in Stub.seen]
            self.assertEqual(keys, [[], ["slow"], [], ["child"], ["parent"]])
            begun, ours, _, childs, parents = [request[:2] for request in Stub.seen]
            self.assertTrue(begun == ours == parents)
            self.assertTrue(ours[0] != childs[0] and ours[1] != childs[1])
            server.shutdown()


if __name__ == "__main__":
    unittest.main()
