package simtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/listener"
	nodemodes "twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/rulebook"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// proc is one process of the cluster.
type proc struct {
	w       *world
	id, ip  string
	host    *simnet.Host
	takes   *lag // delays on its connection to Redis
	store   *faultstore.Store
	ladder  *leaparray.Ladder
	clock   *storeclock.Clock
	counter *syncer.Counter
	ring    *ring.Ring
	roster  *roster.Roster
	client  *peer.Client
	node    *node.Node
	http    *httpapi.Server
	holds   *ask.Holds // nil unless clients hold
	book    rules.Book
	rules   *rulebook.Keeper
	version atomic.Int64 // of the rules, the newest that it has judged by
	dead    atomic.Bool  // its answers don't arrive
	leaving atomic.Bool
	asleep  atomic.Bool  // suspended
	ahead   atomic.Int64 // error of the time that it reads from Redis
	step    atomic.Int64 // by how much its host's clock was set
	ended   atomic.Int64 // when it ended, in unix nanoseconds
	left    atomic.Int64 // when it began to leave
	clean   atomic.Bool  // it left, and handed over or flushed all that it had
	stuck   atomic.Bool  // when it left, there was something that it could not hand over
}

// wire carries messages over the simulated network.
type wire struct {
	h     *simnet.Host
	meter *meter
}

func (w wire) Send(ctx context.Context, address string, message []byte) ([]byte, error) {
	reply, err := w.h.Call(ctx, address[:len(address)-len(":8080")], message)
	w.meter.add(questionIn(ctx), 2, len(message)+len(reply))
	if errors.Is(err, simnet.ErrRefused) {
		err = fmt.Errorf("%w: %w", rpc.ErrUnreachable, err)
	}
	return reply, err
}

// hosts is the number of hosts, with or without a process.
const hosts = 8

// addresses returns the addresses that processes join at: those of all hosts, or the first one's.
// In the second case only the list in Redis lets a process at the first host find the others.
func (w *world) addresses() (list []string) {
	if w.plan.oneSeed {
		return []string{ip(1) + ":7946"}
	}
	for i := range max(hosts, w.plan.nodes) {
		list = append(list, ip(i+1)+":7946")
	}
	return list
}

const secret = "what all nodes share"

// silent is the logger of processes whose lines are of no interest.
var silent = slog.New(slog.DiscardHandler)

// placements caches the placements of all schedules: there are few members and partitions, so most
// placements repeat.
var placements ring.Placements

// start starts a process on the host with this number.
func (w *world) start(i int) (*proc, error) { return w.startAs(i, fmt.Sprint("n", i)) }

// startAs starts a process under any ID.
func (w *world) startAs(i int, id string) (*proc, error) {
	born := uint64(w.born.Add(1))
	rnd := rand.New(rand.NewPCG(w.seed, 1000+born))
	p := &proc{w: w, id: id, ip: ip(i), takes: newLag(rnd.Uint64(), w.plan.takes)}
	name := fmt.Sprintf("%s.%d", p.id, born)
	p.host = w.net.Start(p.ip)
	faults := faultstore.Random(w.seed+born, w.plan.mix)
	p.store = faultstore.New(faultstore.Options{
		Store: noted{w.redis, w}, Report: w.t.Errorf, Adopts: true, Wait: p.toRedis,
		Decide: func(r *syncer.Round) faultstore.Fault {
			if w.healed.Load() {
				return faultstore.None
			}
			return faults(r)
		},
	})
	skew := time.Duration(rnd.Int64N(int64(w.plan.skew)+1)) - w.plan.skew/2
	p.clock = storeclock.New(func() time.Time {
		return time.Now().Add(skew + time.Duration(p.step.Load()))
	}, nil)
	p.ladder = w.ladders[rnd.IntN(len(w.ladders))]
	place := w.placement()
	pulse := elapsed.NewPulse(p.readClock, p.clock.Now)
	var err error
	p.counter, err = syncer.New(syncer.Options{
		Store: metered{p.store, w.meter}, Now: p.clock.Now, Placement: place, Writer: name,
		NotOwner:      true,
		Exchanges:     w.plan.lanes,
		FlushInterval: w.plan.interval, VerifyInterval: cmp.Or(w.plan.verify, time.Second),
		MaxLag: w.plan.lag, Pulse: pulse,
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {Ladder: p.ladder,
			OnCold: syncer.OnColdDeny}},
	})
	if err != nil {
		return nil, err
	}
	p.ring, err = ring.New(ring.Options{
		ID: p.id, Name: name, Bind: p.host.Address(), Join: w.addresses(),
		Agreement: ring.Agreement{Partitions: place.Partitions, Seed: place.Seed},
		Secret:    []byte(secret), Tag: nodemodes.Tag(nodemodes.TwoTier),
		OnChange: func(t *ring.Table) {
			w.sight.see(p, t)
			p.node.FollowTable(t)
		}, Transport: p.host.Transport(),
		Placements: &placements, Logger: w.logger(p.id),
		Listed: func() []string { return p.roster.Unmet() },
	})
	if err != nil {
		return nil, err
	}
	w.sight.add(p)
	p.roster = p.newRoster()
	p.client, err = peer.NewClient(peer.ClientOptions{Self: name, Secret: []byte(secret),
		Transport: wire{p.host, w.meter}, Logger: w.logger(p.id)})
	if err != nil {
		return nil, err
	}
	p.node, err = node.New(node.Options{
		ID: p.id, Counter: p.counter, Direct: &direct{p: p, now: p.clock.Now,
			writer: "d" + name}, Ring: p.ring, Peers: asking{p.client},
		Store: redisSeen{p}, Clock: p.clock, Placement: place, HotRate: w.plan.hotRate,
		Refusals: 256, Roster: p.roster, Pulse: pulse,
		Logger: w.logger(p.id),
	})
	if err != nil {
		return nil, err
	}
	if err := p.listen(); err != nil {
		return nil, err
	}
	server := peer.NewServer(peer.ServerOptions{Self: name, Secret: []byte(secret), Node: p.node})
	p.host.Serve(func(request []byte) []byte {
		reply, err := server.Handle(context.Background(), request)
		if err != nil {
			return nil
		}
		return reply
	})
	w.mu.Lock()
	w.all = append(w.all, p) // others may hand counts over to it while it opens
	w.mu.Unlock()
	if err := p.node.Open(context.Background(), p.ip+":8080"); err != nil {
		return nil, p.refused(err)
	}
	if p.holds != nil {
		p.holds.Open(p.releaser(), deadlines{p}, 0, cmp.Or(w.logger(p.id), silent))
	}
	w.mu.Lock()
	w.procs[i] = p
	w.mu.Unlock()
	return p, nil
}

