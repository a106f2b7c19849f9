"""Tests the middleware against the server at TWOTIER, and against servers that go wrong. The tests
of docs/middleware.md run it in the frameworks."""

import asyncio
import concurrent.futures
import http.server
import ipaddress
import json
import os
import pathlib
import re
import socket
import threading
import time
import unittest
import urllib.request
import warnings

from twotier_middleware import ASGIMiddleware, WSGIMiddleware, address_key

ADDRESS = os.environ["TWOTIER"]


class Answers(http.server.BaseHTTPRequestHandler):
    """Gives the server's answers, the last one again and again. None is none at all, and "close"
    closes the connection, unless it is new."""
    protocol_version = "HTTP/1.1"
    used = False

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        if answer == "close" and self.used:
            self.close_connection = True
            return
        self.used = True
        server.asked.append((self.path, self.headers["Authorization"], body))
        if answer is None:
            server.stop.wait(60)
            self.close_connection = True
            return
        status, text = (200, {"allowed": True}) if answer == "close" else answer
        text = (text if isinstance(text, str) else json.dumps(text)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def problem(status, **more):
    return status, dict(more, type="urn:twotier:problem:x", title="no", status=status)


def hello(environ, start_response):
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]


class Site:
    """A WSGI application behind the middleware."""

    def __init__(self, **options):
        options = dict({"limits": {"1h": 3}, "on_error": "allow", "url": ADDRESS, "wait": 20},
                       **options)
        self.app = WSGIMiddleware(hello, **options)

    def visit(self, **environ):
        """Returns the status, the headers and the body of an answer."""
        seen = []
        body = b"".join(self.app(dict({"REMOTE_ADDR": "192.0.2.1"}, **environ),
                                 lambda status, headers, *_: seen.append((status, headers))))
        (status, headers), = seen
        return int(status[:3]), dict(headers), body


