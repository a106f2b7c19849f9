package clustertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// distinctAnswer holds the checked parts of an answer.
type distinctAnswer struct {
	Counts []struct {
		Count int64
		Error float64
	}
	Over bool
	// RetryAfterMS is the time after which refused values would be allowed.
	RetryAfterMS int64 `json:"retry_after_ms"`
	Source       string
	Degraded     bool
}

// tryDistinct counts the values of a key in the last day at node i.
func (c *cluster) tryDistinct(i int, key string) (a distinctAnswer, err error) {
	err = c.Nodes[i].Ask("/v1/distinct?window=24h&key="+key, "", &a)
	return a, err
}

// hasDistinct waits until every running node reports that number of values of a key, and fails the
// test if one reports more.
func (c *cluster) hasDistinct(key string, want int64, when string) {
	c.T.Helper()
	for _, i := range c.Running() {
		proctest.UntilNil(c.T, when, func() error {
			a, err := c.tryDistinct(i, key)
			switch {
			case err != nil:
				return err
			case a.Counts[0].Count > want || a.Counts[0].Error != 0:
				c.T.Fatalf("%s, node %d: %+v, want %d", when, i, a, want)
			case a.Counts[0].Count < want:
				return fmt.Errorf("node %d has %+v of %s, want %d", i, a, key, want)
			}
			return nil
		})
	}
}

// addDistinct adds values at node i, with a limit of that many in a day.
func (c *cluster) addDistinct(i int, key string, most int, values ...string) (a distinctAnswer) {
	c.T.Helper()
	list, _ := json.Marshal(values)
	body := fmt.Sprintf(`{"key":%q,"values":%s,"limits":[{"window":"24h","max":%d}],`+
		`"ack":"redis"}`, key, list, most)
	proctest.UntilNil(c.T, "values are added", func() error {
		a = distinctAnswer{}
		return c.Nodes[i].Ask("/v1/distinct", body, &a)
	})
	return a
}

// refusesAnother fails the test unless every running node refuses another value of a key that has
// three, and accepts a value that it already has.
func (c *cluster) refusesAnother(key, when string) {
	c.T.Helper()
	c.hasDistinct(key, 3, when)
	for _, i := range c.Running() {
		if a := c.addDistinct(i, key, 3, "another"); !a.Over || a.Counts[0].Count != 3 ||
			a.RetryAfterMS < 86_000_000 || a.RetryAfterMS > 87_300_000 {
			c.T.Errorf("%s, node %d: %+v", when, i, a)
		}
		if a := c.addDistinct(i, key, 3, "b", "a"); a.Over || a.Counts[0].Count != 3 {
			c.T.Errorf("%s, node %d, known values: %+v", when, i, a)
		}
	}
}

// TestDistinctValuesOutliveTheirOwner adds values at each of three nodes, with a limit. All count
// and refuse the same after the owner was killed, in Redis mode, after Redis has lost its data,
// after a graceful stop, and after all nodes were started again. A reset forgets the values.
func TestDistinctValuesOutliveTheirOwner(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	key := c.keyOf(1, "distinct")
	for i, values := range [][]string{{"a", "a"}, {"b", "a"}, {"c", "b"}} {
		if a := c.addDistinct(i, key, 3, values...); a.Over || a.Counts[0].Count != int64(i+1) {
			t.Errorf("values %v: %+v", values, a)
		}
	}
	c.refusesAnother(key, "at first")
	c.Kill(1)
	c.refusesAnother(key, "after the owner was killed")
	c.Serve(1)
	c.Settled()
	c.refusesAnother(key, "after it is back")
	foreign := c.foreignKey(1)
	c.modeOf(0, "redis")
	c.refusesAnother(key, "in Redis mode")
	must.Succeed(t, c.Direct.Del(t.Context(), foreign).Err())
	if a, err := c.tryDistinct(2, key); err != nil || a.Source != "redis" {
		t.Errorf("in Redis mode: %+v %v", a, err)
	}
	c.modeOf(0, "two-tier")
	c.refusesAnother(key, "in memory again")
	must.Succeed(t, c.Direct.FlushAll(t.Context()).Err())
	c.refusesAnother(key, "after Redis lost everything")
	c.storedDistinct(key)
	c.Stop(1)
	c.refusesAnother(key, "after the owner was stopped")
	c.startAgain(c.Stop, 3)
	c.refusesAnother(key, "after all nodes were started again")
	if status, text, _ := admin(t, c.Nodes[0], "POST", "/v1/reset", fmt.Sprintf(`{"key":%q}`,
		key), "Content-Type", "application/json"); status != 200 {
		t.Fatalf("reset: %d %s", status, text)
	}
	c.hasDistinct(key, 0, "after a reset")
}

