package limiter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	guber "github.com/mailgun/gubernator/v2"
	"github.com/sirupsen/logrus"

	"twotier.dev/twotier/bench/proc"
)

// Gubernator is a set of mailgun/gubernator daemons in this process that share the keys. Calls go
// to the daemons in turn, in this process without a network in between; a daemon that does not own
// a key calls its owner with gRPC over the loopback interface, as it would anywhere. Every rule is
// a separate token bucket: a fixed window that begins with its first event. It uses its own clock,
// and events counted by one rule stay counted if another one refuses. The rules of one call are not
// applied in order: each rule with another owner runs in a separate goroutine. So if several events
// of a key are decided in one call, two rules may allow different events, and then none is admitted
// although there was room.
type Gubernator struct {
	daemons []*guber.Daemon
	next    atomic.Uint32
}

// cacheKeys exceeds the keys of any workload here. The default of 50,000 would forget keys.
const cacheKeys = 4_000_000

// NewGubernator starts daemons that know each other.
func NewGubernator(ctx context.Context, nodes int) (*Gubernator, error) {
	c := &Gubernator{}
	log := logrus.New()
	log.SetOutput(io.Discard)
	var peers []guber.PeerInfo
	for range nodes {
		d, err := spawnGubernator(ctx, log)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.daemons = append(c.daemons, d)
		peers = append(peers, d.PeerInfo)
	}
	for _, d := range c.daemons {
		d.SetPeers(peers)
	}
	return c, nil
}

// spawnGubernator starts one daemon. The daemon must know its port before it listens there, and
// another process may take the port in between.
func spawnGubernator(ctx context.Context, log *logrus.Logger) (d *guber.Daemon, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for range proc.PortAttempts {
		var addr string
		if addr, err = proc.FreeAddr(); err != nil {
			return nil, err
		}
		d, err = guber.SpawnDaemon(ctx, guber.DaemonConfig{
			GRPCListenAddress: addr, HTTPListenAddress: "127.0.0.1:0", InstanceID: addr,
			CacheSize: cacheKeys, Logger: log,
			Behaviors: guber.BehaviorConfig{BatchTimeout: time.Minute},
		})
		if err == nil {
			http := d.HTTPListener.Addr().String()
			d.PeerInfo = guber.PeerInfo{GRPCAddress: addr, HTTPAddress: http}
			return d, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("gubernator: %w", err)
		}
	}
	return nil, fmt.Errorf("gubernator: %w", err)
}

// Close stops the daemons.
func (c *Gubernator) Close() error {
	for _, d := range c.daemons {
		d.Close()
	}
	return nil
}

// Name returns the name in tables.
func (c *Gubernator) Name() string {
	if len(c.daemons) == 1 {
		return "gubernator, 1 node"
	}
	return "gubernator, " + strconv.Itoa(len(c.daemons)) + " nodes"
}

// Decide checks the rules of all calls together, at most a thousand at a time, gubernator's
// maximum.
func (c *Gubernator) Decide(ctx context.Context, calls []Call) (admitted int, err error) {
	var req guber.GetRateLimitsReq
	for _, call := range calls {
		for _, check := range call.Checks {
			for _, l := range check.Limits {
				req.Requests = append(req.Requests, &guber.RateLimitReq{
					Name: strconv.FormatInt(l.Window, 10), UniqueKey: string(check.Key),
					Hits:  check.N,
					Limit: l.Max, Duration: l.Window,
				})
			}
		}
	}
	daemon := c.daemons[int(c.next.Add(1))%len(c.daemons)]
	resp, err := daemon.V1Server.GetRateLimits(ctx, &req)
	if err != nil {
		return 0, fmt.Errorf("gubernator: %w", err)
	}
	answers := resp.Responses
	for _, call := range calls {
		under := true
		for _, check := range call.Checks {
			for range check.Limits {
				a := answers[0]
				answers = answers[1:]
				if a.Error != "" {
					return admitted, errors.New("gubernator: " + a.Error)
				}
				under = under && a.Status == guber.Status_UNDER_LIMIT
			}
		}
		if under {
			admitted++
		}
	}
	return admitted, nil
}
