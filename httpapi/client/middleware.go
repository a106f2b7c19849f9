package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/clientaddr"
)

// Outage determines a [Gate]'s treatment of requests while no node can be reached. There is no
// default.
type Outage int

// The choices.
const (
	// FailOpen lets requests pass: the service stays up, without limits.
	FailOpen Outage = iota + 1
	// FailClosed refuses requests with 503: no limit is exceeded, but the service is down.
	FailClosed
)

// GateOptions configure a [Gate].
type GateOptions struct {
	// Client makes the decisions. Required.
	Client *Client
	// Limits and Rules are as in [AcquireRequest], for checks that have neither. At least one limit
	// or rule is required.
	Limits []Limit
	Rules  []string
	// Namespace is as in [AcquireRequest], for checks that have none and name no rules.
	Namespace string
	// Name is a part of every key: ann is counted as login:ann if it is "login". Gates whose
	// limits differ need different names (or namespaces), or else they share the counts of their
	// keys. It has 1 to 64 letters, digits, dots, hyphens and underscores. Default: none, and keys
	// are counted as they are.
	Name string
	// Outage is the treatment of requests while no node can be reached: [FailOpen] or [FailClosed].
	// It applies to nothing else: see [Gate]. Required.
	Outage Outage
	// Wait bounds how long a request waits for the decision. Default: 250 ms.
	Wait time.Duration
	// DryRun lets every request pass. Limits are decided, counted and shown in headers as usual.
	DryRun bool
	// OnError is called with a key, as it was sent, and the reason why there is no decision about
	// it. While the service is overloaded or can't be reached, it is called often and concurrently.
	// Default: none.
	OnError func(key string, err error)
}

// withDefaults returns o with its defaults filled in, or an error if it can't be used.
func (o GateOptions) withDefaults() (GateOptions, error) {
	switch {
	case o.Client == nil:
		return o, errors.New("client: GateOptions.Client is missing")
	case len(o.Limits) == 0 && len(o.Rules) == 0:
		return o, errors.New("client: GateOptions has neither Limits nor Rules")
	case o.Outage != FailOpen && o.Outage != FailClosed:
		return o,
			errors.New("client: GateOptions.Outage is not chosen, want FailOpen or FailClosed")
	case !isName(o.Name):
		return o, fmt.Errorf("client: GateOptions.Name is %q, want up to 64 letters, digits, "+
			"dots, hyphens and underscores", o.Name)
	case o.Wait < 0:
		return o, fmt.Errorf("client: GateOptions.Wait is %v, want more than 0", o.Wait)
	}
	if o.Wait == 0 {
		o.Wait = 250 * time.Millisecond
	}
	if o.OnError == nil {
		o.OnError = func(string, error) {}
	}
	return o, nil
}

// Gate limits the requests to your service by calling [Client.Acquire]. Make one with [NewGate] and
// share it.
//
// A request passes if the limits of its key allow it. Nothing that the sender controls makes it
// pass otherwise: a key that a server would refuse is sent as its [SafeKey], and a request whose
// sender leaves before the decision is not served. Every answer to a decision has the headers
// RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11, in which a limit is
// called limits[0] or, if there are several checks, checks[1].limits[0]. A limit of a rule has the
// rule's name in place of limits[0], followed by its window if the rule has several limits; rules
// in shadow are not shown. If the request does not pass, the answer is
//
//   - 429 with Retry-After if a limit refuses it, if the service is overloaded ([ErrOverloaded],
//     for example because memory is full), or if it does not decide within [GateOptions].Wait
//     although it can be reached;
//   - 500 if the service refuses the gate's request ([ErrInvalid], for example because a window is
//     too long): no request passes until the gate's options are right;
//   - 503 with Retry-After if a node answers that it can't decide now ([ErrUnavailable], for
//     example because Redis is slow to send the key's counts);
//   - determined by [GateOptions].Outage if no node can be reached: connections are refused, or
//     requests to all nodes stay unanswered for [Options].Timeout. A proxy in place of a node can't
//     reach one if it answers 5xx by itself.
//
// The body of such an answer is a problem of RFC 9457, see [Decision.Body].
//
// So overloading the service can't switch the limits off. A service that stops answering without
// closing its port, such as a machine that is cut off, refuses for Options.Timeout before
// [FailOpen] lets requests pass; one that is stopped or killed doesn't. Some of the requests
// without a decision may have been counted.
type Gate struct{ opt GateOptions }

// NewGate returns a gate, or an error if a required option is missing, including the choice of
// Outage. It logs a warning if a gate with other limits shares the counts of this one: to the
// Logger of the client or, if that has none, to slog.Default.
func NewGate(o GateOptions) (*Gate, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if gates.shares(&o) {
		o.Client.gateLog.Warn("two gates with different limits share their counts: give each "+
			"GateOptions a Name", "name", o.Name, "namespace", o.Namespace, "limits", o.Limits,
			"rules", o.Rules)
	}
	return &Gate{o}, nil
}

// Handler passes requests to next if the limits allow it. key returns the key to count a request
// under, and false if the request is not limited at all. An empty key is a key like any other:
// requests that lack the distinguishing value share one limit.
func (g *Gate) Handler(key func(*http.Request) (string, bool), next http.Handler) http.Handler {
	return g.HandlerOf(func(r *http.Request) []Check { return oneCheck(key(r)) }, next)
}

