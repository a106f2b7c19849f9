package faulttest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/idle"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
)

// listener is one of the addresses that a node listens on.
type listener struct {
	flag string
	at   func(node *proctest.Process) string
	// ask makes a request over a new connection and returns an error unless it is served.
	ask func(c *caller) error
	// tokens is set if clients present tokens. Elsewhere only the cluster's secret counts.
	tokens bool
	// halved is set if one address may have half of the listener, so that a crowd at one address
	// keeps no other address out.
	halved bool
	// unread, unfinished and silent return the data that the connections of a crowd send: each
	// sends one of the texts.
	unread, unfinished, silent texts
}

// texts returns the data that connections send with a token, or as strangers if the secret is
// empty.
type texts func(secret string) []string

var listeners = []listener{
	{"listen", func(p *proctest.Process) string { return p.Listen }, (*caller).acquire, true, true,
		listenUnread, listenUnfinished, httpSilent},
	{"resp", func(p *proctest.Process) string { return p.Resp }, (*caller).command, true, true,
		respUnread, respUnfinished, respSilent},
	{"grpc", func(p *proctest.Process) string { return p.GRPC }, (*caller).envoy, true, true,
		grpcUnread, grpcUnfinished, grpcSilent},
	{"admin", func(p *proctest.Process) string { return p.Admin }, (*caller).rules, true, false,
		adminUnread, adminUnfinished, httpSilent},
	{"peer", func(p *proctest.Process) string { return p.Peer }, (*caller).forward, false, false,
		peerUnread, peerUnfinished, nothing},
	{"gossip", func(p *proctest.Process) string { return p.Gossip }, (*caller).join, false, true,
		gossipUnread, gossipUnfinished, nothing},
}

// caller makes requests that must be served while a crowd is connected elsewhere.
type caller struct {
	*siege
	from string // its address
}

// http sends a request to an address.
func (c *caller) http(method, url, body string) (string, error) {
	client := proctest.NewClient()
	client.Transport = &http.Transport{DisableKeepAlives: true,
		DialContext: dialer(c.from).DialContext}
	res, text, err := proctest.Send(client, method, url, body, "Authorization", "Bearer "+c.secret)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return text, err
}

const acquireBody = `{"key":"user:%d","limits":[{"window":"1m","max":1000000}]}`

func (c *caller) acquire() error {
	_, err := c.http("POST", "http://"+c.node.Listen+"/v1/acquire", fmt.Sprintf(acquireBody, 1))
	return err
}

func (c *caller) rules() error {
	_, err := c.http("GET", "http://"+c.node.Admin+"/v1/rules", "")
	return err
}

func (c *caller) command() error {
	client := redis.NewClient(&redis.Options{Addr: c.node.Resp, Password: c.secret, MaxRetries: -1,
		DialTimeout: proctest.Patience, ReadTimeout: proctest.Patience,
		Dialer: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialer(c.from).DialContext(ctx, "tcp", address)
		}})
	defer client.Close()
	return client.Do(c.t.Context(), "TT.ACQUIRE", "k", "LIMIT", "1m", "1000000").Err()
}

func (c *caller) envoy() error {
	conn, err := grpc.NewClient("passthrough:///"+c.node.GRPC,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer(c.from).DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(c.t.Context(), "authorization", "Bearer "+c.secret)
	_, err = ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, decision(1, 1))
	return err
}

// join waits until the node and another one, which it starts if there is none, form a cluster.
func (c *caller) join() error {
	if c.other == nil {
		c.other = program.Serve(c.t, proctest.Options{}, c.args("--join", c.node.Gossip)...)
	}
	return c.eventually(func() error {
		text, err := c.http("GET", c.other.Base+"/v1/cluster", "")
		if err == nil && strings.Count(text, `"state":"alive"`) != 2 {
			err = fmt.Errorf("not two members: %s", text)
		}
		return err
	})
}

