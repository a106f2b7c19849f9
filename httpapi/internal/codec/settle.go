package codec

import (
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// DecodeRenew reads {"hold","for"}.
func DecodeRenew(d *Decoder) (id string, lasts int64, p *wire.Problem) {
	var seen fields.Set
	p = d.readFields("an object with hold and for", &seen, fields.OfRenew,
		renewHas, func(f fields.Set) (p *wire.Problem) {
			if f == fields.For {
				lasts, p = d.ReadDuration()
				return p
			}
			text, p := d.ReadText()
			id = string(text)
			return p
		})
	switch {
	case p != nil:
	case id == "":
		p = wire.FieldProblem("hold", "missing; want the id of a hold")
	case lasts == 0:
		p = wire.FieldProblem("for", "missing; "+request.WantWindow)
	}
	return id, lasts, p
}

// AppendSettled appends the answer to a settlement.
func AppendSettled(b []byte, a *ask.Settled) []byte {
	b = append(b, `{"settled":true`...)
	if a.Repeated {
		b = append(b, `,"repeated":true`...)
	}
	if a.Late {
		b = append(b, `,"late":true`...)
	}
	if len(a.Over) > 0 {
		b = append(b, `,"over":[`...)
		for _, name := range a.Over {
			b = wire.AppendString(wire.AppendComma(b), name)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// DecodeSettle reads {"hold","n"} or {"hold","checks"}.
func DecodeSettle(d *Decoder) (*ask.Settling, *wire.Problem) {
	q := &ask.Settling{}
	var seen fields.Set
	p := d.readFields("an object with hold and n, or hold and checks", &seen,
		fields.OfSettle, "settle has hold, n and checks",
		func(f fields.Set) (p *wire.Problem) {
			switch f {
			case fields.Hold:
				var id []byte
				id, p = d.ReadText()
				q.ID = string(id)
			case fields.N:
				q.All, p = d.ReadInteger()
			case fields.Checks:
				return d.ReadList("a list of checks", request.MaxChecks, "checks",
					func(int) *wire.Problem { return readSettledCheck(d, q) })
			}
			return p
		})
	switch {
	case p != nil:
		return nil, p
	case q.ID == "":
		return nil, wire.FieldProblem("hold", "missing; want the id of a hold")
	case (seen&fields.N == 0) == (seen&fields.Checks == 0):
		return nil, wire.FieldProblem("n", "want either n, for every check, or checks")
	case seen&fields.Checks != 0 && len(q.Checks) == 0:
		return nil, wire.FieldProblem("checks", "want at least one check")
	}
	return q, nil
}

// readSettledCheck reads {"ns","key","n"}.
func readSettledCheck(d *Decoder, q *ask.Settling) *wire.Problem {
	var c ask.SettledCheck
	var seen fields.Set
	p := d.readFields("an object with key and n", &seen, fields.OfSettledCheck,
		"want ns, key and n", func(f fields.Set) (p *wire.Problem) {
			switch f {
			case fields.NS:
				c.NS, p = d.ReadText()
			case fields.Key:
				c.Key, p = d.ReadText()
			case fields.N:
				c.N, p = d.ReadInteger()
			}
			return p
		})
	switch {
	case p != nil:
		return p
	case c.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
	case seen&fields.N == 0:
		return wire.FieldProblem("n", "missing; "+request.WantAcquireN)
	}
	q.Checks = append(q.Checks, c)
	return nil
}
