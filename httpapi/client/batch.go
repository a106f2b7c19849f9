package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier"
)

// Batch executes operations and returns their results in the same order. Operations on keys of the
// same owner run in order, all others concurrently, so an operation that depends on another's count
// must not be in the same batch. Each operation has its own error; the call returns one only if
// nothing was started.
func (c *Client) Batch(ctx context.Context, ops []Op) ([]Result, error) {
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	t := c.view.Load().table
	groups := map[int][]int{} // positions by owner
	for i := range ops {
		at, err := ops[i].owner(t)
		if err != nil {
			return nil, fmt.Errorf("ops[%d]: %w", i, err)
		}
		groups[at] = append(groups[at], i)
	}
	res := make([]Result, len(ops))
	var done sync.WaitGroup
	for at, group := range groups {
		done.Go(func() { c.runGroup(ctx, at, group, ops, res) })
	}
	done.Wait()
	return res, nil
}

// owner returns the index of the member that owns all keys of an operation, or none.
func (o *Op) owner(t *table) (int, error) {
	set := 0
	for _, is := range [...]bool{o.Add != nil, o.Count != nil, o.Acquire != nil,
		o.Distinct != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return none, fmt.Errorf("%w: want exactly one of Add, Count, Acquire and Distinct",
			ErrInvalid)
	case o.Add != nil:
		return t.ownerUnderRules(o.Add.Rules, o.Add.Namespace, o.Add.Key), nil
	case o.Count != nil:
		return t.owner(o.Count.Namespace, o.Count.Key), nil
	case o.Acquire != nil:
		return t.ownerOf(o.Acquire), nil
	}
	return t.ownerUnderRules(o.Distinct.Rules, o.Distinct.Namespace, o.Distinct.Key), nil
}

func (o *Op) append(b []byte) ([]byte, error) {
	switch {
	case o.Add != nil:
		return o.Add.append(b)
	case o.Count != nil:
		return o.Count.append(b)
	case o.Distinct != nil:
		return o.Distinct.append(b)
	}
	return o.Acquire.append(b)
}

func (o *Op) waitsForStore() bool {
	return o.Add != nil && o.Add.Ack.waitsForStore() ||
		o.Acquire != nil && o.Acquire.Ack.waitsForStore() ||
		o.Distinct != nil && o.Distinct.Ack.waitsForStore()
}

// writes reports whether the operation changes anything.
func (o *Op) writes() bool { return o.Count == nil && o.Distinct == nil || o.adds() }

// adds reports whether the operation adds values.
func (o *Op) adds() bool { return o.Distinct != nil && len(o.Distinct.Values) > 0 }

// isRepeatable reports whether an operation without an outcome can be executed again without
// counting anything twice.
func (o *Op) isRepeatable() bool { return o.Count != nil || o.Distinct != nil }

// needsAnother reports whether another node should execute an operation that has this error.
func (o *Op) needsAnother(err error) bool {
	if errors.Is(err, ErrUnknownOutcome) {
		return o.isRepeatable()
	}
	return errors.Is(err, ErrUnavailable)
}

// outcomeError returns the error of an operation that so many nodes were asked for. Any of them may
// have added its values, except one that refused them.
func (o *Op) outcomeError(err error, asked int) error {
	refused := errors.Is(err, ErrInvalid) || errors.Is(err, ErrOverloaded)
	if err == nil || !o.adds() || asked == 0 || asked == 1 && refused ||
		errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %v", ErrUnknownOutcome, err)
}

// runGroup executes the operations at some positions, which have the same owner, one request at a
// time.
func (c *Client) runGroup(ctx context.Context, at int, group []int, ops []Op, res []Result) {
	for len(group) > 0 {
		k := c.calls.Get().(*call)
		k.begin()
		var sent []int
		most := c.maxRequestBytes(at)
		for len(group) > 0 && k.ops < c.opt.MaxBatch && len(k.body) < most {
			i := group[0]
			group = group[1:]
			if err := k.add(&ops[i]); err != nil {
				res[i].Err = err
				continue
			}
			sent = append(sent, i)
		}
		if len(sent) > 0 {
			c.runPart(ctx, k, at, sent, ops, res)
		}
	}
}

