package holds

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"twotier.dev/twotier"
)

var (
	// ErrUnknown means that a text is no id of a hold.
	ErrUnknown = errors.New("no hold has this id")
	// ErrForged means that an id was not made by this cluster, or was changed.
	ErrForged = errors.New("the id was changed, or another cluster has made it")
)

// Hold is a record of the events that an admitted acquire has counted.
type Hold struct {
	// Until is the end of the hold in unix milliseconds: it can be settled before.
	Until int64
	// Release means that the hold is released at its end if nobody has settled it.
	Release bool
	Checks  []Check

	name string // is unique to the hold
}

// Check is the part of a hold that concerns one key.
type Check struct {
	NS, Key []byte
	// N is the number of events, counted at TS.
	N, TS int64
	// Leased means that a lease of the key lasts until the end of the hold.
	Leased bool
	// Rules are the names of the rules that judged the key, and Limits the other limits.
	Rules  []string
	Limits []twotier.Limit
}

// HasKeyOf reports whether another check has the same key.
func (c *Check) HasKeyOf(o Check) bool {
	return bytes.Equal(c.Key, o.Key) && SpaceOf(c.NS) == SpaceOf(o.NS)
}

// SpaceOf returns the name of a namespace.
func SpaceOf(ns []byte) string { return cmp.Or(string(ns), twotier.DefaultNamespace) }

// Sealer makes and reads ids with a secret that all nodes of a cluster share. The zero value has
// none yet. It is safe for concurrent use.
type Sealer struct{ key atomic.Pointer[key] }

// key is a secret, and unused hashes that begin with it: keying one takes as long as hashing an id.
type key struct {
	secret []byte
	hashes sync.Pool
}

// SetSecret sets the secret, and keeps it.
func (s *Sealer) SetSecret(secret []byte) {
	k := &key{secret: secret}
	k.hashes.New = func() any { return hmac.New(sha256.New, secret) }
	s.key.Store(k)
}

// Secret returns the secret, or nil if there is none yet.
func (s *Sealer) Secret() []byte {
	if k := s.key.Load(); k != nil {
		return k.secret
	}
	return nil
}

// An id is the base64 of macBytes of the code and of the content: a version, a random number, the
// end, whether it is released then, and the checks. Numbers are varints, and texts are preceded by
// their length.
const (
	version  = 1
	macBytes = 16
	// maxID bounds the text of an id: the largest acquire has 64 checks with keys of 256 bytes.
	maxID = 256 << 10
)

// Upper bounds of the bytes of a content, apart from texts: of a hold, of each of its checks, and
// of each limit or rule.
const (
	Size      = macBytes + 1 + 8 + 2*binary.MaxVarintLen64
	CheckSize = 2*binary.MaxVarintLen64 + 1 + 4*binary.MaxVarintLen16
	LimitSize = 2*binary.MaxVarintLen64 + binary.MaxVarintLen16
)

// Seal returns the id of a hold. There must be a secret.
func (s *Sealer) Seal(h *Hold) string {
	b := make([]byte, macBytes, 256)
	b = append(b, version)
	b = binary.LittleEndian.AppendUint64(b, rand.Uint64())
	b = appendBool(binary.AppendVarint(b, h.Until), h.Release)
	b = binary.AppendUvarint(b, uint64(len(h.Checks)))
	for i := range h.Checks {
		c := &h.Checks[i]
		b = appendText(appendText(b, c.NS), c.Key)
		b = binary.AppendVarint(binary.AppendVarint(b, c.N), h.Until-c.TS)
		b = appendBool(b, c.Leased)
		b = binary.AppendUvarint(b, uint64(len(c.Rules)))
		for _, rule := range c.Rules {
			b = appendText(b, []byte(rule))
		}
		b = binary.AppendUvarint(b, uint64(len(c.Limits)))
		for j := range c.Limits {
			l, period := &c.Limits[j], ""
			if l.Period != nil {
				period = l.Period.String()
			}
			b = binary.AppendVarint(binary.AppendVarint(b, l.Window), l.Max)
			b = appendText(b, []byte(period))
		}
	}
	code := s.code(b[macBytes:])
	copy(b, code[:])
	return base64.RawURLEncoding.EncodeToString(b)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// code returns the message authentication code of a content.
func (s *Sealer) code(content []byte) [macBytes]byte {
	k := s.key.Load()
	h := k.hashes.Get().(hash.Hash)
	h.Reset()
	h.Write(content)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	k.hashes.Put(h)
	return [macBytes]byte(sum[:macBytes])
}

// Open reads an id. There must be a secret. The error is [ErrUnknown] or [ErrForged].
func (s *Sealer) Open(id string) (*Hold, error) {
	if len(id) > maxID {
		return nil, ErrUnknown
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(b) <= macBytes || b[macBytes] != version {
		return nil, ErrUnknown
	}
	code, content := b[:macBytes], b[macBytes:]
	if want := s.code(content); !hmac.Equal(code, want[:]) {
		return nil, ErrForged
	}
	r := reader{rest: content[1:]}
	r.bytes(8)
	h := &Hold{name: base64.RawURLEncoding.EncodeToString(code), Until: r.int(), Release: r.bool()}
	for range r.count() {
		h.Checks = append(h.Checks, r.check(h.Until))
	}
	if r.bad || len(r.rest) > 0 {
		return nil, ErrForged // another release has made it
	}
	return h, nil
}

// reader reads the content of an id.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) check(until int64) (c Check) {
	c = Check{NS: r.text(), Key: r.text(), N: r.int()}
	c.TS = until - r.int()
	c.Leased = r.bool()
	for range r.count() {
		c.Rules = append(c.Rules, string(r.text()))
	}
	for range r.count() {
		c.Limits = append(c.Limits, r.limit())
	}
	return c
}

func (r *reader) bool() bool {
	b := r.bytes(1)
	return !r.bad && b[0] == 1
}

func (r *reader) limit() twotier.Limit {
	l := twotier.Limit{Window: r.int(), Max: r.int()}
	if period := r.text(); len(period) > 0 {
		var err error
		l.Period, err = twotier.ParsePeriod(string(period))
		r.bad = r.bad || err != nil
	}
	return l
}

// count returns the length of a list, at most the number of bytes that are left.
func (r *reader) count() int { return int(min(r.uint(), uint64(len(r.rest)))) }

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.bad, r.rest = true, nil
		return
	}
	r.rest = r.rest[n:]
}

func (r *reader) text() []byte { return r.bytes(r.count()) }

func (r *reader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.bad, n = true, len(r.rest)
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}
