package codec

import (
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
)

// DecodeRenew reads {"hold","for"}.
func DecodeRenew(d *Decoder) (id string, lasts int64, p *wire.Problem) {
	p = d.ReadObject("an object with hold and for", func(name []byte) (p *wire.Problem) {
		switch field := string(name); {
		case field == "hold" && id == "":
			var text []byte
			text, p = d.ReadText()
			id = string(text)
		case field == "for" && lasts == 0:
			lasts, p = d.ReadDuration()
		case field == "hold" || field == "for":
			p = wire.FieldProblem("", "given twice")
		default:
			return wire.FieldProblem(request.Clip(name), "unknown field; renew has hold and for")
		}
		if p != nil {
			return p.PrefixField(string(name))
		}
		return nil
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
	var seenN, seenChecks bool
	p := d.ReadObject("an object with hold and n, or hold and checks",
		func(name []byte) (p *wire.Problem) {
			field := string(name)
			twice := field == "hold" && q.ID != "" || field == "n" && seenN ||
				field == "checks" && seenChecks
			switch {
			case twice:
				p = wire.FieldProblem("", "given twice")
			case field == "hold":
				var id []byte
				id, p = d.ReadText()
				q.ID = string(id)
			case field == "n":
				seenN = true
				q.All, p = d.ReadInteger()
			case field == "checks":
				seenChecks = true
				p = d.ReadList("a list of checks", request.MaxChecks, "checks",
					func(int) *wire.Problem { return readSettledCheck(d, q) })
			default:
				return wire.FieldProblem(request.Clip(name),
					"unknown field; settle has hold, n and checks")
			}
			if p != nil {
				return p.PrefixField(field)
			}
			return nil
		})
	switch {
	case p != nil:
		return nil, p
	case q.ID == "":
		return nil, wire.FieldProblem("hold", "missing; want the id of a hold")
	case seenN == seenChecks:
		return nil, wire.FieldProblem("n", "want either n, for every check, or checks")
	case seenChecks && len(q.Checks) == 0:
		return nil, wire.FieldProblem("checks", "want at least one check")
	}
	return q, nil
}

// readSettledCheck reads {"ns","key","n"}.
func readSettledCheck(d *Decoder, q *ask.Settling) *wire.Problem {
	var c ask.SettledCheck
	seenN := false
	p := d.ReadObject("an object with key and n", func(name []byte) (p *wire.Problem) {
		switch field := string(name); {
		case field == "ns" && c.NS != nil, field == "key" && c.Key != nil, field == "n" && seenN:
			p = wire.FieldProblem("", "given twice")
		case field == "ns":
			c.NS, p = d.ReadText()
		case field == "key":
			c.Key, p = d.ReadText()
		case field == "n":
			seenN = true
			c.N, p = d.ReadInteger()
		default:
			return wire.FieldProblem(request.Clip(name), "unknown field; want ns, key and n")
		}
		if p != nil {
			return p.PrefixField(string(name))
		}
		return nil
	})
	switch {
	case p != nil:
		return p
	case c.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
	case !seenN:
		return wire.FieldProblem("n", "missing; "+request.WantAcquireN)
	}
	q.Checks = append(q.Checks, c)
	return nil
}
