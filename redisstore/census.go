package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier/syncer"
)

const (
	// censusPage is how many keys one SCAN looks at: Redis does nothing else for a quarter of a millisecond or so.
	censusPage = 1000
	// censusRest is how many times as long as each took there is a pause, for others.
	censusRest = 1
	// slots is how many there are in a Redis Cluster.
	slots = 16384
)

// Keys implements syncer.Census with SCAN, which returns all keys that are there during all of an iteration. It is an error if one was
// interrupted, if another server took over meanwhile, or if slots of a cluster moved: keys may then have slipped through.
func (s *Store) Keys(ctx context.Context, fn func(partition int, ns, key []byte)) error {
	var mu sync.Mutex
	before, after := map[string]string{}, map[string]string{}
	err := s.eachServer(ctx, func(ctx context.Context, client *redis.Client) error {
		conn := client.Conn()
		defer conn.Close()
		if err := s.identify(ctx, conn, &mu, before); err != nil {
			return err
		}
		if err := s.scan(ctx, conn, &mu, fn); err != nil {
			return err
		}
		return s.identify(ctx, conn, &mu, after)
	})
	switch {
	case err != nil && refused(err):
		return fmt.Errorf("scan: %w: %w", errors.ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("scan: %w", err)
	case !maps.Equal(before, after):
		return errors.New("scan: servers or slots have changed meanwhile")
	case s.cluster:
		return covered(before)
	}
	return nil
}

// refused reports whether the server answered that it won't do this, now or later: an unknown command, or one that the user may not use.
func refused(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, passing := range []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "TRYAGAIN", "READONLY", "UNKILLABLE"} {
		if redis.HasErrorPrefix(err, passing) {
			return false
		}
	}
	return true
}

// eachServer calls fn for every server that holds keys.
func (s *Store) eachServer(ctx context.Context, fn func(context.Context, *redis.Client) error) error {
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, fn)
	case *redis.Client:
		return fn(ctx, client)
	}
	return errors.ErrUnsupported
}

// scan calls fn for all keys of one server.
func (s *Store) scan(ctx context.Context, conn *redis.Conn, mu *sync.Mutex, fn func(partition int, ns, key []byte)) error {
	for cursor := uint64(0); ; {
		start := time.Now()
		page, next, err := conn.Scan(ctx, cursor, keyPrefix+"*", censusPage).Result()
		if err != nil {
			return err
		}
		mu.Lock() // servers are asked at the same time
		for _, name := range page {
			eachKey(name, s.opt.Placement, fn)
		}
		mu.Unlock()
		if cursor = next; cursor == 0 {
			return nil
		}
		select {
		case <-time.After(censusRest * time.Since(start)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// identify notes which run of a server a connection leads to, and in a cluster which slots it has.
func (s *Store) identify(ctx context.Context, conn *redis.Conn, mu *sync.Mutex, into map[string]string) error {
	info, err := conn.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	_, rest, ok := strings.Cut(info, "run_id:")
	if !ok {
		return fmt.Errorf("INFO tells no run_id: %w", errors.ErrUnsupported)
	}
	id, _, _ := strings.Cut(rest, "\r\n")
	owned := ""
	if s.cluster {
		nodes, err := conn.ClusterNodes(ctx).Result()
		if err != nil {
			return err
		}
		for line := range strings.Lines(nodes) {
			if f := strings.Fields(line); len(f) > 8 && strings.Contains(f[2], "myself") {
				owned = strings.Join(f[8:], " ")
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	into[id] = owned
	return nil
}

// covered reports as an error if some slots of a cluster belong to none of the servers, or are about to move.
func covered(owned map[string]string) error {
	n := 0
	for _, list := range owned {
		for r := range strings.FieldsSeq(list) {
			first, last, ranged := strings.Cut(r, "-")
			if !ranged {
				last = first
			}
			lo, err := strconv.Atoi(first)
			hi, err2 := strconv.Atoi(last)
			if err != nil || err2 != nil {
				return fmt.Errorf("scan: slot %s is moving", r)
			}
			n += hi - lo + 1
		}
	}
	if n != slots {
		return fmt.Errorf("scan: %d of %d slots were reached", n, slots)
	}
	return nil
}

// eachKey calls fn for what a name may be the key of. Either of namespace and key may contain colons: the partition tells them apart.
func eachKey(name string, of syncer.Placement, fn func(partition int, ns, key []byte)) {
	digits, rest, ok := strings.Cut(strings.TrimPrefix(name, keyPrefix), "}:")
	if !ok {
		return
	}
	partition, err := strconv.Atoi(digits)
	if err != nil {
		return
	}
	b := []byte(rest)
	for at, c := range b {
		if ns, key := b[:at], b[min(at+1, len(b)):]; c == ':' && of.Of(ns, key) == partition {
			if string(ns) == syncer.DefaultNamespace {
				ns = nil
			}
			fn(partition, ns, key)
		}
	}
}
