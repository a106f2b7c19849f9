package codec

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

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
