package httpapi_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/request"
)

// TestNoValueIsAnotherSourcesKey forwards random values, many of which are keys of earlier
// requests, or parts of these. Two requests share a key only if they have the same value in the
// same source.
func TestNoValueIsAnotherSourcesKey(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 29))
	f := newFake()
	s := newServer(t, f)
	values := []string{"bob", "b", "203.0.113.7", "2001:db8::/64", "none", "\x80", "a=b", "%3D",
		strings.Repeat("x", 250), strings.Repeat("é", 123), "sha256:bob"}
	of := map[string]string{} // source and value of each key
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
		// Hashing on request and hashing out of need give the same key.
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

// FuzzForwardedToForwardAuth sends any headers that a proxy can forward: there is a decision.
func FuzzForwardedToForwardAuth(f *testing.F) {
	f.Add("bob", "/a?user=b%20b", "1.2.3.4")
	f.Add("\xff\xfe\t", "/?user=%zz&&=%", "unknown, [::1, 1.2.3.4:99999")
	f.Add(strings.Repeat("x", 3000), strings.Repeat("?user=%", 500), strings.Repeat(",", 3000))
	s := newServer(f, newFake())
	f.Fuzz(func(t *testing.T, user, target, list string) {
		for _, text := range []string{user, target, list} {
			for i := range len(text) { // RFC 9110, section 5.5: a proxy has to refuse them
				if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
					t.Skip()
				}
			}
		}
		raw := "GET /v1/forward-auth?rule=login&key=X-User,query:user,ip HTTP/1.1\r\n" +
			"Host: a.example" +
			"\r\nX-User: " + user + "\r\nX-Forwarded-Uri: " + target + "\r\nX-Forwarded-For: " +
			list + "\r\n\r\n"
		var request fasthttp.Request
		in := bufio.NewReaderSize(strings.NewReader(raw), max(16, len(raw)))
		if err := request.Read(in); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		ctx := new(fasthttp.RequestCtx)
		ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4711}, nil)
		s.Handle(ctx)
		if code := ctx.Response.StatusCode(); code != 200 && code != 429 {
			t.Errorf("%q: %d %s", raw, code, ctx.Response.Body())
		}
	})
}
