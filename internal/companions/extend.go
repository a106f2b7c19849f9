package companions

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// Extended is an operation with the bans of the rules that judge it, with its values and leases.
type Extended struct {
	// Op is the operation to execute in place of the original.
	Op twotier.Op

	original *twotier.Op
	of       []source
}

// source is where a check of an extended operation comes from: the original check, and the position
// of the companion in its list.
type source struct {
	check, companion int
	kind             twotier.CheckKind
}

// Needs reports whether an operation has companions.
func Needs(op *twotier.Op) bool { return len(op.Rules)+len(op.Leases)+len(op.Values) > 0 }

// Extend returns an operation together with the bans of its Rules, with its Values, whose hashes
// have this seed, and with its Leases, which last until a moment. A check that only adds values has
// no check of events.
func Extend(op *twotier.Op, seed uint64) *Extended {
	x := &Extended{Op: *op, original: op}
	x.Op.Rules, x.Op.Leases, x.Op.Values = nil, nil, nil
	x.Op.Checks = make([]twotier.Check, 0,
		len(op.Checks)+len(op.Rules)+len(op.Leases)+len(op.Values))
	ban, lease, values := 0, 0, 0
	for i := range op.Checks {
		adds := values < len(op.Values) && op.Values[values].Check == i
		if !adds || op.Checks[i].N > 0 || len(op.Checks[i].Limits) > 0 {
			x.add(op.Checks[i], source{i, 0, twotier.EventCheck})
		}
		for ; ban < len(op.Rules) && op.Rules[ban].Check == i; ban++ {
			x.add(banOf(&op.Checks[i], &op.Rules[ban]), source{i, ban, twotier.BanCheck})
		}
		if adds {
			x.add(valuesOf(&op.Checks[i], &op.Values[values], seed),
				source{i, values, twotier.ValuesCheck})
			values++
		}
		if from := lease; from < len(op.Leases) && op.Leases[from].Check == i {
			for lease++; lease < len(op.Leases) && op.Leases[lease].Check == i; lease++ {
			}
			x.add(leaseOf(&op.Checks[i], op.Leases[from:lease], op.Until),
				source{i, from, twotier.LeaseCheck})
		}
	}
	return x
}

func (x *Extended) add(c twotier.Check, of source) {
	x.Op.Checks, x.of = append(x.Op.Checks, c), append(x.of, of)
}

// leaseOf returns the check that takes one lease for all limits of a check on them.
func leaseOf(c *twotier.Check, limits []twotier.Lease, until int64) twotier.Check {
	ns, key := twotier.LeaseKey(c.NS, "", c.Key)
	most := int64(twotier.Unlimited)
	for i := range limits {
		if !limits[i].Shadow {
			most = min(most, limits[i].Max)
		}
	}
	return twotier.Check{Kind: twotier.LeaseCheck, NS: ns, Key: key, N: 1, Until: until,
		Limits: []twotier.Limit{{Window: 1, Max: most}}}
}

func banOf(c *twotier.Check, r *twotier.BanRule) twotier.Check {
	ns, key := twotier.BanKey(c.NS, r.Rule, c.Key)
	return twotier.Check{Kind: twotier.BanCheck, NS: ns, Key: key,
		Limits: []twotier.Limit{{Window: r.Window}},
		Ban:    twotier.Ban{From: uint16(r.From), To: uint16(r.To)}}
}

// StatusOp returns a dry run that asks how long a rule bans a key: it is refused, and could pass
// when the ban ends.
func StatusOp(ns []byte, rule string, key []byte, window int64) twotier.Op {
	c := banOf(&twotier.Check{NS: ns, Key: key}, &twotier.BanRule{Rule: rule, Window: window})
	return twotier.Op{Kind: twotier.Acquire, DryRun: true, Checks: []twotier.Check{c}}
}

