package drive

import (
	"fmt"
	"math/rand/v2"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/load"
)

// A source draws the decisions of one worker into the memory of c, overwriting the names of its
// keys, too. They happen now unless the workload sets their times. due is when a decision is due,
// counted from the beginning of the trace; ok is false when there are no more.
type source func(c *limiter.Call, now int64) (due time.Duration, ok bool)

// Workload is one of the compared workloads.
type Workload struct{ Name, About string }

// Workloads returns all workloads.
func Workloads() []Workload {
	return []Workload{
		{"hot", "one key"},
		{"zipf", "a million keys, Zipf with exponent 1.1"},
		{"distinct", "every decision has a different key"},
		{"diurnal", "message control over a day, from a seed, with its own times: " +
			"four rules over two keys"},
		{"messages", "message control now: four rules over two keys, users drawn evenly from ten " +
			"million"},
	}
}

// Rules returns the first one to four rules of the workloads with one key per decision.
func Rules(n int) []limiter.Limit {
	return []limiter.Limit{{Window: minute, Max: 15}, {Window: 60 * minute, Max: 50},
		{Window: day, Max: 200}, {Window: 10 * minute, Max: 30}}[:n]
}

// Key returns the name of a key: its number in 16 hexadecimal digits.
func Key(key uint64) string { return string(AppendKey(nil, key)) }

// AppendKey appends the name of a key.
func AppendKey(b []byte, key uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[key>>shift&15])
	}
	return b
}

// source returns the source of worker w.
func (o *Options) source(w int) (source, error) {
	switch o.Workload {
	case "diurnal":
		return o.diurnal(w), nil
	case "messages":
		return o.messages(w), nil
	}
	return o.byKey(w)
}

// seed returns the seed of worker w.
func (o *Options) seed(w int) uint64 { return o.Seed*1000 + uint64(w) }

// keys returns a function that draws the keys of worker w. Distinct keys of different seeds don't
// overlap.
func (o *Options) keys(w int, dist string) (func() uint64, error) {
	next := o.seed(w) << 40
	fresh := func() uint64 { next++; return next - 1 }
	return load.Keys(dist, rand.New(rand.NewPCG(o.seed(w), o.Keys)), o.Keys, fresh)
}

// byKey draws the key of each decision, which is made now under the same rules for all.
func (o *Options) byKey(w int) (source, error) {
	dist := o.Workload
	if dist == "hot" {
		dist = "same"
	}
	keys, err := o.keys(w, dist)
	if err != nil {
		return nil, fmt.Errorf("workload %q: %w", o.Workload, err)
	}
	rules, left := Rules(o.Rules), -1
	if o.MaxCalls > 0 {
		left = o.MaxCalls / o.Workers
	}
	return func(c *limiter.Call, now int64) (time.Duration, bool) {
		if left == 0 {
			return 0, false
		}
		left--
		if o.Adds {
			*c = limiter.Call{Kind: twotier.Add, Checks: renew(c.Checks, nil)}
		} else {
			*c = limiter.At(now, renew(c.Checks, rules)...)
		}
		key := &c.Checks[0].Key
		*key = AppendKey(*key, keys())
		return 0, true
	}, nil
}

// renew returns checks of one event under these limits each, with empty keys, in the memory of the
// last decision.
func renew(checks []limiter.Check, limits ...[]limiter.Limit) []limiter.Check {
	if len(checks) != len(limits) {
		checks = make([]limiter.Check, len(limits))
	}
	for i := range checks {
		checks[i] = limiter.One(checks[i].Key[:0], limits[i])
	}
	return checks
}

// messages draws a receiver and one of five contents. The receiver is the hash tag of both keys,
// which matters only to a cluster that places keys by their tags.
func (o *Options) messages(w int) source {
	keys, _ := o.keys(w, "uniform") // "uniform" exists
	receiver, content := receiverRules, contentRules
	if o.Ample {
		receiver, content = ample(receiver), ample(content)
	}
	return func(c *limiter.Call, now int64) (time.Duration, bool) {
		k := keys()
		*c = limiter.At(now, renew(c.Checks, receiver, content)...)
		user, both := &c.Checks[0].Key, &c.Checks[1].Key
		*user = append(AppendKey(append(*user, '{'), k), '}')
		*both = append(append(*both, *user...), '|', 'c', '0'+byte(k%contents))
		return 0, true
	}
}

// ample returns limits with the same windows that nothing reaches.
func ample(limits []limiter.Limit) (all []limiter.Limit) {
	for _, l := range limits {
		all = append(all, limiter.Limit{Window: l.Window, Max: 1 << 40})
	}
	return all
}

const (
	// diurnalReceivers is the number of receivers in a closed loop, with about perReceiver messages
	// each in a day.
	diurnalReceivers = 2000
	perReceiver      = 100
)

// diurnal replays a day that ended ten minutes ago. Each worker has different receivers, so the
// events of a key stay in order. In an open loop the day is as long as the run, and the rate
// determines the number of receivers.
func (o *Options) diurnal(w int) source {
	receivers := diurnalReceivers
	if o.scheduled() {
		receivers = max(int(o.Rate*o.Duration.Seconds()/perReceiver), 1)
	}
	span := 24*time.Hour - 20*time.Minute
	m := Messages{
		Seed: o.seed(w), Receivers: (receivers + o.Workers - 1 - w) / o.Workers,
		// No two loops share a key: an event in the morning of a key that has had its evening is
		// out of reach.
		First: (int(o.Seed)*o.Workers + w) * diurnalReceivers,
		From:  o.Day.Add(-span).UnixMilli(), To: o.Day.UnixMilli(),
	}
	events := m.Events()
	return func(c *limiter.Call, _ int64) (time.Duration, bool) {
		if len(events) == 0 {
			return 0, false
		}
		*c = events[0]
		events = events[1:]
		at := time.Duration(c.TS-m.From) * time.Millisecond
		return time.Duration(float64(at) / float64(span) * float64(o.Duration)), true
	}
}
