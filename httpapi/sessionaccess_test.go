package httpapi_test

import (
	"testing"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/token"
)

// reloaded replaces the lines of tokens in a store, under the same hashes.
func reloaded(t *testing.T, store *token.Store, hashes map[string]string, lines ...[2]string) {
	t.Helper()
	file := ""
	for _, l := range lines {
		file += l[0] + " " + hashes[l[0]] + " " + l[1] + "\n"
	}
	if err := store.Load([]byte(file)); err != nil {
		t.Fatal(err)
	}
}

// TestSessionIsItsTokens: an answer is not repeated to another token, nor to the same one once it
// grants less; and no other token can continue the session.
func TestSessionIsItsTokens(t *testing.T) {
	f, store := newFake(), new(token.Store)
	texts, hashes := map[string]string{}, map[string]string{}
	for _, name := range []string{"mine", "other"} {
		texts[name], hashes[name] = token.New()
	}
	reloaded(t, store, hashes, [2]string{"mine", "count,read"},
		[2]string{"other", "count,read,admin"})
	s := guarded(t, httpapi.Options{Service: f, Tokens: store})
	send := func(name, seq string, want int) {
		t.Helper()
		ctx := newRequest("POST /v1/batch", oneAdd)
		ctx.Request.Header.Set("Twotier-Session", sessionA)
		ctx.Request.Header.Set("Twotier-Sequence", seq)
		ctx.Request.Header.Set("Authorization", "Bearer "+texts[name])
		if s.Handle(ctx); ctx.Response.StatusCode() != want {
			t.Errorf("%s with number %s: %d %s, want %d", name, seq, ctx.Response.StatusCode(),
				ctx.Response.Body(), want)
		}
	}
	send("mine", "1", 200)
	send("mine", "1", 200)
	send("other", "1", 409)
	send("other", "2", 409)
	reloaded(t, store, hashes, [2]string{"mine", "count,read,admin"}, [2]string{"other", "count"})
	send("mine", "1", 200) // grants more now
	send("mine", "2", 200)
	reloaded(t, store, hashes, [2]string{"mine", "count,read login"}, [2]string{"other", "count"})
	send("mine", "2", 409)
	reloaded(t, store, hashes, [2]string{"other", "count"})
	send("mine", "2", 401)
	if n := f.get("a"); n != 2 {
		t.Errorf("counted %d times, want 2", n)
	}
}
