package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/reload"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/rulebook"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/internal/version"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/internal/zones"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// server holds the parts of one running server, in the order in which they are opened.
type server struct {
	cfg       config.Config
	log       *slog.Logger
	clock     *storeclock.Clock
	store     stores
	ring      *ring.Ring          // nil without a cluster
	peers     *peer.Client        // nil without a cluster
	transport *peerhttp.Transport // nil without a cluster
	messages  httpapi.Peer        // nil without a cluster
	roster    *roster.Roster      // nil without Redis
	rules     *rulebook.Keeper
	book      rules.Book // the rules in force
	node      *node.Node
	http      *httpapi.Server
	limits    listener.Limits // of http, and with fewer connections of the other doors
	limiter   *envoy.Limiter
	history   *verdicts.History
	warnings  *warning.Log
	doors     []door // servers of all protocols, http first
	outputs   []outlet
	sinks     []decisions.Sink // the outputs that receive decisions
	tracer    trace.Tracer     // nil if no spans are sent
	files     *reload.Loader   // reloads files that change
	certs     *certs.Store     // nil without TLS
	tokens    ask.Tokens       // nil without a file of tokens
	holds     ask.Holds
	zonesMu   sync.Mutex     // held while the warnings about time zones are replaced
	agreeing  sync.WaitGroup // runAgree
	disagree  context.CancelFunc
	outdated  chan error // receives one error, if the server must be started again
}

// newServer makes the parts of a server: first the parts that stand alone, then the node, and last
// the servers of clients, which ask the node. story is nil except in a demo.
func newServer(ctx context.Context, cfg config.Config, story httpapi.Story,
	log *slog.Logger, stdout io.Writer) (s *server, err error) {
	s = &server{cfg: cfg, log: log, clock: storeclock.New(nil, nil),
		warnings: warning.NewLog(log, time.Now), disagree: func() {}, outdated: make(chan error, 1)}
	s.files = reload.New(log, func(l []warning.Warning) { s.warnings.Show(warning.Files, l) })
	if err := cmp.Or(s.addTokens(), s.addTLS()); err != nil {
		return nil, err
	}
	if s.limits, err = newLimits(cfg, s.certs, log); err != nil {
		return nil, err
	}
	if s.store, err = openStores(ctx, cfg, s.clock, log); err != nil {
		return nil, err
	}
	s.holds.Now, s.holds.Tally.Now = s.clock.Now, s.clock.Now
	if s.store.redis == nil {
		s.holds.Sealer.SetSecret([]byte(rand.Text()))
	}
	s.book.Shadow = cfg.InShadow()
	if err := cmp.Or(s.addRules(), s.joinCluster(), s.addDecisions(stdout), s.addNotifier(),
		s.addSpans(ctx)); err != nil {
		return nil, err
	}
	s.addRoster()
	s.warnings.Replace(warning.Settings, lint.Settings(&s.cfg))
	if err := s.addNode(); err != nil {
		return nil, err
	}
	if err := cmp.Or(s.addPeers(), s.addResp(), s.addEnvoy()); err != nil {
		return nil, err
	}
	return s, s.addHTTP(story)
}

func (s *server) addNode() (err error) {
	opt := node.Options{
		ID: s.cfg.Node, Address: s.cfg.Listen, Mode: cluster.Mode(s.cfg.Mode),
		Store: s.store, Clock: s.clock, Placement: s.store.place, Ring: s.ring,
		HotRate: float64(s.cfg.HotRate), Asleep: elapsed.Asleep, Ack: ackOf(s.cfg.Store),
		Rules: s.rulesInForce, Version: version.String(),
		Sinks: append(s.sinks, coarseWindows{s.warnings}), Logger: s.log,
	}
	// A nil pointer in an interface would not be nil.
	if s.store.direct != nil {
		opt.Direct = s.store.direct
	}
	if s.roster != nil {
		opt.Roster = s.roster
	}
	if s.ring != nil {
		opt.Peers, opt.Pulse = s.peers, elapsed.NewPulse(nil, s.clock.Now)
	}
	if opt.Counter, err = newCounter(s.cfg, s.store, s.clock, opt.Pulse, s.log); err != nil {
		return err
	}
	if s.node, err = node.New(opt); err == nil {
		s.history = verdicts.NewHistory(s.node.Verdicts(), s.node, s.clock.Now)
	}
	return err
}

