package roster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/roster"
)

var (
	errDown    = errors.New("down")
	errRefused = errors.New("refused")
)

// bed is one process, n1, with its store and its gossip.
type bed struct {
	*roster.Roster
	self    roster.Entry
	down    bool
	listed  map[string]roster.Entry
	alive   map[string]bool   // processes that renew their entries
	answers map[string]string // the names of nodes that can be reached, by gossip address
	entered bool
	refuses bool

	mu      sync.Mutex // of a test beside Run
	met     map[string]bool
	unknown []string // the last report

	logged bytes.Buffer
}

// newBed returns a process of a cluster.
func newBed() *bed {
	b := &bed{self: roster.Entry{Name: "n1-x", ID: "n1", Gossip: "g1", Address: "h1"},
		listed: map[string]roster.Entry{}, alive: map[string]bool{},
		answers: map[string]string{}, met: map[string]bool{}}
	b.Roster = roster.New(b.options())
	return b
}

func (b *bed) options() roster.Options {
	return roster.Options{Store: b, Gossip: b, Self: func() roster.Entry { return b.self },
		Logger: slog.New(slog.NewTextHandler(&b.logged, nil)),
		Report: func(strangers []roster.Entry) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.unknown = nil
			for i := range strangers {
				b.unknown = append(b.unknown, strangers[i].String())
			}
		}}
}

// lists adds a process that has just renewed its entry.
func (b *bed) lists(e roster.Entry, alive bool) {
	e.Until = time.Now().Add(roster.Lease).UnixMilli()
	b.listed[e.Name], b.alive[e.Name] = e, alive
}

// RenewEntry implements roster.Store.
func (b *bed) RenewEntry(_ context.Context, e roster.Entry,
	lease time.Duration) (all []roster.Entry, err error) {
	if b.down {
		return nil, errDown
	}
	now := time.Now()
	for name, e := range b.listed {
		if b.alive[name] {
			e.Until = now.Add(lease).UnixMilli()
			b.listed[name] = e
		}
	}
	e.Until = now.Add(lease).UnixMilli()
	b.listed[e.Name] = e
	for _, e := range b.listed {
		if e.Left = time.Duration(e.Until-now.UnixMilli()) * time.Millisecond; e.Left > 0 {
			all = append(all, e)
		}
	}
	return all, nil
}

// RemoveEntries implements roster.Store.
func (b *bed) RemoveEntries(_ context.Context, names ...string) error {
	if b.down {
		return errDown
	}
	for _, name := range names {
		delete(b.listed, name)
	}
	return nil
}

// Contact implements roster.Gossip.
func (b *bed) Contact(_ context.Context, addresses []string) error {
	for _, address := range addresses {
		if name := b.answers[address]; name != "" {
			b.meets(name, true)
		}
	}
	if b.refuses && len(addresses) > 0 {
		return errRefused
	}
	return nil
}

// HasMember implements roster.Gossip.
func (b *bed) HasMember(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.met[name]
}

// meets makes a process a member, or none any more.
func (b *bed) meets(name string, met bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.met[name] = met
}

// strangers returns the last report.
func (b *bed) strangers() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unknown
}

// HasEntered implements roster.Gossip.
func (b *bed) HasEntered() bool { return b.entered }

// enter enters the roster and returns how long that takes.
func (b *bed) enter(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if err := b.Enter(t.Context()); err != nil {
		t.Error(err)
	}
	if _, ok := b.listed[b.self.Name]; !ok && !b.down {
		t.Error("it is not listed")
	}
	return time.Since(began)
}

var n2 = roster.Entry{Name: "n2-x", ID: "n2", Gossip: "g2", Address: "h2"}

