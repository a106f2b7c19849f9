package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"twotier/leaparray"
	"twotier/syncer"
)

// directCall is one operation on its way through a lane. It holds copies of all it needs: whoever submitted it may have
// given up.
type directCall struct {
	partition int
	list      uint64 // the DoAll that it belongs to, 0 if none
	read      bool   // a plain HGETALL
	ts, now   int64
	kind      string
	always    string
	checks    []directCheck

	done  chan struct{}
	reply any
	err   error
}

type directCheck struct {
	key, version string
	ladder       *leaparray.Ladder
	args         []any // n, then ttl, number of limits, limits; the ladder's number goes between
}

func (d *Direct) encode(op *syncer.Op, ts, now int64) *directCall {
	c := &directCall{
		ts: ts, now: now, read: op.Kind == syncer.Count, kind: "A", always: "0",
		checks: make([]directCheck, len(op.Checks)), done: make(chan struct{}),
	}
	if op.Kind == syncer.Acquire {
		c.kind = "Q"
	}
	if op.CountDenied {
		c.always = "1"
	}
	for i := range op.Checks {
		check := &op.Checks[i]
		ns := check.NS
		if string(ns) == syncer.DefaultNamespace {
			ns = nil
		}
		partition := d.opt.Store.opt.Placement.Of(ns, check.Key)
		if i == 0 {
			c.partition = partition
		}
		l := d.ladder(ns)
		args := make([]any, 0, 3+2*len(check.Limits))
		args = append(args, number(check.N), number(2*l.Span()), number(int64(len(check.Limits))))
		for _, limit := range check.Limits {
			args = append(args, number(limit.Window), number(limit.Max))
		}
		c.checks[i] = directCheck{Key(partition, ns, check.Key), stateKey(partition), l, args}
	}
	return c
}

// wait returns the outcome. A deadline that passes leaves it unknown, but for a read.
func (c *directCall) wait(ctx context.Context, timeout time.Duration, op *syncer.Op, res *syncer.Result) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-ctx.Done():
		return c.gaveUp()
	case <-timer.C:
		return c.gaveUp()
	}
	if c.err != nil {
		return c.err
	}
	return c.decode(op, res)
}

func (c *directCall) gaveUp() error {
	if c.read {
		return fmt.Errorf("%w: Redis did not answer in time", syncer.ErrUnavailable)
	}
	return fmt.Errorf("%w: Redis did not answer in time", syncer.ErrUnknownOutcome)
}

func (c *directCall) fail(err error) {
	c.err = err
	close(c.done)
}

func (c *directCall) succeed(reply any) {
	c.reply = reply
	close(c.done)
}

// decode reads the script's answer to one operation, or the hash of a read.
func (c *directCall) decode(op *syncer.Op, res *syncer.Result) error {
	res.Reset()
	res.Source, res.Allowed = syncer.SourceRedis, true
	if c.read {
		flat, _ := c.reply.([]any)
		return c.estimate(op, 0, flat, res)
	}
	if text, ok := c.reply.(string); ok {
		return c.refused(op, text)
	}
	reply, ok := c.reply.([]any)
	if !ok || len(reply) < 2+len(op.Checks) {
		return fmt.Errorf("%w: unexpected reply %v", syncer.ErrUnknownOutcome, c.reply)
	}
	allowed, _ := reply[0].(int64)
	repeated, _ := reply[1].(int64)
	for i := range op.Checks {
		list, _ := reply[2+i].([]any)
		if op.Kind == syncer.Add {
			if err := c.estimate(op, i, list, res); err != nil {
				return err
			}
			continue
		}
		c.judged(op, i, list, allowed == 1, repeated == 1, res)
	}
	if op.Kind == syncer.Acquire {
		res.Allowed = allowed == 1
	}
	if op.Kind == syncer.Acquire && repeated == 0 && (res.Allowed || op.CountDenied) {
		raise(op, res)
	}
	return nil
}

