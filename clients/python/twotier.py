"""A client of twotier in one file. It needs Python 3.8 and nothing else.

    from twotier import Twotier

    with Twotier("127.0.0.1:8080") as tt:
        if tt.is_action_allowed("alice", "reply", period="1m", max=5):
            ...
        answer = tt.acquire("user:42", limits={"1m": 15, "24h": 50})
        if not answer["allowed"]:
            print("try again in", answer["retry_after_ms"], "ms")

Answers are the JSON objects of the HTTP API (/openapi.json), durations are strings such as "90s"
or numbers of seconds.

A client has one connection, which it keeps open, and may be shared by threads, which take turns. A
forked process makes another one. Every call is a numbered request of a session: if an answer is
lost, the same request is sent again, and the server carries it out once. While a server has no time
or room, it says when to try again, and the client waits for as long as its timeout allows.
UnknownOutcome is the only error after which something may have been counted.
"""

import contextlib
import hashlib
import http.client
import json
import os
import threading
import time
import unicodedata
import urllib.parse
import uuid

__all__ = ["Twotier", "TwotierError", "Invalid", "Denied", "Overloaded", "Unavailable",
           "UnknownOutcome", "safe_key"]


class TwotierError(Exception):
    """What went wrong. status is that of HTTP, or 0 if there was no answer; retry_after is in
    seconds, or None if it is not known when another attempt makes sense."""

    def __init__(self, detail, status=0, retry_after=None):
        super().__init__(detail)
        self.status = status
        self.retry_after = retry_after


class Invalid(TwotierError):
    """The operation can't be carried out as it is. Nothing was counted."""


class Denied(TwotierError):
    """The token is missing or unknown, or does not allow this. Nothing was counted."""


class Overloaded(TwotierError):
    """A limit of the server itself is reached. Nothing was counted."""


class Unavailable(TwotierError):
    """There is no honest answer now. Nothing was counted."""


class UnknownOutcome(TwotierError):
    """It may have been counted, or not."""


_MOST_IDLE = 30  # seconds, after which the server may have closed a connection


