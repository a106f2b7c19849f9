package clustertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestFault7DistinctValuesOverARedisCluster adds distinct values to keys with hash tags while a
// slot of a Redis Cluster is moved, a primary is killed, a node is killed, and the cluster counts
// in Redis for a while. Every acknowledged value is there in the end, once, even after all nodes
// were started again: L is 0 as long as an owner has the values in memory that a replica had not
// received yet.
func TestFault7DistinctValuesOverARedisCluster(t *testing.T) {
	takesLong(t)
	t.Parallel()
	rc := redistest.StartCluster(t, 3, 1)
	c := startOver(t, rc, 3, "--admin-token", rulesToken, "--config",
		configured(t, "namespaces: {default: {hash_tags: true}}"))
	d := &distinctTraffic{c: c, seen: map[string]map[string]bool{}}
	place := twotier.Placement{Partitions: c.Partitions,
		HashTags: twotier.HashTags{"default": true}}
	for i := range 4 {
		d.keys = append(d.keys, fmt.Sprintf("{user-%d}:devices", i),
			fmt.Sprintf("{user-%d}:addresses", i))
		if a, b := place.Of(nil, []byte(d.keys[2*i])),
			place.Of(nil, []byte(d.keys[2*i+1])); a != b {
			t.Fatalf("one tag, two partitions: %d and %d", a, b)
		}
	}
	d.nodes(c.Running())
	for i := range 3 {
		d.done.Go(func() { d.run(i) })
	}
	d.pass(60)
	slot := rc.Slot(t, fmt.Sprintf("tt:{p%d}", place.Of(nil, []byte(d.keys[0]))))
	// While it is half moved, every writer may wait for a key in it.
	moveSlot(t, rc, slot, func() { d.pass(30) }, func() { time.Sleep(time.Second) })
	old := rc.KillPrimary(t, slot)
	rc.WaitPromotion(t, slot, old)
	d.pass(60)
	d.nodes(without(c.Running(), 1))
	c.Kill(1)
	d.pass(60)
	c.Serve(1)
	c.Settled()
	d.nodes(c.Running())
	d.pass(60)
	c.modeOf(0, "redis")
	d.pass(60)
	c.modeOf(0, "two-tier")
	d.pass(60)
	d.stop.Store(true)
	d.done.Wait()
	d.complete("in the end")
	c.startAgain(c.Stop, 3)
	d.complete("after all nodes were started again")
}

// moveSlot moves a slot to another primary while clients count. It stays half moved while half
// runs: ASK for keys that have moved, TRYAGAIN for a script that needs keys of both kinds.
func moveSlot(t *testing.T, rc *redistest.Cluster, slot int, pass, half func()) {
	t.Helper()
	from := rc.Owner(t, slot)
	to := rc.Primaries(t)[0]
	if to == from {
		to = rc.Primaries(t)[1]
	}
	rc.SetMigrating(t, slot, from, to)
	pass()
	rc.MigrateKeys(t, slot, from, to, 1)
	half()
	for rc.MigrateKeys(t, slot, from, to, 0) > 0 {
	}
	pass()
	rc.FinishMigration(t, slot, from, to)
	pass()
}

// complete checks that every node has exactly the acknowledged values.
func (d *distinctTraffic) complete(when string) {
	d.c.T.Helper()
	for _, key := range d.keys {
		d.c.hasDistinct(key, int64(len(d.seen[key])), when)
	}
}

// The content of a version of the rules: devices has a limit that is low in two versions of three,
// in one of which it is in shadow. Keys that begin with vip- have another limit, which reveals the
// version. cap bounds every key, a little higher in each version.
func devicesMax(version int, key string) int64 {
	switch {
	case strings.HasPrefix(key, "vip-"):
		return int64(1000 + version)
	case version%3 == 1:
		return int64(8 * version)
	}
	return 4
}

func devicesShadow(version int) bool { return version%3 == 0 }
func capMax(version int) int64       { return int64(8 * version) }

// distinctTurns returns that version as a document.
func distinctTurns(version int) string {
	state := "on"
	if devicesShadow(version) {
		state = "shadow"
	}
	return fmt.Sprintf(`rules:
- name: devices
  namespace: sms
  state: %s
  distinct: %d/24h
  overrides: [{prefix: vip-, distinct: %d/24h}]
- {name: cap, namespace: sms, distinct: [%d/24h]}
`, state, devicesMax(version, ""), devicesMax(version, "vip-"), capMax(version))
}

