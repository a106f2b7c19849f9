package redisstore

import (
	"context"
	"fmt"
	"strconv"
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

// recordValues is how many values the script returns for an entry.
const recordValues = 4

// Renew stores the entry of a process, which runs out after the lease, and returns all entries that
// have not run out.
func (n *Nodes) Renew(ctx context.Context, name, text string,
	lease time.Duration) (all []NodeRecord, err error) {
	if err := n.store.ensureReady(ctx); err != nil {
		return nil, err
	}
	call := &scripts.Call{Script: n.store.scripts.Nodes, Keys: []string{n.key},
		Args: []any{name, text, lease.Milliseconds()}}
	if err := n.store.runOne(ctx, call); err != nil {
		return nil, fmt.Errorf("renew %s: %w", n.key, err)
	}
	values, err := call.Cmd.Slice()
	if err != nil {
		return nil, fmt.Errorf("renew %s: %w", n.key, err)
	}
	for ; len(values) >= recordValues; values = values[recordValues:] {
		record := NodeRecord{}
		record.Name, _ = values[0].(string)
		until, _ := values[1].(string)
		left, _ := values[2].(int64)
		record.Text, _ = values[3].(string)
		record.Left = time.Duration(left) * time.Millisecond
		if record.Until, err = strconv.ParseInt(until, 10, 64); err != nil {
			return nil, fmt.Errorf("renew %s: %w", n.key, err)
		}
		all = append(all, record)
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