// forward waits until the node has decided about a key for which the other node was asked.
func (c *caller) forward() error {
	if err := c.join(); err != nil {
		return err
	}
	key := 0
	return c.eventually(func() error {
		key++
		text, err := c.http("POST", c.other.Base+"/v1/acquire", fmt.Sprintf(acquireBody, key))
		if err == nil && !strings.Contains(text, `"source":"owner"`) {
			err = fmt.Errorf("the owner has not decided: %s", text)
		}
		return err
	})
}

// eventually repeats a step that a cluster may need a moment for.
func (c *caller) eventually(try func() error) error {
	err := try()
	for end := time.Now().Add(proctest.Patience); err != nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		err = try()
	}
	return err
}

// dialer connects from a loopback address.
func dialer(from string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
}

// siege is a node that uses every possible listener, and a crowd.
type siege struct {
	t      *testing.T
	crowd  crowd
	redis  *redistest.Server
	tokens string // file of the tokens
	secret string // of a token that may do everything
	host   string // where nodes listen for each other
	node   *proctest.Process
	before int               // its descriptors before there was a crowd
	other  *proctest.Process // another node; nil until it has joined
}

// args returns the arguments of a node.
func (s *siege) args(more ...string) []string {
	return append([]string{"--redis", s.redis.URL(), "--tokens", s.tokens, "--gossip",
		s.host + ":0", "--peer", s.host + ":0", "--cluster-secret", "a secret of the nodes"},
		more...)
}

// fewDescriptors runs a command with fewer file descriptors than a crowd has connections.
var fewDescriptors = []string{"sh", "-c", `ulimit -n 1024; exec "$@"`, "sh"}

func newSiege(t *testing.T, c crowd) *siege {
	t.Helper()
	tokens := newTokenFile(t)
	s := &siege{t: t, crowd: c, redis: redistest.Start(t), tokens: tokens.path,
		host: proctest.Host(), secret: tokens.add("all", twotier.AnyRole, "*")}
	var opt proctest.Options
	if c.does == "silent" {
		opt.Within = fewDescriptors
	}
	s.node = program.Serve(t, opt, s.args("--max-memory",
		fmt.Sprint(attackedMemory), "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin",
		"127.0.0.1:0")...)
	s.before = s.node.Descriptors()
	return s
}

// crowd is a kind of behavior of many connections at some listeners.
type crowd struct {
	at    []listener
	does  string
	sends func(l *listener) texts
	conns int // at each listener
	token bool
}

func (c crowd) name() string {
	where, who := "every", "strangers"
	if len(c.at) == 1 {
		where = c.at[0].flag
	}
	if c.token {
		who = "clients"
	}
	return where + "/" + c.does + "/" + who
}

// isAt reports whether the crowd is at a listener.
func (c crowd) isAt(l listener) bool {
	return slices.ContainsFunc(c.at, func(at listener) bool { return at.flag == l.flag })
}

// crowdsAt returns a crowd of each kind at some listeners, of strangers or of clients with a token.
func crowdsAt(at []listener, token bool) []crowd {
	return []crowd{
		{at, "unread", func(l *listener) texts { return l.unread }, 200, token},
		{at, "unfinished", func(l *listener) texts { return l.unfinished }, 300, token},
		{at, "silent", func(l *listener) texts { return l.silent }, 1200 / len(at), token},
	}
}

// stopWithin is how long a node may take to stop by default, as documented in docs/operations.md.
const stopWithin = 50 * time.Second

// TestCrowdsAtEveryListener connects a crowd to all listeners at once, which reads no answers,
// finishes no requests, or is silent.
func TestCrowdsAtEveryListener(t *testing.T) {
	measuresMemory(t)
	for _, c := range crowdsAt(listeners, false) {
		t.Run(c.name(), func(t *testing.T) { t.Parallel(); c.besiege(t) })
	}
	t.Run("clients", func(t *testing.T) {
		takesLong(t)
		for _, c := range crowdsAt(listeners, true) {
			t.Run(c.name(), func(t *testing.T) { t.Parallel(); c.besiege(t) })
		}
	})
}