// TestEnterWaitsForListedNodes starts a node in each situation that it may find in the list.
func TestEnterWaitsForListedNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare    func(b *bed)
		most, less time.Duration
		log        string
	}{
		"alone": {prepare: func(*bed) {}, most: time.Millisecond},
		"a node that answers": {prepare: func(b *bed) {
			b.lists(n2, true)
			b.answers["g2"] = n2.Name
		}, most: time.Second},
		"a member": {prepare: func(b *bed) { b.lists(n2, true); b.met[n2.Name] = true },
			most: time.Millisecond},
		"a cluster that it has joined": {prepare: func(b *bed) {
			b.lists(n2, false)
			b.entered = true
		}, most: time.Millisecond},
		"a dead node": {prepare: func(b *bed) { b.lists(n2, false) },
			less: roster.Lease - time.Second, most: roster.Lease + time.Second,
			log: "waiting for nodes"},
		"a node out of reach": {prepare: func(b *bed) { b.lists(n2, true) }, less: roster.Patience,
			most: roster.Patience + time.Second, log: "starting without them"},
		"its own earlier process": {prepare: func(b *bed) {
			e := b.self
			e.Name = "n1-before"
			b.lists(e, false)
		}, most: time.Millisecond},
		"its own earlier process at another address": {prepare: func(b *bed) {
			b.lists(roster.Entry{Name: "n1-before", ID: "n1", Gossip: "g0", Address: "h0"}, false)
		}, most: time.Second},
		"another node at its address": {prepare: func(b *bed) {
			b.lists(roster.Entry{Name: "n0-before", ID: "n0", Gossip: "g1", Address: "h1"}, false)
		}, most: time.Millisecond},
		"a process without gossip": {prepare: func(b *bed) {
			b.lists(roster.Entry{Name: "s-x", ID: "s", Address: "h3"}, true)
		}, most: time.Millisecond},
		"no store": {prepare: func(b *bed) { b.down = true }, less: time.Second,
			most: 4 * time.Second, log: "can't read which nodes are alive"},
		"no store, but a cluster": {prepare: func(b *bed) { b.down, b.entered = true, true },
			most: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed()
				tt.prepare(b)
				if took := b.enter(t); took < tt.less || took > tt.most {
					t.Errorf("it took %v, want %v to %v", took, tt.less, tt.most)
				}
				for other := range b.listed {
					if strings.HasSuffix(other, "-before") {
						t.Errorf("%s is still listed", other)
					}
				}
				if text := b.logged.String(); !strings.Contains(text, tt.log) ||
					tt.log == "" && text != "" {
					t.Errorf("it logs %q", text)
				}
			})
		})
	}
}

// TestEnterEnds lists a node that is configured differently, and ends a start that waits.
func TestEnterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		b.lists(n2, true)
		b.refuses = true
		if err := b.Enter(t.Context()); !errors.Is(err, errRefused) {
			t.Error(err)
		}
		b.refuses = false
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestStrangersAreReported keeps a process in the list beside others for half a minute.
func TestStrangersAreReported(t *testing.T) {
	lone := roster.Entry{Name: "s-x", ID: "s", Address: "h3"}
	inStore := roster.Entry{Name: "r-x", ID: "r", Address: "h4", InStore: true}
	for name, tt := range map[string]struct {
		others []roster.Entry
		change func(b *bed)
		want   string
	}{
		"nobody":                    {want: "[]"},
		"another cluster":           {others: []roster.Entry{n2}, want: "[n2 (h2)]"},
		"a process without cluster": {others: []roster.Entry{lone}, want: "[s (h3)]"},
		"one that counts in Redis":  {others: []roster.Entry{inStore}, want: "[r (h4)]"},
		"one like itself, in Redis": {others: []roster.Entry{inStore},
			change: func(b *bed) { b.self.InStore = true }, want: "[]"},
		"an owner, in Redis": {others: []roster.Entry{lone},
			change: func(b *bed) { b.self.InStore = true }, want: "[s (h3)]"},
		"a member": {others: []roster.Entry{n2},
			change: func(b *bed) { b.meets(n2.Name, true) }, want: "[]"},
		"one that has ended": {others: []roster.Entry{n2},
			change: func(b *bed) { b.alive[n2.Name] = false }, want: "[]"},
		"one without cluster, from its own": {others: []roster.Entry{lone},
			change: func(b *bed) {
				opt := b.options()
				opt.Gossip, b.self.Gossip = nil, ""
				b.Roster = roster.New(opt)
			}, want: "[s (h3)]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed()
				for _, e := range tt.others {
					b.lists(e, true)
				}
				if tt.change != nil {
					tt.change(b)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				b.Run(ctx)
				if got := fmt.Sprint(b.strangers()); got != tt.want {
					t.Errorf("strangers %s, want %s", got, tt.want)
				}
				unmet := tt.want == "[n2 (h2)]"
				if slices.Contains(b.Unmet(), n2.Gossip) != unmet {
					t.Errorf("to be looked for: %v", b.Unmet())
				}
			})
		})
	}
}

// TestStrangersThatAreMet reports a process until it becomes a member, and one that comes back
// afresh.
func TestStrangersThatAreMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		b.lists(n2, true)
		ctx, cancel := context.WithCancel(t.Context())
		go b.Run(ctx)
		for _, met := range []bool{false, true, false} {
			b.meets(n2.Name, met)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := b.strangers(); (len(got) == 0) != met {
				t.Errorf("met %v: strangers %v", met, got)
			}
		}
		cancel()
		synctest.Wait()
		b.Leave(t.Context())
		if _, ok := b.listed[b.self.Name]; ok {
			t.Error("it is listed after it has left")
		}
	})
}
