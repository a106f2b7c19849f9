package acceptance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	documents "twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// edgeDomain are the domains of the beds.
func edgeDomain(t *testing.T) *documents.Book {
	t.Helper()
	doc, err := documents.Read("edge.yaml", []byte(`
domain: edge
descriptors:
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: cost, charge: always, rate_limit: {unit: minute, requests_per_unit: 5}}
`))
	must.Succeed(t, err)
	book := new(documents.Book)
	book.Set(doc, 1)
	return book
}

// TestEnvoyDecidesAsAcquire sends the same random requests to two nodes, to one as requests of
// Envoy and to the other as acquires over the same keys, some of which are charged. They make the
// same decisions, for the same reasons, and have the same counts.
func TestEnvoyDecidesAsAcquire(t *testing.T) {
	for _, k := range kinds(t) {
		t.Run(k.mode+"/"+k.expiry, func(t *testing.T) {
			t.Parallel()
			a, b := start(t, k, true), start(t, k, true)
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 1))
			refused := 0
			for i := range 60 {
				var descriptors, checks []string
				charge := false
				for range 1 + random.IntN(3) {
					key, limit := "ip", `{"window":"1m","max":5}`
					switch random.IntN(5) {
					case 0, 1:
						key, limit = "user", `{"window":"1h","max":9}`
					case 2:
						key, charge = "cost", true
					}
					value, n := random.IntN(3), 1+random.IntN(3)
					descriptors = append(descriptors, fmt.Sprintf(
						`{"entries":[{"key":"%s","value":"%d"}],"hitsAddend":"%d"}`, key, value, n))
					checks = append(checks, fmt.Sprintf(
						`{"ns":"edge","key":"%s=%d","n":%d,"limits":[%s]}`, key, value, n, limit))
				}
				asked := `"descriptors":[` + strings.Join(descriptors, ",") + `]`
				got := a.limits(t, `{"domain":"edge",`+asked+`}`)
				want := b.ok("/v1/acquire", fmt.Sprintf(`{"charge":%t,"checks":[%s]}`, charge,
					strings.Join(checks, ",")))
				text := fmt.Sprint(want.Allowed)
				for _, c := range want.Checks {
					text += fmt.Sprint(" ", c.Allowed)
					if c.Allowed {
						text += fmt.Sprint(" ", c.Limits[0].Remaining)
					}
				}
				if got != text {
					t.Fatalf("seed %d, request %d, %s: %s, want %s", seed, i, asked, got, text)
				}
				if !want.Allowed {
					refused++
				}
				pause := random.Int64N(int64(20 * time.Second))
				a.mono.Add(pause)
				b.mono.Add(pause)
			}
			if refused == 0 {
				t.Errorf("seed %d: nothing was refused", seed)
			}
		})
	}
}

// limits sends a request of Envoy, and formats whether the request and each descriptor were
// allowed, with the remaining hits.
func (b *bed) limits(t *testing.T, body string) string {
	t.Helper()
	r, err := http.Post(b.base+"/json", "application/json", strings.NewReader(body))
	must.Succeed(t, err)
	defer r.Body.Close()
	var answer struct {
		OverallCode string
		Statuses    []struct {
			Code           string
			LimitRemaining int64
		}
	}
	must.Succeed(t, json.NewDecoder(r.Body).Decode(&answer))
	if (r.StatusCode == http.StatusOK) != (answer.OverallCode == "OK") {
		t.Errorf("status %d of %s", r.StatusCode, answer.OverallCode)
	}
	text := fmt.Sprint(answer.OverallCode == "OK")
	for _, s := range answer.Statuses {
		text += fmt.Sprint(" ", s.Code == "OK")
		if s.Code == "OK" {
			text += fmt.Sprint(" ", s.LimitRemaining)
		}
	}
	return text
}
