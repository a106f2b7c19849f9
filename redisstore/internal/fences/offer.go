package fences

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/scripts"
)

// offer is the ability of the servers to wait, at a moment.
type offer struct {
	at   time.Time
	errs map[*redis.Client]error // for each server that takes writes, why it can't wait, or nil
	err  error                   // if set, why nothing is known about the servers
}

// refusal returns why a server can't wait, or nil. A server that was still unknown is asked next
// time.
func (o *offer) refusal(server *redis.Client) error { return cmp.Or(o.err, o.errs[server]) }

// joinedRefusals returns why some servers can't wait, or nil.
func (o *offer) joinedRefusals() error {
	return errors.Join(o.err, errors.Join(slices.Collect(maps.Values(o.errs))...))
}

// offerAge is how long an offer is valid.
const offerAge = time.Second

// Offers returns nil if the servers of some keys, or of all keys if none are given, can wait for an
// ack. It tries what Keep will need rather than guessing from a version.
func (f *Fences) Offers(ctx context.Context, ack twotier.Ack, keys ...string) error {
	offer, err := f.all[ack].currentOffer(ctx)
	switch {
	case err != nil:
		return err
	case len(keys) == 0:
		return offer.joinedRefusals()
	}
	for _, key := range keys {
		server, err := f.opt.Servers.Primary(ctx, key)
		if err != nil {
			return fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
		}
		if err := offer.refusal(server); err != nil {
			return err
		}
	}
	return nil
}

// currentOffer returns the current offer, at most offerAge old.
func (k *keeper) currentOffer(ctx context.Context) (*offer, error) {
	known := k.offer.Load()
	if known != nil && time.Since(known.at) < offerAge {
		return known, nil
	}
	if known == nil {
		k.offerMu.Lock()
	} else if !k.offerMu.TryLock() {
		return known, nil // another caller is asking already
	}
	defer k.offerMu.Unlock()
	if now := k.offer.Load(); now != known {
		return now, nil
	}
	now := k.askServers(ctx)
	if err := now.joinedRefusals(); err != nil && ctx.Err() != nil {
		return nil, err // the caller's ctx ended: Redis may be fine
	}
	k.offer.Store(now)
	return now, nil
}

// askServers asks all servers that take writes.
func (k *keeper) askServers(ctx context.Context) *offer {
	ask, cancel := context.WithTimeout(ctx, k.opt.Timeout)
	defer cancel()
	now := &offer{errs: map[*redis.Client]error{}}
	var mu sync.Mutex // guards now.errs
	now.err = k.opt.Servers.EachPrimary(ask, func(ctx context.Context, server *redis.Client) error {
		err := k.tryServer(ctx, server)
		mu.Lock()
		defer mu.Unlock()
		now.errs[server] = err
		return nil
	})
	now.at = time.Now()
	k.seen = k.seen || now.joinedRefusals() == nil
	return now
}

// tryServer asks a server whether it offers the keeper's ack.
func (k *keeper) tryServer(ctx context.Context, node *redis.Client) error {
	if k.ack == twotier.AckDisk {
		return k.refusal("WAITAOF", node.WaitAOF(ctx, 1, 0, time.Millisecond).Err())
	}
	if err := k.refusal("WAIT", node.Wait(ctx, 0, time.Millisecond).Err()); err != nil {
		return err
	}
	// If the user has no permission for INFO, missing replicas only show when none answers in time.
	info, err := node.Info(ctx, "replication").Result()
	connected, told := parseReplicas(info)
	if err != nil || !told || connected >= k.opt.Replicas {
		return nil
	}
	lack := fmt.Sprintf("%d of %d replicas are connected to Redis at %s",
		connected, k.opt.Replicas, k.opt.Servers.Name(node))
	if k.seen {
		return fmt.Errorf("%w: %s", twotier.ErrUnavailable, lack)
	}
	return k.invalidAck("replica needs all that are asked for: " + lack)
}

// parseReplicas returns the number of connected replicas in a server's INFO.
func parseReplicas(info string) (n int, told bool) {
	_, rest, ok := strings.Cut(info, "\nconnected_slaves:")
	number, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(number)
	return n, ok && err == nil
}

// refusal returns an error for a server that refuses a command or fails to answer it. Only a
// lasting refusal rules out the keeper's ack.
func (k *keeper) refusal(command string, err error) error {
	switch {
	case err == nil:
		return nil
	case scripts.IsRefusal(err) && !scripts.IsTransient(err):
		return k.invalidAck(fmt.Sprintf("%s needs %s, which Redis refuses: %v",
			strings.ToLower(k.ackName()), command, err))
	}
	return fmt.Errorf("%w: %s: %w", twotier.ErrUnavailable, command, err)
}

func (k *keeper) ackName() string {
	if k.ack == twotier.AckDisk {
		return "disk"
	}
	return "replica"
}

func (k *keeper) invalidAck(detail string) error {
	return &twotier.InvalidError{Check: -1, Limit: -1, Field: "ack", Detail: detail}
}
