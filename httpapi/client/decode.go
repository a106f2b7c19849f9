package client

import (
	"errors"
	"time"
)

// errAnswer: an answer is not what a server of ours says.
var errAnswer = errors.New("the answer is malformed")

// millis is a number of milliseconds as a duration; more than a duration can hold is the longest there is.
func millis(n int64) time.Duration {
	const most = int64((1<<63 - 1) / time.Millisecond)
	return time.Duration(max(-most, min(n, most))) * time.Millisecond
}

// outcome ends the reading of an answer: what it says is an error, or it is malformed.
func (s *scanner) outcome(failed []byte, complete bool) error {
	switch {
	case !s.end():
		return errAnswer
	case failed != nil:
		return readProblem(0, failed)
	case !complete:
		return errAnswer
	}
	return nil
}

// read reads the answer to an add.
func (a *AddAnswer) read(b []byte, r *AddRequest) error {
	s := scanner{b: b}
	var failed []byte
	for first := true; s.more(first, '{', '}'); first = false {
		switch string(s.name()) {
		case "counts":
			a.Counts = s.counts(len(r.Limits))
		case "over":
			a.Over = s.boolean()
		case "source":
			a.Source = s.source()
		case "degraded":
			a.Degraded = s.boolean()
		case "error":
			failed = s.value()
		default:
			s.skip(0)
		}
	}
	if err := s.outcome(failed, a.Source != "" && len(a.Counts) == len(r.Limits)); err != nil {
		return err
	}
	for i := range a.Counts {
		a.Counts[i].Window = r.Limits[i].Window
	}
	return nil
}

// read reads the answer to a count.
func (a *CountAnswer) read(b []byte, r *CountRequest) error {
	s := scanner{b: b}
	var failed []byte
	for first := true; s.more(first, '{', '}'); first = false {
		switch string(s.name()) {
		case "counts":
			a.Counts = s.counts(len(r.Windows))
		case "source":
			a.Source = s.source()
		case "age_ms":
			a.Age = millis(s.integer())
		case "degraded":
			a.Degraded = s.boolean()
		case "error":
			failed = s.value()
		default:
			s.skip(0)
		}
	}
	if err := s.outcome(failed, a.Source != "" && len(a.Counts) == len(r.Windows)); err != nil {
		return err
	}
	for i := range a.Counts {
		a.Counts[i].Window = r.Windows[i]
	}
	return nil
}

// read reads the answer to an acquire.
func (a *AcquireAnswer) read(b []byte, r *AcquireRequest) error {
	s := scanner{b: b}
	var failed []byte
	for first := true; s.more(first, '{', '}'); first = false {
		switch string(s.name()) {
		case "allowed":
			a.Allowed = s.boolean()
		case "limits":
			a.Limits = s.limits(r.Limits)
		case "checks":
			a.Checks = s.checks(r.Checks)
		case "retry_after_ms":
			a.RetryAfter = millis(s.integer())
		case "source":
			a.Source = s.source()
		case "degraded":
			a.Degraded = s.boolean()
		case "error":
			failed = s.value()
		default:
			s.skip(0)
		}
	}
	return s.outcome(failed, a.Source != "" && len(a.Checks) == len(r.Checks) && len(a.Limits) == len(r.Limits))
}

// counts reads as many counts as were asked for.
func (s *scanner) counts(want int) []WindowCount {
	var list []WindowCount
	if want > 0 {
		list = make([]WindowCount, 0, want)
	}
	for first := true; s.more(first, '[', ']'); first = false {
		if len(list) == want {
			s.fail()
			return nil
		}
		var c WindowCount
		for first := true; s.more(first, '{', '}'); first = false {
			switch string(s.name()) {
			case "count":
				c.Count = s.integer()
			case "min":
				c.Min = s.integer()
			case "max":
				c.Max = s.integer()
			case "bucket_ms":
				c.Bucket = millis(s.integer())
			default:
				s.skip(0)
			}
		}
		list = append(list, c)
	}
	return list
}

// limits reads what became of the limits that were asked about.
func (s *scanner) limits(asked []Limit) []LimitState {
	var list []LimitState
	if len(asked) > 0 {
		list = make([]LimitState, 0, len(asked))
	}
	for first := true; s.more(first, '[', ']'); first = false {
		if len(list) == len(asked) {
			s.fail()
			return nil
		}
		l := LimitState{Window: asked[len(list)].Window, Max: asked[len(list)].Max}
		for first := true; s.more(first, '{', '}'); first = false {
			switch string(s.name()) {
			case "count":
				l.Count = s.integer()
			case "remaining":
				l.Remaining = s.integer()
			case "refused":
				l.Refused = s.boolean()
			default:
				s.skip(0)
			}
		}
		list = append(list, l)
	}
	return list
}

// checks reads what became of the checks that were asked about.
func (s *scanner) checks(asked []Check) []CheckAnswer {
	var list []CheckAnswer
	for first := true; s.more(first, '[', ']'); first = false {
		if len(list) == len(asked) {
			s.fail()
			return nil
		}
		of := &asked[len(list)]
		c := CheckAnswer{Key: of.Key}
		for first := true; s.more(first, '{', '}'); first = false {
			switch string(s.name()) {
			case "allowed":
				c.Allowed = s.boolean()
			case "limits":
				c.Limits = s.limits(of.Limits)
			case "retry_after_ms":
				c.RetryAfter = millis(s.integer())
			default:
				s.skip(0)
			}
		}
		if len(c.Limits) != len(of.Limits) {
			s.fail()
		}
		list = append(list, c)
	}
	return list
}

// source reads where an answer came from. It allocates only for sources that are unknown here.
func (s *scanner) source() Source {
	text := s.text()
	for _, known := range [...]Source{SourceMemory, SourceOwner, SourceShared, SourceNear, SourceRedis, SourceFallback, SourceDegraded} {
		if string(text) == string(known) {
			return known
		}
	}
	return Source(text)
}