// TestCrowdAtOneListener is the same test for each listener, while the others must be served.
func TestCrowdAtOneListener(t *testing.T) {
	measuresMemory(t)
	takesLong(t)
	for i, l := range listeners {
		crowds := crowdsAt(listeners[i:i+1], false)
		if l.tokens {
			crowds = append(crowds, crowdsAt(listeners[i:i+1], true)...)
		}
		for _, c := range crowds {
			t.Run(c.name(), func(t *testing.T) { t.Parallel(); c.besiege(t) })
		}
	}
}

// besiege connects the crowd to a node, first from one address, and then also from another. The
// node stays within its memory, serves clients at other listeners and from other addresses, and
// stops in time while the crowd is connected.
func (c crowd) besiege(t *testing.T) {
	s := newSiege(t, c)
	first := s.gather("127.0.0.1")
	defer first.hangUp()
	s.serves("127.0.0.2", func(l listener) bool { return !c.isAt(l) || l.halved })
	second := s.gather("127.0.0.3")
	defer second.hangUp()
	s.serves("127.0.0.2", func(l listener) bool { return !c.isAt(l) })
	during := s.node.Memory()
	s.stops()
	most := int64(attackedMemory*13/10 + 64<<20)
	t.Logf("at the most %d MiB of %d MiB", during.Peak>>20, most>>20)
	if during.Peak > most && !race.Enabled {
		t.Errorf("%v resident, want at most %d MiB", during, most>>20)
	}
}

// gather connects the crowd from an address, and waits until the node holds some of the
// connections, or has answered the last one.
func (s *siege) gather(from string) *attacker {
	s.t.Helper()
	secret := ""
	if s.crowd.token {
		secret = s.secret
	}
	a := &attacker{t: s.t, node: s.node, from: from}
	for _, l := range s.crowd.at {
		a.to = l.at(s.node)
		list := s.crowd.sends(&l)(secret)
		for i := range s.crowd.conns {
			a.each(1, list[i%len(list)])
		}
	}
	proctest.Until(s.t, "the crowd is connected", func() bool {
		return s.node.Descriptors() > s.before+20 || idle.Closed(a.open[len(a.open)-1])
	})
	return a
}

// serves checks that callers at an address are served at some of the listeners. A caller asks again
// immediately, because a machine that stands still makes a request time out; it does not wait until
// the crowd is disconnected.
func (s *siege) serves(from string, at func(listener) bool) {
	s.t.Helper()
	for _, l := range listeners {
		if !at(l) {
			continue
		}
		for range 20 {
			err := l.ask(&caller{s, from})
			for again := 0; err != nil && again < 2; again++ {
				s.t.Logf("--%s: %v", l.flag, err)
				err = l.ask(&caller{s, from})
			}
			if err != nil {
				s.t.Fatalf("--%s: %v", l.flag, err)
			}
		}
	}
}

// stops checks that the node ends after SIGTERM, in time and with everything flushed.
func (s *siege) stops() {
	s.t.Helper()
	began := time.Now()
	s.node.Terminate()
	select {
	case <-s.node.Done():
	case <-time.After(stopWithin):
		s.t.Fatalf("still there after %v", stopWithin)
	}
	s.t.Logf("stopped after %v", time.Since(began).Round(10*time.Millisecond))
	if status := s.node.ExitCode(); status != 0 {
		s.t.Errorf("it ended with status %d", status)
	}
}

// TestEveryListenerHasACrowd looks for flags of listeners in the help.
func TestEveryListenerHasACrowd(t *testing.T) {
	help, err := exec.Command(program.Path(t), "serve", "--help").CombinedOutput()
	must.Succeed(t, err)
	known := map[string]bool{"advertise": true, "gossip-advertise": true} // these don't listen
	for _, l := range listeners {
		known[l.flag] = true
	}
	flags := regexp.MustCompile(`(?m)^  --(\S+) HOST:PORT\s`).FindAllSubmatch(help, -1)
	if len(flags) != len(known) {
		t.Errorf("%d flags have addresses, want %d", len(flags), len(known))
	}
	for _, flag := range flags {
		if !known[string(flag[1])] {
			t.Errorf("--%s has no crowd", flag[1])
		}
	}
}
