package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// Plan is an answer to a query that is still to be built: it grows with the rules of the namespace.
type Plan struct {
	judging
	rules []*twotier.Rule
}

// Approximate sizes of the parts of an answer as JSON: of all but the rules, with the most
// refusals, of a rule, and of a limit with its buckets.
const (
	headBytes  = 16 << 10
	ruleBytes  = 256
	limitBytes = 512
)

// rulesAtOnce bounds the rules whose verdicts are found in one step: other requests for the key
// wait for a step at most.
const rulesAtOnce = 64

// Bytes returns how much memory the answer may take, to be reserved before it is built.
func (p *Plan) Bytes() int64 {
	n := int64(headBytes)
	for _, r := range p.rules {
		limits := 1 + len(r.For(p.query.Key)) + len(r.DistinctFor(p.query.Key))
		n += ruleBytes + int64(len(r.Name)+limits*limitBytes)
	}
	return n
}

// Append appends the answer as JSON to b. It fails if the answer is longer than most bytes.
func (p *Plan) Append(ctx context.Context, b []byte, most int64) ([]byte, *request.Failure) {
	start := len(b)
	b = append(b, `{"rules":[`...)
	for first := 0; first < len(p.rules); first += rulesAtOnce {
		some := p.rules[first:min(first+rulesAtOnce, len(p.rules))]
		verdicts, err := p.judge(ctx, some)
		if err != nil {
			return b, failureOf(err)
		}
		for i := range verdicts {
			b = append(appendJSON(b, &verdicts[i]), ',')
		}
		if int64(len(b)-start) > most {
			return b, tooLong(most)
		}
		if first == 0 && len(p.rules) > len(some) {
			likely := int64((len(b) - start) * len(p.rules) / len(some))
			b = slices.Grow(b, int(min(likely, p.Bytes(), most)))
		}
		runtime.Gosched()
	}
	if err := p.addHolds(ctx); err != nil {
		return b, failureOf(err)
	}
	b = append(bytes.TrimSuffix(b, []byte{','}), "],"...)
	return append(b, appendJSON(nil, p.answer)[1:]...), nil
}

// tooLong is the failure of an answer of more than most bytes.
func tooLong(most int64) *request.Failure {
	return request.FieldFailure("rule", fmt.Sprintf("the explanation of all rules takes more than "+
		"the %d KiB that an answer may take here, by --max-memory; name a rule", most>>10))
}

// appendJSON appends v as JSON. It escapes only what JSON needs escaped.
func appendJSON(b []byte, v any) []byte {
	text := bytes.NewBuffer(b)
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // it can't fail: all numbers are finite
	return bytes.TrimSuffix(text.Bytes(), []byte{'\n'})
}
