"""Middleware for ASGI, WSGI and Django that limits requests with twotier. It needs Python 3.8 and
twotier.py, and nothing else.

    from twotier_middleware import ASGIMiddleware, WSGIMiddleware

    app.add_middleware(ASGIMiddleware, limits={"1m": 15}, on_error="allow")          # FastAPI
    app.wsgi_app = WSGIMiddleware(app.wsgi_app, limits={"1m": 15}, on_error="allow")  # Flask

    # Django's settings
    MIDDLEWARE = ["twotier_middleware.django_middleware", ...]
    TWOTIER = {"limits": {"1m": 15}, "on_error": "allow"}

A request that a limit refuses gets 429, with Retry-After if waiting helps, and the id of the
refusal in Twotier-Refusal. Every answer to a decision has the headers RateLimit-Policy and
RateLimit of the server. Options:

    on_error         "allow" or "deny" (503): what happens to requests while no server can be
                     reached. Required. While a server is overloaded or late, requests get 429, and
                     while it can't decide, 503: else overloading it would switch the limits off
    limits           {"1m": 15, "24h": 50}, or a list of dicts with window and max
    rules, ns        names of the server's rules; the namespace. Limits or rules are required
    name             a part of every key, such as "login". Middleware with other limits needs
                     another name, or else both share the counts of their keys
    key              function of the ASGI scope, the WSGI environment or Django's request: the key
                     to count under, None if the request is not limited. Default: the sender's
                     address
    trusted_proxies  addresses and networks, such as "10.0.0.0/8", whose X-Forwarded-For is believed
    n                how many events a request is, or a function like key. Default: 1
    dry_run          True lets every request pass, but decides and counts as usual
    url              the server, "127.0.0.1:8080", or a URL; token, and ssl_context for https
    wait             seconds for a decision (0.25); threads, for ASGI and asynchronous Django (32)
    on_failure       function of an error and the key, called for each request without a decision

Connections are shared by threads and greenlets, and made anew in a forked process. In an event loop
decisions wait in threads, so that the loop goes on.
"""

import asyncio
import concurrent.futures
import http
import http.client
import ipaddress
import json
import os
import re
import time
import urllib.parse
import warnings

from twotier import TwotierError, _check, _ours, safe_key

__all__ = ["ASGIMiddleware", "WSGIMiddleware", "django_middleware", "address_key"]

_MOST_SILENT = 3  # seconds without any answer, after which a server can't be reached
_MOST_RETRY = 60  # seconds that senders are asked to wait for an overloaded server
_MOST_IDLE = 30  # seconds, after which the server may have closed a connection

_DETAILS = {
    429: "too many requests for a limit, or for the moment",
    500: "the limits of this request can't be checked",
    503: "no decision about the limits of this request",
}


class ASGIMiddleware:
    """Limits the requests, and the opened WebSockets, of an ASGI application."""

    def __init__(self, app, **options):
        self._app, self._gate = app, _Gate(**options)

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        peer = (scope.get("client") or [""])[0]
        forwarded = [v.decode("latin-1") for k, v in scope["headers"] if k == b"x-forwarded-for"]
        decision = await self._gate.decide_in_loop(scope, peer, forwarded)
        headers = [(k.lower().encode(), v.encode()) for k, v in decision.headers]
        if decision.passes:
            await self._app(scope, receive, _adds_headers(send, headers))
        elif scope["type"] == "websocket":
            await receive()  # the request to connect, which this refuses
            await send({"type": "websocket.close", "code": 1013, "reason": ""})
        else:
            await send({"type": "http.response.start", "status": decision.status,
                        "headers": headers})
            await send({"type": "http.response.body", "body": decision.body})


def _adds_headers(send, headers):
    async def sends(message):
        if message["type"] in ("http.response.start", "websocket.accept"):
            message = dict(message, headers=list(message.get("headers", ())) + headers)
        await send(message)
    return sends


