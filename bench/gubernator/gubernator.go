// Package gubernator runs mailgun/gubernator within this process, behind the interface of package limiter. It is a package of
// its own because of all that comes with it: only the commands that compare link it.
package gubernator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	guber "github.com/mailgun/gubernator/v2"
	"github.com/sirupsen/logrus"

	"twotier/bench/limiter"
	"twotier/bench/proc"
)

// Cluster is a number of gubernator daemons that own the keys between them. A decision is asked of
// one after the other, in this process and without a network in between; a daemon that does not
// own a key asks its owner by gRPC over the loopback interface, as it would anywhere. Every rule
// is a token bucket of its own: a fixed window that begins with its first event. It runs on its
// own clock, and what one rule has counted stays counted when another refuses. Nor are the rules
// of one call carried out in order: each that has another owner is asked of it by a goroutine of
// its own. So when several events of a key are decided in one call, the event that one rule lets
// through may be another than the one that the next rule does, and none is admitted although there
// was room.
type Cluster struct {
	daemons []*guber.Daemon
	next    atomic.Uint32
}

// cacheKeys is above what any workload here uses: the default of 50,000 would forget.
const cacheKeys = 4_000_000

// maxBatch is the most that gubernator takes at a time.
const maxBatch = 1000

// Start starts a cluster.
func Start(ctx context.Context, nodes int) (*Cluster, error) {
	c := &Cluster{}
	log := logrus.New()
	log.SetOutput(io.Discard)
	var peers []guber.PeerInfo
	for range nodes {
		d, err := spawn(ctx, log)
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

func spawn(ctx context.Context, log *logrus.Logger) (*guber.Daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	grpc, err1 := proc.FreePort()
	http, err2 := proc.FreePort()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	addr := "127.0.0.1:" + strconv.Itoa(grpc)
	d, err := guber.SpawnDaemon(ctx, guber.DaemonConfig{
		GRPCListenAddress: addr, HTTPListenAddress: "127.0.0.1:" + strconv.Itoa(http), InstanceID: addr,
		CacheSize: cacheKeys, Logger: log, Behaviors: guber.BehaviorConfig{BatchTimeout: 5 * time.Second},
	})
	if err != nil {
		return nil, fmt.Errorf("gubernator: %w", err)
	}
	d.PeerInfo = guber.PeerInfo{GRPCAddress: addr, HTTPAddress: d.HTTPListener.Addr().String()}
	return d, nil
}

// Close stops the daemons.
func (c *Cluster) Close() error {
	for _, d := range c.daemons {
		d.Close()
	}
	return nil
}

// Name is how tables call it.
func (c *Cluster) Name() string {
	if len(c.daemons) == 1 {
		return "gubernator, 1 node"
	}
	return "gubernator, " + strconv.Itoa(len(c.daemons)) + " nodes"
}

// AcquireAll asks for all rules in one call.
func (c *Cluster) AcquireAll(ctx context.Context, checks []limiter.Check, _ int64) (bool, error) {
	admitted, err := c.AcquireEach(ctx, []limiter.Call{{Checks: checks}})
	return admitted == 1, err
}

// AcquireEach asks for the rules of all calls together, as many as gubernator takes at a time.
func (c *Cluster) AcquireEach(ctx context.Context, calls []limiter.Call) (admitted int, err error) {
	for len(calls) > 0 {
		var req guber.GetRateLimitsReq
		n := 0
		for n < len(calls) && (n == 0 || len(req.Requests)+rules(calls[n]) <= maxBatch) {
			req.Requests = appendRules(req.Requests, calls[n])
			n++
		}
		resp, err := c.daemons[int(c.next.Add(1))%len(c.daemons)].V1Server.GetRateLimits(ctx, &req)
		if err != nil {
			return admitted, fmt.Errorf("gubernator: %w", err)
		}
		ok, err := count(calls[:n], resp.Responses)
		if err != nil {
			return admitted, err
		}
		admitted += ok
		calls = calls[n:]
	}
	return admitted, nil
}

func rules(call limiter.Call) (n int) {
	for _, c := range call.Checks {
		n += len(c.Limits)
	}
	return n
}

func appendRules(to []*guber.RateLimitReq, call limiter.Call) []*guber.RateLimitReq {
	for _, c := range call.Checks {
		for _, l := range c.Limits {
			to = append(to, &guber.RateLimitReq{
				Name: strconv.FormatInt(l.Window, 10), UniqueKey: c.Key, Hits: c.N, Limit: l.Max, Duration: l.Window,
			})
		}
	}
	return to
}

// count says how many calls had all their rules under the limit.
func count(calls []limiter.Call, answers []*guber.RateLimitResp) (admitted int, err error) {
	for _, call := range calls {
		n := rules(call)
		if len(answers) < n {
			return admitted, errors.New("gubernator: fewer answers than questions")
		}
		under := true
		for _, a := range answers[:n] {
			if a.Error != "" {
				return admitted, errors.New("gubernator: " + a.Error)
			}
			under = under && a.Status == guber.Status_UNDER_LIMIT
		}
		if under {
			admitted++
		}
		answers = answers[n:]
	}
	return admitted, nil
}
