package peer

import (
	"encoding/binary"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// longestUnflushed caps the reported age of received unflushed counts.
const longestUnflushed = 365 * 24 * time.Hour

// The flags of a key in a round.
const (
	resetBit     = 1
	forgottenBit = 2
	renewBit     = 4
)

// lastMoment bounds the times of buckets, in unix milliseconds.
const lastMoment = 1 << 53

// appendClaim appends the response to a claim.
func appendClaim(b []byte, a *ownership.ClaimResponse) []byte {
	b = binary.AppendUvarint(b, uint64(len(a.Pages)))
	for i := range a.Pages {
		p := &a.Pages[i]
		b = binary.AppendUvarint(b, uint64(p.Partition))
		b = append(b, byte(p.State))
		b = binary.AppendUvarint(b, p.Next)
		if p.State == ownership.Given {
			b = binary.AppendUvarint(b, p.Gift)
			b = appendHandoff(b, p.Handoff)
		}
	}
	return b
}

func readClaim(r *reader, a *ownership.ClaimResponse) {
	for range r.itemCount() {
		p := ownership.ClaimPage{Partition: int(r.uint()), State: ownership.ClaimState(r.byte()),
			Next: r.uint()}
		if p.State == ownership.Given {
			p.Gift = r.uint()
			p.Handoff = readHandoff(r)
			p.Handoff.Partition = p.Partition
		}
		a.Pages = append(a.Pages, p)
	}
}

func appendHandoff(b []byte, h *syncer.Handoff) []byte {
	b = append(b, boolByte(h.MaybeSent))
	b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, h.Epoch), h.Version),
		h.Quieted)
	b = appendBytes(b, []byte(h.LastChange))
	b = binary.AppendUvarint(b, uint64(h.UnflushedAge.Milliseconds()))
	b = binary.AppendUvarint(b, uint64(len(h.Rounds)))
	for _, r := range h.Rounds {
		b = appendRound(b, r)
	}
	b = binary.AppendUvarint(b, uint64(len(h.Keys)))
	for i := range h.Keys {
		k := &h.Keys[i]
		b = appendBuckets(append(appendBytes(appendBytes(b, k.NS), k.Key), boolByte(k.Cold)),
			k.Buckets)
	}
	return appendLoans(b, h.Loans)
}

func appendLoans(b []byte, loans []twotier.Loan) []byte {
	b = binary.AppendUvarint(b, uint64(len(loans)))
	for i := range loans {
		l := &loans[i]
		b = appendBytes(appendBytes(appendBytes(b, l.NS), l.Key), []byte(l.Name))
		b = binary.AppendUvarint(b, l.Number)
		for _, n := range []int64{l.Ceiling, l.Seen, l.Until} {
			b = binary.AppendVarint(b, n)
		}
	}
	return b
}

func (r *reader) loans() (loans []twotier.Loan) {
	for range r.itemCount() {
		loans = append(loans, twotier.Loan{
			NS: r.name(maxNS), Key: r.name(maxKey), Name: r.string(), Number: r.uint(),
			Ceiling: r.int(), Seen: r.int(), Until: r.int(),
		})
	}
	return loans
}

func readHandoff(r *reader) *syncer.Handoff {
	h := &syncer.Handoff{MaybeSent: r.byte() != 0, Epoch: r.uint(), Version: r.uint(),
		Quieted: r.uint(), LastChange: r.string()}
	unflushed := min(r.uint(), uint64(longestUnflushed.Milliseconds()))
	h.UnflushedAge = time.Duration(unflushed) * time.Millisecond
	for range r.itemCount() {
		h.Rounds = append(h.Rounds, readRound(r))
	}
	for range r.itemCount() {
		k := syncer.KeyState{NS: r.name(maxNS), Key: r.name(maxKey), Cold: r.byte() != 0}
		k.Buckets = r.buckets()
		h.Keys = append(h.Keys, k)
	}
	h.Loans = r.loans()
	return h
}

func appendRound(b []byte, r *syncer.Round) []byte {
	b = appendBytes(b, r.Writer)
	for _, n := range []uint64{uint64(r.Now), r.Seq, r.Nonce, r.Acked} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Keys)))
	for i := range r.Keys {
		k := &r.Keys[i]
		b = appendBytes(appendBytes(b, k.NS), k.Key)
		b = append(b, boolByte(k.Reset)*resetBit|boolByte(k.Forgotten)*forgottenBit|
			boolByte(k.Renew)*renewBit)
		b = appendBuckets(binary.AppendUvarint(b, uint64(k.TTL)), k.Adds)
	}
	return b
}

func readRound(r *reader) *syncer.Round {
	round := &syncer.Round{Writer: r.string(), Now: int64(r.uint()), Seq: r.uint(), Nonce: r.uint(),
		Acked: r.uint()}
	for range r.itemCount() {
		k := syncer.KeyRound{NS: r.name(maxNS), Key: r.name(maxKey)}
		bits := r.byte()
		k.Reset, k.Forgotten = bits&resetBit != 0, bits&forgottenBit != 0
		k.Renew = bits&renewBit != 0
		k.TTL, k.Adds = int64(r.uint()), r.buckets()
		round.Keys = append(round.Keys, k)
	}
	return round
}

// appendBuckets appends buckets. Each start is encoded as the difference from the previous one, and
// each width plus one: values have width -1, see leaparray.ValueAt.
func appendBuckets(b []byte, list []syncer.Bucket) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	last := int64(0)
	for i := range list {
		b = binary.AppendVarint(b, list[i].Start-last)
		b = binary.AppendUvarint(b, uint64(list[i].Width+1))
		b = binary.AppendVarint(b, list[i].N)
		last = list[i].Start
	}
	return b
}

func (r *reader) buckets() []syncer.Bucket {
	n := r.itemCount()
	if n == 0 {
		return nil
	}
	list := make([]syncer.Bucket, 0, n)
	last := int64(0)
	for range n {
		at := leaparray.Stretch{Start: last + r.int(), Width: int64(r.uint()) - 1}
		count := r.int()
		if !at.IsValue() && (at.Width <= 0 || at.Width > lastMoment || at.Start < 0 ||
			at.Start > lastMoment || at.Start%at.Width != 0) {
			r.fail()
			return nil
		}
		last = at.Start
		list = append(list, syncer.Bucket{Stretch: at, N: count})
	}
	return list
}

// name reads and copies a name whose length is at most the given one.
func (r *reader) name(most int) []byte {
	b := r.bytes()
	if len(b) > most {
		r.fail()
		return nil
	}
	return append([]byte(nil), b...)
}