class WSGIMiddleware:
    """Limits the requests of a WSGI application."""

    def __init__(self, app, **options):
        self._app, self._gate = app, _Gate(**options)

    def __call__(self, environ, start_response):
        decision = self._gate.decide(environ, environ.get("REMOTE_ADDR", ""),
                                     [environ.get("HTTP_X_FORWARDED_FOR", "")])
        if decision.passes:
            def start(status, headers, *exc_info):
                return start_response(status, list(headers) + decision.headers, *exc_info)
            return self._app(environ, start)
        status = "%d %s" % (decision.status, http.HTTPStatus(decision.status).phrase)
        start_response(status, decision.headers)
        return [decision.body]


def django_middleware(get_response):
    """Limits the requests of a Django project, synchronous or not, by settings.TWOTIER."""
    import asgiref.sync
    from django.conf import settings
    from django.http import HttpResponse

    gate = _Gate(**settings.TWOTIER)

    def about(request):
        return (request, request.META.get("REMOTE_ADDR", ""),
                [request.META.get("HTTP_X_FORWARDED_FOR", "")])

    def finish(decision, response):
        if response is None:
            response = HttpResponse(decision.body, status=decision.status)
        for name, value in decision.headers:
            response[name] = value
        return response

    async def decide_in_loop(request):
        decision = await gate.decide_in_loop(*about(request))
        return finish(decision, await get_response(request) if decision.passes else None)

    def decide(request):
        decision = gate.decide(*about(request))
        return finish(decision, get_response(request) if decision.passes else None)

    is_async = getattr(asgiref.sync, "iscoroutinefunction", asyncio.iscoroutinefunction)
    return decide_in_loop if is_async(get_response) else decide


django_middleware.sync_capable = django_middleware.async_capable = True


class _Decision:
    """The status of a request, the headers of its answer, and the body if it does not pass."""

    def __init__(self, status, policy=None, state=None, refusal=None, retry_after=None,
                 retry_after_ms=None):
        self.status, self.passes = status, status == 200
        self.headers = [("RateLimit-Policy", policy), ("RateLimit", state)] if policy else []
        if refusal:
            self.headers.append(("Twotier-Refusal", refusal))
        if self.passes:
            return
        if status == 503 and retry_after is None:
            retry_after, retry_after_ms = "1", 1000
        problem = {"title": http.HTTPStatus(status).phrase, "status": status,
                   "detail": _DETAILS[status]}
        if refusal:
            problem["id"] = refusal
        if retry_after is not None:
            self.headers.append(("Retry-After", retry_after))
            problem["retry_after_ms"] = retry_after_ms
        self.body = json.dumps(problem, separators=(",", ":")).encode()
        self.headers += [("Content-Type", "application/problem+json"),
                         ("Content-Length", str(len(self.body)))]


_gates = {}  # the limits of up to 1,000 middlewares by server, namespace and name


def _warn_of_sharing(url, ns, name, limits, rules):
    text = json.dumps([sorted(json.dumps(limit) for limit in limits), rules])
    of = url, ns or "default", name
    if len(_gates) < 1000:
        _gates.setdefault(of, text)
    if _gates.get(of, text) != text:
        warnings.warn("two limiters with different limits share their counts (namespace %s, %s): "
                      "give each a name" % (of[1], "name " + name if name else "no name"),
                      RuntimeWarning, 4)