// ruledAnswer is an answer by both rules.
type ruledAnswer struct {
	Counts []struct {
		Max, Count      int64
		Rule            string
		Shadow, Refused bool
	}
	Over         bool
	RefusedBy    []string `json:"refused_by"`
	RulesVersion int      `json:"rules_version"`
	Source       string
}

// wrong compares an answer about one new value with the rules of the version that it names. It
// returns the expected answer if they differ, or "".
func (a *ruledAnswer) wrong(key string) string {
	v := a.RulesVersion
	if len(a.Counts) != 2 || v < 1 {
		return "want a version, and a count for each rule"
	}
	devices, all := &a.Counts[0], &a.Counts[1]
	after := all.Count
	if a.Over {
		after++
	}
	tooMany, full := after > devicesMax(v, key), after > capMax(v)
	var by []string
	if tooMany && !devicesShadow(v) {
		by = append(by, "devices")
	}
	if full {
		by = append(by, "cap")
	}
	switch {
	case devices.Rule != "devices" || devices.Max != devicesMax(v, key) ||
		devices.Shadow != devicesShadow(v) || devices.Refused != tooMany:
		return fmt.Sprintf("devices allows %d, in shadow %v, refuses %v", devicesMax(v, key),
			devicesShadow(v), tooMany)
	case all.Rule != "cap" || all.Max != capMax(v) || all.Shadow || all.Refused != full:
		return fmt.Sprintf("cap allows %d, refuses %v", capMax(v), full)
	case devices.Count != all.Count:
		return "the rules count the same values"
	case a.Over != (len(by) > 0) || !slices.Equal(a.RefusedBy, by):
		return fmt.Sprintf("refused by %v", by)
	}
	return ""
}

// verdictsOf adds up the verdicts in an answer by rule.
func (a *ruledAnswer) verdictsOf(sum map[string]int64) {
	for _, c := range a.Counts {
		switch {
		case !c.Refused:
			sum[c.Rule+" allowed"]++
		case c.Shadow:
			sum[c.Rule+" shadow_refused"]++
		default:
			sum[c.Rule+" refused"]++
		}
	}
}

// ruledTraffic adds new values at every node, one after the other.
type ruledTraffic struct {
	c    *cluster
	keys []string
	stop atomic.Bool
	done sync.WaitGroup

	mu      sync.Mutex
	seen    map[[2]int]bool // version and node
	allowed map[int]bool    // versions that have
	refused map[int]bool
	sums    map[string]int64 // rule and verdict
	failed  int64            // requests that got no answer, or one that is not a verdict
}

func (r *ruledTraffic) run(i int) {
	for n := 0; !r.stop.Load(); n++ {
		key := r.keys[n%len(r.keys)]
		status, text, err := r.c.Nodes[i].Post("/v1/distinct", fmt.Sprintf(
			`{"key":%q,"values":["%d-%d"],"rules":["devices","cap"]}`, key, i, n))
		r.note(i, key, status, text, err)
		time.Sleep(2 * time.Millisecond) // leaves processor time for the nodes
	}
}

// note checks an answer.
func (r *ruledTraffic) note(i int, key string, status int, text []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || status == http.StatusServiceUnavailable {
		r.failed++ // on a busy machine; the next value is another one
		return
	}
	var a ruledAnswer
	if err := json.Unmarshal(text, &a); err != nil || status != http.StatusOK {
		r.c.T.Errorf("node %d: %d %s %v", i, status, text, err)
		return
	}
	if a.verdictsOf(r.sums); a.Source == "fallback" {
		return // an owner that did not answer may have added the value, so it is not new
	}
	if want := a.wrong(key); want != "" {
		r.c.T.Errorf("node %d, %s: %s; %s", i, key, text, want)
	}
	r.seen[[2]int{a.RulesVersion, i}] = true
	if a.Over {
		r.refused[a.RulesVersion] = true
	} else {
		r.allowed[a.RulesVersion] = true
	}
}

// complete returns an error while a version lacks decisions of a node, refusals, or, unless all
// keys are over the limit of devices, added values.
func (r *ruledTraffic) complete(version int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range 3 {
		if !r.seen[[2]int{version, i}] {
			return fmt.Errorf("node %d has not decided by version %d", i, version)
		}
	}
	if !r.refused[version] || !r.allowed[version] {
		return fmt.Errorf("version %d: refused %v, allowed %v", version, r.refused[version],
			r.allowed[version])
	}
	return nil
}

