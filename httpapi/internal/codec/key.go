package codec

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
)

// Key reads {"ns","key"}.
func (d *Decoder) Key(body []byte) (c twotier.Check, p *wire.Problem) {
	d.Reset(body)
	seen := fields(0)
	p = d.fields("an object with key", &seen, fieldNS|fieldKey, "reset has ns and key",
		func(f fields) *wire.Problem { return d.checkValue(&c, f) })
	if p == nil && c.Key == nil {
		p = wire.Refuse("key", "missing; "+request.WantKey)
	}
	return c, d.EndBody(p)
}

// Rule returns the rule of that name.
func (d *Decoder) Rule(name []byte) (*twotier.Rule, *wire.Problem) {
	r, f := d.FindRule(name)
	return r, wire.FromFailure(f)
}