// OpenOp returns a dry run that asks how many leases of a key are open: it is refused if as many as
// most are, and could pass when one of them ends. until is a moment within the next day.
func OpenOp(ns, key []byte, most, until int64) twotier.Op {
	c := leaseOf(&twotier.Check{NS: ns, Key: key}, []twotier.Lease{{Max: most}}, until)
	return twotier.Op{Kind: twotier.Acquire, DryRun: true, Checks: []twotier.Check{c}}
}

// OpenOf returns the number of open leases in the result of an [OpenOp]. If that was allowed, its
// count includes the lease that it would take.
func OpenOf(res *twotier.Result) int64 {
	switch {
	case len(res.Checks) != 1 || len(res.Checks[0].Limits) != 1:
		return 0 // another node's result may be short
	case res.Allowed:
		return res.Checks[0].Limits[0].Count - 1
	}
	return res.Checks[0].Limits[0].Count
}

// EndOf returns the end of the ban that refuses a check, in unix milliseconds.
func EndOf(r *twotier.CheckResult) int64 {
	if len(r.Limits) != 1 {
		return 0 // another node's result may be short
	}
	return r.Limits[0].Hi
}

// ReduceResult turns the result of the extended operation into the result of the original, and
// lists the refusing bans in its Bans, the values in its Values and the leases in its Leases.
func (x *Extended) ReduceResult(res *twotier.Result) {
	kept := 0
	for i := range min(len(res.Checks), len(x.of)) {
		of, r := x.of[i], &res.Checks[i]
		switch {
		case of.kind == twotier.EventCheck:
			res.Checks[kept], res.Checks[i] = res.Checks[i], res.Checks[kept]
			kept++
			continue
		case of.kind == twotier.ValuesCheck:
			x.reduceValues(res, r, of)
			if kept == of.check { // there is no check of its events
				res.Checks[kept], res.Checks[i] = res.Checks[i], res.Checks[kept]
				kept++
				continue
			}
		case kept == 0: // another node's result may be short
			continue
		case of.kind == twotier.LeaseCheck:
			x.reduceLease(res, r, of)
		case r.Refused:
			rule := &x.original.Rules[of.companion]
			res.Bans = append(res.Bans, twotier.BanResult{Check: rule.Check, Rule: rule.Rule,
				Until: EndOf(r), Started: r.TS != 0})
		}
		if r.Refused {
			refuse(&res.Checks[kept-1], r.RetryAfter)
		}
	}
	res.Checks = res.Checks[:kept]
}

// reduceLease lists the limits of a lease. Each refused if it has no room for the lease, or if it
// is the lowest one that is in force and refused because of reservations.
func (x *Extended) reduceLease(res *twotier.Result, r *twotier.CheckResult, of source) {
	open, lowest := int64(0), int64(0)
	if len(r.Limits) == 1 { // another node's result may be short
		open, lowest = r.Limits[0].Count, r.Limits[0].Max
	}
	needed := open
	if !res.Allowed { // otherwise the lease is among the open ones, also in a dry run
		needed++
	}
	for i := of.companion; i < len(x.original.Leases); i++ {
		l := x.original.Leases[i]
		if l.Check != of.check {
			break
		}
		refused := needed > l.Max || r.Refused && !l.Shadow && l.Max == lowest
		res.Leases = append(res.Leases, twotier.LeaseResult{Lease: l, Open: open, Refused: refused})
	}
}

// reduceValues moves the result of values, and compares it with their limits in shadow.
func (x *Extended) reduceValues(res *twotier.Result, r *twotier.CheckResult, of source) {
	v := &x.original.Values[of.companion]
	for k := range r.Limits[:min(len(r.Limits), len(v.Limits))] {
		l := &r.Limits[k]
		l.Max = v.Limits[k].Max
		l.Refused = l.Refused || l.Count > l.Max
	}
	res.Values = append(res.Values, *r)
	*r = twotier.CheckResult{Refused: r.Refused, RetryAfter: r.RetryAfter}
}

