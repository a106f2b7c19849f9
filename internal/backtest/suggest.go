package backtest

import (
	"context"
	"fmt"
	"math"
	"slices"

	"twotier.dev/twotier"
)

// MaxSample bounds the keys of a [Sample], over all namespaces of one call of [Suggest].
const MaxSample = 10_000

// DefaultPercentile is the percentage of keys whose busiest window a suggested limit exceeds,
// unless the caller names another one.
const DefaultPercentile = 99.9

// Sample is a sample of the keys of a namespace that have events in the last day.
type Sample struct {
	// Keys are the sampled keys; their Count has no meaning here. Total is the number of keys from
	// which they were drawn.
	Keys  []twotier.KeyCount
	Total int64
	// Skewed marks a sample in which keys with many requests are more likely: in Redis mode, nodes
	// only remember the keys of recent requests.
	Skewed bool
	// Silent are the nodes that did not report their keys.
	Silent []string
}

// Suggestions is the result of [Suggest].
type Suggestions struct {
	Percentile float64 `json:"percentile"`
	// Unread counts the keys that could not be read. Silent are the nodes that did not report their
	// keys.
	Unread int      `json:"unread"`
	Silent []string `json:"silent,omitempty"`
	// Rules has one element for each rule with limits on events.
	Rules []Suggestion `json:"rules"`
}

// Suggestion is a rule with limits that follow from the history of the keys.
type Suggestion struct {
	Rule string `json:"rule"`
	NS   string `json:"ns"`
	// Keys is the number of keys of the namespace with events in the last day. Examined is the
	// number of keys in the sample that were read and have no override in the rule. Skewed is as
	// in [Sample].
	Keys     int64 `json:"keys"`
	Examined int   `json:"examined"`
	Skewed   bool  `json:"skewed,omitempty"`
	// Busiest is the number of keys read outside the sample, because they are among the busiest.
	// They are part of Events, Refused and Refusing, and of the largest peak of each limit, but of
	// no other percentile. There are none if the sample has all keys.
	Busiest int `json:"busiest"`
	// Events is the number of events of all these keys in the last day. Refused is the number of
	// events that the suggested limits together would have refused, and Refusing the number of keys
	// with such events.
	Events   int64  `json:"events"`
	Refused  Bounds `json:"refused"`
	Refusing Bounds `json:"refusing"`
	// Limits are the suggested limits, in the order of the rule; empty if no key was examined.
	Limits []SuggestedLimit `json:"limits"`

	rule  *twotier.Rule
	keys  []string         // the keys read; the first ones are the sample
	peaks [][]LimitOutcome // of each key, one per limit
}

// SuggestedLimit is a limit that follows from the peaks of the keys: the largest number of events
// of each key in any window of the last day.
type SuggestedLimit struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
	// Peaks are percentiles of the peaks, with bounds, in ascending order.
	Peaks []Percentile `json:"peaks"`
	// Refused is the number of events that this limit alone would have refused.
	Refused Bounds `json:"refused"`
}

// Percentile is the peak that a percentage of the keys does not exceed. 100 is the largest peak.
type Percentile struct {
	Percentile float64 `json:"percentile"`
	Bounds
}

// Suggest replaces the limits of rules, keeping their windows, by limits that the given percentage
// of the keys has not reached in any window of the last day. It examines a uniform sample of the
// keys of the rules' namespaces, [MaxSample] in all, and the busiest keys. It changes nothing.
// Errors are those of [Run], and an *twotier.InvalidError about the percentile.
func Suggest(ctx context.Context, from Source, rules []*twotier.Rule,
	percentile float64) (*Suggestions, error) {
	if err := checkSize(rules); err != nil {
		return nil, err
	}
	if !(percentile > 0 && percentile <= 100) {
		return nil, &twotier.InvalidError{Check: -1, Limit: -1, Field: "percentile",
			Detail: fmt.Sprintf("%v, want more than 0 and at most 100", percentile)}
	}
	s := &Suggestions{Percentile: percentile, Rules: []Suggestion{}}
	for _, r := range rules {
		if len(r.Limits) > 0 {
			s.Rules = append(s.Rules, Suggestion{Rule: r.Name, NS: r.Space(), rule: r,
				Limits: []SuggestedLimit{}})
		}
	}
	if err := s.findPeaks(ctx, from); err != nil {
		return nil, err
	}
	for i := range s.Rules {
		s.Rules[i].choose(percentile)
	}
	s.replay(ctx, from)
	slices.Sort(s.Silent)
	s.Silent = slices.Compact(s.Silent)
	return s, nil
}

// findPeaks reads the keys of every namespace, and records the peaks of each.
func (s *Suggestions) findPeaks(ctx context.Context, from Source) error {
	byNS := map[string][]*Suggestion{}
	for i := range s.Rules {
		byNS[s.Rules[i].NS] = append(byNS[s.Rules[i].NS], &s.Rules[i])
	}
	for ns, rules := range byNS {
		sample, err := from.Sample(ctx, ns, MaxSample/len(byNS))
		if err != nil {
			return err
		}
		s.Silent = append(s.Silent, sample.Silent...)
		keys := sample.Keys
		if sample.Skewed || sample.Total > int64(len(keys)) {
			if keys, err = s.addBusiest(ctx, from, ns, keys); err != nil {
				return err
			}
		}
		for _, r := range rules {
			r.Keys, r.Skewed = sample.Total, sample.Skewed
		}
		s.readPeaks(ctx, from, rules, keys, len(sample.Keys))
	}
	return nil
}

