package simtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// meter counts the traffic of all nodes, and how long clients wait. A nil meter counts nothing.
type meter struct {
	mu      sync.Mutex
	sums    traffic
	asked   int
	longest time.Duration
}

// traffic is the amount of messages sent, by kind.
type traffic map[string]amount

// amount is a number of messages and their size.
type amount struct{ messages, bytes float64 }

func (a amount) String() string {
	if a.bytes == 0 {
		return fmt.Sprintf("%.4g", a.messages)
	}
	return fmt.Sprintf("%.3g, %.0f B", a.messages, a.bytes)
}

// over divides all amounts.
func (t traffic) over(n float64) traffic {
	for kind, a := range t {
		t[kind] = amount{a.messages / n, a.bytes / n}
	}
	return t
}

func (m *meter) add(kind string, messages, bytes int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.sums[kind]
	m.sums[kind] = amount{a.messages + float64(messages), a.bytes + float64(bytes)}
}

// gossip counts gossip. Calls are counted by their callers.
func (m *meter) gossip(s simnet.Sent) {
	switch {
	case s.Kind != simnet.Gossip:
	case s.Stream:
		m.add("gossip: exchanges of state, and news", s.Messages, s.Bytes)
	default:
		m.add("gossip: packets", s.Messages, s.Bytes)
	}
}

// metered counts a node's exchanges with Redis.
type metered struct {
	*faultstore.Store
	meter *meter
}

// Exchange implements syncer.Store.
func (s metered) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.meter.exchange(rounds)
	s.Store.Exchange(ctx, rounds)
}

func (m *meter) exchange(rounds []*syncer.Round) {
	m.add("Redis: exchanges", 1, 0)
	for _, r := range rounds {
		switch {
		case r.Seq > 0 || r.Republish:
			m.add("Redis: rounds that write", 1, 0)
		case len(r.Keys) > 0:
			m.add("Redis: rounds that load", 1, 0)
		default:
			m.add("Redis: rounds that verify", 1, 0)
		}
	}
}

// took counts an operation of a client.
func (m *meter) took(operations int, d time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked += operations
	m.longest = max(m.longest, d)
}

// operations returns the number of operations since the last call, and how long the longest took.
func (m *meter) operations() (n int, longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, longest = m.asked, m.longest
	m.asked, m.longest = 0, 0
	return n, longest
}

// take returns the traffic since the last call.
func (m *meter) take() traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := m.sums
	m.sums = traffic{}
	return sums
}

// asking is a node's access to the others; it labels each message with its question.
type asking struct{ node.Peers }

func (a asking) Ask(ctx context.Context, to *ring.Member, question, answer any) error {
	kind, _ := node.KindOf(question)
	return a.Peers.Ask(context.WithValue(ctx, questionKey{}, kind.Name), to, question, answer)
}

type questionKey struct{}

// questionIn returns the name of a message's question.
func questionIn(ctx context.Context) string {
	if name, ok := ctx.Value(questionKey{}).(string); ok {
		return "peers: " + name
	}
	return "peers: operations"
}
