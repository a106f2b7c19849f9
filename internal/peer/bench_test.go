package peer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// yes is a node that allows everything at once.
type yes struct{}

func (yes) Serve(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Allowed, res[i].Source = true, twotier.SourceMemory
		c := res[i].AddCheck()
		for range ops[i].Checks[0].Limits {
			c.Limits = append(c.Limits, twotier.LimitResult{Count: 1, Lo: 1, Hi: 1, BucketMS: 1000})
		}
	}
}

func (yes) ServeTasks(context.Context, []rpc.Task, []twotier.Result) {}

func (yes) Respond(context.Context, any) (any, error) { return nil, nil }

// handler is a transport to a server in the same process.
type handler struct{ s *peer.Server }

func (h handler) Send(ctx context.Context, _ string, message []byte) ([]byte, error) {
	return h.s.Handle(ctx, message)
}

// BenchmarkForward forwards an operation with one limit to a node in this process that does
// nothing, sealed as between machines: it measures the work of this package.
func BenchmarkForward(b *testing.B) {
	secret := []byte("a secret of all nodes")
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			s := peer.NewServer(peer.ServerOptions{Self: "b-1", Secret: secret, Node: yes{}})
			c, err := peer.NewClient(peer.ClientOptions{Self: "a-1", Secret: secret,
				Transport: handler{s}})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = c.Close(context.Background()) }()
			to := &ring.Member{ID: "b", Name: "b-1", Address: "b"}
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			b.SetParallelism(callers)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				tasks := []rpc.Task{{Op: twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{
					Key: []byte("user:42"), N: 1,
					Limits: []twotier.Limit{{Window: 60_000, Max: 5}}}}}}}
				res := make([]twotier.Result, 1)
				for pb.Next() {
					if c.Do(ctx, to, tasks, res); res[0].Err != nil {
						b.Error(res[0].Err)
					}
				}
			})
			b.StopTimer()
			stats := c.Stats()
			b.ReportMetric(float64(stats.TasksTotal)/float64(stats.MessagesTotal), "tasks/message")
		})
	}
}
