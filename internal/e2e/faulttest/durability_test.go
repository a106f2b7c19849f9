package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// lagging starts a server and a replica with a proxy between them that delays replication.
func lagging(t *testing.T) (primary, replica *redistest.Server, link *faultproxy.Proxy) {
	t.Helper()
	primary, replica = redistest.Start(t), redistest.Start(t)
	link = faultproxy.NewRaw(t, primary.Addr())
	host, port, _ := strings.Cut(link.Addr(), ":")
	must.Succeed(t, replica.Do("REPLICAOF", host, port).Err())
	proctest.Until(t, "the replica is connected", func() bool {
		info, err := primary.Do("INFO", "replication").Text()
		return err == nil && strings.Contains(info, "state=online")
	})
	return primary, replica, link
}

// ackers are workers that count with two kinds of ack and record how long each request took.
type ackers struct {
	tr   *proctest.Traffic
	mu   sync.Mutex
	took map[string][]time.Duration
}

// ackKeys is how many keys each kind of ack counts.
const ackKeys = 8

func ackKey(ack string, i int) string { return fmt.Sprint(ack, "-", i) }

// start makes workers count until the traffic stops.
func (a *ackers) start(acks ...string) {
	a.took = map[string][]time.Duration{}
	for _, ack := range acks {
		for i := range ackKeys {
			a.tr.Repeat(func() {
				began := time.Now()
				if a.tr.AddAck(ackKey(ack, i), 1, ack) != proctest.Acked {
					return
				}
				a.mu.Lock()
				defer a.mu.Unlock()
				a.took[ack] = append(a.took[ack], time.Since(began))
			})
		}
	}
}

// median returns the median duration of the acknowledged requests.
func (a *ackers) median(ack string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := slices.Sorted(slices.Values(a.took[ack]))
	return list[len(list)/2].Round(10 * time.Microsecond)
}

// sums returns the sums of acknowledged and of unknown events over all keys of one kind of ack.
func (a *ackers) sums(ack string) (acked, unknown int64) {
	for i := range ackKeys {
		of := a.tr.Ledger.Of(ackKey(ack, i))
		acked, unknown = acked+of.Acked, unknown+of.Unknown
	}
	return acked, unknown
}

// survived checks that Redis holds every acknowledged event and none that was not sent. It returns
// how many events are missing.
func (a *ackers) survived(t *testing.T, client redis.UniversalClient,
	ack string) (missing int64) {
	t.Helper()
	var keys []string
	for i := range ackKeys {
		keys = append(keys, ackKey(ack, i))
	}
	held, err := proctest.Stored(client, twotier.DefaultPartitions, keys)
	must.Succeed(t, err)
	for _, key := range keys {
		of := a.tr.Ledger.Of(key)
		missing += max(0, of.Acked-held[key])
		if held[key] > of.Acked+of.Unknown {
			t.Errorf("%s: %d are stored, %d were acknowledged and %d may be", key, held[key],
				of.Acked, of.Unknown)
		}
	}
	return missing
}

// TestAckReplicaSurvivesAFailover delays a replica, cuts it off, and then kills the primary and
// both nodes, one of which forwards to the other. Every event acknowledged with ack=replica must be
// on the replica. Counts with other kinds of ack may be lost.
func TestAckReplicaSurvivesAFailover(t *testing.T) {
	for _, mode := range []string{"two-tier", "redis"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			primary, replica, link := lagging(t)
			a := serveTwo(t, primary, "--mode", mode)
			link.Delay(5 * time.Millisecond) // for each 4 KiB
			a.start("redis", "replica")
			proctest.Until(t, "counting goes on", func() bool {
				acked, _ := a.sums("replica")
				return acked >= 200
			})
			link.Hang()
			before, _ := a.sums("redis")
			proctest.Until(t, "the replica is missed", func() bool {
				now, _ := a.sums("redis")
				_, unknown := a.sums("replica")
				return now > before+200 && unknown > 0
			})
			for _, n := range a.Nodes {
				n.Kill()
			}
			primary.Kill()
			a.tr.Stop()
			alone(t, replica)
			if missing := a.survived(t, replica.Client(t), "replica"); missing != 0 {
				t.Errorf("%d of what ack=replica acknowledged did not survive", missing)
			}
			lost := a.survived(t, replica.Client(t), "redis")
			if lost == 0 {
				t.Error("nothing of what ack=redis acknowledged is lost: the replica did not lag")
			}
			acked, unknown := a.sums("replica")
			plain, _ := a.sums("redis")
			t.Logf("%s: ack=replica: %d acknowledged, 0 lost, %d unknown, half within %v (5 ms "+
				"for each 4 KiB to the replica); ack=redis: %d acknowledged, %d lost, half "+
				"within %v",
				mode, acked, unknown, a.median("replica"), plain, lost, a.median("redis"))
		})
	}
}

// pairOf is two nodes and the workers that count with them.
type pairOf struct {
	ackers
	*proctest.Cluster
}