// listen makes the process serve HTTP.
func (p *proc) listen() (err error) {
	opt := httpapi.Options{Service: p.node, Listen: p.ip + ":8080",
		Limits: listener.Limits{MaxMemory: 8 << 20}}
	if p.w.plan.holds {
		p.holds = p.makesHolds()
		opt.Holds = p.holds
	}
	if p.w.plan.rules {
		p.rules = rulebook.New(rulebook.Options{Store: store{p, &p.w.rules}, Book: &p.book,
			Check:   func(*rules.Document) error { return nil },
			Timeout: time.Second, Logger: cmp.Or(p.w.logger(p.id), silent)})
		p.rules.Open(context.Background())
		opt.Rules, opt.RuleBook, opt.AdminToken = &p.book, p.rules, adminToken
	}
	p.http, err = httpapi.New(opt)
	if err != nil {
		return err
	}
	return p.http.OpenOn(context.Background(), p.host.Listen())
}

// refused ends a process that failed to open.
func (p *proc) refused(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, p.http.Close(ctx), p.node.Close(ctx), p.client.Close(ctx))
	p.closeRules()
	p.ends()
	p.host.Stop()
	return err
}

// ends records that the process is dead.
func (p *proc) ends() {
	p.ended.Store(time.Now().UnixNano())
	p.dead.Store(true)
}

// leave stops a process the way SIGTERM does.
func (p *proc) leave() error {
	p.left.Store(time.Now().UnixNano())
	p.leaving.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := p.node.Drain(ctx)
	p.stuck.Store(p.node.Stats().Held > 0)
	p.gone()
	// Requests that have begun are finished before the node closes.
	for p.w.busy(p) {
		time.Sleep(time.Millisecond)
	}
	// Changes that the store refused are retried when their turn comes in the flush interval.
	flush, cancel := context.WithTimeout(context.Background(), 10*time.Second+p.w.plan.interval)
	defer cancel()
	err = errors.Join(err, p.http.Close(flush))
	p.closeHolds()
	err = errors.Join(err, p.node.Close(flush), p.client.Close(flush))
	p.closeRules()
	p.clean.Store(err == nil)
	p.ends()
	if err != nil || p.w.plan.kind.loses() {
		p.w.writeOffValues()
	}
	p.host.Stop()
	return err
}

// kill ends a process abruptly: nothing it sends arrives any more, and its unflushed counts are
// lost.
func (p *proc) kill() {
	p.w.groups.excuse(p)
	p.gone()
	p.ends()
	p.store.SetDown(true)
	p.host.Stop()
	p.counter.EachUnflushed(p.w.writeOff)
	p.w.writeOffValues()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.http.Close(ctx)
	_ = p.node.Close(ctx)
	_ = p.client.Close(ctx)
	p.closeHolds()
	p.closeRules()
}

// closeRules stops reading the rules, if the process does so.
func (p *proc) closeRules() {
	if p.rules != nil {
		p.rules.Close()
	}
}

// gone removes a process from the ones that clients ask.
func (p *proc) gone() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for i, o := range p.w.procs {
		if o == p {
			delete(p.w.procs, i)
		}
	}
}