// addBusiest appends the busiest keys of a namespace that are not listed yet.
func (s *Suggestions) addBusiest(ctx context.Context, from Source, ns string,
	keys []twotier.KeyCount) ([]twotier.KeyCount, error) {
	listed := map[string]bool{}
	for _, k := range keys {
		listed[k.Key] = true
	}
	for _, window := range []int64{day, recent} {
		busy, silent, err := from.Busiest(ctx, []string{ns}, MaxTop, window)
		if err != nil {
			return nil, err
		}
		s.Silent = append(s.Silent, silent...)
		for _, k := range busy {
			if !listed[k.Key] {
				listed[k.Key] = true
				keys = append(keys, k)
			}
		}
	}
	return keys, nil
}

// readPeaks replays the windows of rules of one namespace on its keys; the first ones, sampled in
// number, are the sample. Keys with overrides in a rule are left out of it.
func (s *Suggestions) readPeaks(ctx context.Context, from Source, rules []*Suggestion,
	keys []twotier.KeyCount, sampled int) {
	var ask ReplayRequest
	for _, r := range rules {
		limits := convertLimits(r.rule.Limits)
		for i := range limits {
			limits[i].Max = math.MaxInt64
		}
		ask.Lists = append(ask.Lists, limits)
	}
	var owners [][]int // for each key, the rule of each of its lists
	for _, k := range keys {
		key := Key{NS: k.NS, Key: k.Key}
		for i, r := range rules {
			if &r.rule.For([]byte(k.Key))[0] == &r.rule.Limits[0] {
				key.Lists = append(key.Lists, i)
			}
		}
		ask.Keys = append(ask.Keys, key)
		owners = append(owners, key.Lists)
	}
	for i, outcomes := range from.Replay(ctx, &ask) {
		if len(outcomes) != len(owners[i]) {
			s.Unread++
			continue
		}
		for j, at := range owners[i] {
			rules[at].record(ask.Keys[i].Key, &outcomes[j], i < sampled)
		}
	}
}

// record adds the peaks of a key. Keys of the sample come first.
func (r *Suggestion) record(key string, o *Outcome, sampled bool) {
	if o.Events == 0 {
		return // its events are older by now
	}
	if sampled {
		r.Examined++
	} else {
		r.Busiest++
	}
	r.Events += o.Events
	r.keys = append(r.keys, key)
	r.peaks = append(r.peaks, o.Limits)
}

func (r *Suggestion) choose(percentile float64) {
	if r.Examined == 0 {
		return
	}
	for i, l := range r.rule.Limits {
		var least, most []int64
		for _, peaks := range r.peaks {
			least, most = append(least, peaks[i].Peak.Min), append(most, peaks[i].Peak.Max)
		}
		largest := Bounds{slices.Max(least), slices.Max(most)}
		least, most = least[:r.Examined], most[:r.Examined]
		slices.Sort(least)
		slices.Sort(most)
		suggested := SuggestedLimit{Window: l.Text}
		wanted := []float64{50, 99, percentile, 100}
		slices.Sort(wanted)
		for _, p := range slices.Compact(wanted) {
			at := rank(p, r.Examined)
			b := Bounds{least[at], most[at]}
			if p == 100 {
				b = largest
			}
			if p == percentile {
				suggested.Max = RoundUp(b.Max + 1)
			}
			suggested.Peaks = append(suggested.Peaks, Percentile{p, b})
		}
		r.Limits = append(r.Limits, suggested)
	}
}

// rank returns the index of a percentile among n sorted values: the smallest value that this
// percentage of the values does not exceed.
func rank(percentile float64, n int) int {
	const rounding = 1e-9 // of the product, which may be just above a whole number
	return max(0, int(math.Ceil(percentile*float64(n)/100-rounding))-1)
}

// RoundUp rounds a positive number up to two significant digits.
func RoundUp(n int64) int64 {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

// replay finds the effect of the suggested limits on the keys that may exceed them.
func (s *Suggestions) replay(ctx context.Context, from Source) {
	var ask ReplayRequest
	var owners []*Suggestion
	for i := range s.Rules {
		r := &s.Rules[i]
		limits := convertLimits(r.rule.Limits)
		for j := range r.Limits {
			limits[j].Max = r.Limits[j].Max
		}
		ask.Lists = append(ask.Lists, limits)
		for j, key := range r.keys {
			if r.mayRefuse(r.peaks[j]) {
				ask.Keys = append(ask.Keys, Key{NS: r.NS, Key: key, Lists: []int{i}})
				owners = append(owners, r)
			}
		}
	}
	for i, outcomes := range from.Replay(ctx, &ask) {
		if len(outcomes) != 1 {
			s.Unread++
			continue
		}
		owners[i].addRefused(&outcomes[0])
	}
}

// mayRefuse reports whether a key with these peaks may exceed a suggested limit.
func (r *Suggestion) mayRefuse(peaks []LimitOutcome) bool {
	for i := range r.Limits {
		if peaks[i].Peak.Max > r.Limits[i].Max {
			return true
		}
	}
	return false
}

// addRefused adds the refusals of a key.
func (r *Suggestion) addRefused(o *Outcome) {
	r.Refused.add(o.Refused)
	r.Refusing.add(Bounds{min(1, o.Refused.Min), min(1, o.Refused.Max)})
	for i := range r.Limits {
		r.Limits[i].Refused.add(o.Limits[i].Refused)
	}
}

// add adds the bounds of another number.
func (b *Bounds) add(other Bounds) {
	b.Min += other.Min
	b.Max += other.Max
}