class _Gate:
    """Decides about the requests of one middleware."""

    def __init__(self, limits=None, rules=None, ns=None, on_error=None, name=None, key=None,
                 trusted_proxies=(), n=1, dry_run=False, on_failure=None, threads=32, **asker):
        if not limits and not rules:
            raise ValueError("limits or rules are missing")
        if on_error not in ("allow", "deny"):
            raise ValueError('on_error is missing: "allow" lets requests pass while no server can '
                             'be reached, "deny" refuses them with 503')
        if not re.fullmatch("[A-Za-z0-9._-]{0,64}", name or ""):
            raise ValueError('name: %s is not up to 64 letters, digits, ".", "-" and "_"' % name)
        rules = [rules] if isinstance(rules, str) else rules
        self._op = _check(limits=limits, ns=ns, rules=rules)
        self._prefix = name + ":" if name else ""
        _warn_of_sharing(asker.get("url"), ns, name, self._op.get("limits", []), rules)
        self._unreachable = 200 if on_error == "allow" else 503
        self._key, self._n, self._dry_run, self._on_failure = key, n, dry_run, on_failure
        self._trusted = [ipaddress.ip_network(text, strict=False) for text in trusted_proxies]
        self._asker = _Asker(**asker)
        self._threads, self._pools = threads, {}

    def decide(self, request, peer, forwarded):
        """Decides about a request, and waits for that."""
        op, deadline = self._prepare(request, peer, forwarded), self._asker.deadline()
        return self._finish(op, self._asker.ask(op, deadline)) if op else _Decision(200)

    async def decide_in_loop(self, request, peer, forwarded):
        """Decides about a request in a thread."""
        op, deadline = self._prepare(request, peer, forwarded), self._asker.deadline()
        if not op:
            return _Decision(200)
        pid = os.getpid()  # the threads are not in a forked process
        if pid not in self._pools:
            self._pools = {pid: concurrent.futures.ThreadPoolExecutor(
                self._threads, "twotier")}
        answer = await asyncio.get_running_loop().run_in_executor(
            self._pools[pid], self._asker.ask, op, deadline)
        return self._finish(op, answer)

    def _prepare(self, request, peer, forwarded):
        """Returns the operation about a request, or None if it is not limited."""
        key = self._key(request) if self._key else address_key(peer, forwarded, self._trusted)
        n = self._n(request) if callable(self._n) else self._n
        return None if key is None else dict(self._op, key=safe_key(self._prefix + str(key)), n=n)

    def _finish(self, op, answer):
        error, unreachable, fields = answer
        if error is not None and self._on_failure:
            self._on_failure(error, op["key"])
        if unreachable:
            fields = {"status": self._unreachable}
        return _Decision(**dict(fields, status=200) if self._dry_run else fields)