// serveTwo starts a cluster of two nodes, which have to forward half of the requests.
func serveTwo(t *testing.T, r proctest.Redis, args ...string) *pairOf {
	t.Helper()
	p := &pairOf{Cluster: proctest.NewCluster(t, program, r, proctest.Loopback(), args...)}
	p.Serve(0)
	p.Serve(1)
	// In Redis mode no node holds a partition.
	proctest.Until(t, "the two are one cluster", func() bool {
		return p.Nodes[0].Metric("twotier_members", "") == 2
	})
	p.tr = (&proctest.Traffic{T: t, Ledger: p.Ledger}).To(p.Bases()...).Open()
	return p
}

// TestAckDiskSurvivesAKill checks that every event acknowledged with ack=disk is there after a
// restart. It needs a server that has WAITAOF.
func TestAckDiskSurvivesAKill(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config("appendonly yes", "appendfsync everysec"))
	if !redistest.Features(t, server).WaitAOF {
		t.Skip("the server has no WAITAOF: see TestAckThatCannotBeHad")
	}
	a := serveTwo(t, server)
	a.start("disk")
	proctest.Until(t, "counting goes on", func() bool {
		acked, _ := a.sums("disk")
		return acked >= 5*ackKeys
	})
	for _, n := range a.Nodes {
		n.Kill()
	}
	server.Kill()
	a.tr.Stop()
	server.Restart(t)
	if missing := a.survived(t, server.Client(t), "disk"); missing != 0 {
		t.Errorf("%d of what ack=disk acknowledged did not survive", missing)
	}
	acked, unknown := a.sums("disk")
	t.Logf("ack=disk: %d acknowledged, 0 lost, %d unknown, half within %v (appendfsync everysec)",
		acked, unknown, a.median("disk"))
}

// TestAckDiskInACluster is TestAckDiskSurvivesAKill for batches over three primaries. All of them
// are killed and restart from their disks.
func TestAckDiskInACluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if !redistest.Features(t, server).WaitAOF {
		t.Skip("the server has no WAITAOF: see TestAckThatCannotBeHad")
	}
	c := redistest.StartCluster(t, 3, 0, redistest.Config("appendonly yes",
		"appendfsync everysec"))
	a := serveTwo(t, c)
	a.start("disk")
	a.batches("disk")
	a.goesOn(t, "disk", 10*ackKeys)
	a.killAll()
	for _, n := range c.Nodes {
		n.Kill()
	}
	for _, n := range c.Nodes {
		n.Restart(t)
	}
	c.WaitReady(t)
	if missing := a.survived(t, c.Client(t), "disk"); missing != 0 {
		t.Errorf("%d of what ack=disk acknowledged did not survive", missing)
	}
	acked, unknown := a.sums("disk")
	t.Logf("Redis Cluster, ack=disk: %d acknowledged, 0 lost, %d unknown, half within %v "+
		"(appendfsync everysec)", acked, unknown, a.median("disk"))
}

// TestAckThatCannotBeHad checks that an ack that the store can't give is refused, at start if it is
// the node's default and otherwise with the request, and that nothing is counted.
func TestAckThatCannotBeHad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, ack := range []string{"replica", "disk"} {
		n, err := program.TryServe(t, proctest.Options{}, "--redis", server.URL(),
			"--ack", ack)
		if err == nil {
			t.Fatalf("--ack %s: it started", ack)
		}
		proctest.Wait(t, "the end", n.Done())
		if log := n.Log.String(); n.ExitCode() != 1 ||
			!strings.Contains(log, "ack: "+ack+" needs") {
			t.Errorf("--ack %s: exit status %d\n%s", ack, n.ExitCode(), log)
		}
	}
	for name, args := range map[string][]string{
		"two-tier": {"--redis", server.URL()},
		"redis":    {"--redis", server.URL(), "--mode", "redis"}, "embedded": nil,
	} {
		n := program.Serve(t, proctest.Options{}, args...)
		for _, ack := range []string{"replica", "disk"} {
			for path, body := range map[string]string{
				"/v1/add":     `{"key":"%s","ack":"%s"}`,
				"/v1/acquire": `{"key":"%s","ack":"%s","limits":[{"window":"1m","max":9}]}`,
			} {
				status, out, err := n.Post(path, fmt.Sprintf(body, name, ack))
				if err != nil || status != 422 || !strings.Contains(string(out), "ack") {
					t.Errorf("%s: %s with ack=%s: %d %s %v", name, path, ack, status, out, err)
				}
			}
			out := string(n.MustPost("/v1/batch",
				fmt.Sprintf(`{"ops":[{"op":"add","key":"%s","ack":"%s"},{"op":"add","key":"%s"}]}`,
					name+"1", ack, name+"2")))
			if !strings.Contains(out, `"status":422`) ||
				!strings.Contains(out, `"key":"`+name+`2"`) {
				t.Errorf("%s: batch with ack=%s: %s", name, ack, out)
			}
		}
		for key, want := range map[string]int64{name: 0, name + "1": 0, name + "2": 2} {
			if a := n.Count(key, "1m"); a.Counts[0].Max != want {
				t.Errorf("%s: %s was counted %d times, want %d", name, key, a.Counts[0].Max, want)
			}
		}
	}
}
