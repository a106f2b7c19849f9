package acceptance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
)

// mostPlaces limits how many holds of the key named places are open.
const mostPlaces = 3

// modelCheck is a check of a modelHold.
type modelCheck struct {
	key  string
	n    int64
	left int64 // of n, in the count of the key
	// reset marks that the key was reset since, which also ended the lease.
	reset bool
}

// modelHold is a hold, and what has become of it.
type modelHold struct {
	id      string
	checks  []modelCheck
	until   int64
	release bool
	renewed bool // by another one
	settled bool
	over    bool // released at its end
}

// holdsModel makes random requests about holds, and knows the counts of all keys.
type holdsModel struct {
	*bed
	dice   *rand.Rand
	counts map[string]int64
	holds  []*modelHold
	seen   map[string]int // how often each kind of answer was seen
}

// TestHoldsAgainstAModel holds, settles, renews and resets a few keys at random, and lets holds
// end. Keys may be in several checks of a hold, and settlements may come late or more than once.
// The counts are exact at every moment, and so are the places.
func TestHoldsAgainstAModel(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		m := &holdsModel{bed: b, dice: rand.New(rand.NewPCG(seed, 0)),
			counts: map[string]int64{"a": 0, "b": 0, "places": 0}, seen: map[string]int{}}
		for i := 0; i < 400 && !t.Failed(); i++ {
			m.step()
		}
		for _, kind := range []string{"held", "refused", "settled", "late", "repeated", "gone",
			"renewed", "reset", "whole", "twice"} {
			if m.seen[kind] == 0 {
				t.Errorf("nothing was %s: %v", kind, m.seen)
			}
		}
	})
}

func (m *holdsModel) step() {
	lasts := 1 + m.dice.Int64N(3000)
	if m.dice.IntN(80) == 0 {
		m.to(m.now() + 25_000) // no hold lasts longer; a release may not be ten minutes late
		m.endHolds()
		lasts = 700_000
	}
	m.to(m.now() + lasts)
	m.endHolds()
	switch n := m.dice.IntN(100); {
	case n < 45:
		m.acquire()
	case n < 50:
		m.resetKey()
	case len(m.holds) == 0:
	case n < 60:
		m.renewHold(m.pick())
	default:
		m.settleHold(m.pick())
	}
	m.check()
}

// pick returns one of the latest holds.
func (m *holdsModel) pick() *modelHold {
	return m.holds[max(0, len(m.holds)-1-m.dice.IntN(10))]
}

// endHolds releases the holds that have ended. A node does so up to a tenth of a second later.
func (m *holdsModel) endHolds() {
	for i := 0; i < len(m.holds); i++ {
		h := m.holds[i]
		if h.over || !h.release || h.settled || h.renewed || m.now() < h.until {
			continue
		}
		if m.now() < h.until+100 {
			m.to(h.until + 100)
			i = -1
			continue
		}
		h.over = true
		for i := range h.checks {
			m.counts[h.checks[i].key] -= h.checks[i].left
			h.checks[i].left = 0
		}
	}
	m.check()
}

// check waits until the counts are those of the model: releases follow the ends of holds.
func (m *holdsModel) check() {
	m.t.Helper()
	got, open := map[string]int64{}, int64(0)
	eventually(m.t, func() bool {
		same := true
		for key, want := range m.counts {
			got[key] = m.bed.count(key, "24h").Max
			same = same && got[key] == want
		}
		open = m.get("/v1/holds", "key", "places").Open
		return same && open == int64(m.open())
	})
	if m.t.Failed() {
		m.t.Fatalf("counts are %v, want %v; %d places are taken, want %d", got, m.counts, open,
			m.open())
	}
}

// open returns how many places are taken.
func (m *holdsModel) open() (open int) {
	for _, h := range m.holds {
		if h.settled || h.renewed || h.until <= m.now() {
			continue
		}
		for _, c := range h.checks {
			if c.key == "places" && !c.reset {
				open++
			}
		}
	}
	return open
}

func (m *holdsModel) acquire() {
	h := &modelHold{release: m.dice.IntN(3) == 0}
	places, texts := 0, []string(nil)
	for range 1 + m.dice.IntN(3) {
		key := []string{"a", "b", "places"}[m.dice.IntN(3)]
		n, limits := m.dice.Int64N(90), `{"window":"24h","max":1000000}`
		if key == "places" {
			places++
			limits += fmt.Sprintf(`,{"concurrent":%d}`, mostPlaces)
		}
		h.checks = append(h.checks, modelCheck{key: key, n: n, left: n})
		texts = append(texts, fmt.Sprintf(`{"key":%q,"n":%d,"limits":[%s]}`, key, n, limits))
	}
	onExpiry := ""
	if h.release {
		onExpiry = `,"on_expiry":"release"`
	}
	fits := places == 0 || m.open()+places <= mostPlaces
	a := m.ok("/v1/acquire", fmt.Sprintf(`{"checks":[%s],"hold":"%dms"%s}`,
		strings.Join(texts, ","), 1000+m.dice.IntN(20_000), onExpiry))
	if a.Allowed != fits {
		m.t.Fatalf("%v with %d open: %+v", texts, m.open(), a)
	}
	if !fits {
		m.seen["refused"]++
		return
	}
	m.seen["held"]++
	for _, c := range h.checks {
		m.counts[c.key] += c.n
	}
	h.id, h.until = a.Hold, a.Until
	m.holds = append(m.holds, h)
}