// addHTTP makes the HTTP API, which reports the metrics of all parts. story is nil except in a
// demo.
func (s *server) addHTTP(story httpapi.Story) (err error) {
	collectors := append(s.node.Collectors(), &s.holds.Tally, s.warnings)
	for _, o := range s.outputs {
		collectors = append(collectors, o.queue)
	}
	for _, d := range s.doors {
		collectors = append(collectors, d.collector)
	}
	s.http, err = httpapi.New(httpapi.Options{
		Service: s.node, Backtester: s.node, Verdicts: s.node.Verdicts(), Peer: s.messages,
		Rules: &s.book, RuleBook: s.rules, Shadow: s.book.Shadow, Holds: &s.holds,
		RateLimiter: s.limiter, TrustedProxies: s.cfg.TrustedProxies,
		Tracer: s.tracer, Warnings: s.warnings, Collectors: collectors, Story: story,
		Listen: s.cfg.Listen, Admin: s.cfg.Admin, PeerListen: s.cfg.Peer,
		Hosts: s.cfg.AllHosts(), Tokens: s.tokens, AdminToken: s.cfg.AdminToken, Limits: s.limits,
	})
	s.doors = slices.Insert(s.doors, 0, door{flag: "listen", server: s.http})
	return err
}

// joinCluster makes the parts that a node of a cluster needs, if this is one.
func (s *server) joinCluster() (err error) {
	if s.cfg.Gossip == "" {
		return nil
	}
	s.ring, err = ring.New(ring.Options{
		ID: s.cfg.Node, Bind: s.cfg.Gossip, Advertise: s.cfg.GossipAdvertise, Join: s.cfg.Join,
		Secret: []byte(s.cfg.ClusterSecret),
		Agreement: ring.Agreement{Partitions: s.store.place.Partitions, Seed: s.store.place.Seed,
			Data: dataDigest(s.store.place, s.cfg.RedisPrefix)},
		Tag: modes.Tag(modes.Mode(s.cfg.Mode)), Zones: zones.Version(), Logger: s.log,
		Listed: func() []string { return s.roster.Unmet() },
		OnChange: func(t *ring.Table) {
			s.node.FollowTable(t)
			s.warnOfZones()
		},
	})
	if err != nil {
		return err
	}
	s.transport = peerhttp.New(func(size int) string { return s.peers.Pass(size) })
	if s.certs != nil {
		s.transport.TLS = s.certs.Client()
	}
	s.peers, err = peer.NewClient(peer.ClientOptions{
		Self: s.ring.Name(), Secret: []byte(s.cfg.ClusterSecret), Transport: s.transport,
		Timeout: s.cfg.RequestTimeout, Logger: s.log,
	})
	return err
}

// addPeers makes the part that receives messages of other nodes, if there is a cluster.
func (s *server) addPeers() error {
	if s.ring == nil {
		return nil
	}
	messages := peer.NewServer(peer.ServerOptions{
		Self: s.ring.Name(), Secret: []byte(s.cfg.ClusterSecret), Node: s.node,
		ReplyBytes: webMemory(s.cfg.Store) / 8, Tracer: s.tracer, Logger: s.log,
	})
	s.messages = messages
	return s.addSecrets(messages)
}

// ackOf returns the ack level of writes that name none.
func ackOf(cfg config.Store) twotier.Ack {
	return map[string]twotier.Ack{"redis": twotier.AckStore, "replica": twotier.AckReplica,
		"disk": twotier.AckDisk}[cfg.Ack]
}

// newCounter makes the counter. pulse is nil without a cluster.
func newCounter(cfg config.Config, st stores, clock *storeclock.Clock, pulse *elapsed.Pulse,
	log *slog.Logger) (*syncer.Counter, error) {
	spaces := map[string]syncer.Namespace{}
	for name, ns := range cfg.Namespaces {
		onCold := syncer.OnCold(ns.OnCold)
		if cfg.Shadow || ns.Shadow {
			onCold = syncer.OnColdAllow
		}
		spaces[name] = syncer.Namespace{Ladder: st.ladders[name], OnCold: onCold,
			MaxKeys: int64(ns.MaxKeys), MostValues: ns.ExactValues}
	}
	spaces[request.Verdicts] = syncer.Namespace{Ladder: st.ladders[config.DefaultNamespace],
		Unlisted: true}
	opt := syncer.Options{
		Store: st.store, Now: clock.Now, Namespaces: spaces, Ack: ackOf(cfg.Store),
		FlushInterval: cfg.FlushInterval, MaxLag: cfg.MaxLag,
		Placement: st.place, RoundTimeout: cfg.RedisTimeout, MaxMemory: counterMemory(cfg.Store),
		NotOwner: cfg.Gossip != "" || cfg.Mode == string(cluster.Redis), Logger: log,
	}
	if pulse != nil { // a nil pointer in an interface would not be nil
		opt.Pulse = pulse
	}
	return syncer.New(opt)
}

