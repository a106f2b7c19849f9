package codec

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// The fields of what is read, in error messages.
var (
	addHas           = "add has " + fields.OfAdd.List()
	countHas         = "count has " + fields.OfCount.List()
	acquireHas       = "acquire has " + fields.OfAcquire.List()
	distinctHas      = "distinct has " + fields.OfDistinct.List()
	batchDistinctHas = "distinct has " + fields.OfBatchDistinct.List()
	checkHas         = "a check has " + fields.OfCheck.List()
	valueLimitHas    = "a limit on values has " + fields.OfValueLimit.List()
	renewHas         = "renew has " + fields.OfRenew.List()
	resetHas         = "reset has " + fields.OfReset.List()
)

// kindOf parses the value of "op".
func kindOf(b []byte) (twotier.Kind, *wire.Problem) {
	switch string(b) {
	case "add":
		return twotier.Add, nil
	case "count":
		return twotier.Count, nil
	case "acquire":
		return twotier.Acquire, nil
	}
	return 0, wire.FieldProblem("", `want "add", "count", "acquire" or "distinct", `+
		`got "`+request.Clip(b)+`"`)
}

// ackOf parses the value of "ack".
func ackOf(b []byte) (twotier.Ack, *wire.Problem) {
	switch string(b) {
	case "memory":
		return twotier.AckMemory, nil
	case "redis":
		return twotier.AckStore, nil
	case "replica":
		return twotier.AckReplica, nil
	case "disk":
		return twotier.AckDisk, nil
	}
	return 0, wire.FieldProblem("", `want "memory", "redis", "replica" or "disk", `+
		`got "`+request.Clip(b)+`"`)
}

// DecodeKey reads {"ns","key"}.
func (d *Decoder) DecodeKey(body []byte) (c twotier.Check, p *wire.Problem) {
	d.Reset(body)
	seen := fields.Set(0)
	p = d.readFields("an object with key", &seen, fields.OfReset, resetHas,
		func(f fields.Set) *wire.Problem { return d.readCheckValue(&c, f) })
	if p == nil && c.Key == nil {
		p = wire.FieldProblem("key", "missing; "+request.WantKey)
	}
	return c, d.EndBody(p)
}

// ResolveRule returns the rule of that name.
func (d *Decoder) ResolveRule(name []byte) (*twotier.Rule, *wire.Problem) {
	r, f := d.FindRule(name)
	return r, wire.FromFailure(f)
}
