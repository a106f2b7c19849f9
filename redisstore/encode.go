package redisstore

import (
	"slices"

	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// encoder encodes the keys of rounds.
type encoder struct {
	payloads bool // new keys may be sent as payloads
	payload  layout.Payload
	pages    layout.Pages
	text     []byte
	adds     []syncer.Bucket
}

// appendKey appends the values of a key to the arguments of a call, or what to append to its log
// and the pages that are to be written instead if they can be.
func (e *encoder) appendKey(c *roundCall, k *syncer.KeyRound) part {
	p := part{flags: keyFlags(k), ttl: k.TTL}
	switch {
	case len(k.Adds) > 0 && k.Adds[0].IsValue():
		p.values = len(k.Adds)
		c.Args = appendValues(c.Args, k)
		return p
	case len(k.Adds) == 0 && k.Content == nil:
		return p
	}
	p.flags |= flagCounts
	e.text = layout.AppendLog(e.text[:0], k.Adds)
	c.Args = append(c.Args, string(e.text))
	cells, adds := k.Content, k.Adds
	switch {
	case isNew(k):
		cells, adds = e.sorted(k.Adds), nil
	case k.Rewrite:
		p.flags |= flagRewrite
		adds = nil
	}
	if len(cells) == 0 {
		return p
	}
	if isNew(k) && e.payloads && k.TTL > 0 && e.appendPayload(c, cells) {
		p.flags |= flagPayload
		return p
	}
	p.logged = k.ContentLog
	var gone []any
	e.pages.Each(cells, adds, func(name, value []byte) {
		if len(value) == 0 {
			gone = append(gone, string(name))
			return
		}
		c.Args = append(c.Args, string(name), string(value))
		p.pages++
	})
	p.gone = len(gone)
	c.Args = append(c.Args, gone...)
	return p
}

// appendPayload appends the payload of a new key. It reports false if there is none.
func (e *encoder) appendPayload(c *roundCall, cells []syncer.Bucket) bool {
	e.payload.Reset()
	e.pages.Each(cells, nil, e.payload.Add)
	text, ok := e.payload.Text()
	if ok {
		c.Args = append(c.Args, text)
	}
	return ok
}

// appendValues appends the values of a key.
func appendValues(args []any, k *syncer.KeyRound) []any {
	for i := range k.Adds {
		v := &k.Adds[i]
		args = append(args, layout.ValueField(v.ValueHash()), number(v.N))
	}
	return args
}

// sorted returns cells in the order of pages. The result is valid until the next call.
func (e *encoder) sorted(cells []syncer.Bucket) []syncer.Bucket {
	if slices.IsSortedFunc(cells, syncer.Bucket.Compare) {
		return cells
	}
	e.adds = append(e.adds[:0], cells...)
	slices.SortFunc(e.adds, syncer.Bucket.Compare)
	return e.adds
}

// setLoaded sets what was loaded of a key from the flat list of its fields and values.
func setLoaded(k *syncer.KeyRound, flat []any) {
	c := layout.ParseContent(flat, k.Loaded[:0])
	k.Read, k.Loaded, k.LoadedLog = true, c.Buckets, c.Logged
}
