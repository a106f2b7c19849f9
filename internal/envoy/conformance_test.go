package envoy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/testing/must"
)

// TestSameAnswersAsHTTP sends the same random requests over gRPC and HTTP, to two separate
// counters. A request of Envoy corresponds to an acquire over HTTP with one check per descriptor
// with a limit, each with the limit of the document.
func TestSameAnswersAsHTTP(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 14))
	b, other := start(t), start(t)
	url := serveHTTP(t, other) + "/v1/acquire"
	said := map[string]int{}
	for range 2000 {
		step := rnd.Int64N(8_000)
		b.now.Add(step)
		other.now.Add(step)
		var d drawn
		d.draw(rnd)
		want := d.askHTTP(t, url)
		said[strings.Fields(want)[0]]++
		if got := d.answer(t, b); got != want {
			t.Fatalf("%s: Envoy is told %s, HTTP answers %s", d.body, got, want)
		}
	}
	if said["OK"] < 100 || said["OVER_LIMIT"] < 100 {
		t.Errorf("too little of one kind: %v", said)
	}
}

// served adapts a bed to the HTTP API.
type served struct {
	httpapi.Service // the methods that are not called here
	bed             *bed
}

func (s served) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	return s.bed.Do(ctx, op, res)
}

func (s served) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	s.bed.DoAll(ctx, ops, res)
}

// serveHTTP serves a bed over HTTP, and returns the URL.
func serveHTTP(t *testing.T, b *bed) string {
	t.Helper()
	h, err := httpapi.New(httpapi.Options{Service: served{bed: b}, Listen: "127.0.0.1:0"})
	must.Succeed(t, err)
	must.Succeed(t, h.Open(t.Context()))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		must.Succeed(t, h.Close(context.Background()))
	})
	return "http://" + h.Addr().String()
}

// drawn is a request in the form of either protocol.
type drawn struct {
	descriptors []*commonv3.RateLimitDescriptor
	max         []int64
	body        string
}

// draw draws one to three descriptors, each with its own hits.
func (d *drawn) draw(rnd *rand.Rand) {
	var checks []string
	path := rnd.IntN(2) == 0 // whose limit replaces the user's
	for range 1 + rnd.IntN(3) {
		what, window, most := fmt.Sprint("ip=", rnd.IntN(6)), "1m", int64(3)
		switch user := fmt.Sprint("user=", rnd.IntN(4)); {
		case rnd.IntN(2) == 0:
		case path:
			what, window, most = user+" path=/a", "1m", 9
		default:
			what, window, most = user, "2h", 5
		}
		own := descriptor(what)
		if rnd.IntN(5) == 0 {
			window, most = "1h", rnd.Int64N(40)
			own.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: uint32(most), Unit: typev3.RateLimitUnit_HOUR}
		}
		n := 1 + rnd.IntN(2)
		d.descriptors = append(d.descriptors, hits(own, n))
		d.max = append(d.max, most)
		checks = append(checks, fmt.Sprintf(
			`{"ns": "edge", "key": %q, "n": %d, "limits": [{"window": %q, "max": %d}]}`,
			strings.ReplaceAll(what, " ", "|"), n, window, most))
	}
	d.body = `{"checks": [` + strings.Join(checks, ", ") + `]}`
}

// answer asks as Envoy does, and returns the overall verdict, and the verdict and remaining hits of
// each descriptor.
func (d *drawn) answer(t *testing.T, b *bed) string {
	t.Helper()
	got, err := b.ShouldRateLimit(t.Context(), nil, asking("edge", d.descriptors...))
	if err != nil {
		t.Fatalf("%s: %v", d.body, err)
	}
	text := got.GetOverallCode().String()
	for _, s := range got.GetStatuses() {
		text += fmt.Sprintf(" %s %d", s.GetCode(), s.GetLimitRemaining())
	}
	return text
}

// askHTTP sends the acquire over HTTP and returns its answer in the same form.
func (d *drawn) askHTTP(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(d.body))
	must.Succeed(t, err)
	defer res.Body.Close()
	var got struct {
		Allowed bool
		Checks  []struct {
			Limits []struct {
				Count, Remaining int64
				Refused          bool
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil || len(got.Checks) != len(d.max) {
		t.Fatalf("%s: %s, %+v, %v", d.body, res.Status, got, err)
	}
	text := map[bool]string{true: "OK", false: "OVER_LIMIT"}[got.Allowed]
	for i := range got.Checks {
		l, code := got.Checks[i].Limits[0], "OK"
		if l.Refused {
			code = "OVER_LIMIT"
		}
		text += fmt.Sprintf(" %s %d", code, l.Remaining)
	}
	return text
}