// open listens before it joins a cluster: as soon as it has joined, other nodes forward requests to
// it.
func (s *server) open(ctx context.Context) error {
	for _, o := range s.outputs {
		o.queue.Open()
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	s.openHolds() // before the first request
	if err := s.openDoors(ctx); err != nil {
		return err
	}
	s.files.Open()
	if err := s.publishPeerAddress(); err != nil {
		return err
	}
	address := cmp.Or(s.cfg.Advertise, s.http.Addr().String())
	if err := explainTaken(s.node.Open(ctx, address), "gossip", s.cfg.Gossip); err != nil {
		return err
	}
	if s.ring != nil {
		s.warnOfZones() // about the table with which the node has joined
	}
	s.rules.Join(ctx) // idempotent: its rules are stored once
	s.history.Open()
	s.startAgreement()
	return nil
}

// openStore opens the store and reads the rules. A node of a cluster stores no rules before it has
// joined; a node without a cluster does so at once.
func (s *server) openStore(ctx context.Context) error {
	if err := s.store.open(ctx); err != nil {
		return err
	}
	s.rules.Open(ctx)
	if s.ring == nil {
		s.rules.Join(ctx)
	}
	return nil
}

// publishPeerAddress announces the address at which this node receives messages of other nodes.
func (s *server) publishPeerAddress() error {
	if s.ring == nil {
		return nil
	}
	address := ""
	if s.cfg.Peer != "" {
		address = s.http.PeerAddr().String()
	}
	return s.ring.SetPeerAddress(address, s.certs != nil)
}

// explainTaken returns a clearer error if the address is in use, that of a [listener.Error] or the
// given one. This is the most common mistake, and often another twotier has the address.
func explainTaken(err error, flag, address string) error {
	// memberlist passes on only the text of an error.
	if err == nil || !errors.Is(err, syscall.EADDRINUSE) &&
		!strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		return err
	}
	if at, ok := errors.AsType[*listener.Error](err); ok {
		flag, address = at.Flag, at.Address
	}
	return fmt.Errorf("--%s: %s %w", flag, address, errTaken)
}

// errTaken follows the address of a listener that another process has.
var errTaken = errors.New("is taken by another process; name another address, or port 0 " +
	"for any that is free")

// linger makes the node report that it is not ready, and serves as before for --drain-delay.
func (s *server) linger() {
	s.node.MarkNotReady()
	if s.cfg.DrainDelay == 0 {
		return
	}
	s.log.Info("not ready any more, but serving until load balancers have noticed", "for",
		s.cfg.DrainDelay)
	time.Sleep(s.cfg.DrainDelay)
}

// close hands off the partitions of this node and flushes the rest, and still answers reads
// meanwhile. Then it stops accepting requests, finishes requests in flight, and only then closes
// the store.
func (s *server) close() error {
	drainCtx, cancel := context.WithTimeout(context.Background(), handoffTimeout)
	defer cancel()
	err := s.node.Drain(drainCtx)
	s.history.Close() // it can't count here once the node flushes
	flush, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	err = errors.Join(err, s.node.Flush(flush))
	finish, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	err = errors.Join(err, s.closeDoors(finish))
	s.holds.Close()
	s.history.Record() // decisions made meanwhile by other nodes, which also count them
	leave, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	return errors.Join(err, s.closeParts(leave, flush))
}

// closeParts closes all parts behind the listeners. Patient outputs have until flush ends.
func (s *server) closeParts(ctx, flush context.Context) error {
	err := s.node.Close(ctx)
	if s.peers != nil {
		err = errors.Join(err, s.peers.Close(ctx))
		s.transport.Close()
	}
	s.files.Close()
	s.disagree()
	s.rules.Close()
	s.closeOutputs(flush)
	return errors.Join(err, s.store.close(ctx))
}