class Middleware(unittest.TestCase):
    def stub(self, *answers):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        server.daemon_threads, server.answers, server.asked = True, list(answers), []
        server.stop = threading.Event()
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(server.stop.set)
        return "127.0.0.1:%d" % server.server_port, server.asked

    def test_addresses(self):
        table = pathlib.Path(__file__).parent.parent / "testdata" / "addresses.json"
        for row in json.loads(table.read_text()):
            trusted = [ipaddress.ip_network(text) for text in row.get("trusted", ())]
            self.assertEqual(address_key(row["peer"], row.get("forwarded", ()), trusted),
                             row["key"], row)

    def test_shared_counts(self):
        table = pathlib.Path(__file__).parent.parent / "testdata" / "sharing.json"
        for i, row in enumerate(json.loads(table.read_text())):
            with self.subTest(row), warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                for options in row["first"], row["second"]:
                    WSGIMiddleware(hello, on_error="allow", url="127.0.0.2:%d" % (i + 1), **options)
                self.assertEqual([w.category for w in seen], [RuntimeWarning] * row["warns"])
                for warning in seen:
                    self.assertRegex(str(warning.message), "give each a name$")
                    self.assertEqual(warning.filename, __file__)  # of the application

    def test_names(self):
        url, asked = self.stub((200, {"allowed": True}))
        site = Site(url=url, name="login", key=lambda environ: environ["USER"])
        for user in "ann", "", "k" * 256, "sha256:":
            site.visit(USER=user)
        self.assertEqual([re.sub("[0-9a-f]{64}$", "#", op["key"]) for _, _, op in asked],
                         ["login:ann", "login:", "sha256:#", "login:sha256:"])

    def test_limit_by_key(self):
        site = Site(ns="py-middleware", key=lambda environ: environ.get("USER"),
                    n=lambda environ: environ["N"])
        asked = [("ann", 2), ("ann", 1), ("ann", 1), ("bob", 3), ("bob", 1)]
        self.assertEqual([site.visit(USER=user, N=n)[0] for user, n in asked],
                         [200, 200, 429, 200, 429])
        _, headers, body = site.visit(USER="bob", N=1)
        refusal = json.loads(body)["id"]
        self.assertEqual(headers["Twotier-Refusal"], refusal)
        explain = "http://%s/v1/explain?id=%s" % (ADDRESS, refusal)
        with urllib.request.urlopen(explain) as answer:
            self.assertEqual(json.load(answer)["key"], "bob")
        for _ in range(5):
            status, headers, _ = site.visit(N=1)
            self.assertEqual((status, headers), (200, {"Content-Length": "5"}))

    def test_threads(self):
        site = Site(ns="py-threads", limits={"1h": 30})
        with concurrent.futures.ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(lambda _: site.visit()[0], range(100)))
        self.assertEqual((answers.count(200), answers.count(429)), (30, 70))

    def test_dry_run(self):
        site = Site(ns="py-dry", dry_run=True)
        for i in range(5):
            status, headers, body = site.visit()
            self.assertEqual((status, body, headers.get("Retry-After")), (200, b"hello", None))
            self.assertRegex(headers["RateLimit"], r";r=[012]$" if i < 3 else r";r=0;t=\d+$")
        self.assertEqual(Site(url=self.stub(problem(422))[0], dry_run=True).visit()[0], 200)

    def test_what_is_sent(self):
        url, asked = self.stub((200, {"allowed": True}))
        site = Site(url=url, rules="login", limits=[{"window": "1m", "max": 2}], ns="x",
                    token="secret", key=lambda _: "a\tb")
        self.assertEqual(site.visit()[0], 200)
        (path, token, body), = asked
        self.assertEqual((path, token), ("/v1/acquire?deny=429", "Bearer secret"))
        self.assertRegex(body.pop("key"), "^sha256:[0-9a-f]{64}$")
        self.assertEqual(body, {"ns": "x", "n": 1, "rules": ["login"],
                                "limits": [{"window": "1m", "max": 2}]})

    def test_no_decision(self):
        for answer, allow, deny, after in (
                (problem(429), 429, 429, "1"),
                (problem(429, retry_after_ms=2350), 429, 429, "3"),
                (problem(429, retry_after_ms=9 * 10**15), 429, 429, "60"),
                (problem(503), 503, 503, "1"),
                (problem(503, outcome="unknown"), 503, 503, "1"),
                (problem(500), 503, 503, "1"),
                (problem(408), 503, 503, "1"),
                (problem(422), 500, 500, None),
                (problem(401), 500, 500, None),
                ((404, "no such page"), 500, 500, None),
                ((502, "<html>"), 200, 503, "1"),
                ((503, '{"title":"a proxy"}'), 200, 503, "1")):
            for on_error, want in (("allow", allow), ("deny", deny)):
                with self.subTest(answer, on_error=on_error):
                    failures = []
                    site = Site(url=self.stub(answer)[0], on_error=on_error,
                                on_failure=lambda error, key: failures.append(key))
                    status, headers, body = site.visit()
                    self.assertEqual((status, failures), (want, ["192.0.2.1"]))
                    self.assertEqual(headers.get("Retry-After"), None if want == 200 else after)
                    if want == 200:
                        self.assertEqual(body, b"hello")
                    else:
                        self.assertEqual(json.loads(body)["status"], want)

    def test_slow_server(self):
        site = Site(url=self.stub((200, {"allowed": True}), None)[0], wait=0.25)
        self.assertEqual(site.visit()[0], 200)
        began = time.monotonic()
        status, headers, _ = site.visit()  # it has just answered, so it can be reached
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        while site.visit()[0] == 429:
            self.assertLess(time.monotonic() - began, 60)
        self.assertGreater(time.monotonic() - began, 2)  # it was silent for long enough
        silent = Site(url=self.stub(None)[0], wait=0.25, on_error="deny")
        self.assertEqual(silent.visit()[0], 503)

    def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = "127.0.0.1:%d" % listener.getsockname()[1]
        self.assertEqual(Site(url=url).visit()[0], 200)
        self.assertEqual(Site(url=url, on_error="deny").visit()[0], 503)

    def test_closed_connections(self):
        url, asked = self.stub("close")
        site = Site(url=url, on_error="deny")
        self.assertEqual([site.visit()[0] for _ in range(4)], [200] * 4)
        self.assertEqual(len(asked), 4)

    def test_fork(self):
        site = Site(ns="py-fork", limits={"1h": 10})
        site.visit()  # has a connection now
        pids = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                passed = [site.visit()[0] for _ in range(5)].count(200)
                os._exit(passed)
            pids.append(pid)
        passed = sum(os.waitpid(pid, 0)[1] >> 8 for pid in pids)
        self.assertEqual(passed, 9)

    def test_options(self):
        limits = {"1m": 1}
        for options, want in (
                ({"on_error": "allow"}, "limits or rules are missing"),
                ({"limits": limits}, "on_error is missing"),
                ({"limits": limits, "on_error": "open"}, "on_error is missing"),
                ({"limits": limits, "on_error": "deny", "trusted": []}, "trusted"),
                ({"limits": limits, "on_error": "deny", "trusted_proxies": ["x"]}, "'x'"),
                ({"limits": limits, "on_error": "deny", "name": "a:b"}, "name: a:b"),
                ({"limits": limits, "on_error": "deny", "name": "a" * 65}, "name: a")):
            with self.assertRaisesRegex((ValueError, TypeError), want):
                WSGIMiddleware(hello, **options)

    def test_event_loop(self):
        """Requests wait for a silent server together, and the loop goes on."""
        url, _ = self.stub(None)
        app = ASGIMiddleware(asgi_hello, limits={"1h": 3}, on_error="deny", url=url, wait=1)

        async def work():
            began, ticks = time.monotonic(), 0
            jobs = [asyncio.ensure_future(asgi_visit(app)) for _ in range(20)]
            while not all(job.done() for job in jobs):
                await asyncio.sleep(0.01)
                ticks += 1
            self.assertGreater(ticks, 5)
            self.assertLess(time.monotonic() - began, 15)  # and not one after the other
            return [job.result()[0]["status"] for job in jobs]
        self.assertEqual(asyncio.run(work()), [503] * 20)

    def test_event_loop_after_a_fork(self):
        app = ASGIMiddleware(asgi_hello, limits={"1h": 2}, on_error="deny", url=ADDRESS,
                             ns="py-loop", wait=20)

        def visit():
            return asyncio.run(asgi_visit(app))[0]["status"]
        self.assertEqual(visit(), 200)
        for want in 200, 429:
            pid = os.fork()
            if pid == 0:
                os._exit(visit() == want)
            self.assertEqual(os.waitpid(pid, 0)[1] >> 8, 1, want)

    def test_web_sockets(self):
        app = ASGIMiddleware(asgi_hello, limits={"1h": 1}, on_error="deny", url=ADDRESS,
                             ns="py-sockets", wait=20)
        opened, refused = (asyncio.run(asgi_visit(app, "websocket")) for _ in range(2))
        self.assertEqual(opened[0]["type"], "websocket.accept")
        self.assertIn((b"ratelimit", b'"limits[0]";r=0'), opened[0]["headers"])
        self.assertEqual([message["type"] for message in refused], ["websocket.close"])

    def test_lifespan(self):
        app = ASGIMiddleware(asgi_hello, limits={"1h": 1}, on_error="deny", url="127.0.0.1:1")
        self.assertEqual(asyncio.run(asgi_visit(app, "lifespan"))[0]["type"], "lifespan.done")


async def asgi_hello(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})
    else:
        await send({"type": {"websocket": "websocket.accept"}.get(scope["type"], "lifespan.done")})


async def asgi_visit(app, kind="http"):
    """Returns the messages that an ASGI application sends for a request."""
    sent = []

    async def receive():
        return {"type": kind + ".connect"}

    async def send(message):
        sent.append(message)
    await app({"type": kind, "client": ("192.0.2.1", 1), "headers": []}, receive, send)
    return sent


if __name__ == "__main__":
    unittest.main()
