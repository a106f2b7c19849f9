package drive

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"twotier.dev/twotier/bench/limiter"
)

const (
	second = int64(1000)
	minute = 60 * second
	day    = 24 * 60 * minute
)

// The rules of message control: for one receiver, and for one content to one receiver.
var (
	receiverRules = []limiter.Limit{{Window: minute, Max: 15}, {Window: day, Max: 50}}
	contentRules  = []limiter.Limit{{Window: 59 * second, Max: 2}, {Window: 59 * minute, Max: 5}}
)

// Messages describes the message-control scenario: each receiver gets single messages at a rate
// that follows the hour of the day, and now and then a burst, as from a retry loop or an attack on
// a verification code.
type Messages struct {
	Seed uint64
	// From and To bound the times of the events, in unix milliseconds.
	From, To int64
	// Receivers is the number of receivers, First the number of the first.
	Receivers, First int
}

const (
	singlesPerDay = 30.0
	burstsPerDay  = 3.0
	contents      = 5
)

// Events returns the scenario in the order of time. Every message must hold to four rules at once:
// both of its receiver and both of its receiver and content.
func (m Messages) Events() []limiter.Call {
	r := rand.New(rand.NewPCG(m.Seed, uint64(m.Receivers)))
	var events []limiter.Call
	for receiver := m.First; receiver < m.First+m.Receivers; receiver++ {
		for _, ts := range m.arrivals(r, singlesPerDay) {
			events = append(events, message(receiver, r.IntN(contents), ts))
		}
		for _, ts := range m.arrivals(r, burstsPerDay) {
			events = m.appendBurst(events, r, receiver, ts)
		}
	}
	slices.SortStableFunc(events, func(a, b limiter.Call) int { return cmp.Compare(a.TS, b.TS) })
	return events
}

// arrivals draws the times of a Poisson process whose rate swings by the hour between 0.2 and 1.8
// of perDay: candidates come at the highest rate, and are kept with a probability that depends on
// the hour.
func (m Messages) arrivals(r *rand.Rand, perDay float64) (times []int64) {
	const swing = 0.8
	gap := float64(day) / (perDay * (1 + swing))
	for ts := float64(m.From); ; {
		ts += r.ExpFloat64() * gap
		if ts >= float64(m.To) {
			return times
		}
		hour := 2 * math.Pi * ts / float64(day)
		if r.Float64()*(1+swing) < 1+swing*math.Sin(hour) {
			times = append(times, int64(ts))
		}
	}
}

// appendBurst adds 4 to 40 messages, two seconds apart on average, half of the time all with one
// content.
func (m Messages) appendBurst(events []limiter.Call, r *rand.Rand, receiver int,
	ts int64) []limiter.Call {
	oneContent, content := r.IntN(2) == 0, r.IntN(contents)
	for range 4 + r.IntN(37) {
		if !oneContent {
			content = r.IntN(contents)
		}
		events = append(events, message(receiver, content, ts))
		ts += int64(r.ExpFloat64() * float64(2*second))
		if ts >= m.To {
			break
		}
	}
	return events
}

func message(receiver, content int, ts int64) limiter.Call {
	key := fmt.Sprintf("r%05d", receiver)
	return limiter.At(ts, limiter.One(key, receiverRules),
		limiter.One(fmt.Sprintf("%s|c%d", key, content), contentRules))
}
