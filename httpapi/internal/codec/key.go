package codec

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
)

// Key reads {"ns","key"}.
func (d *Decoder) Key(body []byte) (c twotier.Check, p *wire.Problem) {
	d.Reset(body)
	c, p = d.nameOfKey()
	return c, d.EndBody(p)
}

func (d *Decoder) nameOfKey() (c twotier.Check, p *wire.Problem) {
	if p := d.Enter('{', "an object with key"); p != nil {
		return c, p
	}
	seen := fields(0)
	for first := true; ; first = false {
		name, p := d.Member(first)
		if p != nil {
			return c, p
		}
		if name == nil {
			break
		}
		f := fieldOf(name)
		if p := once(&seen, f, fieldNS|fieldKey, name, "reset has ns and key"); p != nil {
			return c, p
		}
		if p := d.checkValue(&c, f); p != nil {
			return c, p.In(string(name))
		}
	}
	if c.Key == nil {
		return c, wire.Refuse("key", "missing; "+request.WantKey)
	}
	return c, nil
}

// Rule returns the rule of that name.
func (d *Decoder) Rule(name []byte) (*twotier.Rule, *wire.Problem) {
	r, f := d.FindRule(name)
	return r, wire.FromFailure(f)
}
