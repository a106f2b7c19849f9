package httpapi_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/internal/request"
)

// plainCheck and plainOp are the body of an operation as encoding/json reads it.
type plainCheck struct {
	NS     string
	Key    string
	N      *int64
	Limits []struct {
		Window string
		Max    int64
	}
}

type plainOp struct {
	plainCheck
	Op, Ack     string
	TS, At      int64
	Window      any
	CountDenied bool `json:"count_denied"`
	Checks      []plainCheck
}

// sameOp checks that an operation means the same as the one that encoding/json read.
func sameOp(t *testing.T, got *twotier.Op, want *plainOp) {
	t.Helper()
	if got.TS != want.TS+want.At || got.CountDenied != want.CountDenied {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if acks := map[twotier.Ack]string{twotier.AckDefault: "", twotier.AckMemory: "memory",
		twotier.AckStore: "redis", twotier.AckReplica: "replica",
		twotier.AckDisk: "disk"}; acks[got.Ack] != want.Ack {
		t.Fatalf("ack %v, want %q", got.Ack, want.Ack)
	}
	checks := want.Checks
	if len(checks) == 0 {
		checks = []plainCheck{want.plainCheck}
	}
	if len(got.Checks) != len(checks) {
		t.Fatalf("%d checks, want %d", len(got.Checks), len(checks))
	}
	for i := range checks {
		sameCheck(t, got.Kind, &got.Checks[i], &checks[i])
	}
}

func sameCheck(t *testing.T, kind twotier.Kind, got *twotier.Check, want *plainCheck) {
	t.Helper()
	n := int64(1)
	if want.N != nil {
		n = *want.N
	}
	if string(got.Key) != want.Key || string(got.NS) != want.NS || got.N != n {
		t.Fatalf("got %q %q %d, want %+v", got.NS, got.Key, got.N, want)
	}
	if kind == twotier.Count {
		return
	}
	if len(got.Limits) != len(want.Limits) {
		t.Fatalf("%d limits, want %d", len(got.Limits), len(want.Limits))
	}
	for k, l := range want.Limits {
		ms, wrong := request.ParseWindow([]byte(l.Window))
		if wrong != "" || got.Limits[k] != (twotier.Limit{Window: ms, Max: l.Max}) {
			t.Fatalf("got %+v, want %+v", got.Limits[k], l)
		}
	}
}

// FuzzOp: encoding/json accepts every accepted operation, and reads the same from it.
func FuzzOp(f *testing.F) {
	for _, list := range [][]refusal{malformed, refusedFields} {
		for _, r := range list {
			f.Add([]byte(r.body))
		}
	}
	for _, h := range hot {
		f.Add([]byte(h.body))
	}
	f.Add(
		[]byte(
			`{"checks":[{"key":"a\u0041\ud83d\ude00\"","n":2,"limits":[{"max":3,"window":"1d2h"}]}],"ts":5,"ack":"redis","count_denied":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var d codec.Decoder
		for _, kind := range []twotier.Kind{twotier.Add, twotier.Count, twotier.Acquire} {
			if d.DecodeSingle(bytes.Clone(body), kind) != nil {
				continue
			}
			var want plainOp
			if err := json.Unmarshal(body, &want); err != nil {
				t.Fatalf("%q was accepted, but %v", body, err)
			}
			sameOp(t, &d.Ops[0], &want)
		}
	})
}

// FuzzBatch is FuzzOp for batches, whose refused operations must at least be JSON.
func FuzzBatch(f *testing.F) {
	for _, list := range [][]refusal{malformed, refusedFields} {
		for _, r := range list {
			f.Add([]byte(r.body))
			f.Add([]byte(`{"ops":[{"op":"add","key":"k"},` + r.body +
				`,{"op":"count","window":"1m,1h","key":"k"}]}`))
		}
	}
	f.Add([]byte(`{"quiet":true,"ops":[{"op":"acquire","key":"user:1","limits":[` +
		`{"window":"1m","max":15},{"window":"24h","max":50}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var d codec.Decoder
		if d.DecodeBatch(bytes.Clone(body)) != nil {
			return
		}
		all, total := d.Merge()
		var want struct {
			Ops   []json.RawMessage
			Quiet bool
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q was accepted, but %v", body, err)
		}
		if want.Quiet != d.Quiet || len(want.Ops) != total {
			t.Fatalf("%d ops, want %d", total, len(want.Ops))
		}
		for i := range want.Ops {
			refused, op := all.Next()
			if refused != nil || d.Tag(op) == codec.TagDistinct {
				continue
			}
			var o plainOp
			if err := json.Unmarshal(want.Ops[i], &o); err != nil {
				t.Fatalf("%q was accepted, but %v", want.Ops[i], err)
			}
			sameOp(t, &d.Ops[op], &o)
		}
	})
}

// FuzzQuery: whatever the query, the answer is JSON and not an internal error.
func FuzzQuery(f *testing.F) {
	for _, r := range refusedRequests {
		if _, query, ok := strings.Cut(r.request, "?"); ok {
			f.Add(query)
		}
	}
	f.Fuzz(func(t *testing.T, query string) {
		s := newServer(t, newFake())
		for _, path := range []string{"/v1/count", "/v1/series", "/v1/top"} {
			ctx := newRequest("GET "+path, "")
			ctx.Request.URI().SetQueryString(query)
			s.Handle(ctx)
			if code := ctx.Response.StatusCode(); code != 200 && code != 422 ||
				!json.Valid(ctx.Response.Body()) {
				t.Errorf("%s?%s: %d %s", path, query, code, ctx.Response.Body())
			}
		}
	})
}
