"""Tests the client against the server at sys.argv[1], which loses the first answers about the keys
"lost" and "astray", and all about "vanished". TWOTIER_BEHIND_A_PROXY is behind a proxy that goes
wrong once for each of the keys "closed", "repeated", "reset" and "gateway"."""

import contextlib
import http.server
import json
import os
import sys
import threading
import time
import unittest

from twotier import Denied, Invalid, Twotier, Unavailable, UnknownOutcome, safe_key

ADDRESS = sys.argv.pop(1)


@contextlib.contextmanager
def stranger(*answers):
    """Runs a server that answers with a status and a text after the other, the last ones again and
    again."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        do_GET = do_POST

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    try:
        yield "127.0.0.1:%d" % server.server_port
    finally:
        server.shutdown()
        server.server_close()


class Client(unittest.TestCase):
    def setUp(self):
        self.tt = Twotier(ADDRESS, timeout=20)
        self.addCleanup(self.tt.close)

    def counted(self, key):
        return self.tt.count(key, 3600)["counts"][0]["max"]

    def test_operations(self):
        at = self.tt.add("py", 5)["ts"]
        self.assertEqual(self.counted("py"), 5)
        self.tt.add("py", -2, ts=at)
        self.assertEqual(self.counted("py"), 3)
        daily = self.tt.acquire("py calendar", limits=[
            {"window": "day", "zone": "Europe/Lisbon", "anchor": 6, "max": 1}])["limits"][0]
        self.assertEqual((daily["window"], daily["remaining"]), ("day.6@Europe/Lisbon", 0))
        again = self.tt.acquire("py calendar", limits={"day.6@Europe/Lisbon": 1})
        self.assertFalse(again["allowed"])
        limits = {"1m": 4, 3600: 100}
        self.assertTrue(self.tt.acquire("py", limits=limits, dry_run=True)["allowed"])
        self.assertTrue(self.tt.acquire("py", limits=limits)["allowed"])
        refused = self.tt.acquire("py", limits=limits)
        self.assertEqual((refused["allowed"], refused["refused_by"]), (False, ["limits[0]"]))
        checks = [{"key": "py", "limits": {"1m": 9}}, {"key": "py2", "limits": {"1m": 0}}]
        self.assertFalse(self.tt.acquire(checks=checks)["allowed"])

    def test_charge(self):
        allowed = [self.tt.acquire("py charged", n, limits={"1h": 10}, charge=True)["allowed"]
                   for n in (8, 5, 0)]
        self.assertEqual(allowed, [True, False, False])  # a charge of 0 asks for room
        self.assertEqual(self.counted("py charged"), 13)

    def test_holds(self):
        key, other = "py held", "py held 2"  # the first answer about it is lost
        limits = {"1h": 1000, "concurrent": 1}
        answer = self.tt.acquire(hold=90, checks=[
            {"key": key, "n": 800, "limits": limits},
            {"key": other, "n": 800, "limits": [{"concurrent": 5}]}])
        self.assertTrue(answer["allowed"] and answer["until"] > (time.time() + 80) * 1000)
        hold = answer["hold"]
        refused = self.tt.acquire(key, limits=limits, hold="90s")
        self.assertEqual((refused["allowed"], refused["refused_by"], refused.get("hold")),
                         (False, ["concurrent"], None))
        self.assertEqual(self.tt.settle(hold, 1357),  # the answer to the first attempt is lost
                         {"settled": True, "repeated": True, "over": ["checks[0].limits[0]"]})
        self.assertEqual((self.counted(key), self.counted(other)), (1357, 1357))
        more = [{"window": "1h", "max": 9999}, {"concurrent": 1}]
        some = self.tt.acquire(key, 5, limits=more, hold="2m", on_expiry="release")["hold"]
        checks = [{"key": key, "n": 7, "ns": "default"}]
        self.assertEqual(self.tt.settle(some, checks=checks), {"settled": True})
        self.assertEqual(self.counted(key), 1364)
        for wrong in ((some,), (some, -1), ("none", 1), (some, None, [{"key": "py o", "n": 1}])):
            with self.subTest(wrong), self.assertRaises(Invalid):
                self.tt.settle(*wrong)
        with self.assertRaises(Denied):
            self.tt.settle("AAAA" + hold[4:], 1)
        for without in None, 0:
            with self.assertRaises(Invalid):
                self.tt.acquire(key, limits=limits, hold=without)
        self.assertEqual(self.counted(key), 1364)

    def test_explain(self):
        refused = self.tt.acquire("py why", 3, limits={"1m": 2})
        self.assertFalse(refused["allowed"])
        refusal = self.tt.explain(id=refused["id"])["refusal"]
        self.assertEqual((refusal["key"], refusal["window"], refusal["limit"], refusal["n"]),
                         ("py why", "1m", 2, 3))
        explained = self.tt.explain("py why")
        self.assertEqual(explained["refusals"][0]["id"], refused["id"])
        self.assertTrue(all(r["passes"] for r in explained["rules"]))
        with self.assertRaises(Invalid) as unknown:
            self.tt.explain(id="nobody.1")
        self.assertEqual(unknown.exception.status, 404)

    def test_leases(self):
        def take():
            return self.tt.acquire("py lease", 3, limits={"concurrent": 1}, hold="1m")
        first = take()["hold"]
        renewed = self.tt.renew(first, 300)
        self.assertNotEqual(renewed["hold"], first)
        self.assertGreater(renewed["until"], (time.time() + 290) * 1000)
        self.assertFalse(take()["allowed"])
        with self.assertRaises(Invalid) as gone:
            self.tt.renew(first, "5m")
        self.assertEqual(gone.exception.status, 410)
        self.assertEqual(self.tt.release(renewed["hold"]), {"settled": True})
        self.assertEqual(self.counted("py lease"), 0)
        self.assertEqual(self.tt.release(renewed["hold"]), {"settled": True, "repeated": True})
        with self.assertRaises(UnknownOutcome):  # there is room again, and an answer is lost
            self.tt.renew(take()["hold"], "77m")

    def test_actions(self):
        allowed = [self.tt.is_action_allowed("py\n", "reply", "1m", 3) for _ in range(5)]
        self.assertEqual(allowed, [True] * 3 + [False] * 2)
        self.assertTrue(self.tt.isActionAllowed("py", "\nreply", 60, 3))
        self.assertTrue(self.tt.is_action_allowed("p\u00ff:\U0001f40d", "reply", "1h", 1))
        self.assertEqual(self.counted("4:p\u00ff:\U0001f40d:reply"), 1)  # like the other clients

    def test_distinct(self):
        limits = {"24h": 2}
        answer = self.tt.distinct("py distinct", ["a", "b\n", "a"], limits=limits, ack="memory")
        self.assertEqual((answer["over"], answer["counts"][0]["count"]), (False, 2))
        answer = self.tt.distinct("py distinct", ["c"], windows=[3600], limits=limits)
        self.assertEqual((answer["over"], [c["count"] for c in answer["counts"]]), (True, [2, 2]))
        self.assertGreater(answer["retry_after_ms"], 86_000_000)
        answer = self.tt.distinct("py distinct", windows=["1h", 60], at=int(time.time() * 1000))
        self.assertEqual([c["count"] for c in answer["counts"]], [2, 2])
        self.assertEqual(self.tt.distinct("py astray", ["a"], ["1h"])["counts"][0]["count"], 1)
        for rules, over in (["devices"], True), (["watched"], False):
            answer = self.tt.distinct("py ruled", ["a", "b"], rules=rules)
            self.assertEqual((answer["over"], answer["rules_version"] > 0), (over, True))
        with self.assertRaises(Invalid):
            self.tt.distinct("py distinct", [""])
        with self.assertRaises(Invalid):
            self.tt.distinct("py distinct", windows=["1h"], rules=["devices"])

    def test_acquire_values(self):
        more = dict(value_limits={"24h": 2}, limits={3600: 2})
        answer = self.tt.acquire("py both", values=["a", "b"], **more)
        self.assertEqual((answer["allowed"], answer["values"]["counts"][0]["count"]), (True, 2))
        answer = self.tt.acquire(checks=[dict(key="py both", values=["c"], **more)])
        self.assertEqual(answer["refused_by"], ["checks[0].value_limits[0]"])
        self.assertEqual(self.counted("py both"), 1)

    def test_batch_of_values(self):
        first, over, by, asked, wrong = self.tt.batch([
            dict(op="distinct", key="py values", values=["a", "b"], limits={"1h": 2}),
            dict(op="distinct", key="py values", values=["c"], limits={"1h": 2}),
            dict(op="distinct", key="py values", values=["c"], rules=["devices"]),
            dict(op="distinct", key="py values", window="1h"),
            dict(op="distinct", key="py values", values=[])])
        self.assertEqual([a["over"] for a in (first, over, by)], [False, True, True])
        self.assertEqual((over["refused_by"], by["refused_by"]), (["limits[0]"], ["devices"]))
        self.assertEqual(asked["counts"][0]["count"], 2)
        self.assertIsInstance(wrong, Invalid)

    def test_batch(self):
        ops = [{"op": "add", "key": "py%d" % (i % 7)} for i in range(500)] + [{"op": "add", "key": ""}]
        answers = self.tt.batch(ops)
        self.assertEqual([a["key"] for a in answers[:-1]], [o["key"] for o in ops[:-1]])
        self.assertIsInstance(answers[-1], Invalid)

    def test_threads(self):
        def add():
            for _ in range(20):
                self.tt.add("py threads")
        threads = [threading.Thread(target=add) for _ in range(5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(self.counted("py threads"), 100)

    def test_errors(self):
        with self.assertRaises(Invalid) as refused:
            self.tt.acquire("py", limits={"1000h": 1})
        self.assertEqual((refused.exception.status, refused.exception.retry_after), (422, None))
        with self.assertRaises(Unavailable):
            Twotier("127.0.0.1:1", timeout=20).add("py")
        self.assertTrue(issubclass(Denied, Exception))

    def test_lost_answer(self):
        self.tt.add("py lost", 3)
        self.assertEqual(self.counted("py lost"), 3)

    def test_no_answer(self):
        with Twotier(ADDRESS, timeout=20) as hasty:
            hasty.add("py begun")  # without a session the error would be Unavailable
            hasty._timeout = 0.5
            with self.assertRaises(UnknownOutcome):
                hasty.add("py vanished")
        self.assertEqual(self.counted("py"), self.counted("py"))

    def test_proxy(self):
        for key in "py closed", "py repeated", "py reset", "py gateway":
            with self.subTest(key):
                with Twotier(os.environ["TWOTIER_BEHIND_A_PROXY"], timeout=20) as tt:
                    tt.add(key)
                    tt.add(key)
                self.assertEqual(self.counted(key), 2)

    def test_strangers(self):
        for status, answer, kind in (
                (502, "<html>", Unavailable), (502, '{"status":"Failure"}', Unavailable),
                (403, "<html>", Denied), (413, "[]", Invalid), (404, "{}", Invalid)):
            with self.subTest(status), stranger((status, answer)) as address:
                # Only a 502 makes the client try again, for as long as the timeout allows.
                tt = Twotier(address, timeout=0.3 if status == 502 else 20)
                with self.assertRaises(kind):  # only an empty batch was ever sent
                    tt.add("py")
                with self.assertRaises(kind):
                    tt.count("py", 60)
                with self.assertRaises(kind):
                    tt.distinct("py", windows=[60])

    def test_lost_by_a_proxy(self):
        # A proxy's 503 does not cover what its server has done, nor does the refusal that follows.
        gone = '{"type":"urn:twotier:problem:gone","title":"Gone","status":410}'
        for call in (lambda tt: tt.renew("id", 60)), (lambda tt: tt.settle("id", 1)):
            with stranger((503, '{"status":"error"}'), (410, gone)) as address:
                with Twotier(address, timeout=20) as tt, self.assertRaises(UnknownOutcome):
                    call(tt)
                with Twotier(address, timeout=20) as tt, self.assertRaises(Invalid):
                    call(tt)

    def test_too_large(self):
        seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                ops = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["ops"]
                status, answer = 200, {"results": [{"counts": []} for _ in ops]}
                if len(ops) > 3:
                    status, answer = 413, {"title": "Request body too large", "status": 413}
                else:
                    seen.extend(o["key"] for o in ops)
                self.send_response(status)
                self.send_header("Twotier-Process", "p")
                text = json.dumps(answer).encode()
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            keys = ["k%d" % i for i in range(10)]
            with Twotier("127.0.0.1:%d" % server.server_port) as tt:
                answers = tt.batch([{"op": "add", "key": k} for k in keys])
            self.assertEqual((answers, seen), ([{"counts": []}] * 10, keys))
            server.shutdown()

    def test_idle(self):
        self.tt.add("py idle")
        before = self.tt._connection
        self.tt._used -= 31
        self.tt.add("py idle")
        self.assertIsNot(self.tt._connection, before)
        self.assertEqual(self.counted("py idle"), 2)

    def test_safe_key(self):
        self.assertEqual(safe_key("naïve"), "naïve")
        for key in ("", "a\tb", "é" * 129, safe_key("")):
            self.assertTrue(safe_key(key).startswith("sha256:") and safe_key(key) != key, key)


unittest.main()