// maxRequestBytes returns the number of bytes that the member at an index accepts in a request, or
// any node if there is no owner.
func (c *Client) maxRequestBytes(at int) int {
	v := c.view.Load()
	if at >= 0 && at < len(v.members) && v.members[at] != nil {
		return v.members[at].fit.maxBytes()
	}
	most := maxBody
	for _, l := range slices.Concat(v.any, c.seeds) {
		most = min(most, l.fit.maxBytes())
	}
	return most
}

// add appends an operation to a call.
func (k *call) add(o *Op) error {
	body := k.body
	if k.ops > 0 {
		body = append(body, ',')
	}
	body, err := o.append(body)
	if err == nil && len(body)-len(k.body) > maxOp {
		err = errLong
	}
	if err != nil {
		return err
	}
	k.body = body
	k.ops++
	if o.Acquire != nil {
		k.usual += o.Acquire.defaultCheckCount()
	}
	k.write = k.write || !o.isRepeatable()
	k.adds = k.adds || o.adds()
	k.slow = k.slow || o.waitsForStore()
	return nil
}

// runPart executes a call and sets the results of the operations at these positions. If they don't
// fit in one request, it executes their halves, in order.
func (c *Client) runPart(ctx context.Context, k *call, at int, sent []int, ops []Op, res []Result) {
	var tried trail
	k.by = c.deadline(ctx)
	l, left, err := c.do(ctx, k, at, &tried)
	if left {
		k = nil
	} else {
		defer c.calls.Put(k)
	}
	if isTooLarge(err) && len(sent) > 1 {
		c.runGroup(ctx, at, sent[:len(sent)/2], ops, res)
		c.runGroup(ctx, at, sent[len(sent)/2:], ops, res)
		return
	}
	var answers []*fastjson.Value
	if err == nil {
		p := c.parsers.Get()
		defer c.parsers.Put(p)
		answers, err = readAll(p, k)
	}
	for n, i := range sent {
		o, r := &ops[i], &res[i]
		if err != nil {
			r.Err = err
		} else if from := r.read(answers[n], o); from == twotier.SourceOwner && tried.direct {
			c.refresh(l)
		}
		if o.needsAnother(r.Err) && (err == nil || errors.Is(err, ErrUnknownOutcome)) {
			*r = c.run(ctx, o, tried.n)
		}
		r.Err = o.outcomeError(r.Err, tried.n)
	}
}

// readAll returns the answers to a call, which are valid until p is used again.
func readAll(p *fastjson.Parser, k *call) ([]*fastjson.Value, error) {
	v, err := p.ParseBytes(k.reply)
	if err != nil {
		return nil, unknownOutcomeError(k.write, errAnswer)
	}
	return v.Array()
}

// read reads the answer to an operation.
func (r *Result) read(v *fastjson.Value, o *Op) twotier.Source {
	var from *twotier.Source
	var err error
	switch {
	case o.Add != nil:
		r.Add = new(AddAnswer)
		from, err = &r.Add.Source, r.Add.read(v, o.Add)
	case o.Count != nil:
		r.Count = new(CountAnswer)
		from, err = &r.Count.Source, r.Count.read(v, o.Count)
	case o.Distinct != nil:
		r.Distinct = new(DistinctAnswer)
		from, err = &r.Distinct.Source, r.Distinct.read(v, o.Distinct)
	default:
		r.Acquire = new(AcquireAnswer)
		from, err = &r.Acquire.Source, r.Acquire.read(v, o.Acquire)
	}
	if err == nil {
		return *from
	}
	if errors.Is(err, errAnswer) {
		err = unknownOutcomeError(o.writes(), err)
	}
	*r = Result{Err: err}
	return ""
}
