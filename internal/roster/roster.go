package roster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/retry"
)

const (
	// Lease is how long an entry lives after its last renewal.
	Lease = 10 * time.Second
	// Patience bounds how long a start waits for nodes that it does not reach although they renew
	// their entries.
	Patience = 20 * time.Second
	// renewEvery is the time between renewals.
	renewEvery = 2 * time.Second
	// strangerAfter is how long a process must have renewed its entry without being a member until
	// it counts as a stranger: members that start at the same time meet sooner, and the entry of a
	// process that has just ended is not renewed any more.
	strangerAfter = 2 * renewEvery
	// storePatience is how long a start tries to read the list, and enterPause the time between
	// two readings.
	storePatience = 3 * time.Second
	enterPause    = 250 * time.Millisecond
)

// Entry describes a living process.
type Entry struct {
	// Name identifies the process; no two processes ever share one. ID is the node's configured
	// name, which survives restarts.
	Name string `json:"-"`
	ID   string `json:"id"`
	// Gossip is where other nodes reach the process's gossip; empty outside of a cluster. Address
	// is where it serves HTTP.
	Gossip  string `json:"gossip,omitempty"`
	Address string `json:"address"`
	// InStore marks a process that counts in the store alone, and so owns no keys.
	InStore bool `json:"in_store,omitempty"`
	// Until is when the entry runs out by the store's clock, in unix milliseconds, and Left how
	// long that is from the reading of the list. Only entries that were read have them.
	Until int64         `json:"-"`
	Left  time.Duration `json:"-"`
}

// String names the process for logs and warnings.
func (e *Entry) String() string { return fmt.Sprintf("%s (%s)", e.ID, e.Address) }

// Store keeps the list.
type Store interface {
	// RenewEntry stores a process's entry for the duration of a lease, and returns all entries that
	// have not run out.
	RenewEntry(ctx context.Context, e Entry, lease time.Duration) ([]Entry, error)
	// RemoveEntries removes entries by their names.
	RemoveEntries(ctx context.Context, names ...string) error
}

// Gossip is this node's membership in its cluster. ring.Ring implements it.
type Gossip interface {
	// Contact exchanges members with the nodes at these gossip addresses. The error is about a node
	// that is configured differently; it is no error if a node can't be reached.
	Contact(ctx context.Context, addresses []string) error
	// HasMember reports whether the process with this name is a member.
	HasMember(name string) bool
	// HasEntered reports whether another member is past starting.
	HasEntered() bool
}

// Options configure a [Roster].
type Options struct {
	// Self returns the entry of this process. Required.
	Self func() Entry
	// Store is required.
	Store Store
	// Gossip is nil outside of a cluster.
	Gossip Gossip
	// Report receives the strangers after each renewal. Required.
	Report func(strangers []Entry)
	// Timeout bounds each call of the store. Default: 2 s.
	Timeout time.Duration
	// Logger receives changes of state. Default: none.
	Logger *slog.Logger
}

// Roster is a process's part in the list. Make one with [New], enter it with Enter, keep it with
// Run, leave it with Leave.
type Roster struct {
	opt       Options
	sightings sightings
	unmet     atomic.Pointer[[]string] // gossip addresses
}

// New returns the roster of a process, which is not listed yet.
func New(opt Options) *Roster {
	opt.Timeout = cmp.Or(opt.Timeout, 2*time.Second)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	return &Roster{opt: opt, sightings: sightings{}}
}

// Unmet returns the gossip addresses of listed processes that are not members, as of the last
// renewal. A nil Roster has none.
func (r *Roster) Unmet() []string {
	if r == nil {
		return nil
	}
	if list := r.unmet.Load(); list != nil {
		return *list
	}
	return nil
}

// Enter lists this process. A node of a cluster must be gossiping already and must not own anything
// yet: Enter returns once it belongs to the cluster of the listed nodes, or their entries have run
// out. Of two nodes that start at the same time, at least one finds the other in the list.
//
// If the list can't be read, or a listed node stays out of reach for [Patience], Enter logs it and
// returns nil. The errors are those of ctx, and of listed nodes that are configured differently.
func (r *Roster) Enter(ctx context.Context) error {
	began, contacted, waiting := time.Now(), r.opt.Gossip == nil, false
	for {
		unmet, err := r.renew(ctx)
		nodes := r.blocking(ctx, unmet, contacted)
		switch waited := time.Since(began); {
		case ctx.Err() != nil:
			return fmt.Errorf("list this node: %w", ctx.Err())
		case r.opt.Gossip == nil, r.opt.Gossip.HasEntered(), err == nil && len(nodes) == 0:
			return nil
		case err != nil && waited >= storePatience:
			r.opt.Logger.Warn("can't read which nodes are alive: starting with those that --join "+
				"names", "error", err)
			return nil
		case err == nil && waited >= Patience:
			r.opt.Logger.Warn("nodes with the same data are alive and can't be reached: starting "+
				"without them", "nodes", describe(nodes))
			return nil
		case contacted && !waiting && len(nodes) > 0:
			waiting = true
			r.opt.Logger.Info("waiting for nodes with the same data, until they answer or their "+
				"entries run out", "nodes", describe(nodes), "run_out_in", lastEnd(nodes))
		}
		if err := r.opt.Gossip.Contact(ctx, gossips(nodes)); err != nil {
			return err
		}
		contacted = contacted || len(nodes) > 0
		if !r.opt.Gossip.HasEntered() {
			retry.Pause(ctx, enterPause)
		}
	}
}

