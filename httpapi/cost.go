package httpapi

import "twotier.dev/twotier/syncer"

// Upper bounds of the memory, in bytes, for operations, their results and their answers. Slices
// that grow have up to half as much again as they need; numbers in JSON have up to 20 characters.
const (
	answerOp    = 128
	answerCheck = 128
	answerLimit = 160 // four figures, their names and a duration
	costOp      = 3*(48+24+88)/2 + answerOp
	costCheck   = 3*(80+8+40)/2 + answerCheck
	costLimit   = 3*(16+24+56)/2 + answerLimit
	costBad     = 1 << 10
	// escaped is how many bytes one byte of a key can take in an answer.
	escaped = 6
)

// account reserves the memory that the last operation, with these checks and this many limits, uses
// until it is answered.
func (d *decoder) account(checks []syncer.Check, limits int) *problem {
	keys := 0
	for i := range checks {
		keys += len(checks[i].Key)
	}
	d.answers += answerOp + len(checks)*answerCheck + limits*answerLimit + escaped*keys
	return d.spend(costOp + len(checks)*costCheck + limits*costLimit + escaped*keys)
}

// spend reserves n bytes for the request that is being read.
func (d *decoder) spend(n int) *problem {
	p := d.memory.take(int64(n))
	if p == nil {
		d.cost += int64(n)
	}
	return p
}

// expected is the memory that a batch usually needs, as a multiple of the length of its body.
const expected = 24