// TryShadow adds to the result of a refused operation which limits on values in shadow would
// refuse: that can't be seen from counts without the values, so it executes a dry run that compares
// them with these limits alone. If that fails, it adds nothing.
func (x *Extended) TryShadow(ctx context.Context,
	do func(context.Context, *twotier.Op, *twotier.Result) error, res *twotier.Result) {
	if res.Allowed || len(res.Values) < len(x.original.Values) {
		return
	}
	trial := twotier.Op{Kind: twotier.Acquire, DryRun: true}
	var of []int // the positions of the values of each check
	for i, s := range x.of {
		if s.kind != twotier.ValuesCheck || len(x.original.Values[s.companion].Shadow) == 0 {
			continue
		}
		c, v := x.Op.Checks[i], &x.original.Values[s.companion]
		c.Limits = make([]twotier.Limit, len(v.Shadow))
		for k, at := range v.Shadow {
			c.Limits[k] = v.Limits[at]
		}
		trial.Checks, of = append(trial.Checks, c), append(of, s.companion)
	}
	var tried twotier.Result
	if len(of) == 0 || do(ctx, &trial, &tried) != nil {
		return
	}
	for i := range tried.Checks[:min(len(tried.Checks), len(of))] {
		shadow, judged := x.original.Values[of[i]].Shadow, res.Values[of[i]].Limits
		for k := range tried.Checks[i].Limits[:min(len(tried.Checks[i].Limits), len(shadow))] {
			if at := shadow[k]; at < len(judged) { // another node's result may be short
				judged[at].Refused = judged[at].Refused || tried.Checks[i].Limits[k].Refused
			}
		}
	}
}

// refuse records that a companion refuses its check.
func refuse(of *twotier.CheckResult, retry int64) {
	of.Refused = true
	switch {
	case of.RetryAfter < 0:
	case retry < 0:
		of.RetryAfter = retry
	default:
		of.RetryAfter = max(of.RetryAfter, retry)
	}
}

// OriginalError turns an error of the extended operation into an error of the original.
func (x *Extended) OriginalError(err error) error {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	if !ok || invalid.Check >= len(x.of) || invalid.Check < 0 && len(x.of) > 1 {
		return err
	}
	of := x.of[max(0, invalid.Check)] // an error names no check if there is only one
	if invalid.Field == "hold" {      // its length was checked before
		return fmt.Errorf("%w: the hold ended before the owner of a key could count it",
			twotier.ErrUnavailable)
	}
	named := *invalid
	named.OfValues = of.kind == twotier.ValuesCheck
	if named.Check = of.check; len(x.original.Checks) == 1 {
		named.Check = -1
	}
	return &named
}

// HashValue returns the hash of a value. All nodes agree on it. Who does not know the seed can't
// find values that collide.
func HashValue(seed uint64, value []byte) uint64 {
	var short [128]byte // so that the hash of a short value needs no memory
	b := append(binary.LittleEndian.AppendUint64(short[:0], seed), value...)
	sum := sha256.Sum256(b)
	return leaparray.CleanHash(binary.LittleEndian.Uint64(sum[:8]))
}

// valuesOf returns the check of the values of a check. Its limits in shadow refuse nothing.
func valuesOf(of *twotier.Check, v *twotier.ValuesOf, seed uint64) twotier.Check {
	c := twotier.Check{Kind: twotier.ValuesCheck, Limits: slices.Clone(v.Limits)}
	c.NS, c.Key = twotier.ValuesKey(of.NS, of.Key)
	for _, value := range v.Values {
		c.Values = append(c.Values, HashValue(seed, value))
	}
	slices.Sort(c.Values)
	c.Values = slices.Compact(c.Values)
	c.N = int64(len(c.Values))
	for _, i := range v.Shadow {
		c.Limits[i].Max = twotier.MaxBound
	}
	return c
}