// TestDistinctValuesOutliveAStopWithoutRedis stops the owner of a key while Redis is gone. It
// reports no loss, and the other nodes have the values, also once Redis is back.
func TestDistinctValuesOutliveAStopWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := startOver(t, server, 3)
	key := c.keyOf(1, "distinct")
	c.Nodes[1].MustPost("/v1/distinct", fmt.Sprintf(`{"key":%q,"values":["a"],"ack":"redis"}`, key))
	server.Kill()
	c.Nodes[1].MustPost("/v1/distinct", fmt.Sprintf(`{"key":%q,"values":["b","c"]}`, key))
	c.Stop(1)
	c.Settled()
	c.hasDistinct(key, 3, "without Redis")
	server.Restart(t)
	c.hasDistinct(key, 3, "with Redis")
}

// foreignKey adds a value to a key whose name another program uses in Redis, and returns the name.
// It must hold up only this key.
func (c *cluster) foreignKey(i int) (name string) {
	c.T.Helper()
	key := c.keyOf(i, "foreign")
	name = strings.Replace(proctest.Hash(c.Partitions, key), ":default:",
		":@values/default:/", 1)
	must.Succeed(c.T, c.Direct.Set(c.T.Context(), name, "of another program", 0).Err())
	c.Nodes[i].MustPost("/v1/distinct", fmt.Sprintf(`{"key":%q,"values":["v"]}`, key))
	return name
}

// storedDistinct waits until Redis has the values of a key.
func (c *cluster) storedDistinct(key string) {
	c.T.Helper()
	proctest.UntilNil(c.T, "Redis has the values again", func() error {
		keys, err := c.Direct.Keys(c.T.Context(), "tt:*:@values/default:/"+key).Result()
		if err == nil && len(keys) != 1 {
			err = fmt.Errorf("keys %v", keys)
		}
		return err
	})
}

// distinctTraffic adds values until each was acknowledged, at any node where that is possible.
type distinctTraffic struct {
	c    *cluster
	keys []string
	mu   sync.Mutex
	to   []*proctest.Process
	seen map[string]map[string]bool // by key: the values that were acknowledged
	sent atomic.Int64               // how often a value was acknowledged
	stop atomic.Bool
	done sync.WaitGroup
}

// nodes sends the traffic to these nodes from now on.
func (d *distinctTraffic) nodes(numbers []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = nil
	for _, i := range numbers {
		d.to = append(d.to, d.c.Nodes[i])
	}
}