func (m *holdsModel) resetKey() {
	key := []string{"a", "b", "places"}[m.dice.IntN(3)]
	m.ok("/v1/reset", fmt.Sprintf(`{"key":%q}`, key))
	m.counts[key] = 0
	m.seen["reset"]++
	for _, h := range m.holds {
		for i := range h.checks {
			if c := &h.checks[i]; c.key == key {
				c.left, c.reset = 0, true
			}
		}
	}
}

func (m *holdsModel) renewHold(h *modelHold) {
	gone := h.settled || h.renewed || h.until <= m.now()
	for _, c := range h.checks {
		gone = gone || c.reset
	}
	a := m.post("/v1/renew", fmt.Sprintf(`{"hold":%q,"for":"%dms"}`, h.id, 1000+m.dice.IntN(20_000)))
	if gone != (a.Status == http.StatusGone) {
		m.t.Fatalf("%+v: renewed %+v", *h, a)
	}
	if gone {
		return
	}
	m.seen["renewed"]++
	next := *h
	next.id, next.until, next.checks = a.Hold, a.Until, slices.Clone(h.checks)
	h.renewed = true
	m.holds = append(m.holds, &next)
}

// settleHold settles a hold with a number for all of its keys, or with numbers for some.
func (m *holdsModel) settleHold(h *modelHold) {
	final, request := map[string]int64{}, map[string]any{"hold": h.id}
	if n := m.dice.Int64N(120); m.dice.IntN(2) == 0 {
		request["n"] = n
		for _, c := range h.checks {
			final[c.key] = n
		}
	} else {
		var checks []map[string]any
		for i, c := range h.checks {
			if i > 0 && m.dice.IntN(2) == 0 {
				continue
			}
			if _, found := final[c.key]; found {
				m.seen["twice"]++
			}
			n := m.dice.Int64N(120)
			final[c.key] += n
			checks = append(checks, map[string]any{"key": c.key, "n": n})
		}
		request["checks"] = checks
	}
	body, err := json.Marshal(request)
	must.Succeed(m.t, err)
	s, late := m.settle(string(body)), h.until <= m.now()
	gone := h.renewed || h.until+600_000 <= m.now()
	if gone != (s.status == http.StatusGone) || !gone && (!s.Settled || s.Late != late ||
		s.Repeated != h.settled) {
		m.t.Fatalf("%s of %+v: %+v", body, *h, s)
	}
	switch {
	case gone:
		m.seen["gone"]++
	case h.settled:
		m.seen["repeated"]++
	default:
		if m.seen["settled"]++; late {
			m.seen["late"]++
		}
		h.settled = true
		m.finish(h, final)
	}
}

// finish makes the numbers of a settlement the counts of a hold.
func (m *holdsModel) finish(h *modelHold, final map[string]int64) {
	for i := range h.checks {
		c := &h.checks[i]
		n, named := final[c.key]
		switch {
		case named:
			if c.reset || h.over {
				m.seen["whole"]++
			}
			m.counts[c.key] += n - c.left
			final[c.key] = 0 // the other checks of the key add nothing
		case h.over && !c.reset:
			m.counts[c.key] += c.n
		}
		c.left = 0
	}
}

// TestOpenHoldsAreRead reads how many are open and when the next one ends, while holds are made,
// settled, renewed and over. A dry run counts itself among the open ones.
func TestOpenHoldsAreRead(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		const body = `{"key":"ann","n":0,"limits":[{"concurrent":2},{"window":"1h","max":9}],
			"hold":"10s"`
		open := func(want, end int64) {
			t.Helper()
			a := b.get("/v1/holds", "key", "ann")
			if end > 0 {
				end -= b.now()
			}
			if a.Status != http.StatusOK || a.Key != "ann" || a.Open != want || a.NextEnd != end {
				t.Errorf("%+v, want %d, the next in %d", a, want, end)
			}
		}
		open(0, 0)
		end := twotier.LeaseEnd(b.now(), 10_000)
		first := b.hold(body + "}")
		open(1, end)
		if a := b.ok("/v1/acquire", body+`,"dry_run":true}`); !a.Allowed ||
			a.Limits[1].Open != 2 || a.Limits[1].Refused {
			t.Errorf("dry run of the second: %+v", a)
		}
		b.mono.Add(int64(time.Second))
		second := twotier.LeaseEnd(b.now(), 10_000)
		b.hold(body + "}")
		if a := b.ok("/v1/acquire", body+`,"dry_run":true}`); a.Allowed || a.Limits[1].Open != 2 ||
			!a.Limits[1].Refused {
			t.Errorf("dry run of the third: %+v", a)
		}
		open(2, end)
		renewed := b.ok("/v1/renew", fmt.Sprintf(`{"hold":%q,"for":"1m"}`, first))
		open(2, second)
		b.to(second - 1)
		open(2, second)
		b.to(second)
		open(1, renewed.Until)
		if a := b.get("/v1/top", "by", "concurrent"); len(a.Keys) != 1 || a.Keys[0].Key != "ann" ||
			a.Keys[0].Count != 1 {
			t.Errorf("%+v", a)
		}
		for i := range 2 {
			s := b.settle(fmt.Sprintf(`{"hold":%q,"n":0}`, renewed.Hold))
			if s.Repeated != (i > 0) {
				t.Errorf("settlement %d: %+v", i, s)
			}
		}
		open(0, 0)
		refused := b.get("/v1/top", "by", "refused")
		for _, a := range []answer{refused, b.get("/v1/top", "by", "count")} {
			for _, k := range a.Keys {
				if k.Key != "ann" {
					t.Errorf("%+v", a)
				}
			}
		}
		if len(refused.Keys) > 0 { // only by a dry run
			t.Errorf("refused: %+v", refused)
		}
	})
}
