package micro_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/bench/load"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/bench/wire"
	"twotier.dev/twotier/internal/testing/must"
)

const (
	crowdCallers = 16
	crowdBatch   = 50
	neverReached = 1 << 40
)

// BenchmarkHot measures a limit that everybody shares, a minute's on one key, together with one for
// each user, in batches of 50. The users of a request belong to the receiving node, so that all
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
				c := newCrowd(b, s, most, of.users == "own", crowdBatch)
				for b.Loop() {
					c.run(b, load.Loop{Duration: *duration}, crowdCallers)
				}
				c.report(b)
			})
		}
	}
}

// BenchmarkEarly measures how much of such a limit is left when a cluster of three first refuses,
// if a tenth of the limit is requested every second: the part that is lent and unused then.
func BenchmarkEarly(b *testing.B) {
	env := programs(b)
	for _, most := range []int64{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("limit=%d", most), func(b *testing.B) {
			s := start(b, rival.Twotier("twotier", 3, rival.TwoTier, "--hot-rate", "200"), env)
			c := newCrowd(b, s, most, false, int(most/10_000))
			for b.Loop() {
				c.run(b, load.Loop{Rate: 1000, Duration: 13 * time.Second}, 4)
			}
			c.report(b)
		})
	}
}

// crowd is a set of callers that share a limit, with a log of their admissions.
type crowd struct {
	*rival.Stand
	most    int64
	clients []*wire.Client
	// requests are the prepared batches of each node, sent in any order.
	requests [][]request
	before   crowdCounts
	log      admissions

	asked, admitted, near, failed atomic.Int64
	early                         atomic.Int64 // the rest of the limit at the first refusal, or -1
	p99                           int64
	seconds                       float64
}

// crowdCounts is the usage of a cluster.
type crowdCounts struct {
	rival.Usage
	messages, forwarded float64
}

// newCrowd returns callers that send batches for users of the receiving node, or of any node.
func newCrowd(b *testing.B, s *rival.Stand, most int64, own bool, batch int) *crowd {
	c := &crowd{Stand: s, most: most}
	c.early.Store(-1)
	var users [][]string
	for _, server := range s.Servers {
		names, err := keysOf(b.Context(), server, len(s.Servers))
		must.Succeed(b, err)
		client := wire.NewClient(server.Addr)
		b.Cleanup(client.Close)
		c.clients, users = append(c.clients, client), append(users, names)
	}
	for _, asked := range users {
		if !own {
			asked = slices.Concat(users...)
		}
		c.requests = append(c.requests, crowdRequests(asked, most, batch))
	}
	c.before = c.counts(b)
	return c
}

// preparedBatches is the number of different batches for a node.
const preparedBatches = 100

// crowdRequests returns batches of random users, each under a separate limit and the shared one.
func crowdRequests(users []string, most int64, batch int) (all []request) {
	for range preparedBatches {
		r := request{path: "/v1/batch"}
		for range batch {
			r.ops = append(r.ops, operation{Op: "acquire", Checks: []check{
				{users[rand.IntN(len(users))], limitsOf("1m")}, {"everybody", []limit{{"1m", most}}},
			}})
		}
		r.encode("crowd")
		all = append(all, r)
	}
	return all
}

// counts returns the usage of the cluster so far.
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

// run calls all nodes in turn.
func (c *crowd) run(b *testing.B, l load.Loop, callers int) {
	var workers []load.Worker
	for at := range callers {
		workers = append(workers, load.Worker{
			Next: func() (time.Duration, bool) { at++; return 0, true },
			Do:   func() error { return c.ask(at % len(c.clients)) },
		})
	}
	t := l.Run(b.Context(), workers)
	must.Succeed(b, t.Err())
	c.p99, c.seconds = t.Latency.P99, c.seconds+t.Seconds
}

// ask sends one of the prepared batches to a node, and records the admissions.
func (c *crowd) ask(node int) error {
	r := &c.requests[node][rand.IntN(preparedBatches)]
	asked := time.Now()
	return c.clients[node].Post(r.path, r.append, func(answer []byte) error {
		return c.note(answer, asked, len(r.ops))
	})
}

// note reads the answer to a batch.
func (c *crowd) note(answer []byte, asked time.Time, batch int) error {
	o := readOutcomes(answer)
	if o.allowed+o.refused+o.failed != batch {
		return fmt.Errorf("%+v of %d: %.300s", o, batch, answer)
	}
	c.failed.Add(int64(o.failed))
	c.near.Add(int64(o.near))
	c.asked.Add(int64(batch))
	c.log.add(asked, time.Now(), int64(o.allowed))
	if total := c.admitted.Add(int64(o.allowed)); o.refused > 0 {
		c.early.CompareAndSwap(-1, max(0, c.most-total))
	}
	return nil
}

// outcomes are the numbers of acquires of a batch by outcome, and of the ones decided near.
type outcomes struct{ allowed, refused, failed, near int }

// readOutcomes reads the answer to a batch of acquires with checks without parsing it: only the
// result of an operation begins with "allowed" or "error", and no key contains such text.
// TestOutcomesAreThoseOfTheAnswer compares it with encoding/json.
func readOutcomes(answer []byte) (o outcomes) {
	o.near = bytes.Count(answer, []byte(`"source":"near"`))
	for {
		begin := bytes.IndexByte(answer, '{')
		if begin < 0 {
			return o
		}
		answer = answer[begin+1:]
		switch {
		case bytes.HasPrefix(answer, []byte(`"allowed":true`)):
			o.allowed++
		case bytes.HasPrefix(answer, []byte(`"allowed":false`)):
			o.refused++
		case bytes.HasPrefix(answer, []byte(`"error":`)):
			o.failed++
		}
	}
}

// report reports the cost of a decision, and the excess over the limit or its unused part.
func (c *crowd) report(b *testing.B) {
	after, asked := c.counts(b), float64(c.asked.Load())
	b.ReportMetric(asked/c.seconds, "decisions/s")
	used := after.Since(c.before.Usage)
	b.ReportMetric(used.Service*1e6/asked, "service-us/decision")
	reportShare(b, used)
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