// refused turns the text that stands for an operation that could not be carried out into an error.
func (c *directCall) refused(op *syncer.Op, text string) error {
	if rest, ok := strings.CutPrefix(text, "OUTOFREACH "); ok {
		pos, length, _ := strings.Cut(rest, " ")
		i, _ := strconv.Atoi(pos)
		window, _ := strconv.ParseInt(length, 10, 64)
		if i >= 1 && i <= len(c.checks) {
			return syncer.OutOfReach(op, c.checks[i-1].ladder, window, c.ts, c.now)
		}
	}
	return fmt.Errorf("%w: Redis refuses this key: %s", syncer.ErrUnavailable, text)
}

// judged reads what the script found for the limits of an acquire's check.
func (c *directCall) judged(op *syncer.Op, i int, list []any, allowed, repeated bool, res *syncer.Result) {
	r := res.AddCheck()
	for j, limit := range op.Checks[i].Limits {
		lr := syncer.LimitResult{Window: limit.Window, Max: limit.Max}
		if 3*j+2 < len(list) {
			peak, _ := list[3*j].(int64)
			retry, _ := list[3*j+2].(int64)
			lr.BucketMS, _ = list[3*j+1].(int64)
			lr.Count, lr.Lo, lr.Hi = peak, peak, peak
			// What a batch that was sent twice finds the second time includes what it counted itself.
			if lr.Refused = retry != 0 && !(repeated && allowed); lr.Refused {
				r.Refused = true
				if r.RetryAfter >= 0 && (retry < 0 || retry > r.RetryAfter) {
					r.RetryAfter = retry
				}
			}
		}
		r.Limits = append(r.Limits, lr)
	}
	if res.RetryAfter >= 0 && (r.RetryAfter < 0 || r.RetryAfter > res.RetryAfter) {
		res.RetryAfter = r.RetryAfter
	}
}

// raise makes the figures of an acquire that counted include what it counted.
func raise(op *syncer.Op, res *syncer.Result) {
	for i := range op.Checks {
		n := int64(0)
		for j := range op.Checks {
			if string(op.Checks[i].Key) == string(op.Checks[j].Key) && string(op.Checks[i].NS) == string(op.Checks[j].NS) {
				n += op.Checks[j].N
			}
		}
		for j := range res.Checks[i].Limits {
			lr := &res.Checks[i].Limits[j]
			lr.Count, lr.Lo, lr.Hi = lr.Count+n, lr.Lo+n, lr.Hi+n
		}
	}
}

// estimate reads the windows of a check from its hash.
func (c *directCall) estimate(op *syncer.Op, i int, flat []any, res *syncer.Result) error {
	r := res.AddCheck()
	if len(op.Checks[i].Limits) == 0 {
		return nil
	}
	l := c.checks[i].ladder
	v := leaparray.View{Ladder: l, A: counterOf(l, parseBuckets(flat, nil))}
	for _, limit := range op.Checks[i].Limits {
		e, ok := v.Count(limit.Window, c.ts, c.ts >= c.now)
		if !ok {
			return syncer.OutOfReach(op, l, limit.Window, c.ts, c.now)
		}
		lr := syncer.LimitResult{Window: limit.Window, Max: limit.Max, Count: e.Count, Lo: e.Lo, Hi: e.Hi, BucketMS: e.Bucket}
		if op.Kind == syncer.Add && e.Hi > limit.Max {
			lr.Refused, r.Refused, res.Allowed = true, true, false
		}
		r.Limits = append(r.Limits, lr)
	}
	return nil
}

// counterOf makes a counter of what a hash holds.
func counterOf(l *leaparray.Ladder, buckets []syncer.Bucket) (c leaparray.Counter) {
	for _, b := range buckets {
		level := int(b.Level)
		if level >= l.Len() {
			continue
		}
		// A bucket that was taken back to zero may be the newest, which decides what the level holds, here as in the script.
		n := b.N
		if n == 0 {
			n = 1
		}
		if _, ok := l.Add(c, level, b.Index, n); !ok {
			c = l.Grow(c, leaparray.Heap{}, level, b.Index, n)
			l.Add(c, level, b.Index, n)
		}
		if b.N == 0 {
			l.Add(c, level, b.Index, -1)
		}
	}
	return c
}