class Twotier:
    """A connection to a server at "host:port".

    timeout bounds each call, in seconds. With a token, or to a server with TLS, pass token and an
    ssl.SSLContext.
    """

    def __init__(self, address="127.0.0.1:8080", token=None, timeout=5.0, ssl_context=None):
        self._address, self._token = address, token
        self._timeout, self._ssl = timeout, ssl_context
        self._pid, self._locks = os.getpid(), {}
        self._connection, self._used = None, 0.0
        self._session, self._process, self._sequence = None, None, 0

    def close(self):
        """Closes the connection. The next call would open another one."""
        with self._alone():
            self._drop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def add(self, key, n=1, **more):
        """Counts n events, or takes them back if n is negative. more: ns, ts, ack, limits,
        rules."""
        return self._one(_op("add", key=key, n=n, **more))

    def count(self, key, *windows, **more):
        """Returns the counts of a key in windows. more: ns, at."""
        return self._one(_op("count", key=key, window=[_duration(w) for w in windows], **more))

    def acquire(self, key=None, n=None, limits=None, checks=None, **more):
        """Asks whether events may pass, and counts them if so. Either key and limits, or checks: a
        list of dicts with key, limits and, if need be, n and ns, of which all must hold. more: ns,
        ts, ack, count_denied, charge, dry_run, rules, hold, on_expiry. With a hold ("90s"), the
        answer has its id, to settle later; limits may bound the open ones: {"concurrent": 2}.
        values (texts) are added to the key as well, and value_limits ({"24h": 3}) bound how many
        different ones it may have."""
        return self._one(_op("acquire", key=key, n=n, limits=limits, checks=checks, **more))

    def settle(self, hold, n=None, checks=None):
        """Makes what a hold has counted n events, in the buckets of its acquire, even if they
        exceed a limit: the answer lists such limits in "over". It has "late" if the hold had ended.
        With checks, a list of dicts with key, n and, if need be, ns, other keys stay as they were
        counted. A hold is settled once, so what got no answer is sent again."""
        body = _check(hold=hold, n=n, checks=checks)
        return self._repeat("POST", "/v1/settle", json.dumps(body))

    def release(self, hold):
        """Settles a hold with 0: ends it and takes back what it has counted."""
        return self.settle(hold, 0)

    def renew(self, hold, lasts):
        """Moves the end of a hold to some time from now, at most 24 hours after it began. Returns
        the new id as "hold" and its end as "until"; the old id is void."""
        body = {"hold": hold, "for": _duration(lasts)}
        return self._repeat("POST", "/v1/renew", json.dumps(body))

    def explain(self, key=None, ns=None, rule=None, id=None):
        """Returns why a key is refused: the verdict of each rule, or of one, its counts, and recent
        refusals. Instead of a key, id names a refusal: an answer that refuses has it as "id"."""
        fields = {"key": key, "ns": ns, "rule": rule, "id": id}
        query = urllib.parse.urlencode({k: v for k, v in fields.items() if v is not None})
        return self._repeat("GET", "/v1/explain?" + query)

    def is_action_allowed(self, user, action, period, max):
        """Says whether a user may do this once more, at most max times in any period, and counts
        it if so. Any texts will do."""
        key = safe_key("%d:%s:%s" % (len(user), user, action))
        return self.acquire(key, limits={period: max})["allowed"]

    isActionAllowed = is_action_allowed

    def distinct(self, key, values=(), windows=(), limits=None, ns=None, at=None, ack=None,
                 rules=None):
        """Adds values (texts) to a key, unless a limit, or one of a rule, forbids it, and says how
        many different ones each limit and window has. Without values it only counts. at is when
        they were seen, or where the windows end, in Unix milliseconds. A value counts once, so what
        got no answer is sent again."""
        windows = [_duration(w) for w in windows]
        if values or limits or rules:  # the server refuses limits and rules without values
            body = _check(key=key, ns=ns, values=list(values), limits=limits, rules=rules, ts=at,
                          ack=ack, window=windows or None)
            return self._repeat("POST", "/v1/distinct", json.dumps(body))
        query = {"key": key, "ns": ns, "window": ",".join(windows), "at": at}
        query = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})
        return self._repeat("GET", "/v1/distinct?" + query)

    def batch(self, ops):
        """Carries out many operations in one request, those on one key in order. ops are dicts
        with op ("add", "count", "acquire" or "distinct") and its fields. Returns their answers in
        order; where one was refused, a TwotierError stands in its place."""
        ops = [_op(**o) for o in ops]
        deadline = time.monotonic() + self._timeout
        with self._alone():
            return self._carry_out(ops, deadline)

    @contextlib.contextmanager
    def _alone(self):
        """Holds the lock of this process. After a fork it is a new one, as another thread may hold
        the parent's, and the inherited connection and session are dropped: the parent uses them."""
        pid = os.getpid()
        with self._locks.setdefault(pid, threading.Lock()):
            if self._pid != pid:
                self._drop()  # closes only this process's descriptor
                self._pid, self._process, self._locks = pid, None, {pid: self._locks[pid]}
            yield

    def _one(self, op):
        deadline = time.monotonic() + self._timeout
        while True:
            with self._alone():
                answer = self._carry_out([op], deadline)[0]
            if not isinstance(answer, TwotierError):
                return answer
            _wait_or_raise(answer, deadline)

    def _repeat(self, method, path, body=None):
        """Sends a request, which it is safe to repeat, until there is an answer."""
        deadline = time.monotonic() + self._timeout
        sent = False
        while True:
            try:
                with self._alone():
                    try:
                        status, answer, _ = self._exchange(method, path, body, {}, deadline)
                    except (OSError, http.client.HTTPException):
                        self._drop()
                        raise
                if status == 200:
                    return answer
                error = _error(answer, status)
                if isinstance(error, UnknownOutcome) or status == 503 and not _ours(answer):
                    sent = True
                    error = (UnknownOutcome if body else Unavailable)(str(error), status, 0.1)
                _wait_or_raise(error, deadline)
            except (OSError, http.client.HTTPException) as err:
                sent = True
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                kind = UnknownOutcome if sent and body else Unavailable
                raise kind("no answer from %s: %s" % (self._address, err)) from err
            except TwotierError as err:  # it only covers the last attempt
                if sent and body:
                    raise UnknownOutcome(str(err), err.status) from err
                raise

    def _carry_out(self, ops, deadline):
        reads = all(_reads(o) for o in ops)
        while True:
            try:
                results = self._in_session({"ops": ops}, reads, deadline)["results"]
                return [_failed(o, r["error"]) if "error" in r else r
                        for o, r in zip(ops, results)]
            except TwotierError as err:
                if err.status == 413 and len(ops) > 1:
                    half = len(ops) // 2
                    return self._part(ops[:half], deadline) + self._part(ops[half:], deadline)
                _wait_or_raise(err, deadline)

    def _part(self, ops, deadline):
        """Carries out a part of a batch that is too large for the server. Its error is that of each
        operation, because other parts may have been carried out."""
        try:
            return self._carry_out(ops, deadline)
        except TwotierError as err:
            return [err] * len(ops)

    def _in_session(self, body, reads, deadline):
        """Sends a request until there is an answer, so that it is carried out once."""
        sent = False  # it may have reached the session's process
        while True:
            try:
                if self._process is None:
                    self._begin(deadline)
                self._sequence += 0 if sent else 1
                status, answer, about = self._send(body, deadline)
            except Unavailable as err:  # there is no connection
                self._process = None
                if sent and not reads:
                    raise UnknownOutcome(str(err)) from err
                raise
            except (OSError, http.client.HTTPException) as err:
                sent = sent or self._process is not None
                self._drop()
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                kind = UnknownOutcome if sent and not reads else Unavailable
                self._process = None
                raise kind("no answer from %s: %s" % (self._address, err)) from err
            if status == 200:
                return answer
            if not about and (sent or status >= 500 and not (status == 503 and _ours(answer))):
                # The answer is not about the request, which may have been executed: the server sent
                # it before it looked at sessions, or a proxy did.
                sent = True
                if self._process is not None and time.monotonic() + 0.1 < deadline:
                    time.sleep(0.1)
                    continue
                kind = Unavailable if reads else UnknownOutcome
                raise kind(str(_error(answer, status)), status)
            if status in (409, 421):  # the process is gone, or has forgotten the session
                self._process = None
                if not sent or reads:
                    sent = False
                    continue
                raise UnknownOutcome("%s has restarted" % self._address, status)
            raise _error(answer, status)

    def _begin(self, deadline):
        """Begins a session, and learns which process it is with: no other one may carry out a
        request that is sent again."""
        self._session, self._process, self._sequence = uuid.uuid4().hex, None, 1
        status, answer, _ = self._send({"ops": []}, deadline)
        if status != 200:
            error = _error(answer, status)
            if isinstance(error, UnknownOutcome):  # nothing was sent to count
                error = Unavailable(str(error), status, 1)
            raise error

    def _send(self, body, deadline):
        """Returns the status, the answer, and whether that is about this very request."""
        headers = {"Twotier-Session": self._session, "Twotier-Sequence": str(self._sequence)}
        if self._process:
            headers["Twotier-Process"] = self._process
        status, answer, process = self._exchange("POST", "/v1/batch", json.dumps(body), headers,
                                                 deadline)
        self._process = process or self._process
        return status, answer, process is not None

    def _exchange(self, method, path, body, headers, deadline):
        headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        left = max(0.001, deadline - time.monotonic())
        if self._connection is not None and (
                self._connection.sock is None  # closed, as the server announced
                or time.monotonic() - self._used > _MOST_IDLE):
            self._drop()
        if self._connection is None:
            self._connect(left)
        self._connection.sock.settimeout(left)
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        text, self._used = response.read(), time.monotonic()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):  # it is a proxy's
            title = "status %d without a problem; is that a twotier server?" % response.status
            if not 400 <= response.status < 500:  # the server may or may not have received it
                raise http.client.HTTPException(title)
            answer = {"title": title}
        return response.status, answer, response.getheader("Twotier-Process")

    def _connect(self, timeout):
        if self._ssl:
            connection = http.client.HTTPSConnection(self._address, timeout=timeout,
                                                     context=self._ssl)
        else:
            connection = http.client.HTTPConnection(self._address, timeout=timeout)
        try:
            connection.connect()
        except OSError as err:
            raise Unavailable("no connection to %s: %s" % (self._address, err)) from err
        self._connection, self._used = connection, time.monotonic()

    def _drop(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def safe_key(key):
    """Returns the key, or "sha256:" and its digest if it can't be a key: if it is empty, longer
    than 256 bytes or has control characters. The Go client's SafeKey gives the same."""
    raw = key.encode("utf-8", "surrogatepass")
    fits = 0 < len(raw) <= 256 and not any(unicodedata.category(c) in ("Cc", "Cs") for c in key)
    if fits and not key.startswith("sha256:"):
        return key
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def _op(op, checks=None, hold=None, **fields):
    if hold is not None:
        fields["hold"] = _duration(hold)
    if checks is not None:
        fields["checks"] = [_check(**c) for c in checks]
    return dict(op=op, **_check(**fields))


def _reads(op):
    return op["op"] == "count" or op["op"] == "distinct" and not op.get("values") or op.get(
        "dry_run", False)


def _limits(limits):
    if not isinstance(limits, dict):
        return limits
    return [{"concurrent": m} if w == "concurrent" else {"window": _duration(w), "max": m}
            for w, m in limits.items()]


def _check(limits=None, value_limits=None, **fields):
    fields.update(limits=_limits(limits), value_limits=_limits(value_limits))
    return {k: v for k, v in fields.items() if v is not None}


def _duration(window):
    return window if isinstance(window, str) else "%dms" % round(window * 1000)


def _failed(op, problem):
    error = _error(problem)
    if isinstance(error, UnknownOutcome) and _reads(op):
        return Unavailable(str(error), error.status, 1)
    return error


def _error(problem, status=0):
    status = status or problem.get("status", 0)
    retry_after = problem.get("retry_after_ms")
    kind = {401: Denied, 403: Denied, 429: Overloaded, 503: Unavailable}.get(
        status, Invalid if status < 500 else UnknownOutcome)
    if problem.get("outcome") == "unknown":
        kind = UnknownOutcome
    if kind in (Overloaded, Unavailable):
        retry_after = 1000 if retry_after is None else retry_after
    return kind(problem.get("detail") or problem.get("title", "refused"), status,
                retry_after / 1000 if retry_after is not None else None)


def _ours(problem):
    return str(problem.get("type", "")).startswith("urn:twotier:problem:")


def _wait_or_raise(err, deadline):
    if err.retry_after is None or time.monotonic() + err.retry_after >= deadline:
        raise err
    time.sleep(err.retry_after)
