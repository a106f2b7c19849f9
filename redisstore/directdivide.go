package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"twotier.dev/twotier"
)

// maxSteps bounds the work of a script, during which Redis serves nobody else. An operation waits
// for the next script if there is no room for reading its keys. A step takes about 0.2 µs.
const maxSteps = 100_000

// acquireInHalves carries out an acquire whose keys are too much for one script: first one half of
// them, then the other. If the second half refuses, the first takes its counts back. Others may see
// the temporary counts, which can cause a refusal but never let one too many through.
func (w *directWorker) acquireInHalves(ctx context.Context, c *directCall) {
	values := make([][]int64, len(c.checks))
	var counted []*directCall
	var failed error
	allowed, banned := true, false
	for _, at := range c.halves() {
		part := c.subCall(at)
		w.writeAll(ctx, []*directCall{part})
		c.mark, c.repeated = part.mark, c.repeated || part.repeated
		if failed = part.err; failed != nil || part.refusal != "" {
			allowed, c.refusal = false, part.refusalOf(at)
			break
		}
		allowed, banned = allowed && part.allowed, banned || part.isBanned()
		if part.hasCounted() {
			counted = append(counted, part)
		}
		for i, v := range part.valuesByCheck() {
			values[at[i]] = v
		}
	}
	c.allowed, c.values = allowed, slices.Concat(values...)
	if stopped := failed != nil || c.refusal != ""; stopped || !allowed {
		err := w.takeBack(ctx, counted, !stopped && c.countsRefused(banned))
		failed = errors.Join(failed, err)
	}
	c.Finish(failed)
}

// takeBack takes back the counts of parts of an acquire, or only their leases, even if ctx has
// ended. If one key refuses, it still takes back the others.
func (w *directWorker) takeBack(ctx context.Context, counted []*directCall,
	onlyLeases bool) error {
	var calls []*directCall
	for _, part := range counted {
		for i := range part.checks {
			check := &part.checks[i]
			lease := check.companion > 0
			if check.n <= 0 || lease && !part.allowed || onlyLeases && !lease {
				continue
			}
			back := part.subCall([]int{i})
			back.mode, back.checks[0].n = modeAllowed, -check.n
			if !lease {
				back.kind, back.limits, back.checks[0].limits = twotier.Add, nil, 0
			}
			calls = append(calls, back)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.d.opt.Timeout)
	defer cancel()
	w.writeAll(ctx, slices.Clone(calls))
	var errs []error
	for _, back := range calls {
		if back.refusal != "" {
			back.err = errors.New(back.refusal)
		}
		if back.err != nil {
			errs = append(errs, fmt.Errorf("%w: take back: %w", twotier.ErrUnknownOutcome,
				back.err))
		}
	}
	return errors.Join(errs...)
}

// halves divides the checks of an acquire in two by their keys, and returns the positions of each
// half. Bans and leases stay with their key.
func (c *directCall) halves() [2][]int {
	half, last := map[string]int{}, 0
	names := []string{}
	for i := range c.checks {
		if name := string(c.hashName(i)); c.checks[i].companion == 0 &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i, name := range names {
		half[name] = 2 * i / len(names)
	}
	var at [2][]int
	for i := range c.checks {
		if c.checks[i].companion == 0 {
			last = half[string(c.hashName(i))]
		}
		at[last] = append(at[last], i)
	}
	return at
}

// subCall returns a call for some of the checks, without a caller.
func (c *directCall) subCall(at []int) *directCall {
	p := &directCall{kind: c.kind, mode: c.mode, ts: c.ts, now: c.now}
	p.Reset()
	for _, i := range at {
		check := c.checks[i]
		p.limits, p.names = append(p.limits, c.limitsOf(i)...), append(p.names, c.hashName(i)...)
		check.limits, check.end = len(p.limits), len(p.names)
		p.checks = append(p.checks, check)
	}
	return p
}

// refusalOf returns the refusal of a part whose checks have these positions in the whole.
func (c *directCall) refusalOf(at []int) string {
	pos, window, ok := c.outOfReach()
	if !ok || pos < 1 || pos > len(at) {
		return c.refusal
	}
	return fmt.Sprintf("%s%d %d", outOfReach, at[pos-1]+1, window)
}

const outOfReach = "OUTOFREACH "

// outOfReach returns the position of the check, from 1, and the window that the script found out of
// reach, if that is why it refused.
func (c *directCall) outOfReach() (pos int, window int64, ok bool) {
	rest, ok := strings.CutPrefix(c.refusal, outOfReach)
	if ok {
		_, err := fmt.Sscan(rest, &pos, &window)
		ok = err == nil
	}
	return pos, window, ok
}

// valuesByCheck returns the values of each check of an acquire.
func (c *directCall) valuesByCheck() [][]int64 {
	list, rest := make([][]int64, len(c.checks)), c.values
	for i := range c.checks {
		n := valuesOfLimit * len(c.limitsOf(i))
		list[i], rest = rest[:n:n], rest[n:]
	}
	return list
}

// isBanned reports whether a ban that had started before refused the acquire.
func (c *directCall) isBanned() bool {
	for i, v := range c.valuesByCheck() {
		// The width of a ban that has just started is negative.
		if c.checks[i].companion < 0 && v[1] > 0 && v[2] != 0 {
			return true
		}
	}
	return false
}

// hasCounted reports whether an acquire that was answered has counted its keys.
func (c *directCall) hasCounted() bool {
	return c.mode != modeDry && (c.allowed || c.countsRefused(c.isBanned()))
}

// countsRefused reports whether an acquire counts although it was refused.
func (c *directCall) countsRefused(banned bool) bool {
	return c.mode == modeCharge || c.mode == modeAlways && !banned
}
