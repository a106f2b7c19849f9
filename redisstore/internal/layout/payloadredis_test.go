package layout_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore/internal/layout"
)

// TestPayloadsMakeHashes makes keys of one field and of several by their payloads, on a server that
// trusts payloads and on one that checks every byte. Redis has them as if each field had been set.
func TestPayloadsMakeHashes(t *testing.T) {
	t.Parallel()
	for _, sanitize := range []string{"no", "yes"} {
		srv := redistest.Start(t, redistest.Config("sanitize-dump-payload "+sanitize))
		client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
		defer client.Close()
		for n := 1; n <= 3; n++ {
			var p layout.Payload
			want := map[string]string{}
			for i := range n {
				name, value := fmt.Sprint("f", i), strings.Repeat("\xff\x00", 46/n/2-4)
				p.Add([]byte(name), []byte(value))
				want[name] = value
			}
			key := fmt.Sprint("k", n)
			text, ok := p.Text()
			if err := client.Restore(t.Context(), key, time.Minute, text).Err(); err != nil || !ok {
				t.Fatal(err, ok)
			}
			got, kind := client.HGetAll(t.Context(), key).Val(),
				client.ObjectEncoding(t.Context(), key).Val()
			if !maps.Equal(got, want) || kind != "listpack" {
				t.Errorf("%q in a %s, want %q", got, kind, want)
			}
		}
	}
}
