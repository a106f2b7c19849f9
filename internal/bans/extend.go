package bans

import (
	"errors"

	"twotier.dev/twotier/syncer"
)

// Extended is an operation with the bans of the rules that judge it.
type Extended struct {
	// Op is the operation to execute in place of the original.
	Op syncer.Op

	original *syncer.Op
	of       []int // the original check of each one; -1-i for the ban of rule i
}

// Extend returns an operation together with the bans of its Rules.
func Extend(op *syncer.Op) *Extended {
	x := &Extended{Op: *op, original: op}
	x.Op.Rules = nil
	x.Op.Checks = make([]syncer.Check, 0, len(op.Checks)+len(op.Rules))
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
func checkOf(c *syncer.Check, r *syncer.BanRule) syncer.Check {
	ns, key := syncer.BanKey(c.NS, r.Rule, c.Key)
	return syncer.Check{NS: ns, Key: key,
		Limits: []syncer.Limit{{Window: r.Window}},
		Ban:    syncer.Ban{From: uint16(r.From), To: uint16(r.To)}}
}

// Question returns a dry run that asks how long a rule bans a key: it is refused, and could pass
// when the ban ends.
func Question(ns []byte, rule string, key []byte, window int64) syncer.Op {
	c := checkOf(&syncer.Check{NS: ns, Key: key}, &syncer.BanRule{Rule: rule, Window: window})
	return syncer.Op{Kind: syncer.Acquire, DryRun: true, Checks: []syncer.Check{c}}
}

// EndOf returns the end of the ban that refuses a check, in unix milliseconds.
func EndOf(r *syncer.CheckResult) int64 {
	if len(r.Limits) != 1 {
		return 0 // another node's result may be short
	}
	return r.Limits[0].Hi
}

// Fold turns the result of the extended operation into the result of the original, and lists the
// refusing bans in its Bans.
func (x *Extended) Fold(res *syncer.Result) {
	kept := 0
	for i := range min(len(res.Checks), len(x.of)) {
		if of := x.of[i]; of >= 0 {
			res.Checks[kept], res.Checks[i] = res.Checks[i], res.Checks[kept]
			kept++
		} else if r := &res.Checks[i]; r.Refused && kept > 0 {
			rule := &x.original.Rules[-1-of]
			res.Bans = append(res.Bans, syncer.BanResult{Check: rule.Check, Rule: rule.Rule,
				Until: EndOf(r), Started: r.TS != 0})
			banned := &res.Checks[kept-1]
			if banned.Refused = true; banned.RetryAfter >= 0 {
				banned.RetryAfter = max(banned.RetryAfter, r.RetryAfter)
			}
		}
	}
	res.Checks = res.Checks[:kept]
}

// Explain turns an error of the extended operation into an error of the original.
func (x *Extended) Explain(err error) error {
	invalid, ok := errors.AsType[*syncer.InvalidError](err)
	if !ok || invalid.Check < 0 || invalid.Check >= len(x.of) {
		return err
	}
	named := *invalid
	if named.Check = x.of[invalid.Check]; len(x.original.Checks) == 1 {
		named.Check = -1
	}
	return &named
}