func (d *distinctTraffic) run(writer int) {
	random := rand.New(rand.NewPCG(uint64(writer), 7))
	for !d.stop.Load() {
		// Few enough that the sets stay exact; many are added again.
		key, value := d.keys[random.IntN(len(d.keys))], fmt.Sprint(writer, ":", random.IntN(100))
		body := fmt.Sprintf(`{"key":%q,"values":[%q],"ack":"redis"}`, key, value)
		for by := time.Now().Add(proctest.Patience); ; {
			d.mu.Lock()
			p := d.to[random.IntN(len(d.to))]
			d.mu.Unlock()
			status, text, err := p.Post("/v1/distinct", body)
			if err == nil && status == 200 {
				break
			}
			if time.Now().After(by) {
				d.c.T.Errorf("%s: %d %s %v", body, status, text, err)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		d.mu.Lock()
		if d.seen[key] == nil {
			d.seen[key] = map[string]bool{}
		}
		d.seen[key][value] = true
		d.mu.Unlock()
		d.sent.Add(1)
	}
}

// pass waits until that many more values were acknowledged.
func (d *distinctTraffic) pass(n int64) {
	d.c.T.Helper()
	want := d.sent.Load() + n
	proctest.Until(d.c.T, "values are added", func() bool { return d.sent.Load() >= want })
}

// TestFault10DistinctValuesThroughFaults adds values while the owners of the keys are killed one
// after the other, nodes stop and start, and Redis is killed and comes back empty. Each value is
// sent until it is acknowledged, several times if necessary. In the end every node has exactly
// those values: none was lost, and none counts twice.
func TestFault10DistinctValuesThroughFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := startOver(t, server, 3)
	d := &distinctTraffic{c: c, seen: map[string]map[string]bool{}}
	for i := range 6 {
		d.keys = append(d.keys, c.keyOf(i%3, strings.Repeat("k", i+1)))
	}
	d.nodes(c.Running())
	for i := range 4 {
		d.done.Go(func() { d.run(i) })
	}
	for i := range 3 {
		d.pass(60)
		others := without(c.Running(), i)
		if i == 2 {
			d.nodes(others)
			c.Stop(i)
		} else {
			c.Kill(i)
			d.nodes(others)
		}
		d.pass(60)
		c.Serve(i)
		d.nodes(c.Running())
		d.pass(30)
		c.Settled()
	}
	for _, key := range d.keys { // so that a node has it in memory
		for _, i := range c.Running() {
			proctest.UntilNil(t, "it is read", func() error {
				_, err := c.tryDistinct(i, key)
				return err
			})
		}
	}
	server.Kill()
	server.Restart(t)
	d.pass(100)
	d.stop.Store(true)
	d.done.Wait()
	d.complete("in the end")
	t.Logf("%d times a value was acknowledged", d.sent.Load())
}

// without returns a list without one number.
func without(list []int, number int) (rest []int) {
	for _, i := range list {
		if i != number {
			rest = append(rest, i)
		}
	}
	return rest
}

// TestBatchesOfValues sends concurrent batches to all three nodes, with values for keys of each of
// them, in both modes: every value is counted once, wherever it is added, a rule admits no more
// than its limit, and each key is decided by its owner.
func TestBatchesOfValues(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	c.putRules(0, 0, "rules:\n- {name: devices, distinct: 5/24h}\n")
	c.haveRules(1)
	keys := map[string][]string{}
	for i := range 3 {
		for _, mode := range []string{"two-tier", "redis"} {
			keys[mode] = append(keys[mode], c.keyOf(i, "batched-"+mode))
		}
	}
	for _, source := range []string{"owner", "memory"} {
		proctest.UntilNil(t, "answers from "+source, func() error {
			results, err := c.batchOfValues(0, []string{fmt.Sprintf(
				`{"op":"distinct","key":%q,"window":"24h"}`,
				keys["two-tier"][map[string]int{"memory": 0, "owner": 1}[source]])})
			if err == nil && results[0].Source != source {
				err = fmt.Errorf("%+v", results[0])
			}
			return err
		})
	}
	c.addInBatches("two-tier", keys["two-tier"])
	c.modeOf(0, "redis")
	c.addInBatches("redis", keys["redis"])
}

// addInBatches is TestBatchesOfValues in one mode.
func (c *cluster) addInBatches(mode string, keys []string) {
	c.T.Helper()
	const values, most = 9, 5
	var ops []string
	for v := range values {
		for _, key := range keys {
			ops = append(ops, fmt.Sprintf(`{"op":"distinct","key":%q,"values":["v%d"]}`, key, v),
				fmt.Sprintf(`{"op":"distinct","key":"few-%s","values":["v%d"],`+
					`"rules":["devices"]}`, key, v))
		}
	}
	var done sync.WaitGroup
	var astray atomic.Bool // nodes may decide in place of one that they can't reach
	for i := range 3 {
		done.Go(func() {
			// A batch is repeated until all of it has answers; the repetition changes nothing.
			for deadline := time.Now().Add(proctest.Patience); ; time.Sleep(20 * time.Millisecond) {
				results, err := c.batchOfValues(i, ops)
				for _, r := range results {
					if r.Degraded || r.Source == "fallback" {
						astray.Store(true)
					}
				}
				if err == nil {
					return
				}
				if time.Now().After(deadline) {
					c.T.Errorf("%s, node %d: %v", mode, i, err)
					return
				}
			}
		})
	}
	done.Wait()
	for _, key := range keys {
		c.hasDistinct(key, values, mode)
		if !astray.Load() {
			c.hasDistinct("few-"+key, most, mode+", with a limit")
		}
	}
}

// batchOfValues sends a batch to node i, and returns the results, and an error unless all
// operations were executed.
func (c *cluster) batchOfValues(i int, ops []string) ([]distinctAnswer, error) {
	status, text, err := c.Nodes[i].Post("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	if err == nil && status != 200 {
		err = fmt.Errorf("%d %s", status, text)
	}
	if err != nil {
		return nil, err
	}
	var answer struct{ Results []distinctAnswer }
	if strings.Contains(string(text), `"error":{`) {
		return nil, fmt.Errorf("an operation failed: %s", text)
	}
	err = json.Unmarshal(text, &answer)
	return answer.Results, err
}
