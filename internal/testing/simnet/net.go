package simnet

import (
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
