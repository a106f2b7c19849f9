package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/connect"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// Server describes a server that takes writes.
type Server struct {
	// Name is its address.
	Name string
	// RTT is the shortest of some round trips, Slowest the longest.
	RTT, Slowest time.Duration
	// Ahead is its clock minus this machine's clock, accurate to half of RTT.
	Ahead time.Duration
	// Info is its INFO, by field; nil if this user may not ask for it.
	Info map[string]string
}

// pings is how many round trips Examine measures.
const pings = 20

// Examine inspects Redis as a store with these options would use it: it tries every command, and
// compares PREFIX:meta with the options. Unlike Probe it agrees on nothing with other nodes and
// leaves nothing behind. The error is the one that Probe would return. Even then it lists the
// servers that it could inspect, by name.
func (s *Store) Examine(ctx context.Context) ([]Server, error) {
	var mu sync.Mutex
	var list []Server
	err := s.conn.EachPrimary(ctx, func(ctx context.Context, node *redis.Client) error {
		server, err := examineServer(ctx, node)
		if err != nil {
			return err
		}
		server.Name = s.conn.Name(node)
		mu.Lock()
		defer mu.Unlock()
		list = append(list, server)
		return nil
	})
	slices.SortFunc(list, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	if err == nil {
		_, err = s.conn.TryCommands(ctx, string(s.opt.Expiry))
	}
	if err == nil {
		err = s.verifyMeta(ctx)
	}
	return list, s.conn.ExplainTLS(ctx, connect.Reject(err))
}

// verifyMeta compares the stored PREFIX:meta with the options.
func (s *Store) verifyMeta(ctx context.Context) error {
	have, err := s.readMeta(ctx)
	if err != nil {
		return err
	}
	if _, err := s.adoptSeed(ctx, have); err != nil {
		return err
	}
	return s.metaMismatch(s.wantedMeta(), have)
}

func examineServer(ctx context.Context, node *redis.Client) (server Server, err error) {
	if err := node.Ping(ctx).Err(); err != nil { // connects, so that the measurement leaves it out
		return server, fmt.Errorf("ping: %w", err)
	}
	server.Ahead, server.RTT, server.Slowest, err = clock(ctx, node, pings, time.Now)
	if err != nil {
		return server, err
	}
	text, err := node.Info(ctx).Result()
	if _, told := errors.AsType[redis.Error](err); told {
		return server, nil // this user may not run INFO
	}
	server.Info = parseInfo(text)
	return server, err
}

func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// InfoNumber returns a field of Info, 0 if there is none or it is not a number.
func (s *Server) InfoNumber(field string) int64 {
	n, _ := strconv.ParseInt(s.Info[field], 10, 64)
	return n
}

// Stored is the content of a Hash in Redis. Times are unix milliseconds.
type Stored struct {
	// Hash is its name, and TTL its time to live in milliseconds, -1 if it has none.
	Hash string `json:"hash"`
	TTL  int64  `json:"ttl_ms"`
	// Version is the version of a key in pure-Redis mode.
	Version string `json:"version,omitempty"`
	// Events is the number of all events, and Cells lists them, newest first.
	Events int64        `json:"events"`
	Cells  []StoredCell `json:"cells"`
	// Values is the number of different values, each last seen at a time from Oldest to Newest.
	// Sampled marks a sample of the values.
	Values  int   `json:"values"`
	Sampled bool  `json:"sampled,omitempty"`
	Oldest  int64 `json:"oldest_ms,omitempty"`
	Newest  int64 `json:"newest_ms,omitempty"`
	// Unknown lists fields of other origin.
	Unknown []string `json:"unknown,omitempty"`
}

// StoredCell is the number of events in a stretch of time.
type StoredCell struct {
	Start int64 `json:"start_ms"`
	Width int64 `json:"width_ms"`
	N     int64 `json:"n"`
}

// Stored reads the Hash of a key's events and that of its values, as far as Redis has them, and
// changes nothing. PREFIX:meta states where they are: the placement in the options has no effect.
func (s *Store) Stored(ctx context.Context, ns, key []byte) (list []*Stored, err error) {
	defer func() { err = s.conn.ExplainTLS(ctx, connect.Reject(err)) }()
	meta, err := s.readMeta(ctx)
	if err != nil || len(meta) == 0 {
		return nil, err
	}
	if err := s.metaMismatch(map[string]string{layoutField: layout.Version}, meta); err != nil {
		return nil, err
	}
	place, err := parsePlacement(meta)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.prefix.MetaKey(), err)
	}
	read := "hgetall"
	if meta["hash-type"] == "tairhash" {
		read = "exhgetall"
	}
	partition := place.Of(ns, key)
	valuesNS, valuesKey := twotier.ValuesKey(ns, key)
	for _, name := range []string{s.prefix.Key(partition, ns, key),
		s.prefix.Key(partition, valuesNS, valuesKey)} {
		fields := redis.NewMapStringStringCmd(ctx, read, name)
		_ = s.conn.Client.Process(ctx, fields) // fields has the error
		ttl, err := s.conn.Client.PTTL(ctx, name).Result()
		if err := cmp.Or(fields.Err(), err); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if len(fields.Val()) > 0 {
			st := &Stored{Hash: name, TTL: ttl.Milliseconds()}
			if ttl < 0 {
				st.TTL = -1
			}
			st.decode(fields.Val())
			list = append(list, st)
		}
	}
	return list, nil
}

func (st *Stored) decode(fields map[string]string) {
	var c layout.Content
	for name, value := range fields {
		n := len(c.Buckets)
		switch known := c.Add(name, value); {
		case name == layout.VersionField:
			st.Version = value
		case !known || syncer.CheckCounts(c.Buckets[n:]) != nil:
			c.Buckets = c.Buckets[:n]
			st.Unknown = append(st.Unknown, name)
		}
	}
	slices.Sort(st.Unknown)
	st.Cells = []StoredCell{}
	for _, b := range c.Sum() {
		switch hash := b.ValueHash(); {
		case !b.IsValue():
			st.Events += b.N
			st.Cells = append(st.Cells, StoredCell{b.Start, b.Width, b.N})
		case hash != leaparray.CleanHash(hash): // a class of values that were left out
			st.Sampled = true
		default:
			st.Values++
			st.Oldest, st.Newest = min(cmp.Or(st.Oldest, b.N), b.N), max(st.Newest, b.N)
		}
	}
	slices.SortFunc(st.Cells, func(a, b StoredCell) int {
		return cmp.Or(cmp.Compare(b.Start, a.Start), cmp.Compare(a.Width, b.Width))
	})
}

// parsePlacement is the inverse of what wantedMeta writes about the placement.
func parsePlacement(meta map[string]string) (place twotier.Placement, err error) {
	if place.Partitions, err = strconv.Atoi(meta["partitions"]); err != nil {
		return place, fmt.Errorf("partitions: %w", err)
	}
	if place.Seed, err = strconv.ParseUint(meta[seedField], 10, 64); err != nil {
		return place, fmt.Errorf("%s: %w", seedField, err)
	}
	rest, usual := strings.CutPrefix(meta[tagsField], "every namespace")
	place.HashTags = twotier.HashTags{twotier.DefaultNamespace: usual}
	for name := range strings.SplitSeq(strings.TrimPrefix(rest, " but "), ", ") {
		if name != "" { // as in "every namespace"; nothing has the name "no namespace"
			place.HashTags[name] = !usual
		}
	}
	return place, nil
}
