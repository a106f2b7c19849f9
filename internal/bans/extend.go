package bans

import (
	"errors"

	"twotier.dev/twotier"
)

// Extended is an operation with the bans of the rules that judge it.
type Extended struct {
	// Op is the operation to execute in place of the original.
	Op twotier.Op

	original *twotier.Op
	of       []int // the original check of each one; -1-i for the ban of rule i
}

// Extend returns an operation together with the bans of its Rules.
func Extend(op *twotier.Op) *Extended {
	x := &Extended{Op: *op, original: op}
	x.Op.Rules = nil
	x.Op.Checks = make([]twotier.Check, 0, len(op.Checks)+len(op.Rules))
	next := 0
	for i := range op.Checks {
		x.Op.Checks, x.of = append(x.Op.Checks, op.Checks[i]), append(x.of, i)
		for ; next < len(op.Rules) && op.Rules[next].Check == i; next++ {
			x.Op.Checks = append(x.Op.Checks, checkOf(&op.Checks[i], &op.Rules[next]))
			x.of = append(x.of, -1-next)
		}
	}
	return x
}

// checkOf returns the check of a rule's ban.
func checkOf(c *twotier.Check, r *twotier.BanRule) twotier.Check {
	ns, key := twotier.BanKey(c.NS, r.Rule, c.Key)
	return twotier.Check{Kind: twotier.BanCheck, NS: ns, Key: key,
		Limits: []twotier.Limit{{Window: r.Window}},
		Ban:    twotier.Ban{From: uint16(r.From), To: uint16(r.To)}}
}

// StatusOp returns a dry run that asks how long a rule bans a key: it is refused, and could pass
// when the ban ends.
func StatusOp(ns []byte, rule string, key []byte, window int64) twotier.Op {
	c := checkOf(&twotier.Check{NS: ns, Key: key}, &twotier.BanRule{Rule: rule, Window: window})
	return twotier.Op{Kind: twotier.Acquire, DryRun: true, Checks: []twotier.Check{c}}
}

// EndOf returns the end of the ban that refuses a check, in unix milliseconds.
func EndOf(r *twotier.CheckResult) int64 {
	if len(r.Limits) != 1 {
		return 0 // another node's result may be short
	}
	return r.Limits[0].Hi
}

// ReduceResult turns the result of the extended operation into the result of the original, and
// lists the refusing bans in its Bans.
func (x *Extended) ReduceResult(res *twotier.Result) {
	kept := 0
	for i := range min(len(res.Checks), len(x.of)) {
		if of := x.of[i]; of >= 0 {
			res.Checks[kept], res.Checks[i] = res.Checks[i], res.Checks[kept]
			kept++
		} else if r := &res.Checks[i]; r.Refused && kept > 0 {
			rule := &x.original.Rules[-1-of]
			res.Bans = append(res.Bans, twotier.BanResult{Check: rule.Check, Rule: rule.Rule,
				Until: EndOf(r), Started: r.TS != 0})
			banned := &res.Checks[kept-1]
			if banned.Refused = true; banned.RetryAfter >= 0 {
				banned.RetryAfter = max(banned.RetryAfter, r.RetryAfter)
			}
		}
	}
	res.Checks = res.Checks[:kept]
}

// OriginalError turns an error of the extended operation into an error of the original.
func (x *Extended) OriginalError(err error) error {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	if !ok || invalid.Check < 0 || invalid.Check >= len(x.of) {
		return err
	}
	named := *invalid
	if named.Check = x.of[invalid.Check]; len(x.original.Checks) == 1 {
		named.Check = -1
	}
	return &named
}