// blocking returns the nodes among unmet processes that hold up a start, and removes the entries of
// earlier processes of this node. Removing the entry of a process that lives does no harm: it lists
// itself again.
func (r *Roster) blocking(ctx context.Context, unmet []Entry, contacted bool) (nodes []Entry) {
	self, earlier := r.opt.Self(), []string(nil)
	for _, e := range unmet {
		switch {
		case e.isBefore(&self, contacted):
			earlier = append(earlier, e.Name)
		case e.Gossip != "":
			nodes = append(nodes, e)
		}
	}
	if len(earlier) > 0 {
		r.remove(ctx, earlier...)
	}
	return nodes
}

// isBefore reports whether an entry belongs to an earlier process of a node: one that had its
// address for gossip, or its ID and has not answered. A process of the same ID that answers is its
// twin, and one of the two is refused.
func (e *Entry) isBefore(self *Entry, contacted bool) bool {
	return self.Gossip != "" && e.Gossip == self.Gossip || e.ID == self.ID && contacted
}

// renew renews this process's entry, reports strangers, and returns the listed processes that are
// not members.
func (r *Roster) renew(ctx context.Context) (unmet []Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	self := r.opt.Self()
	listed, err := r.opt.Store.RenewEntry(ctx, self, Lease)
	if err != nil {
		return nil, err
	}
	unmet = slices.DeleteFunc(listed, func(e Entry) bool {
		return e.Name == self.Name || r.opt.Gossip != nil && r.opt.Gossip.HasMember(e.Name)
	})
	addresses := gossips(unmet)
	r.unmet.Store(&addresses)
	r.opt.Report(r.sightings.strangers(self.InStore, unmet))
	return unmet, nil
}

// Run renews this process's entry and reports strangers until ctx is done.
func (r *Roster) Run(ctx context.Context) {
	for retry.Pause(ctx, renewEvery) {
		_, _ = r.renew(ctx) // the store reports itself as down
	}
}

// Leave removes this process's entry, after Run has returned. If the store does not answer, the
// entry runs out.
func (r *Roster) Leave(ctx context.Context) { r.remove(ctx, r.opt.Self().Name) }

// remove removes entries, which otherwise run out.
func (r *Roster) remove(ctx context.Context, names ...string) {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	if err := r.opt.Store.RemoveEntries(ctx, names...); err != nil {
		r.opt.Logger.Debug("can't remove entries of nodes: they run out", "error", err)
	}
}

// sightings holds, for each listed process that is not a member, when its entry was to run out as
// it was first seen.
type sightings map[string]int64

// strangers returns the listed processes that have renewed their entries for [strangerAfter]
// without being members, given all that are not. A process that counts in the store alone regards
// only owners of keys as strangers.
func (s sightings) strangers(inStore bool, unmet []Entry) (list []Entry) {
	seen := make(map[string]bool, len(unmet))
	for _, e := range unmet {
		if inStore && e.InStore {
			continue
		}
		seen[e.Name] = true
		first, ok := s[e.Name]
		switch {
		case !ok:
			s[e.Name] = e.Until
		case e.Until-first >= strangerAfter.Milliseconds():
			list = append(list, e)
		}
	}
	maps.DeleteFunc(s, func(name string, _ int64) bool { return !seen[name] })
	return list
}

// gossips returns the addresses for gossip of those processes that have one.
func gossips(list []Entry) (addresses []string) {
	for i := range list {
		if list[i].Gossip != "" {
			addresses = append(addresses, list[i].Gossip)
		}
	}
	return addresses
}

// describe names processes for the log.
func describe(list []Entry) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].String()
	}
	return strings.Join(names, ", ")
}

// lastEnd returns how long it takes until all entries have run out.
func lastEnd(list []Entry) (left time.Duration) {
	for i := range list {
		left = max(left, list[i].Left)
	}
	return left
}
