package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/redisstore/internal/scripts"
)

// NodeRecord is the entry of a living process in Redis.
type NodeRecord struct {
	// Name identifies the process; no two processes share one.
	Name string
	// Text describes the process, in the form that it has chosen.
	Text string
	// Until is when the entry runs out by Redis's clock, in unix milliseconds, and Left how long
	// that is from now.
	Until int64
	Left  time.Duration
}

// Nodes keeps the entries of the living processes in Redis. Make one with [Store.Nodes]. It is safe
// for concurrent use.
type Nodes struct {
	store *Store
	key   string // of the Hash that has them
}

// Nodes returns the list of the living processes that use this Redis.
func (s *Store) Nodes() *Nodes { return &Nodes{s, s.prefix.NodesKey()} }

// Renew stores the entry of a process, which runs out after the lease, and returns all entries that
// have not run out. Of two processes that renew their entries at once, at least one finds both:
// each stores its own before it reads. It is safe to call it again if it fails.
func (n *Nodes) Renew(ctx context.Context, name, text string,
	lease time.Duration) (all []NodeRecord, err error) {
	if err := n.store.ensureReady(ctx); err != nil {
		return nil, err
	}
	client, clock, entries := n.store.conn.Client, time.Time{}, map[string]string{}
	server, err := n.store.conn.Primary(ctx, n.key)
	if err == nil {
		clock, err = server.Time(ctx).Result()
	}
	// If the process stands still from here on, its entry runs out sooner than it believes.
	now := clock.UnixMilli()
	if err == nil {
		pipe := client.Pipeline()
		pipe.HSet(ctx, n.key, name, fmt.Sprint(now+lease.Milliseconds(), " ", text))
		pipe.PExpire(ctx, n.key, lease)
		_, err = pipe.Exec(ctx)
	}
	if err == nil {
		entries, err = client.HGetAll(ctx, n.key).Result()
	}
	n.store.conn.RoundTrips.Add(3)
	if err != nil {
		scripts.ReloadSlots(ctx, client)
		return nil, fmt.Errorf("renew %s: %w", n.key, err)
	}
	var gone []any
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		entry := entries[name]
		end, record, _ := strings.Cut(entry, " ")
		until, _ := strconv.ParseInt(end, 10, 64)
		if until <= now {
			gone = append(gone, name, entry, "")
			continue
		}
		all = append(all, NodeRecord{name, record, until,
			time.Duration(until-now) * time.Millisecond})
	}
	if len(gone) > 0 { // unless one of them is renewed just now; what stays is deleted next time
		_ = n.store.scripts.Fields.Run(ctx, client, []string{n.key}, gone...).Err()
	}
	return all, nil
}

// Remove removes the entries of processes.
func (n *Nodes) Remove(ctx context.Context, names ...string) error {
	if err := n.store.ensureReady(ctx); err != nil {
		return err
	}
	if err := n.store.conn.Client.HDel(ctx, n.key, names...).Err(); err != nil {
		return fmt.Errorf("remove from %s: %w", n.key, err)
	}
	return nil
}