// TestDistinctRulesOfACluster adds values at each of three nodes, to keys of each of them, while
// the rules that judge them change: limits, an override, and the state. Every verdict follows the
// version that it names, in both modes, and is counted by the node that was asked.
func TestDistinctRulesOfACluster(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	c.putRules(0, 0, distinctTurns(1))
	c.haveRules(1)
	r := &ruledTraffic{c: c, seen: map[[2]int]bool{}, allowed: map[int]bool{},
		refused: map[int]bool{}, sums: map[string]int64{}}
	for i := range 3 {
		r.keys = append(r.keys, c.keyOf(i, "ruled"))
	}
	r.keys = append(r.keys, "vip-1")
	for i := range 3 {
		r.done.Go(func() { r.run(i) })
	}
	defer r.done.Wait()
	defer r.stop.Store(true)
	const versions = 8
	for version := 1; version <= versions; version++ {
		if version > 1 {
			c.putRules(version%3, version-1, distinctTurns(version))
			c.haveRules(version)
		}
		if version == versions-2 {
			c.modeOf(0, "redis")
		}
		proctest.UntilNil(t, "decisions by each version", func() error {
			return r.complete(version)
		})
	}
	r.stop.Store(true)
	r.done.Wait()
	r.counted()
	c.refusedMost(r.keys[0])
}

// counted compares the verdicts in the answers with the nodes' counts. The verdicts of requests
// without an answer are unknown.
func (r *ruledTraffic) counted() {
	r.c.T.Helper()
	for name, n := range r.sums {
		rule, verdict, _ := strings.Cut(name, " ")
		if got := r.c.decisions(rule, verdict); got < n || got > n+r.failed {
			r.c.T.Errorf("%s: the nodes have counted %d, want %d, or up to %d more", name, got, n,
				r.failed)
		}
	}
}

// refusedMost waits until every node lists a key among the keys with the most refusals.
func (c *cluster) refusedMost(key string) {
	c.T.Helper()
	for _, i := range c.Running() {
		proctest.UntilNil(c.T, "keys that refused most", func() error {
			status, text, err := c.Nodes[i].TryGet("/v1/top?by=refused&window=24h")
			if err == nil && (status != 200 ||
				!strings.Contains(string(text), fmt.Sprintf(`{"ns":"sms","key":%q,`, key))) {
				err = fmt.Errorf("node %d: %d %s has no %s", i, status, text, key)
			}
			return err
		})
	}
}

// TestValuesBesideEventsOfOtherOwners acquires values of a key and events of another, whose owners
// are two other nodes, in both modes: either both are counted or none.
func TestValuesBesideEventsOfOtherOwners(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	for _, mode := range []string{"two-tier", "redis"} {
		c.modeOf(0, mode)
		account, address := c.keyOf(1, "account-"+mode), c.keyOf(2, "address-"+mode)
		for i, step := range []struct {
			value, refused string
			values, events int64
		}{
			{"a", "", 1, 1}, {"b", "", 2, 2}, {"c", "checks[0].value_limits[0]", 2, 2},
			{"a", "", 2, 3}, {"c", "checks[0].value_limits[0] checks[1].limits[0]", 2, 3},
			{"b", "checks[1].limits[0]", 2, 3},
		} {
			var a struct {
				Allowed bool
				Refused []string `json:"refused_by"`
				Source  string
			}
			text := c.Nodes[0].MustPost("/v1/acquire", fmt.Sprintf(`{"checks":[{"key":%q,`+
				`"values":[%q],"value_limits":[{"window":"24h","max":2}]},{"key":%q,"limits":`+
				`[{"window":"24h","max":3}]}],"ack":"redis"}`, account, step.value, address))
			must.Succeed(t, json.Unmarshal(text, &a))
			if strings.Join(a.Refused, " ") != step.refused || a.Allowed != (step.refused == "") {
				t.Errorf("%s, step %d: %s, want %s", mode, i, text, step.refused)
			}
			c.hasDistinct(account, step.values, mode)
			proctest.UntilNil(t, "the events are counted", func() error {
				seen, err := c.Nodes[0].TryCount("key=" + address + "&window=24h")
				if err == nil && seen.Counts[0].Count != step.events {
					err = fmt.Errorf("%s, step %d: %+v, want %d", mode, i, seen, step.events)
				}
				return err
			})
		}
	}
}