// HandlerOf is Handler for several checks in one decision: a request passes, and is counted, only
// if all limits of all its checks hold. Its checks may be a user, an address and a content. A
// request without checks is not limited.
func (g *Gate) HandlerOf(checks func(*http.Request) []Check, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := g.Decide(r.Context(), checks(r))
		d.SetHeaders(w.Header().Set)
		if d.Passes() {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", ProblemType)
		w.WriteHeader(d.Status)
		_, _ = w.Write(d.Body()) // it fails if the sender has left
	})
}

// Middleware is Handler in the form that routers take, such as Use of chi.
func (g *Gate) Middleware(
	key func(*http.Request) (string, bool),
) func(next http.Handler) http.Handler {
	return func(next http.Handler) http.Handler { return g.Handler(key, next) }
}

// FastHandler is Handler for fasthttp.
func (g *Gate) FastHandler(
	key func(*fasthttp.RequestCtx) (string, bool), next fasthttp.RequestHandler,
) fasthttp.RequestHandler {
	return g.FastHandlerOf(func(ctx *fasthttp.RequestCtx) []Check { return oneCheck(key(ctx)) },
		next)
}

// FastHandlerOf is HandlerOf for fasthttp.
func (g *Gate) FastHandlerOf(
	checks func(*fasthttp.RequestCtx) []Check, next fasthttp.RequestHandler,
) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		d := g.Decide(context.Background(), checks(ctx))
		d.SetHeaders(ctx.Response.Header.Set)
		if d.Passes() {
			next(ctx)
			return
		}
		ctx.SetStatusCode(d.Status)
		ctx.SetContentType(ProblemType)
		ctx.SetBody(d.Body())
	}
}

// oneCheck returns the checks of a request with this key, or none if it is not limited.
func oneCheck(key string, limited bool) []Check {
	if !limited {
		return nil
	}
	return []Check{{Key: key}}
}

// withGateDefaults returns checks that a server accepts, with the options' namespace, limits and
// rules where they have none.
func withGateDefaults(checks []Check, o *GateOptions) []Check {
	list := slices.Clone(checks)
	for i := range list {
		c := &list[i]
		if o.Name != "" {
			c.Key = o.Name + ":" + c.Key
		}
		c.Key = SafeKey(c.Key)
		if c.Namespace == "" && len(c.Rules) == 0 {
			c.Namespace = o.Namespace
		}
		if len(c.Limits) == 0 && len(c.Rules) == 0 {
			c.Limits, c.Rules = o.Limits, o.Rules
		}
	}
	return list
}

// ByAddress returns a key function for [Gate.Handler]: the address of the request's sender, IPv4 or
// the /64 network of IPv6, as the server's /v1/forward-auth counts it for key=ip. X-Forwarded-For
// is believed only if it comes from a trusted proxy, and only up to the first address, from the
// right, that is not one. Requests without an address, such as those of a Unix socket, share the
// key "none".
func ByAddress(trusted ...netip.Prefix) func(*http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) {
		peer, _ := netip.ParseAddrPort(r.RemoteAddr)
		return addressKey(peer.Addr(), r.Header["X-Forwarded-For"], trusted), true
	}
}

// FastByAddress is ByAddress for [Gate.FastHandler].
func FastByAddress(trusted ...netip.Prefix) func(*fasthttp.RequestCtx) (string, bool) {
	return func(ctx *fasthttp.RequestCtx) (string, bool) {
		var peer netip.AddrPort
		if tcp, ok := ctx.RemoteAddr().(*net.TCPAddr); ok {
			peer = tcp.AddrPort()
		}
		return addressKey(peer.Addr(), ctx.Request.Header.PeekAll("X-Forwarded-For"), trusted), true
	}
}

// addressKey returns the key of a sender behind trusted proxies.
func addressKey[T string | []byte](peer netip.Addr, forwarded []T, trusted []netip.Prefix) string {
	a, _ := clientaddr.Behind(clientaddr.Plain(peer), forwarded, func(a netip.Addr) bool {
		return clientaddr.Within(trusted, a)
	})
	return clientaddr.Key(a)
}

// maxGates bounds how many kinds of gates are compared.
const maxGates = 1000

// gates has the gates of this process.
var gates gateLimits

// gateLimits holds the limits of gates by what identifies their counts: servers, namespace, name.
type gateLimits struct {
	mu     sync.Mutex
	limits map[string]string
}

// shares reports whether a gate shares its counts with an earlier one that has other limits.
func (g *gateLimits) shares(o *GateOptions) bool {
	of := strings.Join(append(slices.Sorted(slices.Values(o.Client.opt.Addresses)),
		cmp.Or(o.Namespace, "default"), o.Name), "\n")
	var all []string
	for _, l := range o.Limits {
		all = append(all, fmt.Sprintf("%+v", l))
	}
	slices.Sort(all)
	limits := strings.Join(append(all, o.Rules...), "\n")
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.limits[of]
	if !ok && len(g.limits) < maxGates {
		if g.limits == nil {
			g.limits = map[string]string{}
		}
		g.limits[of] = limits
	}
	return ok && known != limits
}

// isName reports whether a text can be the name of a gate, or is empty.
func isName(text string) bool {
	return len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
		letter := r|0x20 >= 'a' && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}
