package simnet

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Errors of calls and dials.
var (
	// ErrRefused reports that nothing listens at the address: the message was not delivered.
	ErrRefused = errors.New("simnet: connection refused")
)

// Weather defines how a network treats messages.
type Weather struct {
	// Delay is the least time that a message takes, and Jitter the most that is added to it.
	Delay, Jitter time.Duration
	// PacketLoss is the share of packets that are lost, in thousandths, and CallLoss the share of
	// lost requests and replies of calls.
	PacketLoss, CallLoss int
	// Broken is the share of writes that break a connection of [Host.Dial], in thousandths. Half of
	// these arrive first.
	Broken int
}

// link is one direction between two hosts.
type link struct{ from, to string }

// Net is a network. Make one with [New].
type Net struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	weather Weather
	hosts   map[string]*Host
	cuts    map[link]Kinds
	slow    map[link]time.Duration
	frozen  map[string]chan struct{} // closed when the host wakes
	observe func(Sent)               // nil unless Observe was called
}

// Kinds is a set of kinds of traffic.
type Kinds uint8

// The kinds of traffic that a cut can stop.
const (
	Gossip Kinds = 1 << iota
	Calls
	All = Gossip | Calls
)

// New returns a network without hosts.
func New(seed uint64, w Weather) *Net {
	return &Net{
		rnd: rand.New(rand.NewPCG(seed, 0x5e7)), weather: w, hosts: map[string]*Host{},
		cuts: map[link]Kinds{},
		slow: map[link]time.Duration{}, frozen: map[string]chan struct{}{},
	}
}

// Stop ends the processes on all hosts.
func (n *Net) Stop() {
	n.mu.Lock()
	hosts := slices.Collect(maps.Values(n.hosts))
	n.mu.Unlock()
	for _, h := range hosts {
		h.Stop()
	}
}

// SetWeather changes the weather for messages that are sent from now on.
func (n *Net) SetWeather(w Weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = w
}

// Cut stops traffic of these kinds from one host to another, in that direction only.
func (n *Net) Cut(from, to string, k Kinds) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[link{from, to}] |= k
}

// Split cuts all traffic between hosts of different groups, in both directions.
func (n *Net) Split(groups ...[]string) {
	for i, a := range groups {
		for j, b := range groups {
			if i == j {
				continue
			}
			for _, from := range a {
				for _, to := range b {
					n.Cut(from, to, All)
				}
			}
		}
	}
}

// Slow adds d to the time that requests and replies of calls take from one host to another, in that
// direction only. Messages that are already on their way are not delayed.
func (n *Net) Slow(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[link{from, to}] = d
}

// Heal undoes all calls of Cut, Split and Slow.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
	clear(n.slow)
}

// passes decides whether a message gets through, and how long it takes.
func (n *Net) passes(from, to string, k Kinds, loss int) (time.Duration, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cuts[link{from, to}]&k != 0 || loss > 0 && n.rnd.IntN(1000) < loss {
		return 0, false
	}
	d := n.weather.Delay
	if n.weather.Jitter > 0 {
		d += time.Duration(n.rnd.Int64N(int64(n.weather.Jitter)))
	}
	if k == Calls {
		d += n.slow[link{from, to}]
	}
	return d, true
}

func (n *Net) losses() (packets, calls int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.weather.PacketLoss, n.weather.CallLoss
}

// breaks decides whether a write breaks its connection, and whether it arrives before that.
func (n *Net) breaks() (breaks, arrives bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.weather.Broken == 0 || n.rnd.IntN(1000) >= n.weather.Broken {
		return false, true
	}
	return true, n.rnd.IntN(2) == 0
}

func (n *Net) host(ip string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hosts[ip]
}

// Sent describes a transmission.
type Sent struct {
	Kind Kinds
	// Stream distinguishes the streams of gossip from its packets.
	Stream bool
	// Messages is the number of packets, of opened streams, or of requests and replies; 0 for data
	// on an open stream. Bytes is the size of the payload.
	Messages, Bytes int
}

// Observe calls fn with all gossip and all calls that are sent from now on, including the ones that
// get lost. fn may be called concurrently. Connections of [Host.Dial] are not observed.
func (n *Net) Observe(fn func(Sent)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observe = fn
}

func (n *Net) sent(s Sent) {
	n.mu.Lock()
	observe := n.observe
	n.mu.Unlock()
	if observe != nil {
		observe(s)
	}
}

// Freeze suspends the host: until Thaw it sends and receives nothing. Packets to it are lost. Calls
// to it and from it, and all other waits in [Net.Awake], continue after Thaw. Code on the host that
// doesn't use the network keeps running.
func (n *Net) Freeze(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen[ip] == nil {
		n.frozen[ip] = make(chan struct{})
	}
}

// Thaw resumes a frozen host.
func (n *Net) Thaw(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if waking := n.frozen[ip]; waking != nil {
		close(waking)
		delete(n.frozen, ip)
	}
}

// Awake waits until the host is not frozen, or ctx is done.
func (n *Net) Awake(ctx context.Context, ip string) error {
	n.mu.Lock()
	waking := n.frozen[ip]
	n.mu.Unlock()
	if waking == nil {
		return nil
	}
	select {
	case <-waking:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Net) isFrozen(ip string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.frozen[ip] != nil
}

// worker is a goroutine that does one task after the other for a host. Idle workers are kept,
// because most of the cost of a short call is growing the stack of its goroutine.
type worker chan func()

// do runs a task on an idle worker, or on a new one.
func (h *Host) do(something func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.idle); n > 0 {
		h.idle[n-1] <- something
		h.idle = h.idle[:n-1]
		return
	}
	w := make(worker, 1)
	w <- something
	go h.work(w)
}

// work runs the tasks of a worker until the host is stopped.
func (h *Host) work(w worker) {
	for something := range w {
		something()
		h.rest(w)
	}
}

// rest makes a worker idle, or ends it if the host is stopped.
func (h *Host) rest(w worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		close(w)
		return
	}
	h.idle = append(h.idle, w)
}

// dismissLocked ends the idle workers.
func (h *Host) dismissLocked() {
	for _, w := range h.idle {
		close(w)
	}
	h.idle = nil
}
