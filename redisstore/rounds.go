package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
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

const (
	// restoreTries is how often a part of a restoration is sent: again if another node has restored
	// one of its keys meanwhile.
	restoreTries = 16
	// copyMark begins the name of a field in a record that is a copy of one of the key's.
	copyMark = "k"
)

var errContended = fmt.Errorf("%w: others restore the same keys again and again",
	syncer.ErrNotApplied)

// record is what was restored of a key in this epoch. The zero value is for an empty record.
type record struct {
	copied int    // fields, which the key had when its record was made
	log    string // of the cells that were added since
	cells  []leaparray.Cell
}

// newRestoreCall makes a call that restores a part, if the records of all its keys are empty.
func (s *Store) newRestoreCall(r *syncer.Round) *roundCall {
	c := &roundCall{rounds: []*syncer.Round{r}}
	c.Script = s.scripts.Restore
	c.Keys = []string{s.prefix.WriterKey(r.Partition, r.Writer), s.prefix.StateKey(r.Partition)}
	for i := range r.Keys {
		k := &r.Keys[i]
		c.Keys = append(c.Keys, s.prefix.Key(r.Partition, k.NS, k.Key),
			s.prefix.RecordKey(r.Partition, k.NS, k.Key))
	}
	s.decide(c, make([]record, len(r.Keys)))
	return c
}

// decide sets the arguments of a call that restores what is missing if the records of its keys are
// as given.
func (s *Store) decide(c *roundCall, records []record) {
	r := c.rounds[0]
	hashes, _ := hashesToList(r)
	c.Args = []any{number(r.Seq), strconv.FormatUint(r.Nonce, 10), number(r.Acked), s.sequenceTTL,
		number(r.Epoch), number(r.Version), number(r.Quieted), r.LastChange,
		s.prefix.FormatChange(r), number(r.After), hashes, number(s.longestTTL())}
	for i := range r.Keys {
		k, rec := &r.Keys[i], &records[i]
		c.Args = append(c.Args, number(k.TTL), flag(k.Renew))
		if restoresValues(k) {
			c.Args = appendValues(append(c.Args, number(len(k.Adds))), k)
			continue
		}
		c.Args = append(c.Args, number(0), fmt.Sprint(rec.copied, ":", rec.log),
			layout.AppendLog(nil, missingOf(k, rec.cells)))
	}
}

// restoresValues reports whether a key to restore has values, as far as they are known.
func restoresValues(k *syncer.KeyRound) bool { return len(k.Adds) > 0 && k.Adds[0].IsValue() }

// missingOf returns the cells to add to a key of which some are restored: what is missing, and all
// marks, which are no counts.
func missingOf(k *syncer.KeyRound, restored []leaparray.Cell) (add []syncer.Bucket) {
	if len(k.Adds) == 0 {
		return nil // the key is only renewed
	}
	var known []leaparray.Cell
	for _, b := range k.Adds {
		known = append(known, leaparray.Cell{Stretch: b.Stretch, N: b.N})
		if b.N == 0 {
			add = append(add, b)
		}
	}
	for _, c := range leaparray.MissingCells(known, restored) {
		add = append(add, syncer.Bucket{Stretch: c.Stretch, N: c.N})
	}
	return add
}

// decodeRestored decodes what the keys of a part have. If a record is not as it was known, nothing
// was done, and it returns true: the call has been decided anew.
func (s *Store) decodeRestored(c *roundCall, reply []any) (again bool) {
	r := c.rounds[0]
	list, ok := s.decodeStatus(r, reply)
	if !ok {
		return false
	}
	if len(list) != len(r.Keys) {
		r.Err = fmt.Errorf("%w: restoration: unexpected reply %v", twotier.ErrUnknownOutcome, reply)
		return false
	}
	if scripts.NumberAt(reply, 0) == statusDiffers {
		records := make([]record, len(r.Keys))
		for i := range records {
			fields, _ := list[i].([]any)
			records[i] = parseRecord(fields)
		}
		s.decide(c, records)
		return true
	}
	for i := range r.Keys {
		decodeRestoredKey(&r.Keys[i], list[i])
	}
	return false
}

// decodeRestoredKey decodes what a key has: its fields, when its values were seen, or an error.
func decodeRestoredKey(k *syncer.KeyRound, reply any) {
	k.Err, k.Read, k.Loaded = nil, false, k.Loaded[:0]
	has, ok := reply.([]any)
	switch {
	case !ok:
		k.Err = fmt.Errorf("%w: %v", syncer.ErrNotApplied, reply)
	case restoresValues(k):
		for j := range k.Adds {
			k.Adds[j].Stored = int64(scripts.NumberAt(has, j))
		}
	default:
		setLoaded(k, has)
	}
}

func parseRecord(fields []any) (rec record) {
	var counts []any
	for i := 0; i+1 < len(fields); i += 2 {
		name := scripts.TextAt(fields, i)
		copied, isCopy := strings.CutPrefix(name, copyMark)
		switch {
		case isCopy:
			rec.copied++
			counts = append(counts, copied, fields[i+1])
		case name == layout.LogField:
			rec.log = scripts.TextAt(fields, i+1)
			counts = append(counts, name, fields[i+1])
		}
	}
	for _, b := range layout.ParseContent(counts, nil).Buckets {
		if b.N != syncer.NoCount {
			rec.cells = append(rec.cells, leaparray.Cell{Stretch: b.Stretch, N: b.N})
		}
	}
	return rec
}
