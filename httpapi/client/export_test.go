package client

import (
	"errors"
	"slices"
	"time"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier"
)

// Askers is askers.
const Askers = askers

// Partition returns the partition of a key among so many.
func Partition(ns, key string, seed uint64, partitions int, hashTags map[string]bool) int {
	t := table{place: twotier.Placement{Partitions: partitions, Seed: seed, HashTags: hashTags}}
	return t.partition(ns, key)
}

// Table is the part of a table that tests check.
type Table struct {
	of        *table
	Owners    []uint16
	Seed      uint64
	Version   uint64
	Addresses []string
	Leaving   []bool
	HashTags  map[string]bool
}

// ReadTable is readTable.
func ReadTable(b []byte, address string) (*Table, error) {
	t, err := readTable(b, address)
	if err != nil {
		return nil, err
	}
	out := &Table{of: t, Owners: t.owners, Seed: t.place.Seed, Version: t.version,
		HashTags: t.place.HashTags}
	for _, m := range t.members {
		out.Addresses = append(out.Addresses, m.address)
		out.Leaving = append(out.Leaving, m.leaving)
	}
	return out, nil
}

// Owner returns the address of a key's owner, or an empty string if there is none.
func (t *Table) Owner(ns, key string) string {
	at := t.of.owner(ns, key)
	if at == none {
		return ""
	}
	return t.Addresses[at]
}

// Body returns the encoded operation.
func (o *Op) Body() ([]byte, error) { return o.append(nil) }

// Read parses an answer.
func (o *Op) Read(b []byte) (r Result) { return o.ReadWith(new(fastjson.Parser), b) }

// ReadWith is Read with a parser that has been used before.
func (o *Op) ReadWith(p *fastjson.Parser, b []byte) (r Result) {
	v, err := p.ParseBytes(b)
	if err != nil {
		return Result{Err: errAnswer}
	}
	r.read(v, o)
	return r
}

// Malformed reports whether an answer could not be read.
func (r *Result) Malformed() bool { return errors.Is(r.Err, errAnswer) }

// Split splits the answer to a batch of that many operations.
func Split(b []byte, ops int) ([]byte, error) {
	n := lane{w: new(nodeConn)}
	n.w.answer.SetBodyRaw(b)
	results, err := n.results()
	if err != nil {
		return nil, err
	}
	k := &call{ops: ops}
	err = k.takeResults(&results)
	return k.reply, err
}

// Window is appendWindow.
func Window(d time.Duration) string { return string(appendWindow(nil, d)) }

// Carry sends one request with a call for each operation, in this order, to the first of the
// client's nodes, and returns the answer or the error of each.
func (c *Client) Carry(ops ...Op) []Result {
	calls := make([]*call, len(ops))
	for i := range ops {
		k := new(call)
		k.begin()
		k.Reset()
		k.Take()
		k.by = c.deadline(c.ctx)
		_ = k.add(&ops[i])
		calls[i] = k
	}
	n := newLane(c.seeds[0])
	defer n.w.close()
	n.sendAll(slices.Clone(calls))
	results := make([]Result, len(ops))
	for i, k := range calls {
		var list []*fastjson.Value
		_, err := k.wait(c.ctx)
		if err == nil {
			list, err = readAll(new(fastjson.Parser), k)
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i].read(list[0], &ops[i])
	}
	return results
}
