package httpapi_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/request"
)

// TestNoValueIsAnotherSourcesKey forwards random values, many of which are keys of earlier
// requests, or parts of these. Two requests share a key only if they have the same
// value in the same source.
func TestNoValueIsAnotherSourcesKey(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 29))
	f := newFake()
	s := newServer(t, f)
	values := []string{"bob", "b", "203.0.113.7", "2001:db8::/64", "none", "\x80", "a=b", "%3D",
		strings.Repeat("x", 250), strings.Repeat("é", 123), "sha256:bob"}
	of := map[string]string{} // what each key stands for
	for range 3000 {
		value := values[rnd.IntN(len(values))]
		if rnd.IntN(4) == 0 {
			value = []string{"x-user=", "query:", "sha256:", "ip=", "="}[rnd.IntN(5)] + value
		}
		source := []string{"x-user", "authorization", "query:x-user", "query:x-user=a", "ip",
			"sha256:x-user", "sha256:ip", "plain:authorization"}[rnd.IntN(8)]
		header := "X-Nothing: 1"
		switch name := source[strings.LastIndex(source, ":")+1:]; {
		case name == "ip":
			value = []string{"203.0.113.7", "2001:db8::1"}[rnd.IntN(2)]
		case strings.HasPrefix(source, "query:"):
			header = "X-Forwarded-Uri: /?" + url.QueryEscape(name) + "=" + url.QueryEscape(value)
		default:
			header = name + ": " + value
		}
		from := value
		if !strings.HasSuffix(source, "ip") {
			from = "192.0.2.1"
		}
		ctx := forward(s, from, "rule=login&key="+url.QueryEscape(source), header)
		if code := ctx.Response.StatusCode(); code != 200 && code != 429 {
			t.Fatalf("%s %q: %d %s", source, header, code, ctx.Response.Body())
		}
		key := string(f.last.Checks[0].Key)
		if !request.ValidKey([]byte(key)) {
			t.Fatalf("%s of %q: %q is no key", source, value, key)
		}
		// A value that is hashed because of what it is, and one that always is, are the same.
		source = strings.TrimPrefix(strings.TrimPrefix(source, "plain:"), "sha256:")
		if source == "ip" && strings.HasPrefix(key, "ip=") {
			source = "hashed ip"
		}
		stands := fmt.Sprintf("%s %q", source, value)
		if before, known := of[key]; known && before != stands {
			t.Fatalf("%q is the key of %s and of %s", key, before, stands)
		}
		of[key] = stands
		if len(values) < 60 {
			values = append(values, key, key[strings.LastIndex(key, "=")+1:])
		}
	}
}
