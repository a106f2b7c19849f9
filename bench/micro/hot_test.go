package micro_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/load"
)

const (
	crowdCallers = 16
	crowdBatch   = 50
	neverReached = 1 << 40
)

// BenchmarkHot measures a limit that everybody shares, a minute's on one key, beside one for each
// user, in batches of 50. The users of a request belong to the node that is asked, so that all
// messages between nodes are about the shared key, or to any node. One operation is a run of
// -duration.
func BenchmarkHot(b *testing.B) {
	env := programs(b)
	for _, most := range []int64{1_000_000, neverReached} {
		for _, of := range []struct {
			nodes int
			users string
		}{{1, "own"}, {3, "own"}, {3, "any"}} {
			name := fmt.Sprintf("limit=%d/nodes=%d/users=%s", most, of.nodes, of.users)
			b.Run(name, func(b *testing.B) {
				s := start(b, rival.Twotier("twotier", of.nodes, rival.TwoTier), env)
				c := newCrowd(b, s, most, of.users == "own")
				for b.Loop() {
					c.run(b, load.Loop{Duration: *duration}, crowdCallers, crowdBatch)
				}
				c.report(b)
			})
		}
	}
}

// BenchmarkEarly measures how much of such a limit is left when a cluster of three first refuses,
// if a tenth of the limit is asked for every second: what is lent and not used then.
func BenchmarkEarly(b *testing.B) {
	env := programs(b)
	for _, most := range []int64{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("limit=%d", most), func(b *testing.B) {
			s := start(b, rival.Twotier("twotier", 3, rival.TwoTier, "--hot-rate", "200"), env)
			c := newCrowd(b, s, most, false)
			for b.Loop() {
				c.run(b, load.Loop{Rate: 1000, Duration: 13 * time.Second}, 4, int(most/10_000))
			}
			c.report(b)
		})
	}
}

// crowd is callers that share a limit, and a log of what was admitted.
type crowd struct {
	*rival.Stand
	most    int64
	clients []*load.Client
	users   [][]string // that are asked for at each of the nodes
	before  crowdCounts
	log     admissions

	asked, admitted, near, failed atomic.Int64
	early                         atomic.Int64 // what was left at the first refusal, or -1
	p99                           int64
	seconds                       float64
}

// crowdCounts is what a cluster has used up.
type crowdCounts struct {
	rival.Usage
	messages, forwarded float64
}

// newCrowd returns callers that ask for users whom the asked node owns, or any node.
func newCrowd(b *testing.B, s *rival.Stand, most int64, own bool) *crowd {
	c := &crowd{Stand: s, most: most}
	c.early.Store(-1)
	var all []string
	for _, server := range s.Servers {
		users, err := keysOf(b.Context(), server, len(s.Servers))
		client, err2 := connect(server.Addr)
		if err := errors.Join(err, err2); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(client.Close)
		c.clients, c.users = append(c.clients, client), append(c.users, users)
		all = append(all, users...)
	}
	for i := range c.users {
		if !own {
			c.users[i] = all
		}
	}
	c.before = c.counts(b)
	return c
}

// counts returns what the cluster has used up so far.
func (c *crowd) counts(b *testing.B) (n crowdCounts) {
	var err error
	if n.Usage, err = c.Usage(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, to := range map[string]*float64{"twotier_peer_messages_total": &n.messages,
		sentOut: &n.forwarded} {
		if *to, err = totalOf(b.Context(), c.Servers, name); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// totalOf returns the total of a metric over some servers.
func totalOf(ctx context.Context, servers []*proc.Server, name string) (n float64, err error) {
	for _, s := range servers {
		v, err := s.Metric(ctx, name)
		if err != nil {
			return 0, err
		}
		n += v
	}
	return n, nil
}

// run asks all nodes in turn, in batches.
func (c *crowd) run(b *testing.B, l load.Loop, callers, batch int) {
	var workers []load.Worker
	for at := range callers {
		workers = append(workers, load.Worker{
			Next: func() (time.Duration, bool) { at++; return 0, true },
			Do:   func() error { return c.ask(at%len(c.clients), batch) },
		})
	}
	t := l.Run(b.Context(), workers)
	if err := t.Err(); err != nil {
		b.Fatal(err)
	}
	c.p99, c.seconds = t.Latency.P99, c.seconds+t.Seconds
}

// ask sends a batch to a node, and notes what was admitted.
func (c *crowd) ask(node, batch int) error {
	ops, users := make([]operation, batch), c.users[node]
	for i := range ops {
		ops[i] = operation{Op: "acquire", Checks: []check{
			{users[rand.IntN(len(users))], limitsOf("1m")}, {"everybody", []limit{{"1m", c.most}}},
		}}
	}
	body, err := json.Marshal(map[string]any{"ops": ops})
	if err != nil {
		return err
	}
	asked := time.Now()
	return c.clients[node].Post("/v1/batch", body, func(answer []byte) error {
		return c.note(answer, asked, batch)
	})
}

// note reads the answer to a batch.
func (c *crowd) note(answer []byte, asked time.Time, batch int) error {
	var a struct {
		Results []struct {
			Allowed *bool
			Source  string
		}
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return err
	}
	admitted, refused := int64(0), false
	for i := range a.Results {
		switch r := &a.Results[i]; {
		case r.Allowed == nil:
			c.failed.Add(1)
		case *r.Allowed:
			admitted++
		default:
			refused = true
		}
		if a.Results[i].Source == "near" {
			c.near.Add(1)
		}
	}
	c.asked.Add(int64(batch))
	c.log.add(asked, time.Now(), admitted)
	if total := c.admitted.Add(admitted); refused {
		c.early.CompareAndSwap(-1, max(0, c.most-total))
	}
	return nil
}

// report reports what a decision cost, and how far the limit was exceeded or not used.
func (c *crowd) report(b *testing.B) {
	after, asked := c.counts(b), float64(c.asked.Load())
	b.ReportMetric(asked/c.seconds, "decisions/s")
	b.ReportMetric(after.Since(c.before.Usage).Service*1e6/asked, "service-us/decision")
	b.ReportMetric((after.messages-c.before.messages)/asked, "messages/decision")
	b.ReportMetric((after.forwarded-c.before.forwarded)/asked, "forwarded/decision")
	b.ReportMetric(float64(c.near.Load())/asked, "near/decision")
	b.ReportMetric(float64(c.failed.Load()), "failed")
	b.ReportMetric(float64(c.p99), "p99-us")
	b.ReportMetric(float64(c.admitted.Load()), "admitted")
	b.ReportMetric(float64(max(0, c.log.most(time.Minute)-c.most)), "over")
	if early := c.early.Load(); early >= 0 {
		b.ReportMetric(float64(early)/float64(c.most), "early")
	}
}