class _Asker:
    """Asks a server for decisions, and tells an overloaded one from one that can't be reached."""

    def __init__(self, url="127.0.0.1:8080", token=None, ssl_context=None, wait=0.25):
        self._url = urllib.parse.urlsplit(url if "://" in url else "http://" + url)
        self._ssl, self._wait = ssl_context, wait
        self._headers = {"Content-Type": "application/json",
                         "Twotier-Timeout": str(round(wait * 1000))}
        if token:
            self._headers["Authorization"] = "Bearer " + token
        self._pid, self._idle = os.getpid(), []  # connections, and when they were used last
        self._answers = False  # the server has answered since it last was unreachable
        self._asked = None  # the time of the oldest request without an answer

    def deadline(self):
        """Returns when a decision that is asked for now is late."""
        return time.monotonic() + self._wait

    def ask(self, op, deadline):
        """Returns the error if there is no decision, whether no server can be reached, and the
        arguments of a decision otherwise."""
        if self._asked is None:
            self._asked = deadline - self._wait
        try:
            answer = self._send(json.dumps(op), deadline)
        except OSError as err:
            late = isinstance(err, TimeoutError)  # a socket's, too, which was a class until 3.10
            if not late and "timed out" not in str(err):
                self._answers = False
            if self._answers and time.monotonic() - self._asked < _MOST_SILENT:
                return err, False, {"status": 429, "retry_after": "1", "retry_after_ms": 1000}
            return err, True, None
        except http.client.HTTPException as err:
            self._answers = False
            return err, True, None
        unreachable = answer[0] >= 500 and not _ours(answer[2])  # it is a proxy's
        self._answers = not unreachable
        if not unreachable:
            self._asked = None
        return _read(*answer, unreachable)

    def _send(self, body, deadline):
        """Returns the status, the response for its headers, and the body of an answer."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no decision in time")
            connection, used = self._take()
            connection, whole = connection or self._connect(left), False
            try:
                connection.sock.settimeout(left)
                connection.request("POST", "/v1/acquire?deny=429", body, self._headers)
                response = connection.getresponse()
                text, whole = response.read(), True
            except ConnectionError:
                if used:  # the server has closed an idle connection, hardly after it has counted
                    continue
                raise
            finally:
                if not whole:
                    connection.close()
            if connection.sock is not None:
                self._idle.append((connection, time.monotonic()))
            try:
                answer = json.loads(text)
            except ValueError:
                answer = None
            return response.status, response, answer if isinstance(answer, dict) else {}

    def _take(self):
        """Returns an idle connection, or None, and whether it was used before."""
        if self._pid != os.getpid():
            self._idle, self._pid = [], os.getpid()  # the parent uses the inherited ones
        while True:
            try:
                connection, used = self._idle.pop()
            except IndexError:
                return None, False
            if time.monotonic() - used < _MOST_IDLE:
                return connection, True
            connection.close()

    def _connect(self, timeout):
        more = {"context": self._ssl} if self._url.scheme == "https" else {}
        kind = http.client.HTTPSConnection if more else http.client.HTTPConnection
        connection = kind(self._url.netloc, timeout=timeout, **more)
        connection.connect()
        return connection


def _read(status, response, body, unreachable):
    """Returns what the server's answer means: an error, if there is one, whether no server can be
    reached, and the arguments of a decision."""
    if isinstance(body.get("allowed"), bool):
        return None, False, {
            "status": status, "policy": response.getheader("RateLimit-Policy"),
            "state": response.getheader("RateLimit"), "refusal": body.get("id"),
            "retry_after": response.getheader("Retry-After"),
            "retry_after_ms": max(1, body.get("retry_after_ms", 0))}
    error = TwotierError(body.get("detail") or body.get("title")
                         or "status %d without a problem; is that twotier?" % status, status)
    if unreachable:
        return error, True, None
    if status < 500 and status not in (408, 429):
        return error, False, {"status": 500}
    wait = min(body.get("retry_after_ms") or 1000, _MOST_RETRY * 1000)
    return error, False, {"status": 429 if status == 429 else 503, "retry_after_ms": wait,
                          "retry_after": str(-(-wait // 1000))}


def address_key(peer, forwarded, trusted):
    """Returns the key of a sender: its IPv4 address, or the /64 network of its IPv6 address.
    forwarded, the values of X-Forwarded-For, are read from the right, while addresses are in the
    trusted networks and well-formed. Without an address the key is "none"."""
    address = _address(peer)
    items = ",".join(forwarded).split(",")
    while address and items and any(address in network for network in trusted):
        item = items.pop().strip()
        following = _address(item.strip("[]")) or _without_port(item)
        if following is None:
            break
        address = following
    if address is None:
        return "none"
    if address.version == 6:
        address = _embedded(address)
    if address.version == 6:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)


def _address(text):
    """Returns an address without a zone, IPv4 if it is mapped to IPv6; None if it is none."""
    try:
        address = ipaddress.ip_address(text.split("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _without_port(text):
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    if not colon or not port.isdigit() or bare == host and ":" in host:
        return None
    return _address(bare)


def _embedded(address):
    """Returns the IPv4 address in an IPv6 address of NAT64, 6to4 or Teredo, or else the address."""
    number = int(address)
    if number >> 32 == 0x64ff9b << 64:
        return ipaddress.IPv4Address(number & 0xffffffff)
    if number >> 80 == 0x64ff9b0001 and address.packed[8] == 0:
        # RFC 8215: a prefix of 48, 56, 64 or 96 bits. Byte 8 is no part of the IPv4 address, and
        # only zeros follow it (RFC 6052, section 2.2).
        packed = address.packed[:8] + address.packed[9:]
        at = next(at for at in (6, 7, 8, 11) if not any(packed[at + 4:]))
        return ipaddress.IPv4Address(packed[at:at + 4])
    if number >> 112 == 0x2002:
        return ipaddress.IPv4Address(number >> 80 & 0xffffffff)
    if number >> 96 == 0x20010000:
        return ipaddress.IPv4Address(number & 0xffffffff ^ 0xffffffff)
    return address
