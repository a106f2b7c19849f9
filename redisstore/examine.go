package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/redisstore/internal/connect"
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

// examineServer asks one server.
func examineServer(ctx context.Context, node *redis.Client) (server Server, err error) {
	if err := node.Ping(ctx).Err(); err != nil { // connects, so that the measurement leaves it out
		return server, fmt.Errorf("ping: %w", err)
	}
	if server.Ahead, server.RTT, server.Slowest, err = clock(ctx, node, pings, time.Now); err != nil {
		return server, err
	}
	text, err := node.Info(ctx).Result()
	if _, told := errors.AsType[redis.Error](err); told {
		return server, nil // this user may not run INFO
	}
	server.Info = parseInfo(text)
	return server, err
}

// parseInfo returns the fields of an INFO.
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
