package drive

import (
	"fmt"
	"time"

	"twotier/bench/limiter"
	"twotier/bench/load"
	"twotier/bench/trace"
)

// A source draws the decisions of one worker into the memory of c. due is when a decision is due in the time of the trace,
// after its beginning; ok is false when there are no more.
type source func(c *limiter.Call) (due time.Duration, ok bool)

// Workloads are the names that there are, with what they are.
func Workloads() [][2]string {
	return [][2]string{
		{"hot", "one key"},
		{"zipf", "a million keys, Zipf with exponent 1.1"},
		{"distinct", "every decision has a key of its own"},
		{"diurnal", "message control over a day, from a seed, with its own times: four rules over two keys"},
		{"messages", "message control now: four rules over two keys, users drawn evenly from ten million"},
	}
}

// Rules are those of the workloads with one key for each decision.
func Rules() []limiter.Limit {
	return []limiter.Limit{{Window: 60_000, Max: 15}, {Window: 3_600_000, Max: 50}}
}

// sources returns one source for each worker.
func (o *Options) sources() (all []source, err error) {
	for w := range o.Workers {
		var s source
		switch o.Workload {
		case "diurnal":
			s = o.diurnal(w)
		case "messages":
			s = o.messages(w)
		default:
			if s, err = o.byKey(w); err != nil {
				return nil, err
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// byKey draws the key of each decision, which is made now under the same rules for all.
func (o *Options) byKey(w int) (source, error) {
	kind := map[string]string{"hot": "same", "zipf": "zipf", "uniform": "uniform", "distinct": "distinct"}[o.Workload]
	keys, err := trace.NewKeys(kind, o.Seed*1000+uint64(w), o.Keys)
	if err != nil {
		return nil, fmt.Errorf("workload %q: %w", o.Workload, err)
	}
	left := -1
	if o.MaxCalls > 0 {
		left = o.MaxCalls / o.Workers
	}
	return func(c *limiter.Call) (time.Duration, bool) {
		if left == 0 {
			return 0, false
		}
		left--
		c.TS = time.Now().UnixMilli()
		c.Checks = append(c.Checks[:0], limiter.Check{Key: load.Key(keys()), N: 1, Limits: o.Rules})
		return 0, true
	}, nil
}

// messages draws a receiver and one of five contents.
func (o *Options) messages(w int) source {
	keys := trace.Uniform(o.Seed*1000+uint64(w), o.Keys)
	return func(c *limiter.Call) (time.Duration, bool) {
		k := keys()
		user := load.Key(k)
		c.TS = time.Now().UnixMilli()
		c.Checks = append(c.Checks[:0],
			limiter.Check{Key: user, N: 1, Limits: trace.ReceiverRules},
			limiter.Check{Key: user + "|c" + string('0'+byte(k%5)), N: 1, Limits: trace.ContentRules})
		return 0, true
	}
}

const (
	// diurnalReceivers are those of a closed loop, with perReceiver messages each in a day, about.
	diurnalReceivers = 2000
	perReceiver      = 100
)

// diurnal replays a day that ended ten minutes ago, each worker with receivers of its own: the events of a key stay in
// order. In an open loop the day is as long as the run, and has as many receivers as make the rate.
func (o *Options) diurnal(w int) source {
	receivers := diurnalReceivers
	if o.scheduled() {
		receivers = max(int(o.Rate*o.Duration.Seconds()/perReceiver), 1)
	}
	span := 24*time.Hour - 20*time.Minute
	m := trace.Messages{
		Seed: o.Seed*1000 + uint64(w), Receivers: (receivers + o.Workers - 1 - w) / o.Workers,
		// No two loops meet: an event from the morning of a key that has had its evening is out of reach.
		First: (int(o.Seed)*o.Workers + w) * diurnalReceivers,
		From:  o.Day.Add(-span).UnixMilli(), To: o.Day.UnixMilli(),
	}
	events := m.Events()
	return func(c *limiter.Call) (time.Duration, bool) {
		if len(events) == 0 {
			return 0, false
		}
		e := events[0]
		events = events[1:]
		c.TS, c.Checks = e.TS, e.Checks
		at := time.Duration(e.TS-m.From) * time.Millisecond
		return time.Duration(float64(at) / float64(span) * float64(o.Duration)), true
	}
}
