package load

import (
	"bytes"
	"fmt"
	"strings"
)

// acquireFields are the rules of an acquire.
const acquireFields = `,"limits":[{"window":"1m","max":15},{"window":"1h","max":50}]`

// Request is the bytes of a call with gaps for keys and, if it has them, times. It is for one goroutine.
type Request struct {
	raw  []byte
	keys []int // offsets of the gaps
	ts   []int
	want []byte
}

const (
	keyGap = "kkkkkkkkkkkkkkkk" // 16 hexadecimal digits
	tsGap  = "ttttttttttttt"    // 13 decimal digits
)

// NewRequest returns a call of an Options.Op with a number of operations, which only batches have more than one of, sent
// to a host. With times every operation has a "ts" of its own.
func NewRequest(host, op string, perCall int, times bool) *Request {
	fields := `"key":"` + keyGap + `"`
	if times {
		fields += `,"ts":` + tsGap
	}
	batch := func(op string) string {
		all := strings.Repeat(`,{"op":"`+op+`",`+fields+`}`, perCall)
		return `{"quiet":true,"ops":[` + all[1:] + `]}`
	}
	r := &Request{}
	var path, body string
	switch op {
	case OpBatch:
		path, body, r.want = "batch", batch("add"), []byte(`"errors":[]`)
	case OpBatchAcquire:
		fields += acquireFields
		path, body, r.want = "batch", batch("acquire"), []byte(`"errors":[]`)
	case OpAcquire:
		path, body, r.want = "acquire", `{`+fields+acquireFields+`}`, []byte(`"allowed":`)
	default:
		path, body = "add", `{`+fields+`}`
	}
	r.raw = fmt.Appendf(nil, "POST /v1/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, host, len(body), body)
	r.keys, r.ts = offsets(r.raw, keyGap), offsets(r.raw, tsGap)
	return r
}

func offsets(raw []byte, gap string) (at []int) {
	for i := 0; ; {
		next := bytes.Index(raw[i:], []byte(gap))
		if next < 0 {
			return at
		}
		at = append(at, i+next)
		i += next + len(gap)
	}
}

// Len is the number of operations.
func (r *Request) Len() int { return len(r.keys) }

// SetKey gives operation i a key: key in hexadecimal digits.
func (r *Request) SetKey(i int, key uint64) {
	const digits = "0123456789abcdef"
	gap := r.raw[r.keys[i]:][:len(keyGap)]
	for d := len(gap) - 1; d >= 0; d-- {
		gap[d] = digits[key&15]
		key >>= 4
	}
}

// SetTime gives operation i a time in unix milliseconds, if the request was made with times.
func (r *Request) SetTime(i int, ts int64) {
	gap := r.raw[r.ts[i]:][:len(tsGap)]
	for d := len(gap) - 1; d >= 0; d-- {
		gap[d] = '0' + byte(ts%10)
		ts /= 10
	}
}

// Key is how the server sees a key.
func Key(key uint64) string { return string(AppendKey(nil, key)) }

// AppendKey appends the name of a key.
func AppendKey(b []byte, key uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[key>>shift&15])
	}
	return b
}
